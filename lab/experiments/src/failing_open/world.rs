//! A site and a service at the two ends of a link of the lab, with a pair and an origin.
//!
//! ```text
//! near namespace: clients, near end ── link ── far namespace: far end, origin
//!   ├ namespace of a network, for which        └ namespace of a network, for which this one is the router: origin
//!   │ this one is the router: clients
//!   └ namespace of `refrain run`: clients
//! ```
//!
//! The second origin is for clients whose addresses the far end keeps. Their addresses do not tell whether a connection
//! is direct, so the far end's router sends forwarded connections to another port of it.
//!
//! The near end's and the far end's logs, and the store, are on a small file system of each process.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicU16},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use refrain_gateway::keys::PrivateKey;
use refrain_link::{End, Link, LinkConfig};
use refrain_relay::Rate;

use super::{
    clients::{OTHER_PORTS, Outcome, Place, within},
    lan::{self, CLIENTS, Lan, SERVERS},
    origin::{CARRIED_PORT, Origin},
};
use crate::processes::{Running, ok, wait};

/// The users of the gateways and of programs, which nothing else runs as here.
const GATEWAYS: u32 = 64_999;
const PROGRAMS: u32 = 64_998;

const ORIGIN_PORT: u16 = 8080;
pub(super) const SOCKS5_PORT: u16 = 1080;
const LANES_PORT: u16 = 7000;

/// The mebibytes of the file system that each gateway has for its log, and the near end for its store.
const DISK_MIB: u32 = 96;

/// Other rules of the site's firewall, which must stay as they are.
const OTHER_RULES: &str = "table inet others {
  set ports { type inet_service; elements = { 22, 443 }; }
  chain in { type filter hook input priority 0; tcp dport @ports accept; }
}";

/// How clients get to the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Programs of the near end's machine.
    Redirect,
    /// Clients for which this machine is the router.
    Forwarded,
    /// The same, and the far end connects from their addresses.
    Keep,
    Run,
}

pub(super) const WAYS: [Way; 4] = [Way::Redirect, Way::Forwarded, Way::Keep, Way::Run];

/// A gateway's process, and its log, also of one that has ended.
pub(super) struct Gateway {
    pub process: Running,
    log: File,
}

/// `refrain run`, and a program in there that does nothing.
pub(super) struct Program {
    pub process: Running,
    sleeping: Pid,
}

/// All of it, until dropped.
pub(super) struct World {
    pub near: Option<Gateway>,
    pub far: Option<Gateway>,
    /// `refrain intercept on`.
    pub kept: Option<Running>,
    /// The same at the far end.
    pub kept_at_far_end: Option<Running>,
    pub program: Option<Program>,
    pub origin: Arc<Origin>,
    /// Connections that only use descriptors of their other ends.
    pub idle: Vec<TcpStream>,
    /// As it was before interception.
    pub rules: String,
    ports: Arc<AtomicU16>,
    clients: Lan,
    _servers: Lan,
    link: Link,
    original: PathBuf,
    folder: tempfile::TempDir,
}

