//! The site, and programs between it and its clients.

use std::{fs, net::SocketAddr, path::Path, process::Command};

use nix::unistd::Pid;
use refrain_relay::addresses::free_address;

use crate::processes::{Gateways, Running, Setup, ok};

/// The name of the site and of all programs before it.
const HOST: &str = "localhost";

/// What clients get.
pub(super) const OBJECT_BYTES: usize = 1_024;

/// The names of the ways.
pub(super) const DIRECT: &str = "direct";
pub(super) const NGINX: &str = "nginx twice";
pub(super) const PAIR: &str = "pair";
pub(super) const FULL_PAIR: &str = "pair, full caches";

/// What fills the caches of a pair: more than one holds by default.
const LARGE_BYTES: usize = 8 << 20;
const LARGE_REQUESTS: usize = 20;

/// A way to the site.
pub(super) struct Way {
    pub name: &'static str,
    pub start: fn(&Site, &Path) -> anyhow::Result<Ready>,
}

pub(super) const WAYS: [Way; 4] = [
    Way {
        name: DIRECT,
        start: |site, _| {
            Ok(Ready {
                address: site.address,
                between: Vec::new(),
                _nginx: Vec::new(),
                _pair: None,
            })
        },
    },
    Way {
        name: NGINX,
        start: |site, _| {
            let far = site.nginx_before(site.address)?;
            let near = site.nginx_before(far.address)?;
            Ok(Ready {
                address: near.address,
                between: vec![near.running.pid(), far.running.pid()],
                _nginx: vec![near, far],
                _pair: None,
            })
        },
    },
    Way {
        name: PAIR,
        start: |site, refrain| site.pair(refrain, &[]),
    },
    Way {
        name: FULL_PAIR,
        start: |site, refrain| {
            let pair = site.pair(refrain, &[])?;
            let requests = LARGE_REQUESTS.to_string();
            ok(&mut h2load(&pair, "large", &["--requests", &requests]))?;
            Ok(pair)
        },
    },
];

/// What clients connect to, until dropped.
pub(super) struct Ready {
    pub address: SocketAddr,
    /// The processes between the clients and the site.
    pub between: Vec<Pid>,
    _nginx: Vec<Nginx>,
    _pair: Option<Gateways>,
}

/// An nginx, until dropped.
struct Nginx {
    address: SocketAddr,
    running: Running,
    _folder: tempfile::TempDir,
}

/// A client that asks for `path` by h2load, with further options.
pub(super) fn h2load(ready: &Ready, path: &str, options: &[&str]) -> Command {
    let port = ready.address.port();
    let mut command = Command::new("h2load");
    command
        .args(["--threads", "1", "--connect-to", &ready.address.to_string()])
        .args(options)
        .arg(format!("https://{HOST}:{port}/{path}"));
    command
}

/// The site, until dropped.
pub(super) struct Site {
    address: SocketAddr,
    folder: tempfile::TempDir,
    _nginx: Nginx,
}

impl Site {
    /// One that serves a small and a large object.
    pub(super) fn start() -> anyhow::Result<Site> {
        let folder = tempfile::tempdir()?;
        for (name, bytes) in [("object", OBJECT_BYTES), ("large", LARGE_BYTES)] {
            let mut object = vec![0; bytes];
            fastrand::fill(&mut object);
            fs::write(folder.path().join(name), object)?;
        }
        let root = format!("root {};", folder.path().display());
        Site::of(folder, &root)
    }

    /// One that asks this server, which has no TLS.
    pub(super) fn before(server: SocketAddr) -> anyhow::Result<Site> {
        let settings =
            format!("location / {{ proxy_pass http://{server}; proxy_read_timeout 1h; }}");
        Site::of(tempfile::tempdir()?, &settings)
    }

    fn of(folder: tempfile::TempDir, settings: &str) -> anyhow::Result<Site> {
        let at = |name: &str| folder.path().join(name).display().to_string();
        let name = format!("subjectAltName=DNS:{HOST}");
        ok(Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
            ])
            .args([
                "-nodes",
                "-days",
                "2",
                "-keyout",
                &at("key.pem"),
                "-out",
                &at("cert.pem"),
            ])
            .args(["-subj", &format!("/CN={HOST}"), "-addext", &name])
            // Clients trust it as it is.
            .args(["-addext", "basicConstraints=critical,CA:FALSE"]))?;
        let nginx = nginx(folder.path(), "", settings)?;
        Ok(Site {
            address: nginx.address,
            folder,
            _nginx: nginx,
        })
    }

    /// An nginx whose upstream this is.
    fn nginx_before(&self, upstream: SocketAddr) -> anyhow::Result<Nginx> {
        nginx(
            self.folder.path(),
            &format!("upstream next {{ server {upstream}; keepalive 256; }}"),
            "location / { proxy_pass https://next; proxy_http_version 1.1; proxy_set_header Connection ''; }",
        )
    }

    /// A pair before it, with further options for both ends.
    pub(super) fn pair(&self, refrain: &Path, options: &[&str]) -> anyhow::Result<Ready> {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let address = free_address();
        let service = format!("https://{address}=https://{HOST}:{}", self.address.port());
        let (certificate, key) = (at("cert.pem"), at("key.pem"));
        let near = [
            "--service",
            &service,
            "--cert",
            &certificate,
            "--cert-key",
            &key,
        ];
        let gateways = Gateways::start(&Setup {
            refrain,
            target: self.address,
            listen: None,
            dial: None,
            far: &[options, &["--origin-ca", &certificate]].concat(),
            near: &[options, &near].concat(),
            link: None,
        })?;
        Ok(Ready {
            address,
            between: vec![gateways.near_process(), gateways.far_process()],
            _nginx: Vec::new(),
            _pair: Some(gateways),
        })
    }
}

/// Starts an nginx that speaks TLS and both versions of HTTP, with the certificate in `certificate`.
fn nginx(certificate: &Path, http: &str, settings: &str) -> anyhow::Result<Nginx> {
    let folder = tempfile::tempdir()?;
    let address = free_address();
    let at = |name: &str| folder.path().join(name).display().to_string();
    // Debian's folders for temporary files belong to root.
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {};\n", at(kind)))
        .concat();
    let certificate = certificate.display();
    let config = format!(
        "daemon off; master_process off; pid {}; worker_rlimit_nofile 20000;\n\
         events {{ worker_connections 19000; }}\n\
         http {{\n{temporary}error_log {}; access_log off; keepalive_requests 1000000;\n{http}\n\
         server {{\nlisten {address} ssl http2; ssl_certificate {certificate}/cert.pem; ssl_certificate_key \
         {certificate}/key.pem;\n{settings}\n}}\n}}\n",
        at("pid"),
        at("error.log"),
    );
    fs::write(at("nginx.conf"), config)?;
    let running = Running::nginx(folder.path(), address)?;
    Ok(Nginx {
        address,
        running,
        _folder: folder,
    })
}
