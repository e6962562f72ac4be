//! What measures an ecosystem's rows: servers, a pair in front of them, and clients, by scripts.

use std::{
    ffi::OsString,
    fs::File,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use refrain_relay::addresses::free_address;

use super::{
    apart::FOLDER,
    row::{Bytes, Row, Title},
};
use crate::processes::{Gateways, Running, Setup, wait};

/// How long counts must stand still after a step.
const STILL: Duration = Duration::from_millis(400);
/// After this many times they are taken as they are: pings never end.
const STILL_ATTEMPTS: usize = 10;

/// On a busy machine an end may be silent for longer than by default without being dead.
const DEAD_AFTER: &str = "60s";

/// What scripts are given.
pub(super) type Variables<'a> = &'a [(&'a str, &'a str)];

/// Runs servers and clients.
pub(super) struct Bench {
    refrain: PathBuf,
    data: PathBuf,
    effort: String,
}

/// A fresh near and far end, with a server behind them.
pub(super) struct Pair<'a> {
    bench: &'a Bench,
    gateways: Gateways,
    proxy: SocketAddr,
    service: SocketAddr,
    server: SocketAddr,
}

/// Where programs are looked for: servers live in sbin, PostgreSQL's in folders of their own.
pub(super) fn search_path() -> OsString {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    std::env::join_paths(folders).unwrap_or_default()
}

impl Bench {
    pub(super) fn new(refrain: PathBuf, data: PathBuf, effort: String) -> Self {
        Self {
            refrain,
            data,
            effort,
        }
    }

    /// The program that is measured.
    pub(super) fn refrain(&self) -> &str {
        self.refrain.to_str().unwrap_or_default()
    }

    /// Runs a script of bash, and gives what it printed.
    pub(super) fn run(&self, script: &str, variables: Variables<'_>) -> anyhow::Result<String> {
        let output = self.script(script, variables).output()?;
        ensure!(
            output.status.success(),
            "{script}\n{variables:?}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts a server at `$SERVER`, whose port is `$PORT`, and waits until it listens.
    pub(super) fn serve(&self, script: &str) -> anyhow::Result<(SocketAddr, Running)> {
        let address = free_address();
        let log = Path::new(FOLDER).join(format!("server-{}.log", address.port()));
        let (server, port) = (address.to_string(), address.port().to_string());
        let mut command = self.script(script, &[("SERVER", &server), ("PORT", &port)]);
        let running = Running::start(command.stderr(File::create(&log)?))?;
        wait(|| Ok(TcpStream::connect(address).is_ok()), "a server").with_context(|| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            format!("{script}\n{log}")
        })?;
        Ok((address, running))
    }

    /// A pair with further options for both ends, and for the near end.
    pub(super) fn pair(
        &self,
        server: SocketAddr,
        both: &[&str],
        near: &[&str],
    ) -> anyhow::Result<Pair<'_>> {
        self.pair_with_far(server, both, near, &[])
    }

    /// The same with further options for the far end.
    pub(super) fn pair_with_far(
        &self,
        server: SocketAddr,
        both: &[&str],
        near: &[&str],
        far: &[&str],
    ) -> anyhow::Result<Pair<'_>> {
        let (proxy, service) = (free_address(), free_address());
        let http_proxy = proxy.to_string();
        let site = format!("{service}=https://{server}");
        let common = [
            &["--effort", &self.effort, "--dead-after", DEAD_AFTER],
            both,
        ]
        .concat();
        let listeners = ["--http-proxy", &http_proxy, "--service", &site];
        let near = [&common[..], near, &listeners].concat();
        // Of servers that speak TLS.
        let certificate = Path::new(FOLDER).join("cert.pem");
        let certificate = certificate.to_string_lossy();
        let trust = ["--origin-ca", &certificate];
        let has_certificate = Path::new(&*certificate).exists();
        let trust = if has_certificate { &trust[..] } else { &[] };
        let far = [&common[..], trust, far].concat();
        let gateways = Gateways::start(&Setup {
            refrain: &self.refrain,
            link: None,
            target: server,
            listen: None,
            dial: None,
            far: &far,
            near: &near,
        })?;
        Ok(Pair {
            bench: self,
            gateways,
            proxy,
            service,
            server,
        })
    }

    /// A row of a pair of its own.
    pub(super) fn row(
        &self,
        server: SocketAddr,
        title: Title<'_>,
        script: &str,
        variables: Variables<'_>,
    ) -> anyhow::Result<Row> {
        self.pair(server, &[], &[])?.row(title, script, variables)
    }

    /// Programs see nobody's settings, and a home of their own.
    fn script(&self, script: &str, variables: Variables<'_>) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(FOLDER)
            .env_clear()
            .env("PATH", search_path())
            .env("HOME", FOLDER)
            .env("LC_ALL", "C.UTF-8")
            .env("DATA", &self.data)
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        command
    }
}

impl Pair<'_> {
    /// Runs the script three times: for a version, the next one, and that again. It must fail where
    /// content is not what the server has.
    ///
    /// It is given `$VERSION` (1, 2, 2), `$STEP` (1, 2, 3), the server's `$SERVER`, the near end's
    /// `$NEAR` for HTTP, its `$FORWARD` to the server with `$FORWARD_PORT`, and its `$SERVICE`, by http, for a server
    /// that speaks TLS.
    pub(super) fn row(
        &self,
        title: Title<'_>,
        script: &str,
        variables: Variables<'_>,
    ) -> anyhow::Result<Row> {
        let mut steps = Vec::new();
        for (step, version) in [("1", "1"), ("2", "2"), ("3", "2")] {
            let (before, began) = (self.still()?, Instant::now());
            let own = [
                ("VERSION", version),
                ("STEP", step),
                ("SERVER", &self.server.to_string()),
                ("NEAR", &self.proxy.to_string()),
                ("SERVICE", &self.service.to_string()),
                ("FORWARD", &self.gateways.address.to_string()),
                ("FORWARD_PORT", &self.gateways.address.port().to_string()),
            ];
            let variables = [&own, variables].concat();
            let result = self.bench.run(script, &variables);
            result.with_context(|| format!("{}, step {step}", title.name))?;
            let bytes = self.still()?.since(before);
            eprintln!(
                "{}, step {step}: {:.3} MB, {:.3} on the link, {:.0} s",
                title.name,
                bytes.app as f64 / 1e6,
                bytes.link as f64 / 1e6,
                began.elapsed().as_secs_f64()
            );
            ensure!(
                bytes.app > 0,
                "{}, step {step}: the client bypassed the pair",
                title.name
            );
            steps.push(bytes);
        }
        Ok(Row {
            name: title.name.to_owned(),
            steps: [steps[0], steps[1], steps[2]],
            checked: title.checked.to_owned(),
            in_the_way: title.in_the_way.to_owned(),
        })
    }

    /// What the near end counted, once its clients' connections are over.
    fn still(&self) -> anyhow::Result<Bytes> {
        let mut last = self.counted()?;
        for _ in 0..STILL_ATTEMPTS {
            thread::sleep(STILL);
            let bytes = self.counted()?;
            if (bytes.app, bytes.link) == (last.app, last.link) {
                break;
            }
            last = bytes;
        }
        Ok(last)
    }

    fn counted(&self) -> anyhow::Result<Bytes> {
        let status = self.gateways.near_status()?;
        let resets = status.peers.iter().map(|peer| peer.counters.flows_reset);
        let total = &status.total;
        Ok(Bytes {
            app: total.sent.app_bytes + total.received.app_bytes,
            link: total.sent.link_bytes + total.received.link_bytes,
            resets: resets.sum(),
        })
    }
}
