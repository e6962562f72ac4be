//! The ways from a client at the near end to the origin at the far end.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
};

use anyhow::{Context, ensure};
use nix::unistd::Pid;
use refrain_gateway::keys::PrivateKey;
use refrain_link::End;
use refrain_relay::addresses::free_address;
use serde_json::Value;

use crate::{
    over_link::{ORIGIN_PORT, OverLink},
    processes::{Gateways, Running, ok, wait},
};

/// A way.
pub(super) struct Way {
    pub name: &'static str,
    kind: WayKind,
}

#[derive(Clone, Copy)]
enum WayKind {
    Direct,
    Haproxy {
        has_tls: bool,
    },
    Intercepted {
        action: &'static str,
        caches: Caches,
    },
    /// Between two HAProxies, which are a client and an origin that speak TLS.
    InterceptedTls,
}

/// The caches of a pair when its CPU time is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Caches {
    /// They still take new memory, which the kernel clears.
    Filling,
    /// They are small, and have all their memory.
    Full,
}

/// The size of caches that are to be full, as an option.
const FULL_CACHE: &str = "32MiB";

pub(super) const DIRECT: &str = "direct";
pub(super) const RELAYS: &str = "HAProxy twice";
pub(super) const TLS: &str = "HAProxy twice, TLS 1.3";
pub(super) const PASS: &str = "pair, action=pass";
pub(super) const OPTIMIZE: &str = "pair, noise";
pub(super) const OPTIMIZE_FULL: &str = "pair, noise, full caches";
pub(super) const PAIR_TLS: &str = "pair, TLS";

/// In the order of the tables.
pub(super) const WAYS: [Way; 7] = [
    Way {
        name: DIRECT,
        kind: WayKind::Direct,
    },
    Way {
        name: RELAYS,
        kind: WayKind::Haproxy { has_tls: false },
    },
    Way {
        name: TLS,
        kind: WayKind::Haproxy { has_tls: true },
    },
    Way {
        name: PASS,
        kind: WayKind::Intercepted {
            action: "pass",
            caches: Caches::Filling,
        },
    },
    Way {
        name: OPTIMIZE,
        kind: WayKind::Intercepted {
            action: "optimize",
            caches: Caches::Filling,
        },
    },
    Way {
        name: OPTIMIZE_FULL,
        kind: WayKind::Intercepted {
            action: "optimize",
            caches: Caches::Full,
        },
    },
    Way {
        name: PAIR_TLS,
        kind: WayKind::InterceptedTls,
    },
];

/// A cipher suite of TLS 1.3 that gateways choose: the first of their library.
pub(super) const CIPHER_SUITE: &str = "TLS_AES_256_GCM_SHA384";

/// A gateway has found out within these that nothing repeats.
pub(super) const FIRST_BYTES: u64 = 2 << 20;

/// So many fill the caches: half of one is open to what never repeated.
const FIRST_BYTES_FULL: u64 = 64 << 20;

const TRANSPARENT_PORT: u16 = 15001;
const SOCKS5_PORT: u16 = 1080;

/// Programs that are ready, until dropped.
pub(super) struct Ready<'a> {
    /// Where clients connect.
    pub address: SocketAddr,
    /// The process at the near end, and that at the far end.
    pub processes: Option<[Pid; 2]>,
    _programs: Programs<'a>,
}

enum Programs<'a> {
    None,
    Haproxies(#[expect(dead_code, reason = "they end when dropped")] Haproxies),
    Intercepted(#[expect(dead_code, reason = "ends when dropped")] Box<Intercepted<'a>>),
    InterceptedTls(
        #[expect(dead_code, reason = "ends when dropped")] Box<Intercepted<'a>>,
        #[expect(dead_code, reason = "they end when dropped")] Haproxies,
    ),
}

/// Two, one at each end.
struct Haproxies {
    near: SocketAddr,
    far: SocketAddr,
    running: [Running; 2],
    _folder: tempfile::TempDir,
}

impl Way {
    /// Noise that the connection carries before its CPU time is taken.
    pub(super) fn first_bytes(&self) -> u64 {
        match self.kind {
            WayKind::Intercepted {
                caches: Caches::Full,
                ..
            } => FIRST_BYTES_FULL,
            _ => FIRST_BYTES,
        }
    }

    pub(super) fn start<'a>(
        &self,
        over: &'a OverLink,
        refrain: &'a Path,
    ) -> anyhow::Result<Ready<'a>> {
        match self.kind {
            WayKind::Direct => Ok(Ready {
                address: over.direct("cubic")?,
                processes: None,
                _programs: Programs::None,
            }),
            WayKind::Haproxy { has_tls } => {
                let haproxies = Haproxies::start(over, has_tls)?;
                let [first, second] = &haproxies.running;
                Ok(Ready {
                    address: haproxies.near,
                    processes: Some([first.pid(), second.pid()]),
                    _programs: Programs::Haproxies(haproxies),
                })
            }
            WayKind::Intercepted { action, caches } => {
                let origin = over.direct("cubic")?;
                let intercepted = Intercepted::start(over, refrain, origin, action, caches)?;
                Ok(Ready {
                    address: origin,
                    processes: Some(intercepted.processes()),
                    _programs: Programs::Intercepted(Box::new(intercepted)),
                })
            }
            WayKind::InterceptedTls => {
                let haproxies = Haproxies::start(over, true)?;
                let (far, caches) = (haproxies.far, Caches::Filling);
                let intercepted = Intercepted::start(over, refrain, far, "optimize", caches)?;
                Ok(Ready {
                    address: haproxies.near,
                    processes: Some(intercepted.processes()),
                    _programs: Programs::InterceptedTls(Box::new(intercepted), haproxies),
                })
            }
        }
    }
}

