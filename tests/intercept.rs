//! Interception by the firewall: programs of a machine without proxy settings, in network namespaces of the test. Needs
//! root.
//!
//! ```text
//! namespace of the site: client, near end   10.77.0.1 ── 10.77.0.2   namespace of the service: far end, origin
//! ```
//!
//! The origin answers with the address that it sees: the client's if the connection came direct, else the far end's.
//!
//! Each crowd of clients has an address of its own. For some time after a redirected connection has ended, the kernel
//! redirects a further one with the same addresses and ports, whatever the rules are then.

mod common;

use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use common::{
    command::{keygen, program_in},
    eventually,
    programs::are_installed,
};
use nix::sched::{CloneFlags, setns};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

/// A user that nothing else runs as here.
const USER: &str = "64999";

const SITE: &str = "10.77.0.1";
const SERVICE: &str = "10.77.0.2";
const ORIGIN: &str = "10.77.0.2:8080";

/// Nothing may take longer: it hangs.
const HANGS_AFTER: Duration = Duration::from_secs(5);

/// The namespaces of a site and a service, with their programs.
struct World {
    site: String,
    service: String,
    folder: TempDir,
    far: Option<Child>,
    near: Option<Child>,
    crowds: AtomicU32,
}

/// What became of a connection to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Direct,
    Carried,
    Refused,
    Reset,
    Hung,
}

impl World {
    /// None where the tests cannot run.
    fn new() -> Option<World> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !geteuid().is_root() {
            println!("skipped: only root can make these networks");
            return None;
        }
        if !are_installed(&["ip", "nft", "setpriv"]) {
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("refrain-test-{}-{number}-{end}", std::process::id());
        let mut world = World {
            site: name("site"),
            service: name("service"),
            folder: tempfile::tempdir().expect("a folder"),
            far: None,
            near: None,
            crowds: AtomicU32::new(1),
        };
        let (site, service) = (&world.site, &world.service);
        for namespace in [site, service] {
            ok(Command::new("ip").args(["netns", "add", namespace]));
            ok(Command::new("ip").args(["-n", namespace, "link", "set", "lo", "up"]));
        }
        ok(Command::new("ip")
            .args(["-n", site, "link", "add", "wan", "type", "veth"])
            .args(["peer", "name", "wan", "netns", service]));
        for (namespace, address) in [(site, SITE), (service, SERVICE)] {
            let network = format!("{address}/16");
            ok(Command::new("ip")
                .args(["-n", namespace, "address", "add", &network, "dev", "wan"]));
            ok(Command::new("ip").args(["-n", namespace, "link", "set", "wan", "up"]));
        }
        world.serve_origin();
        world.configure();
        world.start_far();
        world.start_near();
        Some(world)
    }

