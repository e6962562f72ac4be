//! Network namespaces of a site and a service, with a pair and an origin.

pub(crate) mod keeper;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, sleep},
    time::Duration,
};

use nix::sched::{CloneFlags, setns};
use refrain_link::{End, Link, LinkConfig};
use refrain_relay::Rate;
use rustix::process::geteuid;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::{
    command::{keygen, program_in},
    eventually,
    programs::are_installed,
};

/// A user that nothing else runs as here.
pub(crate) const USER: &str = "64999";

pub(crate) const SITE: &str = "10.77.0.1";
pub(crate) const SERVICE: &str = "10.77.0.2";
pub(crate) const ORIGIN: &str = "10.77.0.2:8080";

/// The same in the other family.
pub(crate) const SITE_6: &str = "fd77::1";
pub(crate) const SERVICE_6: &str = "fd77::2";
pub(crate) const ORIGIN_6: &str = "[fd77::2]:8080";

/// A machine behind the site, and the site's address there, in both families.
pub(crate) const BEHIND: [&str; 2] = ["10.88.0.2", "fd88::2"];
const ROUTER: [&str; 2] = ["10.88.0.1", "fd88::1"];

/// Bytes of an answer: an address, padded.
pub(crate) const ANSWER_BYTES: usize = 40;

/// When the near end gives the far end up.
const DEAD_AFTER: &str = "dead_after = \"1s\"\n";
const PATIENTLY_DEAD_AFTER: &str = "dead_after = \"20s\"\n";

/// Nothing may take longer: it hangs.
pub(crate) const HANGS_AFTER: Duration = Duration::from_secs(5);

/// The namespaces of a site and a service, with their programs.
pub(crate) struct World {
    pub(crate) site: String,
    pub(crate) service: String,
    /// Of a machine behind the site, of a router's world.
    pub(crate) behind: String,
    /// What joins the site and the service, if it is the lab's.
    link: Option<Link>,
    folder: TempDir,
    pub(crate) far: Option<Child>,
    pub(crate) near: Option<Child>,
    /// A capability of gateways, such as `net_raw`.
    capability: Option<&'static str>,
    /// `refrain intercept on`, by the namespace.
    kept: Mutex<BTreeMap<String, Child>>,
    crowds: AtomicU32,
}

/// Makes a world by the lines of the near end's file; none where the tests cannot run.
pub(crate) type Making = fn(&str) -> Option<World>;

/// What became of a connection to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Direct,
    Carried,
    Refused,
    Reset,
    Hung,
}

impl World {
    /// A site whose own programs are intercepted. None where the tests cannot run.
    pub(crate) fn new() -> Option<World> {
        World::with(
            "transparent = \"15001\"\nintercept = [\"dst=10.77.0.0/16,fd77::/64 port=8080-8099\"]\n",
        )
    }

    /// A site that is a router, whose machine behind is intercepted.
    pub(crate) fn router() -> Option<World> {
        World::router_with("in=lan port=8080-8099")
    }

    /// The same with these rules.
    pub(crate) fn router_with(rules: &str) -> Option<World> {
        World::router_in(World::with, rules)
    }

    /// The same in a world that is made so.
    pub(crate) fn router_in(make_world: Making, rules: &str) -> Option<World> {
        let world = make_world(&format!(
            "transparent = \"*:15001\"\nclients = [\"10.88.0.0/15\", \"fd88::/15\"]\nintercept = [\"{rules}\"]\n"
        ))?;
        let (site, behind) = (&world.site, &world.behind);
        make(behind);
        join((site, "lan", ROUTER), (behind, "lan", BEHIND));
        for (namespace, gateways, families) in [
            (behind, ROUTER, [["-4", "default"], ["-6", "default"]]),
            (
                &world.service,
                [SITE, SITE_6],
                [["-4", "10.88.0.0/15"], ["-6", "fd88::/15"]],
            ),
        ] {
            for ([family, to], gateway) in families.into_iter().zip(gateways) {
                ok(Command::new("ip")
                    .args([family, "-n", namespace, "route", "add", to, "via", gateway]));
            }
        }
        forward(site);
        Some(world)
    }

    /// A router with these rules, whose far end connects from the addresses of the machines behind it. The origin is on
    /// a third machine: see [`Origin`](super::origin_machine::Origin).
    pub(crate) fn of_own_addresses(rules: &str) -> Option<World> {
        World::of_own_addresses_in(World::with, rules)
    }

    /// The same in a world that is made so.
    pub(crate) fn of_own_addresses_in(make_world: Making, rules: &str) -> Option<World> {
        let mut world = World::router_in(make_world, rules)?;
        world.capability = Some("net_raw");
        world.change_far("client_addresses = [\"10.88.0.0/15\", \"fd88::/15\"]\n");
        Some(world)
    }

