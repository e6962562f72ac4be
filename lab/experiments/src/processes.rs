//! Programs that experiments run as users do: processes of their own, with options as on a
//! command line.

use std::{
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use nix::{sys::signal::Signal, time::clock_getcpuclockid, unistd::Pid};
use refrain_gateway::{
    keys::PrivateKey,
    status::{Peer, Status},
};
use refrain_link::{End, Link};
use refrain_relay::addresses::free_address;

/// How long programs may take to start, and to end: a store is written to a busy disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// A near and a far gateway, each a process, until dropped.
pub(crate) struct Gateways {
    /// Where clients connect.
    pub address: SocketAddr,
    refrain: PathBuf,
    far_admin: SocketAddr,
    near_admin: SocketAddr,
    near: Running,
    /// How the near end is started.
    near_arguments: Vec<String>,
    far: Running,
    /// Their network, if not this machine's own.
    link: Option<Arc<Link>>,
    _folder: tempfile::TempDir,
}

/// How gateways are started.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    /// The program.
    pub refrain: &'a Path,
    /// Where the near end's forward leads.
    pub target: SocketAddr,
    /// Where the far end listens; any free address without.
    pub listen: Option<SocketAddr>,
    /// Where the near end dials it, if not there.
    pub dial: Option<SocketAddr>,
    /// Further options.
    pub far: &'a [&'a str],
    pub near: &'a [&'a str],
    /// The link at whose ends they run; without one they run on this machine's own network.
    pub link: Option<&'a Arc<Link>>,
}

impl Gateways {
    /// Starts both, and waits until all lanes are up.
    pub(crate) fn start(setup: &Setup<'_>) -> anyhow::Result<Gateways> {
        let folder = tempfile::tempdir()?;
        let key_file = |name: &str| folder.path().join(name).display().to_string();
        let (near_key, far_key) = (PrivateKey::generate()?, PrivateKey::generate()?);
        near_key.write_new(&folder.path().join("near.key"))?;
        far_key.write_new(&folder.path().join("far.key"))?;
        let listen = setup.listen.unwrap_or_else(free_address);
        let (address, near_admin, far_admin) = (free_address(), free_address(), free_address());
        let start = |end, arguments: &[&str], further: &[&str]| {
            let mut command = program(setup.link, end, setup.refrain);
            command.args(arguments).args(further);
            Running::start(command.args(["--log", "warn"]))
        };
        let arguments = [
            "far",
            "--listen",
            &listen.to_string(),
            "--key",
            &key_file("far.key"),
            "--peer-key",
            &near_key.public().to_string(),
            "--admin",
            &far_admin.to_string(),
        ];
        let far = start(End::Far, &arguments, setup.far)?;
        wait(|| listens(setup.link, End::Far, far_admin), "the far end")?;
        let arguments = [
            "near",
            "--peer",
            &setup.dial.unwrap_or(listen).to_string(),
            "--key",
            &key_file("near.key"),
            "--peer-key",
            &far_key.public().to_string(),
            "--forward",
            &format!("{address}={}", setup.target),
            "--admin",
            &near_admin.to_string(),
        ];
        let near = start(End::Near, &arguments, setup.near)?;
        wait(
            || listens(setup.link, End::Near, near_admin),
            "the near end",
        )?;
        let gateways = Gateways {
            address,
            refrain: setup.refrain.to_owned(),
            far_admin,
            near_admin,
            near,
            near_arguments: [&arguments, setup.near]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            far,
            link: setup.link.cloned(),
            _folder: folder,
        };
        gateways.wait_for_lanes()?;
        Ok(gateways)
    }

    /// Ends the near end and starts it again: a new link with empty caches, by a peer that the far end knows.
    pub(crate) fn restart_near(&mut self) -> anyhow::Result<()> {
        self.end_near()?;
        self.begin_near()?;
        self.wait_for_lanes()
    }

    /// Ends the near end.
    pub(crate) fn end_near(&mut self) -> anyhow::Result<()> {
        self.near.end()
    }

    /// Starts the near end again, and waits until it listens: its link may not be up yet.
    pub(crate) fn begin_near(&mut self) -> anyhow::Result<()> {
        let mut command = program(self.link.as_ref(), End::Near, &self.refrain);
        self.near = Running::start(command.args(&self.near_arguments).args(["--log", "warn"]))?;
        let is_there = || listens(self.link.as_ref(), End::Near, self.near_admin);
        wait(is_there, "the near end")
    }

    fn wait_for_lanes(&self) -> anyhow::Result<()> {
        wait(|| Ok(self.near()?.lanes == 4), "the link")
    }