impl World {
    /// The namespaces, the origin and a pair of this program.
    pub(super) fn start(refrain: &Path) -> anyhow::Result<World> {
        let link = Link::start(LinkConfig {
            rate: Some(Rate::mbit(100)),
            delay: Duration::from_millis(5),
            ..LinkConfig::default()
        })?;
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
        let clients = Lan::start(&link, &CLIENTS)?;
        let servers = Lan::start(&link, &SERVERS)?;
        let listen = |port| Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?);
        let at_far_end = link.at(End::Far, || listen(ORIGIN_PORT))?;
        let elsewhere = within(&servers.namespace(), || {
            Ok([listen(ORIGIN_PORT)?, listen(CARRIED_PORT)?])
        })?;
        let mut world = World {
            near: None,
            far: None,
            kept: None,
            kept_at_far_end: None,
            program: None,
            origin: Origin::serve(elsewhere.into_iter().chain([at_far_end])),
            idle: Vec::new(),
            rules: String::new(),
            ports: Arc::default(),
            clients,
            _servers: servers,
            link,
            original: refrain.to_owned(),
            folder,
        };
        world.link.at(End::Near, || {
            Ok(fs::write(
                "/proc/sys/net/ipv4/ip_local_port_range",
                OTHER_PORTS,
            )?)
        })?;
        world.install()?;
        world.configure()?;
        world.load_other_rules()?;
        world.tell_direct_connections()?;
        world.rules = world.ruleset()?;
        world.start_gateways(false)?;
        Ok(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn program_file(&self) -> PathBuf {
        self.path("refrain")
    }

    /// Puts the program where users find it, as a package manager does: processes keep the file that was there.
    pub(super) fn install(&self) -> anyhow::Result<()> {
        let new = self.path("refrain.new");
        fs::copy(&self.original, &new).context("cannot copy the program")?;
        Ok(fs::rename(new, self.program_file())?)
    }

    fn configure(&self) -> anyhow::Result<()> {
        let (near_key, far_key) = (PrivateKey::generate()?, PrivateKey::generate()?);
        let far = self.link.address(End::Far);
        let far_file = format!(
            "key = \"{}\"\npeer_key = \"{}\"\nlisten = \"{far}:{LANES_PORT}\"\nallow = \"*:*\"\n\
             client_addresses = [\"{}\"]\n",
            self.path("far.key").display(),
            near_key.public(),
            CLIENTS.range,
        );
        let near_file = format!(
            "key = \"{}\"\npeer_key = \"{}\"\npeer = \"{far}:{LANES_PORT}\"\nstore = \"{}\"\nstore_size = \"32MiB\"\n\
             socks5 = \"{SOCKS5_PORT}\"\ntransparent = \"*:15001\"\nclients = [\"127.0.0.1\", \"{near}\", \"{network}\"]\n\
             intercept = [\"dst={far} port={ORIGIN_PORT}\", \"in={interface} dst={far} port={ORIGIN_PORT}\", \
             \"in={interface} dst={server} port={CARRIED_PORT} client_address=keep\"]\n",
            self.path("near.key").display(),
            far_key.public(),
            self.path("near.disk/store").display(),
            near = self.link.address(End::Near),
            network = CLIENTS.range,
            interface = lan::INTERFACE,
            server = SERVERS.machine,
        );
        near_key.write_new(&self.path("near.key"))?;
        far_key.write_new(&self.path("far.key"))?;
        fs::write(self.path("near.toml"), near_file)?;
        fs::write(self.path("far.toml"), far_file)?;
        for name in ["near.disk", "far.disk", "near.run", "far.run", "programs"] {
            fs::create_dir(self.path(name))?;
        }
        for name in ["near.key", "far.key", "near.run", "far.run"] {
            chown(self.path(name), Some(GATEWAYS), Some(GATEWAYS))?;
        }
        Ok(chown(self.path("programs"), Some(PROGRAMS), None)?)
    }

    fn gateway(&self, end: End, is_large: bool) -> anyhow::Result<Gateway> {
        let role = match end {
            End::Near => "near",
            End::Far => "far",
        };
        let disk = self.path(&format!("{role}.disk"));
        let mount = format!(
            "mount -t tmpfs -o size={DISK_MIB}m,mode=755,uid={GATEWAYS} refrain \"$0\" && exec \"$@\" 2>\"$0/log\""
        );
        let mut command = self.link.command(end, "sh");
        command.args(["-c", &mount]).arg(&disk);
        command.arg("setpriv").args(as_user(GATEWAYS));
        if end == End::Far {
            command.args(["--inh-caps=+net_raw", "--ambient-caps=+net_raw"]);
        }
        command
            .arg(self.program_file())
            .args([role, "--config"])
            .arg(self.path(&format!("{role}.toml")))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("XDG_RUNTIME_DIR", self.path(&format!("{role}.run")));
        if is_large {
            command.args(["--cache-size", "4GiB", "--memory", "12GiB"]);
        }
        let process = Running::start(&mut command)?;
        let log = at_root(process.pid(), &disk.join("log"));
        wait(|| Ok(log.exists()), "a gateway's log")?;
        let log = File::open(log)?;
        Ok(Gateway { process, log })
    }

    /// Starts those that do not run.
    pub(super) fn start_gateways(&mut self, are_large: bool) -> anyhow::Result<()> {
        if self.far.is_none() {
            self.far = Some(self.gateway(End::Far, are_large)?);
        }
        if self.near.is_none() {
            self.near = Some(self.gateway(End::Near, are_large)?);
        }
        Ok(())
    }

    /// Kills both, and starts others.
    pub(super) fn restart(&mut self, are_large: bool) -> anyhow::Result<()> {
        self.near = None;
        self.far = None;
        self.start_gateways(are_large)
    }

    /// What the gateways logged.
    pub(super) fn logs(&self) -> String {
        let mut text = String::new();
        for (name, gateway) in [("near end", &self.near), ("far end", &self.far)] {
            if let Some(Gateway { log, .. }) = gateway {
                text += &format!("log of the {name}:\n");
                let _ = (&*log).read_to_string(&mut text);
            }
        }
        text
    }

    /// Where clients of this way are.
    pub(super) fn place(&self, way: Way) -> anyhow::Result<Place> {
        let (namespace, own) = match way {
            Way::Redirect => (
                Path::new("/run/netns").join(self.link.name(End::Near)),
                self.link.address(End::Near),
            ),
            Way::Forwarded | Way::Keep => (self.clients.namespace(), CLIENTS.machine),
            Way::Run => {
                let program = self.program.as_ref().context("no program runs")?;
                let namespace = format!("/proc/{}/ns/net", program.sleeping).into();
                (namespace, Ipv4Addr::UNSPECIFIED)
            }
        };
        let origin = match way {
            Way::Keep => SocketAddr::from((SERVERS.machine, CARRIED_PORT)),
            _ => SocketAddr::from((self.link.address(End::Far), ORIGIN_PORT)),
        };
        Ok(Place {
            namespace,
            own,
            origin,
            ports: Arc::clone(&self.ports),
        })
    }

    /// Does something next to the far end, with the address of its listener.
    pub(super) fn at_far<R: Send>(
        &self,
        action: impl FnOnce(SocketAddr) -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        let lanes = SocketAddr::from((self.link.address(End::Far), LANES_PORT));
        self.link.at(End::Far, || action(lanes))
    }

    /// Makes connections of this way go to the link, and waits until they do.
    pub(super) fn divert(&mut self, way: Way) -> anyhow::Result<()> {
        match way {
            Way::Run => self.start_program()?,
            Way::Redirect | Way::Forwarded => self.keep()?,
            Way::Keep => {
                if self.kept_at_far_end.is_none() {
                    self.keep_at_far_end()?;
                }
                self.keep()?;
            }
        }
        self.wait_for(way, Outcome::Carried)
    }

    /// Starts `refrain intercept on`.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        let mut command = self.refrain(&["intercept", "on", "--user", &GATEWAYS.to_string()]);
        command.arg("--config").arg(self.path("near.toml"));
        let kept = Running::start(&mut command)?;
        // Before, SIGTERM would end it at once, and leave rules of one that was killed.
        wait(|| Ok(handles_sigterm(kept.pid())), "refrain intercept on")?;
        self.kept = Some(kept);
        Ok(())
    }

