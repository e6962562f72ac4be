//! Programs between a client and the origin: proxies, tunnels, caches, and the pair.

use std::{
    any::Any,
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use refrain_link::End;

use super::{super::web, Stage};
use crate::processes::{Gateways, Setup};

/// The variable that names WANProxy's program.
pub(in crate::peers) const WANPROXY: &str = "REFRAIN_WANPROXY";

/// Something that passes on connections, or requests.
#[derive(Clone, Copy)]
pub(super) enum Hop {
    /// Two gateways, with default options.
    Pair,
    Haproxy(End),
    /// A forward of `ssh -C`, over a connection that stands.
    Ssh,
    /// Squid as the origin's cache.
    Squid(End),
    NginxCache(End),
    Wanproxy {
        zlib: bool,
    },
}

/// A process, or what belongs to one.
type Program = Box<dyn Any + Send + Sync>;

/// What a hop needs, until dropped.
pub(super) struct Programs {
    /// Where it takes connections.
    pub address: SocketAddr,
    _running: Vec<Program>,
}

impl Hop {
    /// Starts it before a target, with an empty cache.
    pub(super) fn start(self, stage: Stage<'_>, target: SocketAddr) -> anyhow::Result<Programs> {
        match self {
            Self::Pair => pair(stage, target),
            Self::Haproxy(end) => haproxy(stage, end, target),
            Self::Ssh => ssh(stage, target),
            Self::Squid(end) => squid(stage, end, target),
            Self::NginxCache(end) => nginx_cache(stage, end, target),
            Self::Wanproxy { zlib } => wanproxy(stage, zlib, target),
        }
    }
}

fn pair(stage: Stage<'_>, target: SocketAddr) -> anyhow::Result<Programs> {
    let gateways = Gateways::start(&Setup {
        refrain: stage.refrain,
        target,
        listen: Some(stage.place.address(End::Far)),
        dial: None,
        // By default it allows targets on loopback only; this one has the address of the far end.
        far: &["--allow", &target.to_string()],
        near: &[],
        link: stage.place.link.as_ref(),
    })?;
    Ok(Programs {
        address: gateways.address,
        _running: vec![Box::new(gateways)],
    })
}

fn haproxy(stage: Stage<'_>, end: End, target: SocketAddr) -> anyhow::Result<Programs> {
    let folder = tempfile::tempdir()?;
    let address = stage.place.address(end);
    let config = folder.path().join("haproxy.cfg");
    let text = format!(
        "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
         listen pass\n  bind {address}\n  server next {target}\n"
    );
    fs::write(&config, text)?;
    let mut command = stage.place.command(end, "haproxy");
    command.args(["-db", "-f"]).arg(&config);
    let running = stage.place.serve(end, &mut command, address)?;
    Ok(Programs {
        address,
        _running: vec![Box::new(running), Box::new(folder)],
    })
}

fn ssh(stage: Stage<'_>, target: SocketAddr) -> anyhow::Result<Programs> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    for name in ["host", "user"] {
        let mut command = Command::new("ssh-keygen");
        let status = command
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &at(name)])
            .status();
        ensure!(status.context("ssh-keygen")?.success(), "ssh-keygen failed");
    }
    // Where sshd confines its unprivileged part; a service's own script makes it.
    fs::create_dir_all("/run/sshd")?;
    let server = stage.place.address(End::Far);
    let config = format!(
        "ListenAddress {server}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
         PidFile none\nCompression yes\nAllowTcpForwarding yes\nPermitRootLogin prohibit-password\n\
         ClientAliveInterval 5\n",
        at("host"),
        at("user.pub"),
    );
    fs::write(at("sshd_config"), config)?;
    // It runs itself again for each client, and wants its whole path for that.
    let mut command = stage.place.command(End::Far, "/usr/sbin/sshd");
    command
        .args(["-D", "-f", &at("sshd_config")])
        .stderr(Stdio::null());
    let daemon = stage.place.serve(End::Far, &mut command, server)?;
    let address = stage.place.address(End::Near);
    let mut command = stage.place.command(End::Near, "ssh");
    command
        .args([
            "-F",
            "none",
            "-C",
            "-N",
            "-i",
            &at("user"),
            "-p",
            &server.port().to_string(),
        ])
        .args(["-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"])
        .args(["-o", &format!("UserKnownHostsFile={}", at("known"))])
        .args(["-L", &format!("{address}:{target}")])
        .arg(format!("root@{}", server.ip()));
    let client = stage.place.serve(End::Near, &mut command, address)?;
    Ok(Programs {
        address,
        _running: vec![Box::new(client), Box::new(daemon), Box::new(folder)],
    })
}

