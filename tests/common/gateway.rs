//! Gateways as users run them: the program, its keys, its options, its log.

use std::{
    fs::{self, File},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use refrain_gateway::status::{Peer, Status};
use tempfile::TempDir;

use super::{eventually, free_address};

/// Both ends, with keys of their own, and a link between them.
pub struct Pair {
    pub near: Gateway,
    pub far: Gateway,
    pub site: Site,
}

/// Where a pair's keys, configurations and logs lie, and where its far end listens.
pub struct Site {
    dir: TempDir,
    pub far_listen: SocketAddr,
    pub near_key: String,
    pub far_key: String,
}

/// A gateway's process. Dropped, it is killed, and a failed test shows its log.
pub struct Gateway {
    child: Child,
    command: Vec<String>,
    log: PathBuf,
    pub admin: SocketAddr,
}

impl Pair {
    /// Starts both ends with these options and the necessary ones.
    pub fn start(far_options: &[&str], near_options: &[&str]) -> Pair {
        let site = Site::new();
        let far = site.far(far_options);
        let near = site.near(site.far_listen, near_options);
        near.wait_until_up();
        Pair { near, far, site }
    }
}

impl Site {
    pub fn new() -> Site {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let near_key = keygen(&dir.path().join("near.key"));
        let far_key = keygen(&dir.path().join("far.key"));
        Site {
            dir,
            far_listen: free_address(),
            near_key,
            far_key,
        }
    }

    /// The path of a file of the site.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of the site, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("the site's directory can be written to");
        path.display().to_string()
    }

    /// Starts a far end that accepts the near key.
    pub fn far(&self, options: &[&str]) -> Gateway {
        let listen = self.far_listen.to_string();
        let mut all = vec!["--listen", &listen];
        if !options.contains(&"--peer-key") && !options.contains(&"--config") {
            all.extend(["--peer-key", &self.near_key]);
        }
        all.extend(options);
        self.gateway("far", "far.key", &all)
    }

    /// Starts a near end that dials `peer`.
    pub fn near(&self, peer: SocketAddr, options: &[&str]) -> Gateway {
        self.near_with_key("near.key", peer, options)
    }

    /// Starts a near end that has another key than the far end expects, or a further one.
    pub fn near_with_key(&self, key: &str, peer: SocketAddr, options: &[&str]) -> Gateway {
        let peer = peer.to_string();
        let mut all = vec!["--peer", &peer];
        if !options.contains(&"--peer-key") {
            all.extend(["--peer-key", &self.far_key]);
        }
        all.extend(options);
        self.gateway("near", key, &all)
    }

    fn gateway(&self, role: &str, key: &str, options: &[&str]) -> Gateway {
        let key = self.path(key).display().to_string();
        let admin = free_address();
        let admin_text = admin.to_string();
        let own = [role, "--key", &key, "--admin", &admin_text];
        let command = own.iter().chain(options).map(|&word| word.to_owned());
        let log = self.path(&format!("{role}-{}.log", admin.port()));
        Gateway::start(command.collect(), log, admin)
    }
}

impl Gateway {
    fn start(command: Vec<String>, log: PathBuf, admin: SocketAddr) -> Gateway {
        let mut gateway = Gateway {
            child: spawn(&command, &log).expect("the program starts"),
            command,
            log,
            admin,
        };
        gateway.wait_until_healthy();
        gateway
    }

    /// Starts it again, after [`Gateway::kill`], with the same options.
    pub fn restart(&mut self) {
        self.child = spawn(&self.command, &self.log).expect("the program starts");
        self.wait_until_healthy();
    }

    fn wait_until_healthy(&mut self) {
        eventually("the gateway serves /healthz", || {
            let ended = self.child.try_wait().expect("a child's status");
            assert!(ended.is_none(), "it ended, {ended:?}: {}", self.log());
            // With a token, it serves others with a refusal.
            let answer = http_get(self.admin, "/healthz", None).ok();
            answer.filter(|(status, _)| matches!(status, 200 | 401))
        });
    }

    /// Waits until the link to its first peer has a lane.
    pub fn wait_until_up(&self) {
        eventually("the link is up", || self.peer().up.then_some(()));
    }

    /// What `refrain status --json` says.
    pub fn status(&self) -> Status {
        let admin = self.admin.to_string();
        let shown = refrain(&["status", "--admin", &admin, "--json"]);
        let error = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success(), "refrain status: {error}");
        serde_json::from_slice(&shown.stdout).expect("a status in JSON")
    }

    /// The first peer of the status.
    pub fn peer(&self) -> Peer {
        self.status().peers.swap_remove(0)
    }

    /// All that was logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a line of the log with all of `parts`, and returns it.
    #[track_caller]
    pub fn wait_for_log(&self, parts: &[&str]) -> String {
        eventually(
            &format!("{parts:?} in the log of {}", self.command[0]),
            || {
                let log = self.log();
                let line = log
                    .lines()
                    .find(|line| parts.iter().all(|part| line.contains(part)));
                line.map(str::to_owned)
            },
        )
    }

    /// Sends a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{kill}");
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
    }

    /// Waits until it has ended by itself.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        eventually("the gateway ends", || {
            self.child.try_wait().expect("a child's status")
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of {}:\n{}---", self.command.join(" "), self.log());
        }
    }
}

/// Runs `refrain` to its end, without the environment's own options.
pub fn refrain(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program runs")
}

/// Runs `refrain`, which must fail: its exit code and standard error.
#[track_caller]
pub fn refrain_fails(arguments: &[&str]) -> (i32, String) {
    let mut child = command(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let ended = eventually(&format!("refrain {} ends", arguments.join(" ")), || {
        child.try_wait().expect("a child's status")
    });
    let error = io::read_to_string(child.stderr.take().expect("it is piped"));
    assert!(
        !ended.success(),
        "refrain {} succeeded",
        arguments.join(" ")
    );
    (
        ended.code().expect("no signal ended it"),
        error.expect("messages are text"),
    )
}

/// Makes a key, and returns its public one.
pub fn keygen(path: &Path) -> String {
    let made = refrain(&["keygen", &path.display().to_string()]);
    let error = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "refrain keygen: {error}");
    String::from_utf8_lossy(&made.stdout).trim().to_owned()
}

/// The status code and the body of a page.
pub fn http_get(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
) -> Result<(u16, String), ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(10)))
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into();
    let mut request = agent.get(format!("http://{address}{path}"));
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut response = request.call()?;
    let body = response.body_mut().read_to_string()?;
    Ok((response.status().as_u16(), body))
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refrain"));
    command.env_clear().args(arguments).stdin(Stdio::null());
    command
}

fn spawn(words: &[String], log: &Path) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(log)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    command(&words).stdout(Stdio::null()).stderr(log).spawn()
}