impl Haproxies {
    /// With default options.
    fn start(over: &OverLink, has_tls: bool) -> anyhow::Result<Haproxies> {
        let link = over.link();
        over.direct("cubic")?;
        let folder = tempfile::tempdir()?;
        let certificate = folder.path().join("certificate.pem");
        if has_tls {
            make_certificate(&certificate)?;
        }
        let near = free_address();
        let far = SocketAddr::from((link.address(End::Far), free_address().port()));
        let origin = SocketAddr::from(([127, 0, 0, 1], ORIGIN_PORT));
        let (of_server, of_client) = match has_tls {
            true => (
                format!(" ssl crt {}", certificate.display()),
                " ssl verify none",
            ),
            false => (String::new(), ""),
        };
        let start = |end, address: SocketAddr, bind: &str, server: &str| {
            let file = folder.path().join(format!("{end:?}.cfg"));
            let text = format!(
                "global\n  ssl-default-bind-ciphersuites {CIPHER_SUITE}\n  ssl-default-server-ciphersuites {CIPHER_SUITE}\n  \
             ssl-default-bind-options ssl-min-ver TLSv1.3\n\
             defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
             listen pass\n  bind {address}{bind}\n  server next {server}\n"
            );
            fs::write(&file, text)?;
            let mut command = link.command(end, "haproxy");
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
            command.args(["-db", "-f"]).arg(&file);
            let running = Running::start(&mut command)?;
            let connects = || link.at(end, || Ok(TcpStream::connect(address).is_ok()));
            wait(connects, "haproxy")?;
            anyhow::Ok(running)
        };
        let second = start(End::Far, far, &of_server, &origin.to_string())?;
        let first = start(End::Near, near, "", &format!("{far}{of_client}"))?;
        Ok(Haproxies {
            near,
            far,
            running: [first, second],
            _folder: folder,
        })
    }
}

fn make_certificate(path: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt"]);
    command.args(["ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=far", "-keyout"]);
    let output = command.arg(path).arg("-out").arg(path).output();
    let output = output.context("cannot run openssl")?;
    // The certificate has replaced the key, or follows it: haproxy needs both.
    let text = fs::read_to_string(path)?;
    ensure!(
        output.status.success() && text.contains("PRIVATE KEY") && text.contains("CERTIFICATE"),
        "openssl: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// A pair, and rules at the near end that redirect connections to the origin.
pub(super) struct Intercepted<'a> {
    pub gateways: Gateways,
    over: &'a OverLink,
    refrain: &'a Path,
    /// It keeps the rules.
    _kept: Running,
    /// With its file.
    _folder: tempfile::TempDir,
}

impl<'a> Intercepted<'a> {
    pub(super) fn start(
        over: &'a OverLink,
        refrain: &'a Path,
        origin: SocketAddr,
        action: &str,
        caches: Caches,
    ) -> anyhow::Result<Intercepted<'a>> {
        let rule = format!("dst={} port={} action={action}", origin.ip(), origin.port());
        let (port, socks5) = (TRANSPARENT_PORT.to_string(), SOCKS5_PORT.to_string());
        let origin_text = origin.to_string();
        let mut near = vec![
            "--transparent",
            &port,
            "--intercept",
            &rule,
            "--socks5",
            &socks5,
        ];
        let mut far = vec!["--allow", &origin_text, "--allow", "127.0.0.1:*"];
        if caches == Caches::Full {
            for options in [&mut near, &mut far] {
                options.extend(["--cache-size", FULL_CACHE]);
            }
        }
        let gateways = over.pair(refrain, &near, &far)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("near.toml");
        let key = folder.path().join("key");
        PrivateKey::generate()?.write_new(&key)?;
        let text = format!(
            "key = \"{}\"\npeer_key = \"{}\"\npeer = \"{}\"\ntransparent = \"{port}\"\nintercept = [\"{rule}\"]\n",
            key.display(),
            PrivateKey::generate()?.public(),
            origin.ip(),
        );
        fs::write(&file, text)?;
        let file = file.display().to_string();
        // As root, the near end marks its connections: no rule is about them.
        let on = ["intercept", "on", "--config", &file, "--user", "0"];
        let program = refrain.to_string_lossy();
        let kept = Running::start(over.link().command(End::Near, &program).args(on))?;
        let intercepted = Intercepted {
            gateways,
            over,
            refrain,
            _kept: kept,
            _folder: folder,
        };
        wait(|| intercepted.is_open(), "a gate that is open")?;
        Ok(intercepted)
    }

    fn processes(&self) -> [Pid; 2] {
        [self.gateways.near_process(), self.gateways.far_process()]
    }

    /// The listener for programs under `refrain run`.
    pub(super) fn socks5() -> String {
        SOCKS5_PORT.to_string()
    }

    /// Whether connections are redirected.
    fn is_open(&self) -> anyhow::Result<bool> {
        let shown = self.refrain(&["intercept", "show", "--json"])?;
        let shown: Value = serde_json::from_str(&shown)?;
        Ok(shown["rules"][0]["gate"] == "open")
    }

    fn refrain(&self, words: &[&str]) -> anyhow::Result<String> {
        let program = self.refrain.to_string_lossy();
        let mut command = self.over.link().command(End::Near, &program);
        ok(command.args(words))
    }
}

impl Drop for Intercepted<'_> {
    fn drop(&mut self) {
        // The namespaces end soon.
        let _ = self.refrain(&["intercept", "off"]);
    }
}
