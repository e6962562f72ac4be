//! What stands between the client and the sink where no gateways do: a plain relay, two haproxies.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    thread,
};

use refrain_relay::addresses::free_address;

use crate::processes::{Running, wait};

const READ_BYTES: usize = 64 << 10;

/// A plain TCP relay: two threads a connection, bytes as they come.
pub(super) struct Relay {
    pub address: SocketAddr,
}

impl Relay {
    /// Relays to `target` as long as the process lives.
    pub(super) fn start(target: SocketAddr) -> anyhow::Result<Relay> {
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
pub(super) struct Haproxy {
    program: PathBuf,
    pub version: String,
}

/// Debian's haproxy, if it is here.
pub(super) fn haproxy() -> Option<Haproxy> {
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
pub(super) struct Haproxies {
    pub address: SocketAddr,
    _programs: [Running; 2],
    _folder: tempfile::TempDir,
}

impl Haproxies {
    pub(super) fn start(haproxy: &Haproxy, target: SocketAddr) -> anyhow::Result<Haproxies> {
        let folder = tempfile::tempdir()?;
        let start = |name: &str, target: SocketAddr| {
            let address = free_address();
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