    /// Restarts both ends, with these lines in the far end's file too.
    pub(crate) fn change_far(&mut self, lines: &str) {
        let far = self.path("far.toml");
        let mut options = std::fs::read_to_string(&far).expect("a file");
        options += lines;
        std::fs::write(&far, options).expect("a file");
        self.restart();
    }

    /// Restarts both ends with a capability.
    pub(crate) fn restarted_with(mut self, capability: &'static str) -> World {
        self.capability = Some(capability);
        self.restart();
        self
    }

    fn restart(&mut self) {
        for mut end in [self.near.take(), self.far.take()].into_iter().flatten() {
            end.kill().and_then(|()| end.wait()).expect("it runs");
        }
        self.start_far();
        self.start_near();
    }

    /// Restarts both ends, which give each other up later: for tests that need much of the machine.
    pub(crate) fn be_patient(&mut self) {
        let near = self.path("near.toml");
        let options = std::fs::read_to_string(&near).expect("a file");
        let patient = options.replace(DEAD_AFTER, PATIENTLY_DEAD_AFTER);
        std::fs::write(&near, patient).expect("a file");
        self.change_far(PATIENTLY_DEAD_AFTER);
    }

    /// The near end's file has these lines beside its keys.
    pub(crate) fn with(near_lines: &str) -> Option<World> {
        World::made_with(near_lines, None)
    }

    /// The same with the lab's link between the site and the service.
    pub(crate) fn over_link(near_lines: &str) -> Option<World> {
        let link = Link::for_test(LinkConfig {
            rate: Some(Rate::mbit(100)),
            delay: Duration::from_millis(2),
            ..LinkConfig::default()
        });
        World::made_with(near_lines, Some(link.expect("a link")?))
    }

    fn made_with(near_lines: &str, link: Option<Link>) -> Option<World> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !geteuid().is_root() {
            println!("skipped: only root can make these networks");
            return None;
        }
        if !are_installed(&["ip", "nft", "setpriv", "nsenter"]) {
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("refrain-test-{}-{number}-{end}", std::process::id());
        let of_link = |end| link.as_ref().map(|link| link.name(end).to_owned());
        let mut world = World {
            site: of_link(End::Near).unwrap_or_else(|| name("site")),
            service: of_link(End::Far).unwrap_or_else(|| name("service")),
            behind: name("behind"),
            link,
            folder: tempfile::tempdir().expect("a folder"),
            far: None,
            near: None,
            capability: None,
            kept: Mutex::default(),
            crowds: AtomicU32::new(1),
        };
        world.connect_ends();
        world.serve_origin();
        world.configure(near_lines);
        world.start_far();
        world.start_near();
        Some(world)
    }

    fn connect_ends(&self) {
        let (site, service) = (
            (self.site.as_str(), [SITE, SITE_6]),
            (self.service.as_str(), [SERVICE, SERVICE_6]),
        );
        if self.link.is_none() {
            make(site.0);
            make(service.0);
            return join((site.0, "wan", site.1), (service.0, "wan", service.1));
        }
        for (namespace, addresses) in [site, service] {
            has_addresses_at_once(namespace);
            // The link's own addresses are those of the origin's network.
            ok(Command::new("ip").args(["-n", namespace, "address", "flush", "dev", "link0"]));
            add_addresses(namespace, "link0", addresses);
        }
    }

    fn serve_origin(&self) {
        for origin in [ORIGIN, ORIGIN_6] {
            let origin: SocketAddr = origin.parse().expect("an address");
            answer_at(&self.service, &origin.ip().to_string());
        }
    }

