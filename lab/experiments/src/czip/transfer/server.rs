//! Servers that count: nginx, and rsync's daemon.

use std::{net::TcpStream, path::Path, process::Command};

use anyhow::Context;
use refrain_relay::addresses::free_address;

use super::Traffic;
use crate::processes::{Running, wait};

/// nginx before a folder, until dropped.
pub(super) struct Web {
    running: Running,
    url: String,
    folder: tempfile::TempDir,
}

impl Web {
    pub(super) fn start(served: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = free_address();
        let at = |name: &str| folder.path().join(name).display().to_string();
        // Debian's folders for temporary files belong to root.
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {};\n", at(what)))
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {};\n\
             events {{ worker_connections 512; }}\n\
             http {{\n{temporary}\
             log_format bytes '$request_length $bytes_sent';\n\
             access_log {} bytes; error_log {};\n\
             sendfile on; keepalive_requests 1000000;\n\
             server {{ listen {address}; root {}; }}\n}}\n",
            at("pid"),
            at("access.log"),
            at("error.log"),
            served.display(),
        );
        std::fs::write(at("nginx.conf"), config)?;
        let running = Running::nginx(folder.path(), address)?;
        Ok(Self {
            running,
            url: format!("http://{address}"),
            folder,
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Ends it, and says what went over its connections.
    pub(super) fn end(mut self) -> anyhow::Result<Traffic> {
        self.running.end()?;
        let log = std::fs::read_to_string(self.folder.path().join("access.log"))?;
        web_traffic(&log).context("invalid line in nginx's log")
    }
}

/// The sums of a log: a line a request, bytes that came, bytes that went.
fn web_traffic(log: &str) -> Option<Traffic> {
    let mut traffic = Traffic::default();
    for line in log.lines() {
        let (came, went) = line.split_once(' ')?;
        // A connection without a request, such as the one that finds out whether it listens.
        if came != "0" {
            traffic.sent_by_client += came.parse::<u64>().ok()?;
            traffic.sent_by_server += went.parse::<u64>().ok()?;
            *traffic.requests.get_or_insert(0) += 1;
        }
    }
    Some(traffic)
}

/// rsync's daemon before a folder, until dropped.
pub(super) struct RsyncDaemon {
    _running: Running,
    url: String,
    _folder: tempfile::TempDir,
}

impl RsyncDaemon {
    pub(super) fn start(served: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("rsyncd.conf");
        std::fs::write(
            &config,
            format!(
                "use chroot = no\nlog file = {}\n[served]\npath = {}\nread only = yes\n",
                folder.path().join("log").display(),
                served.display(),
            ),
        )?;
        let address = free_address();
        let mut command = Command::new("rsync");
        command
            .args(["--daemon", "--no-detach", "--address", "127.0.0.1"])
            .arg(format!("--port={}", address.port()))
            .arg(format!("--config={}", config.display()));
        let running = Running::start(&mut command)?;
        wait(|| Ok(TcpStream::connect(address).is_ok()), "rsync's daemon")?;
        Ok(Self {
            _running: running,
            url: format!("rsync://{address}/served"),
            _folder: folder,
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

/// What `rsync --stats` says of the client's connection.
pub(super) fn rsync_traffic(stats: &str) -> Option<Traffic> {
    let of = |what: &str| {
        let mut lines = stats.lines();
        let figure = lines.find_map(|line| line.strip_prefix(what))?;
        figure.trim().parse().ok()
    };
    Some(Traffic {
        sent_by_client: of("Total bytes sent:")?,
        sent_by_server: of("Total bytes received:")?,
        requests: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_summed_up() {
        let traffic = web_traffic("0 0\n100 2000\n50 300\n").expect("a log");
        assert_eq!(
            (traffic.sent_by_client, traffic.sent_by_server),
            (150, 2300)
        );
        assert_eq!(traffic.requests, Some(2));
        assert_eq!(traffic.bytes(), 2450);
        assert_eq!(web_traffic("garbage\n"), None);
    }

    #[test]
    fn what_rsync_says_is_read() {
        let stats = "Matched data: 7\nTotal bytes sent: 50123\nTotal bytes received: 4200456\n";
        let traffic = rsync_traffic(stats).expect("statistics");
        assert_eq!(traffic.bytes(), 50_123 + 4_200_456);
        assert_eq!(traffic.requests, None);
        assert_eq!(rsync_traffic("Total bytes sent: 1\n"), None);
    }
}
