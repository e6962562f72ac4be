//! The machines of a program and its server, and the ways between them.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use refrain_gateway::status::Status;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::common::{
    PATIENCE, eventually,
    origin_machine::{ORIGIN, ORIGIN_6, Origin, SERVICE_THERE},
    programs::{are_installed, are_large_ones_installed, find},
    world::{BEHIND, SITE, SITE_6, World, ok, within},
};

/// A program and its server, whose connections go through a pair.
pub(crate) struct Program {
    pub needs: Needs,
    /// Starts the server, has the program use it, and compares the bytes.
    pub test: fn(&Place),
}

/// The programs that a test needs.
pub(crate) enum Needs {
    /// `lab/setup` installs them.
    Usual(&'static [&'static str]),
    /// `lab/setup --ecosystems` installs them.
    Large(&'static [&'static str]),
}

/// The networks of a test.
pub(crate) struct Place {
    pub(crate) world: World,
    origin: Origin,
    /// The namespace of the program. Inside `refrain run`, it has one of its own.
    namespace: String,
    /// The client's own addresses.
    pub(crate) own: [&'static str; 2],
    /// The addresses that the origin sees.
    promised: [&'static str; 2],
    /// The words in front of the program's.
    starter: Vec<String>,
    folder: TempDir,
}

/// A server's processes, which end with it.
pub(crate) struct Server(Child);

/// One of the origin's addresses.
pub(crate) struct Host {
    pub address: IpAddr,
    /// The address that it sees.
    pub sees: &'static str,
}

/// Where the near end's SOCKS5 listener is.
const PROXY: &str = "127.0.0.1:1080";

/// Programs of the near end's machine, redirected.
///
/// Without a gate, so that a busy machine has no connection go direct.
pub(crate) fn intercepted() -> Option<Place> {
    let world = World::over_link(
        "transparent = \"15001\"\nintercept = [\"port=1-65535 on_failure=reset\"]\n",
    )?;
    let namespace = world.site.clone();
    let place = Place::new(world, namespace, [SITE, SITE_6], SERVICE_THERE);
    place.world.intercept();
    Some(place)
}

/// A machine behind the near end's, which is its router. The origin sees the machine's own addresses.
pub(crate) fn forwarded() -> Option<Place> {
    let rules = "in=lan port=1-65535 on_failure=reset client_address=keep";
    let world = World::of_own_addresses_in(World::over_link, rules)?;
    world.intercept_far();
    let namespace = world.behind.clone();
    let place = Place::new(world, namespace, BEHIND, BEHIND);
    place.world.intercept();
    Some(place)
}

/// Programs that `refrain run` starts.
pub(crate) fn inside_run() -> Option<Place> {
    let world = World::over_link(&format!("socks5 = \"{PROXY}\"\n"))?;
    let namespace = world.site.clone();
    let mut place = Place::new(world, namespace, [SITE, SITE_6], SERVICE_THERE);
    let run = [
        env!("CARGO_BIN_EXE_refrain"),
        "run",
        "-q",
        "--socks5",
        PROXY,
        "--",
    ];
    place.starter = run.map(str::to_owned).to_vec();
    Some(place)
}

/// Tests a program on one way.
pub(crate) fn drive(way: fn() -> Option<Place>, program: &Program) {
    let is_installed = match program.needs {
        Needs::Usual(programs) => are_installed(programs),
        Needs::Large(programs) => are_large_ones_installed(programs),
    };
    if !is_installed {
        return;
    }
    let Some(place) = way() else { return };
    (program.test)(&place);
    let (flows, connections) = (place.flows(), place.connections());
    assert!(flows > 0);
    assert_eq!(flows, connections, "of the near end, and at the origin");
}

impl Place {
    fn new(
        mut world: World,
        namespace: String,
        own: [&'static str; 2],
        promised: [&'static str; 2],
    ) -> Place {
        world.be_patient();
        let origin = Origin::start(&world);
        let [ipv4, ipv6] = promised;
        let guard = format!(
            "table inet guard {{
                 set ipv4 {{
                     type ipv4_addr . inet_service . inet_service; flags dynamic
                 }}
                 set ipv6 {{
                     type ipv6_addr . inet_service . inet_service; flags dynamic
                 }}
                 chain input {{
                     type filter hook input priority 0
                     iif lo accept
                     tcp flags & (syn | ack) == syn jump opened
                 }}
                 chain opened {{
                     ip saddr {ipv4} update @ipv4 {{ ip saddr . tcp sport . tcp dport }} accept
                     ip6 saddr {ipv6} update @ipv6 {{ ip6 saddr . tcp sport . tcp dport }} accept
                     reject with tcp reset
                 }}
             }}"
        );
        within(&origin.0, || ok(Command::new("nft").arg(&guard)));
        Place {
            world,
            origin,
            namespace,
            own,
            promised,
            starter: Vec::new(),
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    /// Whether programs are started by `refrain run`.
    pub(crate) fn is_inside_run(&self) -> bool {
        !self.starter.is_empty()
    }

    pub(crate) fn hosts(&self) -> [Host; 2] {
        let host = |address: &str, sees| Host {
            address: address.parse().expect("an address"),
            sees,
        };
        [
            host(ORIGIN, self.promised[0]),
            host(ORIGIN_6, self.promised[1]),
        ]
    }

    /// A folder for the program and its server.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).expect("our own folder");
        path.display().to_string()
    }

    /// Does something on the origin's machine, in a thread of its own.
    pub(crate) fn at_origin<R: Send>(&self, action: impl FnOnce() -> R + Send) -> R {
        within(&self.origin.0, action)
    }

    /// Starts a server on the origin's machine.
    pub(crate) fn serve(&self, command: &mut Command) -> Server {
        let log = |name| fs::File::create(self.path(name)).expect("our own folder");
        command
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stdout(log("server.out"))
            .stderr(log("server.err"));
        std::os::unix::process::CommandExt::process_group(command, 0);
        Server(self.at_origin(|| command.spawn().expect("it starts")))
    }

    /// Waits until the origin listens on both addresses.
    pub(crate) fn wait_for_port(&self, port: u16) {
        for host in self.hosts() {
            eventually(&format!("a server at {}", host.at(port)), || {
                self.at_origin(|| TcpStream::connect(host.at(port))).ok()
            });
        }
    }

    /// The program on its way, for at most a minute, and without its user's own settings.
    pub(crate) fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.namespace))
            .args(["timeout", "--foreground", "--kill-after=5", "60"])
            .args(&self.starter)
            .arg(find(name).expect("its presence was tested"))
            .args(arguments)
            .current_dir(self.folder())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder())
            .stdin(Stdio::null());
        command
    }

    /// Runs the program, which must succeed; gives its standard output.
    #[track_caller]
    pub(crate) fn run(&self, name: &str, arguments: &[&str]) -> Vec<u8> {
        self.output(&mut self.program(name, arguments))
    }

    /// The same, of a prepared command.
    #[track_caller]
    pub(crate) fn output(&self, command: &mut Command) -> Vec<u8> {
        let output = command.output().expect("it runs");
        let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        let servers = ["server.out", "server.err"].map(|name| fs::read(self.path(name)));
        let servers =
            servers.map(|text| String::from_utf8_lossy(&text.unwrap_or_default()).into_owned());
        assert!(
            output.status.success(),
            "{command:?}: {}\n{}\n{}\nits server:\n{}",
            output.status,
            texts[0],
            texts[1],
            servers.concat()
        );
        output.stdout
    }

    /// Does something in the program's network, in a thread of its own.
    pub(crate) fn inside<R: Send>(&self, action: impl FnOnce() -> R + Send) -> R {
        if self.starter.is_empty() {
            return within(&self.namespace, action);
        }
        // Of a shell that waits for the end of its input.
        let mut shell = self
            .program("sh", &["-c", "echo $$ && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut process = String::new();
        let output = shell.stdout.take().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut process)
            .expect("a shell");
        let done = within(&format!("/proc/{}/ns/net", process.trim()), action);
        drop(shell.stdin.take());
        assert!(shell.wait().expect("it ends").success());
        done
    }

    /// Connects from the program's network, and does something with the connection.
    pub(crate) fn connected<R: Send>(
        &self,
        address: SocketAddr,
        action: impl FnOnce(TcpStream) -> R + Send,
    ) -> R {
        self.inside(|| {
            let stream = TcpStream::connect(address).expect("a connection");
            stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
            action(stream)
        })
    }

    /// The flows that the near end opened so far.
    pub(crate) fn flows(&self) -> u64 {
        let near = self.world.near.as_ref().expect("it runs").id();
        let admin = self.world.path(&format!("refrain/near-{near}.sock"));
        let words = ["status", "--json", "--admin", &admin];
        // With a crowd of flows, a busy machine may take longer than the command waits.
        let status = eventually("a status", || {
            let output = self.world.refrain(&words);
            output.status.success().then_some(output.stdout)
        });
        let status: Status = serde_json::from_slice(&status).expect("a status");
        status.peers[0].counters.flows_opened
    }

    /// The connections that reached the origin's machine so far.
    pub(crate) fn connections(&self) -> u64 {
        let of_family = |set: &str| {
            let list = ["-j", "list", "set", "inet", "guard", set];
            let listed = self.at_origin(|| Command::new("nft").args(list).output());
            let listed = listed.expect("it runs").stdout;
            let listed: serde_json::Value = serde_json::from_slice(&listed).expect("JSON");
            let elements = listed["nftables"][1]["set"]["elem"].as_array();
            elements.map_or(0, |elements| elements.len() as u64)
        };
        of_family("ipv4") + of_family("ipv6")
    }
}

impl Host {
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    /// A name for files.
    pub(crate) fn label(&self) -> &'static str {
        match self.address {
            IpAddr::V4(_) => "ipv4",
            IpAddr::V6(_) => "ipv6",
        }
    }

    /// As it is written in URLs.
    pub(crate) fn in_url(&self) -> String {
        match self.address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        }
    }
}

/// The lines of nginx's configuration for a port on both addresses of the origin.
pub(crate) fn listen_lines(port: &str) -> String {
    format!("listen {ORIGIN}:{port}; listen [{ORIGIN_6}]:{port};")
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.0.id() as i32).expect("a process");
        // It may have ended already.
        let _ = kill_process_group(group, Signal::TERM);
        for _ in 0..30 {
            if let Ok(Some(_)) = self.0.try_wait() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}