fn squid(stage: Stage<'_>, end: End, target: SocketAddr) -> anyhow::Result<Programs> {
    let folder = tempfile::tempdir()?;
    // It gives up root for a user of its own.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let address = stage.place.address(end);
    let config = format!(
        "http_port {address} accel defaultsite=origin no-vhost\n\
         cache_peer {} parent {} 0 no-query no-digest originserver\n\
         http_access allow all\ncache_mem 256 MB\nmaximum_object_size 64 MB\n\
         maximum_object_size_in_memory 64 MB\naccess_log none\ncache_log {}\npid_filename {}\n\
         coredump_dir {}\npinger_enable off\nshutdown_lifetime 0 seconds\nvisible_hostname cache\n",
        target.ip(),
        target.port(),
        at("log"),
        at("pid"),
        folder.path().display(),
    );
    fs::write(at("squid.conf"), config)?;
    let mut command = stage.place.command(end, "squid");
    command
        .args(["-N", "-f", &at("squid.conf")])
        .stderr(Stdio::null());
    let running = stage.place.serve(end, &mut command, address)?;
    // It refuses requests until it has found out that the target is there.
    stage.place.settle();
    Ok(Programs {
        address,
        _running: vec![Box::new(running), Box::new(folder)],
    })
}

fn nginx_cache(stage: Stage<'_>, end: End, target: SocketAddr) -> anyhow::Result<Programs> {
    let address = stage.place.address(end);
    let http = format!(
        "access_log off; proxy_cache_path DIRECTORY keys_zone=cache:1m max_size=256m;\n\
         upstream origin {{ server {target}; keepalive 8; }}\n\
         server {{ listen {address}; location / {{\n\
         proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection '';\n\
         proxy_cache cache; }} }}\n"
    );
    let (running, folder) = web::nginx(stage.place, end, "", &http, address)?;
    Ok(Programs {
        address,
        _running: vec![Box::new(running), Box::new(folder)],
    })
}

fn wanproxy(stage: Stage<'_>, zlib: bool, target: SocketAddr) -> anyhow::Result<Programs> {
    let program = std::env::var(WANPROXY)?;
    let program = Path::new(&program)
        .canonicalize()
        .context(program.clone())?;
    let folder = tempfile::tempdir()?;
    let (far, near) = (
        stage.place.address(End::Far),
        stage.place.address(End::Near),
    );
    let mut running: Vec<Program> = Vec::new();
    for (end, address, next, codecs) in [
        (End::Far, far, target, ["codec0", "None"]),
        (End::Near, near, far, ["None", "codec0"]),
    ] {
        let config = folder.path().join(format!("{end:?}.conf"));
        fs::write(&config, wanproxy_config(address, next, codecs, zlib))?;
        let mut command = stage.place.command(end, &program.to_string_lossy());
        command.arg("-c").arg(&config).stderr(Stdio::null());
        running.insert(0, Box::new(stage.place.serve(end, &mut command, address)?));
    }
    running.push(Box::new(folder));
    Ok(Programs {
        address: near,
        _running: running,
    })
}

/// One end of WANProxy: zlib's level is its sample's.
fn wanproxy_config(
    address: SocketAddr,
    next: SocketAddr,
    [interface_codec, peer_codec]: [&str; 2],
    zlib: bool,
) -> String {
    let compressor = match zlib {
        true => "set codec0.compressor zlib\nset codec0.compressor_level 6\n",
        false => "",
    };
    let socket = |kind: &str, name: &str, address: SocketAddr| {
        let (host, port) = (address.ip(), address.port());
        format!(
            "create {kind} {name}\nset {name}.family IPv4\nset {name}.host \"{host}\"\n\
             set {name}.port \"{port}\"\nactivate {name}\n"
        )
    };
    format!(
        "create cache cache0\nset cache0.type Memory\nset cache0.size 128MB\nactivate cache0\n\
         create codec codec0\nset codec0.codec XCodec\nset codec0.cache cache0\n{compressor}\
         activate codec0\n{}{}create proxy proxy0\nset proxy0.type TCP-TCP\n\
         set proxy0.interface if0\nset proxy0.interface_codec {interface_codec}\n\
         set proxy0.peer peer0\nset proxy0.peer_codec {peer_codec}\nactivate proxy0\n",
        socket("interface", "if0", address),
        socket("peer", "peer0", next),
    )
}
