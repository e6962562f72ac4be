//! A far and a near gateway as users run them: two processes, with keys, on ports that the
//! system chose.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use refrain_gateway::{keys::PrivateKey, status::Status};

/// How long a gateway may take to start, and a pair to meet, on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(60);

/// What a gateway's process may have resident beyond `--memory`: the program, its threads,
/// the allocator's slack. `docs/configuration.md` tells users under `memory`.
pub const PROCESS_BYTES_MAX: u64 = 64 << 20;

/// Both ends' keys in a folder of their own.
pub struct Keys {
    folder: tempfile::TempDir,
    pub near_public: String,
    pub far_public: String,
}

/// One gateway's process; it ends with this.
pub struct Gateway {
    child: Child,
    /// Where it listens: a far end for its peers first; then forwards, in order.
    pub addresses: Vec<SocketAddr>,
    pub admin: SocketAddr,
}

impl Keys {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for keys");
        let make = |name: &str| {
            let key = PrivateKey::generate().expect("a key");
            key.write_new(&folder.path().join(name)).expect("written");
            key.public().to_string()
        };
        let (near_public, far_public) = (make("near.key"), make("far.key"));
        Self {
            folder,
            near_public,
            far_public,
        }
    }

    pub fn near_key(&self) -> String {
        path(&self.folder.path().join("near.key"))
    }

    pub fn far_key(&self) -> String {
        path(&self.folder.path().join("far.key"))
    }
}

impl Gateway {
    /// A far end with the options `more`, which name `forwards` forwards.
    pub fn far(keys: &Keys, forwards: usize, more: &[&str]) -> Self {
        let (key, peer) = (keys.far_key(), &keys.near_public);
        let mut arguments = vec!["far", "--listen", "127.0.0.1:0", "--key", &key];
        arguments.extend(["--peer-key", peer]);
        Self::start(&arguments, more, 1 + forwards)
    }

    /// A near end of the far end at `peer`, with the options `more`, which name `forwards`
    /// listeners.
    pub fn near(keys: &Keys, peer: SocketAddr, forwards: usize, more: &[&str]) -> Self {
        let (key, peer) = (keys.near_key(), peer.to_string());
        let mut arguments = vec!["near", "--peer", &peer, "--key", &key];
        arguments.extend(["--peer-key", &keys.far_public]);
        Self::start(&arguments, more, forwards)
    }

    fn start(arguments: &[&str], more: &[&str], listeners: usize) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_refrain"))
            .args(arguments)
            .args(["--admin", "127.0.0.1:0"])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let (said, heard) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(address) = address_in(&line) {
                    // Nobody listens once all addresses are known.
                    let _ = said.send((line.contains("/healthz"), address));
                } else if line.contains("panicked") || line.contains("rror:") {
                    eprintln!("{line}");
                }
            }
        });
        let mut gateway = Self {
            child,
            addresses: Vec::new(),
            admin: SocketAddr::from(([0; 4], 0)),
        };
        while gateway.addresses.len() < listeners || gateway.admin.port() == 0 {
            match heard
                .recv_timeout(START_WITHIN)
                .expect("the gateway starts")
            {
                (true, admin) => gateway.admin = admin,
                (false, address) => gateway.addresses.push(address),
            }
        }
        gateway
    }

    pub fn status(&self) -> Status {
        let mut response = ureq::get(format!("http://{}/status", self.admin))
            .call()
            .expect("the admin page answers");
        let text = response.body_mut().read_to_string().expect("a page");
        serde_json::from_str(&text).expect("a status")
    }

    /// Waits until `lanes` lanes are up.
    pub fn wait_until_up(&self, lanes: usize) {
        let deadline = Instant::now() + START_WITHIN;
        while self.status().peers.iter().all(|peer| peer.lanes < lanes) {
            assert!(Instant::now() < deadline, "{:?}", self.status().peers);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Memory that the process has resident now, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most memory that the process ever had resident, in bytes.
    pub fn resident_bytes_max(&self) -> u64 {
        self.memory("VmHWM:")
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("the process runs, on Linux");
        let line = status.lines().find(|line| line.starts_with(field));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") << 10
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in a log line such as `listening address=127.0.0.1:80`, colours or not.
fn address_in(line: &str) -> Option<SocketAddr> {
    if !line.contains("listening") && !line.contains("serving") {
        return None;
    }
    // A colour ends in an `m`.
    let words = line.split(['=', ' ', '\u{1b}']);
    words
        .filter_map(|word| word.rsplit('m').next()?.parse().ok())
        .next()
}

fn path(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}