    fn serve_origin(&self) {
        let listener = within(&self.service, || {
            TcpListener::bind(ORIGIN).expect("a listener")
        });
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                thread::spawn(move || answer(client));
            }
        });
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn configure(&self) {
        let near_key = keygen(Path::new(&self.path("near.key")));
        let far_key = keygen(Path::new(&self.path("far.key")));
        let far = format!(
            "key = \"{}\"\npeer_key = \"{near_key}\"\nlisten = \"{SERVICE}\"\nallow = \"*:*\"\n",
            self.path("far.key")
        );
        let near = format!(
            "key = \"{}\"\npeer_key = \"{far_key}\"\npeer = \"{SERVICE}\"\ntransparent = \"15001\"\n\
             dead_after = \"1s\"\nintercept = [\"dst=10.77.0.0/16 port=8080-8099\"]\n",
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
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{role}.log")));
        Command::new("ip")
            .args([
                "netns", "exec", namespace, "setpriv", "--reuid", USER, "--regid", USER,
            ])
            .args(["--clear-groups", &self.path("program"), role, "--config"])
            .arg(self.path(&format!("{role}.toml")))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .stdin(Stdio::null())
            .stderr(log.expect("a log"))
            .spawn()
            .expect("it starts")
    }

    fn start_far(&mut self) {
        self.far = Some(self.gateway(&self.service, "far"));
    }

    fn start_near(&mut self) {
        self.near = Some(self.gateway(&self.site, "near"));
    }

    /// `refrain` as root, in the namespace of the site.
    fn refrain(&self, arguments: &[&str]) -> Output {
        Command::new("ip")
            .args(["netns", "exec", &self.site, env!("CARGO_BIN_EXE_refrain")])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .output()
            .expect("it runs")
    }

    #[track_caller]
    fn refrain_ok(&self, arguments: &[&str]) -> String {
        let output = self.refrain(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn intercept(&self) {
        let config = self.path("near.toml");
        self.refrain_ok(&["intercept", "on", "--config", &config, "--user", USER]);
    }

    fn ruleset(&self) -> String {
        let listed = within(&self.site, || {
            Command::new("nft")
                .args(["list", "ruleset"])
                .output()
                .expect("it runs")
        });
        String::from_utf8_lossy(&listed.stdout).into_owned()
    }

    /// Connects to the origin from the site.
    fn connect(&self) -> Outcome {
        within(&self.site, || connect(SITE))
    }

    /// Intercepts, and opens a connection that is carried.
    #[track_caller]
    fn open(&self) -> TcpStream {
        self.intercept();
        self.wait_for(Outcome::Carried);
        let mut open = within(&self.site, || TcpStream::connect(ORIGIN)).expect("a connection");
        assert_eq!(ask(&mut open, SITE), Outcome::Carried);
        open
    }

    #[track_caller]
    fn wait_for(&self, outcome: Outcome) {
        eventually(&format!("a connection that is {outcome:?}"), || {
            (self.connect() == outcome).then_some(())
        });
    }

    /// Connects again and again in four threads while `action` runs, and for a second after it.
    fn meanwhile(&self, action: impl FnOnce()) -> Vec<Outcome> {
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
                                outcomes.push(connect(&own));
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
        for child in [&mut self.near, &mut self.far].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for namespace in [&self.site, &self.service] {
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .status();
        }
        if thread::panicking() {
            for end in ["near", "far"] {
                let log = std::fs::read_to_string(self.path(&format!("{end}.log")));
                println!("{end}:\n{}", log.unwrap_or_default());
            }
        }
    }
}

#[track_caller]
fn ok(command: &mut Command) {
    let output = command.output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

/// Does something in a thread of its own in a network namespace.
fn within<R: Send>(namespace: &str, action: impl FnOnce() -> R + Send) -> R {
    let enter = || {
        let file = File::open(Path::new("/run/netns").join(namespace)).expect("a namespace");
        setns(file, CloneFlags::CLONE_NEWNET).expect("root may");
        action()
    };
    thread::scope(|scope| scope.spawn(enter).join().expect("no panic"))
}

fn answer(mut client: TcpStream) {
    let Ok(from) = client.peer_addr() else { return };
    let mut request = [0; 4];
    while client.read_exact(&mut request).is_ok() {
        let _ = client.write_all(format!("{:<15}", from.ip()).as_bytes());
    }
}

/// Connects to the origin from this address.
fn connect(from: &str) -> Outcome {
    let own = SocketAddr::new(from.parse().expect("an address"), 0);
    let origin: SocketAddr = ORIGIN.parse().expect("an address");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&own.into()).expect("an own address");
    match socket.connect_timeout(&origin.into(), HANGS_AFTER) {
        Ok(()) => ask(&mut socket.into(), from),
        Err(error) => outcome(error.kind()),
    }
}

/// Asks the origin for the address that it sees.
fn ask(stream: &mut TcpStream, own: &str) -> Outcome {
    stream.set_read_timeout(Some(HANGS_AFTER)).expect("a limit");
    let mut seen = [0; 15];
    let asked = stream
        .write_all(b"who?")
        .and_then(|()| stream.read_exact(&mut seen));
    match asked {
        Ok(()) if String::from_utf8_lossy(&seen).trim() == own => Outcome::Direct,
        Ok(()) => Outcome::Carried,
        Err(error) => outcome(error.kind()),
    }
}

fn outcome(error: ErrorKind) -> Outcome {
    match error {
        ErrorKind::ConnectionRefused => Outcome::Refused,
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Outcome::Hung,
        _ => Outcome::Reset,
    }
}

fn signal(child: &Option<Child>, signal: Signal) {
    let child = child.as_ref().expect("it runs");
    kill_process(Pid::from_raw(child.id() as i32).expect("a process"), signal).expect("it runs");
}

/// The shares of outcomes after something died: first some may be lost, then all go direct.
#[track_caller]
fn all_direct_after(world: &World, within: Duration) {
    sleep(within);
    let outcomes = world.meanwhile(|| {});
    let count = outcomes.len();
    let others = outcomes.into_iter().enumerate();
    let others: Vec<_> = others
        .filter(|(_, outcome)| *outcome != Outcome::Direct)
        .collect();
    assert!(others.is_empty(), "{others:?} of {count}");
}

#[test]
fn connections_are_carried_while_the_gateway_works_and_direct_otherwise() {
    let Some(mut world) = World::new() else {
        return;
    };
    let before = world.ruleset();
    assert_eq!(world.connect(), Outcome::Direct);
    world.intercept();
    world.wait_for(Outcome::Carried);
    // Others are left alone.
    let other = within(&world.service, || TcpListener::bind("10.77.0.2:9000")).expect("a port");
    let left_alone = within(&world.site, || TcpStream::connect("10.77.0.2:9000"));
    let (_, from) = other.accept().expect("a client");
    assert_eq!(
        (left_alone.is_ok(), from.ip().to_string().as_str()),
        (true, SITE)
    );
    let shown = world.refrain_ok(&["intercept", "show"]);
    assert!(
        shown.contains("gate open") && shown.contains("rule 1: "),
        "{shown}"
    );

    // A far end that has gone takes the link along, and that closes the gate.
    signal(&world.far, Signal::KILL);
    world.far.take().expect("it runs").wait().expect("it ends");
    world.wait_for(Outcome::Direct);
    all_direct_after(&world, Duration::ZERO);
    world.start_far();
    world.wait_for(Outcome::Carried);

    world.refrain_ok(&["bypass", "on"]);
    all_direct_after(&world, Duration::from_millis(600));
    world.refrain_ok(&["bypass", "off"]);
    world.wait_for(Outcome::Carried);

    signal(&world.near, Signal::STOP);
    all_direct_after(&world, Duration::from_millis(600));
    // The watchdog has killed it by then, or will.
    world.near.take().expect("it runs").wait().expect("it ends");
    world.start_near();
    world.wait_for(Outcome::Carried);

    signal(&world.near, Signal::KILL);
    world.near.take().expect("it runs").wait().expect("it ends");
    all_direct_after(&world, Duration::from_millis(600));
    world.start_near();
    world.wait_for(Outcome::Carried);

    world.refrain_ok(&["intercept", "off"]);
    assert_eq!(world.connect(), Outcome::Direct);
    assert_eq!(world.ruleset(), before);
}

#[test]
fn removal_costs_no_connection() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.intercept();
    world.wait_for(Outcome::Carried);
    let is_served = |outcome: &Outcome| matches!(outcome, Outcome::Carried | Outcome::Direct);
    let outcomes = world.meanwhile(|| {
        sleep(Duration::from_millis(300));
        world.refrain_ok(&["intercept", "off"]);
    });
    assert!(outcomes.contains(&Outcome::Carried) && outcomes.contains(&Outcome::Direct));
    let lost: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !is_served(outcome))
        .collect();
    assert!(lost.is_empty(), "{lost:?} of {}", outcomes.len());

    world.intercept();
    world.wait_for(Outcome::Carried);
    let outcomes = world.meanwhile(|| {
        sleep(Duration::from_millis(300));
        signal(&world.near, Signal::TERM);
    });
    let lost: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !is_served(outcome))
        .collect();
    assert!(lost.is_empty(), "{lost:?} of {}", outcomes.len());
    let ended = world.near.take().expect("it ran").wait().expect("it ends");
    assert!(ended.success());
    assert_eq!(world.connect(), Outcome::Direct);
}