    /// Where its files are, and the local sockets of its gateways.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn configure(&self, near_lines: &str) {
        let near_key = keygen(Path::new(&self.path("near.key")));
        let far_key = keygen(Path::new(&self.path("far.key")));
        let far = format!(
            "key = \"{}\"\npeer_key = \"{near_key}\"\nlisten = \"{SERVICE}\"\nallow = \"*:*\"\n",
            self.path("far.key")
        );
        let near = format!(
            "key = \"{}\"\npeer_key = \"{far_key}\"\npeer = \"{SERVICE}\"\n\
             {DEAD_AFTER}{near_lines}",
            self.path("near.key")
        );
        std::fs::write(self.path("far.toml"), far).expect("a file");
        std::fs::write(self.path("near.toml"), near).expect("a file");
        ok(Command::new("chown")
            .args(["-R", USER])
            .arg(self.folder.path()));
        program_in(self.folder.path());
    }

    fn gateway(&self, namespace: &str, role: &str) -> Child {
        self.gateway_with(role, namespace, role)
    }

    /// A gateway with the file of this name.
    pub(crate) fn gateway_with(&self, name: &str, namespace: &str, role: &str) -> Child {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{name}.log")));
        Command::new("ip")
            .args([
                "netns", "exec", namespace, "setpriv", "--reuid", USER, "--regid", USER,
            ])
            .arg("--clear-groups")
            .args(self.capability.into_iter().flat_map(|capability| {
                ["--inh-caps", "--ambient-caps"].map(|set| format!("{set}=+{capability}"))
            }))
            .args([&self.path("program"), role, "--config"])
            .arg(self.path(&format!("{name}.toml")))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .stdin(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn()
            .expect("it starts")
    }

    pub(crate) fn start_far(&mut self) {
        self.far = Some(self.gateway(&self.service, "far"));
    }

    pub(crate) fn start_near(&mut self) {
        self.near = Some(self.gateway(&self.site, "near"));
    }

    /// The same, not yet started. It sees the control groups, which `ip netns exec` would hide.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.site))
            .arg(env!("CARGO_BIN_EXE_refrain"))
            .args(arguments);
        command
    }

    /// `refrain` as root, in the namespace of the site.
    pub(crate) fn refrain(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .output()
            .expect("it runs")
    }

    #[track_caller]
    pub(crate) fn refrain_ok(&self, arguments: &[&str]) -> String {
        let output = self.refrain(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn ruleset(&self) -> String {
        let listed = within(&self.site, || {
            Command::new("nft")
                .args(["list", "ruleset"])
                .output()
                .expect("it runs")
        });
        String::from_utf8_lossy(&listed.stdout).into_owned()
    }

    /// Connects to the origin from the site.
    pub(crate) fn connect(&self) -> Outcome {
        within(&self.site, || connect(SITE, ORIGIN))
    }

    /// Connects to the origin from a program of the site, which this command starts.
    pub(crate) fn program(&self, starter: &[&str]) -> Outcome {
        let (host, port) = ORIGIN.split_once(':').expect("a port");
        let ask = format!(
            "exec 3<>/dev/tcp/{host}/{port} && printf who? >&3 && head -c {ANSWER_BYTES} <&3"
        );
        let output = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", self.site))
            .args(starter)
            .args(["bash", "-c", &ask])
            .output()
            .expect("it runs");
        let seen = String::from_utf8_lossy(&output.stdout);
        match seen.trim() {
            SITE => Outcome::Direct,
            SERVICE => Outcome::Carried,
            _ => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Intercepts, and opens a connection that is carried.
    #[track_caller]
    pub(crate) fn open(&self) -> TcpStream {
        self.intercept();
        self.wait_for(Outcome::Carried);
        let mut open = within(&self.site, || TcpStream::connect(ORIGIN)).expect("a connection");
        assert_eq!(ask(&mut open, SITE), Outcome::Carried);
        open
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, outcome: Outcome) {
        eventually(&format!("a connection that is {outcome:?}"), || {
            (self.connect() == outcome).then_some(())
        });
    }

    /// Waits until the firewall no longer redirects. Before, the near end passes by what no link takes.
    #[track_caller]
    pub(crate) fn wait_until_closed(&self) {
        eventually("a closed gate", || {
            let shown = self.refrain_ok(&["intercept", "show"]);
            shown.starts_with("gate closed").then_some(())
        });
    }

    /// Connects again and again in four threads while `action` runs, and for a second after it.
    pub(crate) fn meanwhile(&self, action: impl FnOnce()) -> Vec<Outcome> {
        let own = self.crowds.fetch_add(1, Ordering::Relaxed);
        let own = format!("10.77.1.{own}");
        let address = format!("{own}/16");
        ok(Command::new("ip").args(["-n", &self.site, "address", "add", &address, "dev", "wan"]));
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        within(&self.site, || {
                            let mut outcomes = Vec::new();
                            while !has_ended.load(Ordering::Relaxed) {
                                outcomes.push(connect(&own, ORIGIN));
                            }
                            outcomes
                        })
                    })
                })
                .collect();
            action();
            sleep(Duration::from_secs(1));
            has_ended.store(true, Ordering::Relaxed);
            let outcomes = threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("no panic"));
            outcomes.collect()
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let kept = core::mem::take(&mut self.kept);
        let kept = kept.into_inner().unwrap_or_default().into_values();
        for mut child in kept.chain(self.near.take()).chain(self.far.take()) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // It ends the threads that use its namespaces.
        drop(self.link.take());
        for namespace in [&self.site, &self.service, &self.behind] {
            remove(namespace);
        }
        if thread::panicking() {
            for end in ["near", "far", "intercept"] {
                let log = std::fs::read_to_string(self.path(&format!("{end}.log")));
                println!("{end}:\n{}", log.unwrap_or_default());
            }
        }
    }
}

/// Makes a namespace.
pub(crate) fn make(namespace: &str) {
    ok(Command::new("ip").args(["netns", "add", namespace]));
    has_addresses_at_once(namespace);
    ok(Command::new("ip").args(["-n", namespace, "link", "set", "lo", "up"]));
}

