//! The two servers, each in a control group.

use std::{
    fs::File,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
};

use nix::{fcntl::PosixFadviseAdvice, fcntl::posix_fadvise};
use refrain_relay::addresses::free_address;

use super::control_group::{ControlGroup, Limits};
use crate::processes::{Running, wait};

/// Which server, and what it is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Server<'a> {
    /// nginx; with threads that wait for the disk, or without.
    Nginx { has_threads: bool },
    /// The program at this path, with so much memory for chunks.
    Refrain { program: &'a Path, cache_bytes: u64 },
}

/// A server that runs in a group of its own, until dropped.
pub(super) struct Serving {
    // Before its group, which is removed when it is empty.
    running: Running,
    pub group: ControlGroup,
    pub address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Serving {
    /// Starts it before `served`, of which nothing is in memory then.
    pub(super) fn start(server: Server<'_>, served: &Path, limits: Limits) -> anyhow::Result<Self> {
        forget(served)?;
        let group = ControlGroup::new(limits, served)?;
        let folder = tempfile::tempdir()?;
        let address = free_address();
        let mut command = match server {
            Server::Nginx { has_threads } => {
                let config = folder.path().join("nginx.conf");
                std::fs::write(&config, nginx(folder.path(), address, served, has_threads))?;
                let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].map(PathBuf::from);
                let mut program = program.into_iter().filter(|program| program.exists());
                let program = program.next().unwrap_or_else(|| "nginx".into());
                let mut command = group.command(&program);
                command.arg("-e").arg(folder.path().join("error.log"));
                command.arg("-p").arg(folder.path());
                command.arg("-c").arg(config);
                command
            }
            Server::Refrain {
                program,
                cache_bytes,
            } => {
                let mut command = group.command(program);
                command.args(["czip", "serve"]).arg(served);
                command.args(["--listen", &address.to_string()]);
                command.args(["--cache-size", &cache_bytes.to_string()]);
                command
            }
        };
        command.stderr(File::create(folder.path().join("log"))?);
        let running = Running::start(&mut command)?;
        wait(|| Ok(TcpStream::connect(address).is_ok()), "the server")?;
        Ok(Self {
            running,
            group,
            address,
            _folder: folder,
        })
    }

    /// Ends it.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.running.end()
    }
}

/// What nginx's users set for large files: a process a core, `sendfile`, files kept open, no log.
fn nginx(folder: &Path, address: SocketAddr, served: &Path, has_threads: bool) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {};\n", at(what)))
        .concat();
    let threads = if has_threads { "aio threads;" } else { "" };
    format!(
        "daemon off; user root; pid {};\n\
         worker_processes auto; worker_rlimit_nofile 65536;\n\
         events {{ worker_connections 4096; multi_accept on; }}\n\
         http {{\n{temporary}\
         access_log off; error_log {};\n\
         sendfile on; {threads} tcp_nopush on; tcp_nodelay on;\n\
         open_file_cache max=1000 inactive=60s; open_file_cache_valid 60s;\n\
         keepalive_requests 1000000; keepalive_timeout 75s;\n\
         server {{ listen {address} reuseport backlog=4096; root {}; }}\n}}\n",
        at("pid"),
        at("error.log"),
        served.display(),
    )
}

/// Takes all that is below a folder out of the page cache, so that a server begins with none of it and
/// what it reads is counted as its own.
fn forget(folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
            continue;
        }
        let file = File::open(&path)?;
        // What is not on the disk stays in memory.
        file.sync_all()?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    Ok(())
}
