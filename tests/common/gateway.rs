//! A gateway as users run it: a process with options, a log and an admin address.

use std::{
    fs::{self, File},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use refrain_gateway::status::{Peer, Status};

use super::{
    command::{command, command_with_files, refrain},
    eventually, http,
};

/// A gateway's process. Dropped, it is killed, and a failed test shows its log.
pub(crate) struct Gateway {
    child: Child,
    command: Vec<String>,
    log: PathBuf,
    /// Where its local socket is.
    runtime: PathBuf,
    pub admin: SocketAddr,
    /// The limit on its open files, if it has one of its own.
    files: Option<u32>,
}

impl Gateway {
    /// Starts `refrain` with the words of `command`, which name the address `admin`.
    pub(crate) fn start(command: Vec<String>, log: PathBuf, admin: SocketAddr) -> Gateway {
        let stderr = append_to(&log).expect("a file for the log");
        Gateway::start_with_stderr(command, log, stderr.into(), admin)
    }

    /// Starts it with a limit on its open files.
    pub(crate) fn start_with_files(
        command: Vec<String>,
        log: PathBuf,
        admin: SocketAddr,
        files: u32,
    ) -> Gateway {
        let stderr = append_to(&log).expect("a file for the log");
        Gateway::start_within(command, log, stderr.into(), admin, Some(files))
    }

    /// Starts it with another standard error than `log`, until it is restarted.
    pub(crate) fn start_with_stderr(
        command: Vec<String>,
        log: PathBuf,
        stderr: Stdio,
        admin: SocketAddr,
    ) -> Gateway {
        Gateway::start_within(command, log, stderr, admin, None)
    }

    fn start_within(
        command: Vec<String>,
        log: PathBuf,
        stderr: Stdio,
        admin: SocketAddr,
        files: Option<u32>,
    ) -> Gateway {
        let runtime = log.parent().expect("a folder").to_owned();
        let mut gateway = Gateway {
            child: spawn(&command, &runtime, stderr, files).expect("the program starts"),
            command,
            log,
            runtime,
            admin,
            files,
        };
        gateway.wait_until_healthy();
        gateway
    }

    /// Starts it again, after [`Gateway::kill`], with the same options.
    pub(crate) fn restart(&mut self) {
        let stderr = append_to(&self.log).expect("a file for the log");
        self.child = spawn(&self.command, &self.runtime, stderr.into(), self.files)
            .expect("the program starts");
        self.wait_until_healthy();
    }

    fn wait_until_healthy(&mut self) {
        eventually("the gateway serves /healthz", || {
            let ended = self.child.try_wait().expect("a child's status");
            assert!(ended.is_none(), "it ended, {ended:?}: {}", self.log());
            // With a token, it serves others with a refusal.
            let answer = http::get(self.admin, "/healthz", None).ok();
            answer.filter(|(status, _)| matches!(status, 200 | 401))
        });
    }

    /// Waits until the link to its first peer has a lane.
    pub(crate) fn wait_until_up(&self) {
        self.wait_for_lanes(1);
    }

    /// Waits until the link to its first peer has `lanes` lanes.
    pub(crate) fn wait_for_lanes(&self, lanes: usize) {
        eventually(&format!("the link has {lanes} lanes"), || {
            (self.peer().lanes >= lanes).then_some(())
        });
    }

    /// What `refrain status --json` says.
    pub(crate) fn status(&self) -> Status {
        let admin = self.admin.to_string();
        let shown = refrain(&["status", "--admin", &admin, "--json"]);
        let error = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success(), "refrain status: {error}");
        serde_json::from_slice(&shown.stdout).expect("a status in JSON")
    }

    /// The first peer of the status.
    pub(crate) fn peer(&self) -> Peer {
        self.status().peers.swap_remove(0)
    }

    /// All that went over the link to its first peer so far, both ways, TLS included.
    pub(crate) fn link_bytes(&self) -> u64 {
        let peer = self.peer();
        peer.sent.link_bytes + peer.received.link_bytes
    }

    /// The folder of its files and its local socket.
    pub(crate) fn folder(&self) -> &Path {
        &self.runtime
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// All that was logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a line of the log with all of `parts`, and returns it.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, parts: &[&str]) -> String {
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
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{kill}");
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
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

fn append_to(log: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(log)
}

fn spawn(words: &[String], runtime: &Path, stderr: Stdio, files: Option<u32>) -> io::Result<Child> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = match files {
        Some(files) => command_with_files(&words, files),
        None => command(&words),
    };
    command.env("XDG_RUNTIME_DIR", runtime);
    command.stdout(Stdio::null()).stderr(stderr).spawn()
}
