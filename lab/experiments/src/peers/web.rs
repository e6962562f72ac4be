//! The origin: nginx before the folder of files, at three addresses of the far end.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::Context;
use refrain_link::End;

use super::place::Place;
use crate::processes::Running;

/// What compresses answers, of Debian's package libnginx-mod-http-brotli-filter.
pub(super) const BROTLI_MODULE: &str = "/usr/lib/nginx/modules/ngx_http_brotli_filter_module.so";

/// How the origin codes its answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Brotli,
}

/// nginx, until dropped.
pub(super) struct Web {
    addresses: [SocketAddr; 3],
    /// What it serves.
    root: PathBuf,
    log: PathBuf,
    _running: Running,
    _folder: tempfile::TempDir,
}

/// A file of noise that nobody has seen before, until dropped.
pub(super) struct Fresh {
    pub bytes: Vec<u8>,
    pub path: String,
    file: PathBuf,
}

impl Coding {
    /// In HTTP.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
        }
    }
}

impl Web {
    pub(super) fn start(place: &Place, root: &Path) -> anyhow::Result<Web> {
        let addresses = [(); 3].map(|()| place.address(End::Far));
        let brotli_is_here = Path::new(BROTLI_MODULE).exists();
        let servers = [
            "",
            "gzip on; gzip_types *; gzip_comp_level 6;",
            match brotli_is_here {
                true => "brotli on; brotli_types *; brotli_comp_level 6;",
                false => "",
            },
        ];
        let servers = addresses.iter().zip(servers).map(|(address, coding)| {
            let root = root.display();
            format!("server {{ listen {address}; root {root}; {coding} }}\n")
        });
        let http = format!(
            "access_log LOG bytes; sendfile on; expires 1h;\n{}",
            servers.collect::<String>()
        );
        let modules = match brotli_is_here {
            true => format!("load_module {BROTLI_MODULE};\n"),
            false => String::new(),
        };
        let (running, folder) = nginx(place, End::Far, &modules, &http, addresses[0])?;
        Ok(Web {
            addresses,
            root: root.to_owned(),
            log: folder.path().join("access.log"),
            _running: running,
            _folder: folder,
        })
    }

    /// The folder of all files.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn address(&self, coding: Coding) -> SocketAddr {
        self.addresses[coding as usize]
    }

    /// The bytes that it has sent so far.
    pub(super) fn sent_bytes(&self) -> anyhow::Result<u64> {
        let log = fs::read_to_string(&self.log)?;
        let sent = log.lines().map(|line| line.parse::<u64>());
        sent.sum::<Result<_, _>>().context("invalid log of nginx")
    }

    /// Makes a file that compresses to no less.
    pub(super) fn fresh(&self, bytes: usize) -> anyhow::Result<Fresh> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let path = format!("fresh-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let file = self.root.join(&path);
        let mut noise = vec![0; bytes];
        fastrand::fill(&mut noise);
        fs::write(&file, &noise)?;
        Ok(Fresh {
            bytes: noise,
            path,
            file,
        })
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // Its folder is removed in the end anyway.
        let _ = fs::remove_file(&self.file);
    }
}

/// Starts an nginx with these lines in its block `http`, where LOG and DIRECTORY stand for its own.
pub(super) fn nginx(
    place: &Place,
    end: End,
    modules: &str,
    http: &str,
    address: SocketAddr,
) -> anyhow::Result<(Running, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    // Debian's folders for temporary files belong to root.
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {};\n", at(what)))
        .concat();
    let http = http.replace("LOG", &at("access.log"));
    let http = http.replace("DIRECTORY", &at("cache"));
    let config = format!(
        "{modules}daemon off; master_process off; pid {};\n\
         events {{ worker_connections 512; }}\n\
         http {{\n{temporary}log_format bytes '$bytes_sent';\n\
         error_log {}; keepalive_requests 1000000;\n{http}}}\n",
        at("pid"),
        at("error.log"),
    );
    fs::write(at("nginx.conf"), config)?;
    let mut command = place.command(end, "nginx");
    command
        .args(["-e", &at("error.log"), "-p", &at("")])
        .args(["-c", &at("nginx.conf")])
        .stderr(Stdio::null());
    let running = place.serve(end, &mut command, address)?;
    Ok((running, folder))
}