    /// The same at the far end, in place of the one before.
    pub(super) fn keep_at_far_end(&mut self) -> anyhow::Result<()> {
        // Before the next one, which would refuse.
        self.kept_at_far_end = None;
        let program = self.program_file().display().to_string();
        let mut command = self.link.command(End::Far, &program);
        command.args(["intercept", "on", "--far", "--config"]);
        command.arg(self.path("far.toml"));
        self.kept_at_far_end = Some(Running::start(&mut command)?);
        Ok(())
    }

    /// `refrain` as root at the near end.
    pub(super) fn refrain(&self, words: &[&str]) -> Command {
        let program = self.program_file().display().to_string();
        let mut command = self.link.command(End::Near, &program);
        command.args(words);
        command
    }

    fn start_program(&mut self) -> anyhow::Result<()> {
        let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, SOCKS5_PORT));
        let is_listening = || {
            self.link
                .at(End::Near, || Ok(TcpStream::connect(proxy).is_ok()))
        };
        wait(is_listening, "the near end's proxy")?;
        let file = self.path("programs/number");
        let _ = fs::remove_file(&file);
        let mut command = self.link.command(End::Near, "setpriv");
        command.args(as_user(PROGRAMS)).arg(self.program_file());
        command.args(["run", "-q", "--socks5", &SOCKS5_PORT.to_string(), "--"]);
        command.args(["sh", "-c", "echo $$ >\"$0\"; exec sleep 3600"]);
        let process = Running::start(command.arg(&file).env("REFRAIN_LOG", "error"))?;
        let mut sleeping = None;
        let is_there = || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            sleeping = text.strip_suffix('\n').and_then(|text| text.parse().ok());
            Ok(sleeping.is_some())
        };
        wait(is_there, "refrain run")?;
        let sleeping = Pid::from_raw(sleeping.context("no program")?);
        self.program = Some(Program { process, sleeping });
        Ok(())
    }

    /// Waits until new connections have this outcome.
    pub(super) fn wait_for(&self, way: Way, outcome: Outcome) -> anyhow::Result<()> {
        let place = self.place(way)?;
        let found = || place.within(|| Ok(place.try_once() == outcome));
        wait(found, &format!("a connection that is {}", outcome.name()))
            .with_context(|| self.logs())
    }

    /// Removes interception, and checks that the firewall is as before.
    pub(super) fn release(&mut self, way: Way) -> anyhow::Result<()> {
        self.program = None;
        if way != Way::Run {
            self.kept.take().context("it does not run")?.end()?;
        }
        self.check_rules()
    }

    /// Fails where the firewall is not as before interception.
    pub(super) fn check_rules(&self) -> anyhow::Result<()> {
        let rules = self.ruleset()?;
        ensure!(
            rules == self.rules,
            "the firewall is not as before:\n{}\n---\n{rules}",
            self.rules
        );
        Ok(())
    }

    fn ruleset(&self) -> anyhow::Result<String> {
        ok(self
            .link
            .command(End::Near, "nft")
            .args(["list", "ruleset"]))
    }

    /// What another program does to the site's firewall.
    pub(super) fn nft(&self, words: &[&str]) -> anyhow::Result<()> {
        ok(self.link.command(End::Near, "nft").args(words)).map(drop)
    }

    pub(super) fn load_other_rules(&self) -> anyhow::Result<()> {
        self.nft(&[OTHER_RULES])
    }

    /// What another program does to the far end's firewall.
    pub(super) fn remove_far_rules(&self) -> anyhow::Result<()> {
        let words = ["delete", "table", "inet", "refrain"];
        ok(self.link.command(End::Far, "nft").args(words)).map(drop)
    }

    /// Sends connections that are forwarded to the second origin to its other port.
    fn tell_direct_connections(&self) -> anyhow::Result<()> {
        let rules = format!(
            "table ip direct {{
  chain forwarded {{
    type nat hook prerouting priority dstnat
    iifname link0 tcp dport {CARRIED_PORT} dnat to {}:{ORIGIN_PORT}
  }}
}}",
            SERVERS.machine
        );
        ok(self.link.command(End::Far, "nft").arg(rules)).map(drop)
    }

    /// Drops all packets between the gateways, or refuses them; direct connections pass.
    pub(super) fn cut(&self, verdict: &str) -> anyhow::Result<()> {
        let rules = format!(
            "table ip cut {{
  chain in {{ type filter hook input priority 0; iifname link0 tcp dport != {ORIGIN_PORT} {verdict}; }}
  chain out {{ type filter hook output priority 0; oifname link0 tcp sport != {ORIGIN_PORT} {verdict}; }}
}}"
        );
        ok(self.link.command(End::Far, "nft").arg(rules)).map(drop)
    }

    pub(super) fn join(&self) -> anyhow::Result<()> {
        let words = ["delete", "table", "ip", "cut"];
        ok(self.link.command(End::Far, "nft").args(words)).map(drop)
    }

    /// Fills the file system of a gateway to its last byte.
    pub(super) fn fill_disk(&self, end: End) -> anyhow::Result<()> {
        let mut filler = File::create(self.filler(end)?)?;
        for piece_bytes in [1 << 20, 4 << 10, 1] {
            while filler.write_all(&vec![0; piece_bytes]).is_ok() {}
        }
        Ok(())
    }

    pub(super) fn empty_disk(&self, end: End) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.filler(end)?)?)
    }

    fn filler(&self, end: End) -> anyhow::Result<PathBuf> {
        let (gateway, folder) = match end {
            End::Near => (&self.near, "near.disk/filler"),
            End::Far => (&self.far, "far.disk/filler"),
        };
        let gateway = gateway.as_ref().context("it does not run")?;
        Ok(at_root(gateway.process.pid(), &self.path(folder)))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Before the namespaces.
        self.program = None;
        self.kept = None;
        self.kept_at_far_end = None;
        self.near = None;
        self.far = None;
        sleep(Duration::from_millis(50));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It outlives `refrain run`.
        let _ = kill(self.sleeping, Signal::SIGKILL);
    }
}

/// A path as a process sees it.
fn at_root(process: Pid, path: &Path) -> PathBuf {
    let path = path.strip_prefix("/").unwrap_or(path);
    Path::new(&format!("/proc/{process}/root")).join(path)
}

fn handles_sigterm(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (Signal::SIGTERM as u32 - 1)) != 0)
}

/// The options of `setpriv` for a user that has a group of its own.
pub(super) fn as_user(user: u32) -> [String; 3] {
    let number = ["--reuid", "--regid"].map(|option| format!("{option}={user}"));
    let [user, group] = number;
    [user, group, "--clear-groups".to_owned()]
}