/// Later interfaces have their addresses at once.
fn has_addresses_at_once(namespace: &str) {
    // Otherwise a router asks nobody where the next machine is for two seconds.
    within(namespace, || {
        for setting in ["all", "default"] {
            let setting = format!("/proc/sys/net/ipv6/conf/{setting}/accept_dad");
            std::fs::write(setting, "0").expect("root may");
        }
    });
}

/// Removes one, if it is there.
pub(crate) fn remove(namespace: &str) {
    let _ = Command::new("ip")
        .args(["netns", "delete", namespace])
        .stderr(Stdio::null())
        .status();
}

/// Makes a machine a router.
pub(crate) fn forward(namespace: &str) {
    within(namespace, || {
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{setting}"), "1").expect("root may");
        }
    });
}

/// Joins two namespaces by interfaces with these names and addresses of both families.
pub(crate) fn join(one: (&str, &str, [&str; 2]), other: (&str, &str, [&str; 2])) {
    ok(Command::new("ip")
        .args(["-n", one.0, "link", "add", one.1, "type", "veth"])
        .args(["peer", "name", other.1, "netns", other.0]));
    for (namespace, interface, addresses) in [one, other] {
        add_addresses(namespace, interface, addresses);
        ok(Command::new("ip").args(["-n", namespace, "link", "set", interface, "up"]));
    }
}

fn add_addresses(namespace: &str, interface: &str, [address, address_6]: [&str; 2]) {
    let add = ["-n", namespace, "address", "add"];
    let (network, network_6) = (format!("{address}/16"), format!("{address_6}/64"));
    ok(Command::new("ip")
        .args(add)
        .args([&network, "dev", interface]));
    ok(Command::new("ip")
        .args(add)
        .args([&network_6, "dev", interface, "nodad"]));
}

#[track_caller]
pub(crate) fn ok(command: &mut Command) {
    let output = command.output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

/// Does something in a thread of its own in a network namespace.
pub(crate) fn within<R: Send>(namespace: &str, action: impl FnOnce() -> R + Send) -> R {
    let enter = || {
        let file = File::open(Path::new("/run/netns").join(namespace)).expect("a namespace");
        setns(file, CloneFlags::CLONE_NEWNET).expect("root may");
        action()
    };
    thread::scope(|scope| scope.spawn(enter).join().expect("no panic"))
}

/// Serves as the origin, at port 8080 of this address.
pub(crate) fn answer_at(namespace: &str, address: &str) {
    let listener = within(namespace, || TcpListener::bind((address, 8080)));
    let listener = listener.expect("a port");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || answer(client));
        }
    });
}

fn answer(mut client: TcpStream) {
    let Ok(from) = client.peer_addr() else { return };
    let mut request = [0; 4];
    while client.read_exact(&mut request).is_ok() {
        let _ = client.write_all(format!("{:<ANSWER_BYTES$}", from.ip().to_string()).as_bytes());
    }
}

/// Connects to an origin from this address.
pub(crate) fn connect(from: &str, origin: &str) -> Outcome {
    connect_from(from, 0, origin)
}

/// The same from this port; 0 for any.
pub(crate) fn connect_from(from: &str, port: u16, origin: &str) -> Outcome {
    let own = SocketAddr::new(from.parse().expect("an address"), port);
    let origin: SocketAddr = origin.parse().expect("an address");
    let socket = Socket::new(Domain::for_address(origin), Type::STREAM, None).expect("a socket");
    socket.bind(&own.into()).expect("an own address");
    match socket.connect_timeout(&origin.into(), HANGS_AFTER) {
        Ok(()) => ask(&mut socket.into(), from),
        Err(error) => {
            println!("a connection from {from} to {origin}: {error}");
            outcome(error.kind())
        }
    }
}

/// Asks the origin for the address that it sees.
pub(crate) fn ask(stream: &mut TcpStream, own: &str) -> Outcome {
    stream.set_read_timeout(Some(HANGS_AFTER)).expect("a limit");
    let mut seen = [0; ANSWER_BYTES];
    let asked = stream
        .write_all(b"who?")
        .and_then(|()| stream.read_exact(&mut seen));
    match asked {
        Ok(()) if String::from_utf8_lossy(&seen).trim() == own => Outcome::Direct,
        Ok(()) => Outcome::Carried,
        Err(error) => {
            println!("a question from {own} over {stream:?}: {error}");
            outcome(error.kind())
        }
    }
}

pub(crate) fn outcome(error: ErrorKind) -> Outcome {
    match error {
        ErrorKind::ConnectionRefused => Outcome::Refused,
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Outcome::Hung,
        _ => Outcome::Reset,
    }
}