    /// How the near end sees the link.
    pub(crate) fn near(&self) -> anyhow::Result<Peer> {
        self.peer(End::Near, self.near_admin)
    }

    /// How the far end sees it.
    pub(crate) fn far(&self) -> anyhow::Result<Peer> {
        self.peer(End::Far, self.far_admin)
    }

    /// The near end's process.
    pub(crate) fn near_process(&self) -> Pid {
        self.near.pid()
    }

    /// All that the near end counted.
    pub(crate) fn near_status(&self) -> anyhow::Result<Status> {
        self.status(End::Near, self.near_admin)
    }

    /// The far end's process.
    pub(crate) fn far_process(&self) -> Pid {
        self.far.pid()
    }

    /// Has both run on these processors alone, as `taskset` lists them.
    pub(crate) fn pin(&self, processors: &str) -> anyhow::Result<()> {
        for process in [self.near.pid(), self.far.pid()] {
            let output = Command::new("taskset")
                .args(["--all-tasks", "--cpu-list", "--pid", processors])
                .arg(process.to_string())
                .output()
                .context("cannot run taskset (package util-linux)")?;
            ensure!(
                output.status.success(),
                "taskset: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    /// Ends both as a service manager would: a store is then written to its end.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.near.end()?;
        self.far.end()
    }

    fn peer(&self, end: End, admin: SocketAddr) -> anyhow::Result<Peer> {
        let status = self.status(end, admin)?;
        status.peers.into_iter().next().context("no peer")
    }

    fn status(&self, end: End, admin: SocketAddr) -> anyhow::Result<Status> {
        let output = program(self.link.as_ref(), end, &self.refrain)
            .args(["status", "--json", "--admin", &admin.to_string()])
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// A program with an environment of its own, so that no variable gives options.
fn program(link: Option<&Arc<Link>>, end: End, path: &Path) -> Command {
    let mut command = match link {
        Some(link) => link.command(end, &path.to_string_lossy()),
        None => Command::new(path),
    };
    let search = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", search);
    command
}

fn listens(link: Option<&Arc<Link>>, end: End, address: SocketAddr) -> anyhow::Result<bool> {
    let connect = || Ok(TcpStream::connect(address).is_ok());
    match link {
        Some(link) => link.at(end, connect),
        None => connect(),
    }
}

/// A process that ends with this.
pub(crate) struct Running(Child);

impl Running {
    /// Starts it without input and output.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Running> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn();
        let program = || command.get_program().to_string_lossy().into_owned();
        Ok(Running(
            child.with_context(|| format!("cannot run {}", program()))?,
        ))
    }

    /// Starts an nginx with the `nginx.conf` of its folder, and waits until it listens.
    pub(crate) fn nginx(folder: &Path, address: SocketAddr) -> anyhow::Result<Running> {
        let at = |name: &str| folder.join(name).display().to_string();
        // Debian has it where only root's PATH leads.
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nginx");
        command
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .args(["-e", &at("error.log"), "-p", &at("")])
            .args(["-c", &at("nginx.conf")])
            .stderr(Stdio::null());
        let running = Running::start(&mut command)?;
        wait(|| Ok(TcpStream::connect(address).is_ok()), "nginx")?;
        Ok(running)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }

    pub(crate) fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Asks it to end, and waits until it did.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        nix::sys::signal::kill(self.pid(), Signal::SIGTERM)?;
        wait(|| self.has_ended(), "the end of a program")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a process has in memory; 0 for a process that has ended.
pub(crate) fn resident_bytes(process: Pid) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

/// Runs a command to its end, and gives what it printed.
pub(crate) fn ok(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until something is there.
pub(crate) fn wait(
    mut is_there: impl FnMut() -> anyhow::Result<bool>,
    what: &str,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_there()? {
        ensure!(Instant::now() < deadline, "timed out waiting for {what}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// How long `transfer` took, and of that, on the processors of `process`.
pub(crate) fn clocked(
    process: Pid,
    transfer: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<(Duration, Duration)> {
    let clock = clock_getcpuclockid(process)?;
    let (began, before) = (Instant::now(), Duration::from(clock.now()?));
    transfer()?;
    let after = Duration::from(clock.now()?);
    Ok((began.elapsed(), after.saturating_sub(before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_clock_counts_what_it_does() {
        let work = || {
            std::hint::black_box((0..10_000_u64).fold(0, |sum, n| sum ^ (n * n)));
            Ok(())
        };
        let (_, cpu) = clocked(Pid::this(), work).expect("a clock");
        assert!(cpu > Duration::ZERO);
    }
}