#[test]
fn an_open_connection_is_reset_when_the_gateway_dies() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut open = world.open();
    signal(&world.near, Signal::KILL);
    let began = Instant::now();
    let end = open.read(&mut [0]).expect_err("no end");
    assert_eq!(outcome(end.kind()), Outcome::Reset, "{:?}", began.elapsed());
    world.near.take().expect("it ran").wait().expect("it ends");
}

#[test]
fn an_open_connection_is_reset_when_the_gateway_hangs() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut open = world.open();
    signal(&world.near, Signal::STOP);
    let end = open.read(&mut [0]).expect_err("no end");
    assert_eq!(outcome(end.kind()), Outcome::Reset);
    world.near.take().expect("it ran").wait().expect("it ends");
}

#[test]
fn rules_and_tables_of_others_are_left_alone() {
    let Some(world) = World::new() else { return };
    let theirs = "add table inet refrain { comment \"theirs\"; }";
    within(&world.site, || ok(Command::new("nft").arg(theirs)));
    let before = world.ruleset();
    let config = world.path("near.toml");
    for arguments in [
        &["intercept", "on", "--config", &config, "--user", USER][..],
        &["intercept", "off"],
        &["intercept", "show"],
    ] {
        let output = world.refrain(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("this command did not make"), "{error}");
    }
    assert_eq!(world.ruleset(), before);
    // Without root, nothing is tried.
    let printed = world.refrain_ok(&[
        "intercept",
        "on",
        "--config",
        &config,
        "--user",
        USER,
        "--dry-run",
    ]);
    assert!(printed.starts_with("table inet refrain {"), "{printed}");
}

