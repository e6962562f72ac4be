//! What stands between the client and the sink: a plain relay, two haproxies, two gateways.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use refrain_gateway::{
    keys::PrivateKey,
    status::{Peer, Status},
};

const READ_BYTES: usize = 64 << 10;

/// How long programs may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// A plain TCP relay: two threads a connection, bytes as they come.
pub struct Relay {
    pub address: SocketAddr,
}

impl Relay {
    /// Relays to `target` as long as the process lives.
    pub fn start(target: SocketAddr) -> anyhow::Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A connection that fails is noticed at its ends.
                thread::spawn(move || relay(stream, target).ok());
            }
        });
        Ok(Relay { address })
    }
}

fn relay(client: TcpStream, target: SocketAddr) -> std::io::Result<()> {
    let server = TcpStream::connect(target)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    thread::scope(|scope| {
        scope.spawn(|| pass(&server, &client));
        pass(&client, &server)
    })
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) -> std::io::Result<()> {
    let mut piece = vec![0; READ_BYTES];
    loop {
        match from.read(&mut piece)? {
            0 => return to.shutdown(Shutdown::Write),
            read => to.write_all(&piece[..read])?,
        }
    }
}

/// The program, where it is installed.
pub struct Haproxy {
    program: PathBuf,
    pub version: String,
}

/// Debian's haproxy, if it is here.
pub fn haproxy() -> Option<Haproxy> {
    let programs = ["haproxy", "/usr/sbin/haproxy"].map(PathBuf::from);
    programs.into_iter().find_map(|program| {
        let output = Command::new(&program).arg("-v").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let version = text
            .split(" - ")
            .next()?
            .split('-')
            .next()?
            .replace("version ", "");
        Some(Haproxy {
            program,
            version: version.trim().to_owned(),
        })
    })
}

/// Two haproxies in a row, until dropped.
pub struct Haproxies {
    pub address: SocketAddr,
    _programs: [Running; 2],
    _folder: tempfile::TempDir,
}

impl Haproxies {
    pub fn start(haproxy: &Haproxy, target: SocketAddr) -> anyhow::Result<Haproxies> {
        let folder = tempfile::tempdir()?;
        let start = |name: &str, target: SocketAddr| {
            let address = free_address()?;
            let config = folder.path().join(name);
            std::fs::write(
                &config,
                format!(
                    "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  \
                     timeout server 60s\nlisten pass\n  bind {address}\n  server next {target}\n"
                ),
            )?;
            let mut command = Command::new(&haproxy.program);
            command.args(["-db", "-f"]).arg(&config);
            let running = Running::start(&mut command)?;
            wait(|| Ok(TcpStream::connect(address).is_ok()), "haproxy")?;
            anyhow::Ok((running, address))
        };
        let (second, address) = start("second", target)?;
        let (first, address) = start("first", address)?;
        Ok(Haproxies {
            address,
            _programs: [first, second],
            _folder: folder,
        })
    }
}

/// A near and a far gateway, each a process with default options, until dropped.
pub struct Gateways {
    pub address: SocketAddr,
    refrain: PathBuf,
    admin: SocketAddr,
    _near: Running,
    _far: Running,
    _folder: tempfile::TempDir,
}

impl Gateways {
    /// Starts both with empty caches; the near end's forward leads to `target`.
    pub fn start(refrain: &Path, target: SocketAddr) -> anyhow::Result<Gateways> {
        let folder = tempfile::tempdir()?;
        let key_file = |name: &str| folder.path().join(name).display().to_string();
        let (near_key, far_key) = (PrivateKey::generate()?, PrivateKey::generate()?);
        near_key.write_new(&folder.path().join("near.key"))?;
        far_key.write_new(&folder.path().join("far.key"))?;
        let (listen, far_admin) = (free_address()?, free_address()?);
        let (address, admin) = (free_address()?, free_address()?);
        let start = |arguments: &[&str]| {
            let mut command = Command::new(refrain);
            command.env_clear().args(arguments).args(["--log", "warn"]);
            Running::start(&mut command)
                .with_context(|| format!("cannot run {}", refrain.display()))
        };
        let far = start(&[
            "far",
            "--listen",
            &listen.to_string(),
            "--key",
            &key_file("far.key"),
            "--peer-key",
            &near_key.public().to_string(),
            "--admin",
            &far_admin.to_string(),
        ])?;
        wait(|| Ok(TcpStream::connect(far_admin).is_ok()), "the far end")?;
        let near = start(&[
            "near",
            "--peer",
            &listen.to_string(),
            "--key",
            &key_file("near.key"),
            "--peer-key",
            &far_key.public().to_string(),
            "--forward",
            &format!("{address}={target}"),
            "--admin",
            &admin.to_string(),
        ])?;
        wait(|| Ok(TcpStream::connect(admin).is_ok()), "the near end")?;
        let gateways = Gateways {
            address,
            refrain: refrain.to_owned(),
            admin,
            _near: near,
            _far: far,
            _folder: folder,
        };
        wait(|| Ok(gateways.peer()?.lanes == 4), "the link")?;
        Ok(gateways)
    }

    /// Bytes between the gateways so far, both ways, with all of TLS.
    pub fn link_bytes(&self) -> anyhow::Result<u64> {
        let peer = self.peer()?;
        Ok(peer.sent.link_bytes + peer.received.link_bytes)
    }

    /// What the near end, which is the sender, does for it.
    pub fn effort(&self) -> anyhow::Result<String> {
        let peer = self.peer()?;
        let effort = peer.effort.context("a link")?;
        Ok(format!(
            "{} blocks, {} bypassed, p = {}, zstd {}: {}",
            peer.sent.blocks,
            peer.sent.bypassed_blocks,
            effort.period_bytes,
            effort.zstd_level,
            effort.reason
        ))
    }

    fn peer(&self) -> anyhow::Result<Peer> {
        let output = Command::new(&self.refrain)
            .args(["status", "--json", "--admin", &self.admin.to_string()])
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let status: Status = serde_json::from_slice(&output.stdout)?;
        status.peers.into_iter().next().context("a peer")
    }
}

/// A process that ends with this.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> anyhow::Result<Running> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Running(command.spawn()?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait(mut is_there: impl FnMut() -> anyhow::Result<bool>, what: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_there()? {
        ensure!(Instant::now() < deadline, "{what} does not start");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// An address of loopback that nobody listens on.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
