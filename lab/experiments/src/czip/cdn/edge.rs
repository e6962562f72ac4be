//! An edge: nginx that keeps what it was asked for.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use refrain_relay::addresses::free_address;

use crate::processes::Running;

/// One nginx, until dropped.
pub(super) struct Edge {
    address: SocketAddr,
    folder: PathBuf,
    _running: Running,
}

impl Edge {
    /// In front of `origin`, with its cache in `folder`, which is made.
    pub(super) fn start(origin: SocketAddr, folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir(folder)?;
        let address = free_address();
        let at = |name: &str| folder.join(name).display().to_string();
        // Debian's folders for temporary files belong to root.
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {};\n", at(what)))
            .concat();
        // Chunks and plain files are kept whole; of archives, of which only the table is read here, slices.
        let config = format!(
            "daemon off; master_process off; pid {pid};\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n{temporary}\
             log_format bytes '$bytes_sent';\n\
             access_log {log} bytes; error_log {error};\n\
             sendfile on; keepalive_requests 1000000;\n\
             proxy_cache_path {cache} levels=1:2 keys_zone=all:16m max_size=4g use_temp_path=off;\n\
             upstream origin {{ server {origin}; keepalive 16; keepalive_requests 1000000; }}\n\
             proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
             proxy_cache all; proxy_cache_lock on;\n\
             proxy_cache_lock_timeout 10m; proxy_cache_lock_age 10m;\n\
             proxy_cache_valid 200 206 1h;\n\
             server {{\n\
             listen {address};\n\
             location / {{ proxy_pass http://origin; }}\n\
             location ~ \\.czip$ {{\n\
             slice 128k; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;\n\
             proxy_set_header Connection \"\"; proxy_pass http://origin;\n\
             }}\n}}\n}}\n",
            pid = at("pid"),
            log = at("access.log"),
            error = at("error.log"),
            cache = at("cache"),
        );
        std::fs::write(at("nginx.conf"), config)?;
        let running = Running::nginx(folder, address)?;
        Ok(Self {
            address,
            folder: folder.to_owned(),
            _running: running,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes that it sent so far, with the heads of answers.
    pub(super) fn sent_bytes(&self) -> anyhow::Result<u64> {
        let log = std::fs::read_to_string(self.folder.join("access.log"))?;
        Ok(log
            .lines()
            .filter_map(|line| line.parse::<u64>().ok())
            .sum())
    }
}