#[test]
fn open_connections_outlive_sigterm_for_the_drain_time_out() {
    let Some(mut world) = World::new() else {
        return;
    };
    let mut open = world.open();
    signal(&world.near, Signal::TERM);
    // Longer than a gateway may hang.
    sleep(Duration::from_secs(4));
    assert_eq!(ask(&mut open, SITE), Outcome::Carried);
    assert_eq!(world.connect(), Outcome::Direct);
    drop(open);
    let ended = world.near.take().expect("it ran").wait().expect("it ends");
    assert!(ended.success(), "{ended}");
}

#[test]
fn connections_go_direct_while_the_far_end_drains() {
    let Some(world) = World::new() else {
        return;
    };
    let mut open = world.open();
    signal(&world.far, Signal::TERM);
    world.wait_for(Outcome::Direct);
    all_direct_after(&world, Duration::from_millis(600));
    assert_eq!(ask(&mut open, SITE), Outcome::Carried);
}

#[test]
fn a_flood_of_connections_is_not_taken_for_a_gateway_that_hangs() {
    let Some(mut world) = World::new() else {
        return;
    };
    world.intercept();
    world.wait_for(Outcome::Carried);
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                within(&world.site, || {
                    while !has_ended.load(Ordering::Relaxed) {
                        let _ = TcpStream::connect("127.0.0.1:15001");
                    }
                });
            });
        }
        sleep(Duration::from_secs(5));
        has_ended.store(true, Ordering::Relaxed);
    });
    let near = world.near.as_mut().expect("it runs");
    assert!(near.try_wait().expect("a child").is_none(), "it was killed");
    world.wait_for(Outcome::Carried);
}

#[test]
fn rules_reject_and_reload_without_harm_to_others() {
    let Some(world) = World::new() else {
        return;
    };
    let config = world.path("near.toml");
    let on = ["intercept", "on", "--config", &config, "--user", USER];
    let reject = [
        &on[..],
        &["--rule", "dst=10.77.0.0/16 port=9000 action=reject"],
    ]
    .concat();
    world.refrain_ok(&reject);
    let service = within(&world.service, || TcpListener::bind("10.77.0.2:9000")).expect("a port");
    let refused = within(&world.site, || TcpStream::connect("10.77.0.2:9000"));
    assert_eq!(
        refused.expect_err("refused").kind(),
        ErrorKind::ConnectionRefused
    );
    drop(service);
    // A server here still answers clients of that network.
    let server = within(&world.site, || TcpListener::bind("10.77.0.1:9000")).expect("a port");
    let client = within(&world.service, || {
        let server: SocketAddr = "10.77.0.1:9000".parse().expect("an address");
        TcpStream::connect_timeout(&server, HANGS_AFTER)
    });
    client.expect("a connection from outside");
    drop(server);
    // What cannot be loaded replaces nothing.
    let loaded = world.refrain_ok(&["intercept", "show", "--json"]);
    let wrong = [&on[..], &["--rule", "uid=no-such-user"]].concat();
    let output = world.refrain(&wrong);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("uid=no-such-user"), "{error}");
    let handles = |json: &str| json.matches("\"handle\"").count();
    let still = world.refrain_ok(&["intercept", "show", "--json"]);
    assert_eq!(handles(&still), handles(&loaded));
    // A saved ruleset can be loaded again.
    let saved = world.ruleset();
    std::fs::write(world.path("saved.nft"), saved).expect("a file");
    within(&world.site, || {
        ok(Command::new("nft")
            .args(["--check", "-f"])
            .arg(world.path("saved.nft")));
    });
    world.refrain_ok(&["intercept", "off"]);
}
