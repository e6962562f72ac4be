//! The process that becomes the program: it makes a network of its own, in which all addresses are local, and
//! redirects all TCP connections and all queries for names to its sockets.
//!
//! No privileges are needed where the system lets users make user namespaces. A user's program has none in there
//! either: they are lost when it starts. Root makes no user namespace, and keeps its rights.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command},
};

use anyhow::{Context, anyhow};
use nix::sched::{CloneFlags, unshare};
use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change},
    process::{getegid, geteuid},
    thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities},
};

use super::{
    FAILED,
    control::{self, Sockets},
};
use crate::{
    stderr,
    system_program::{Failed, run},
};

/// The addresses that connections of the program come from, in networks that no host has: see `virtual_names`.
const OWN_IPV4: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);
const OWN_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd6e, 0x8a51, 0xc3f7, 1, 0, 0, 0, 1);

/// Local addresses, which the listener accepts all.
const FIRST_LISTENER: Ipv6Addr = Ipv6Addr::new(0xfd6e, 0x8a51, 0xc3f7, 2, 0, 0, 0, 1);
const LAST_LISTENER: Ipv6Addr = Ipv6Addr::new(0xfd6e, 0x8a51, 0xc3f7, 2, 0, 0, 0, 0xfe);

/// Where libraries ask for names without DNS, so that these answers would be those of this machine: the folders of nscd,
/// systemd-resolved and Avahi. Mounts on files would end when the files are replaced.
const OTHER_RESOLVERS: [&str; 3] = ["/run/nscd", "/run/systemd/resolve", "/run/avahi-daemon"];

/// Names as they are: the far end has its own search list. Without a line for it, that is the domain of the host's name.
const RESOLV_CONF: &str = "# of `refrain run`\nnameserver 127.0.0.1\nsearch .\n";

/// Whether this process is in such a network already.
pub(super) fn is_inside() -> bool {
    // The kernel chooses the source; nothing is sent.
    let source = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == OWN_IPV4)
}

/// Reports to `control`, and becomes the program.
pub(super) fn report_and_become(control: &Path, command: &[OsString]) -> ! {
    // Then the other process says why, or is gone.
    if control::report(control, prepare).is_err() {
        process::exit(FAILED.into());
    }
    become_program(command)
}

/// Becomes the program.
pub(super) fn become_program(command: &[OsString]) -> ! {
    let [program, arguments @ ..] = command else {
        unreachable!("clap wants one");
    };
    let error = Command::new(program).args(arguments).exec();
    let program_name = program.to_string_lossy();
    let advice = match program_name.contains(' ') {
        true => " (give the program and its arguments as separate words)",
        false => "",
    };
    let is_on_path = error.kind() == io::ErrorKind::NotFound && !program_name.contains('/');
    match is_on_path {
        true => stderr::fail(format_args!(
            "cannot find \"{program_name}\" on PATH{advice}"
        )),
        false => stderr::fail(format_args!(
            "cannot run \"{program_name}\": {error}{advice}"
        )),
    }
    // As shells and env have it. A folder on the path that may not be read is an error of permission too.
    process::exit(match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ if is_missing(program) => 127,
        _ => 126,
    })
}

/// Whether no folder of the path has the program, as far as this user can see.
fn is_missing(program: &OsStr) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = |folder: PathBuf| folder.join(program).exists();
    !program.as_encoded_bytes().contains(&b'/') && !env::split_paths(&path).any(is_there)
}

fn prepare(folder: &Path) -> anyhow::Result<Sockets> {
    enter_namespaces()?;
    let ipv4 = format!(
        "link set lo up\naddress add {OWN_IPV4}/32 dev lo\nroute add local default dev lo src {OWN_IPV4}\n"
    );
    run("ip", "iproute2", &["-4", "-batch", "-"], &ipv4).context("cannot configure the network")?;
    let ipv6 = format!(
        "address add {OWN_IPV6}/128 dev lo nodad\nroute add local default dev lo src {OWN_IPV6}\n"
    );
    // Systems without IPv6 lack it in several ways.
    let has_ipv6 = run("ip", "iproute2", &["-6", "-batch", "-"], &ipv6).is_ok();
    let listener = match has_ipv6 {
        true => TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)),
        false => TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)),
    };
    let listener = listener.context("cannot listen in the namespace")?;
    // On loopback: answers come from the address that was asked only if the kernel translates them back.
    let mut for_names = vec![UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
    if has_ipv6 {
        let port = for_names[0].local_addr()?.port();
        for_names.push(UdpSocket::bind((Ipv6Addr::LOCALHOST, port))?);
    }
    let ports = (
        listener.local_addr()?.port(),
        for_names[0].local_addr()?.port(),
    );
    let table = table(ports, has_ipv6);
    run("nft", "nftables", &["-f", "-"], &table).map_err(cannot_redirect)?;
    lend_rights(false)?;
    hide_other_resolvers(folder).context("cannot hide this machine's resolver")?;
    Ok(Sockets {
        listener,
        for_names,
    })
}

fn cannot_redirect(error: anyhow::Error) -> anyhow::Error {
    match error.is::<Failed>() {
        true => error.context(
            "cannot redirect connections (needs Linux 5.3 or later with nf_tables; as root, `modprobe -a nft_nat \
             nft_reject_inet` may help)",
        ),
        false => error,
    }
}

/// The redirections. Connections to loopback are those to programs inside.
///
/// The kernel keeps ended connections for two minutes. To one address, they would soon use up all ports.
fn table((connections, names): (u16, u16), has_ipv6: bool) -> String {
    let ipv6 = match has_ipv6 {
        true => format!(
            "    meta nfproto ipv6 meta l4proto tcp dnat ip6 to [{FIRST_LISTENER}]-[{LAST_LISTENER}]:{connections}\n"
        ),
        false => String::new(),
    };
    format!(
        "table inet refrain {{
  chain connections {{
    type nat hook output priority -100
    udp dport 53 redirect to :{names}
    ip daddr {{ 127.0.0.0/8, {OWN_IPV4} }} return
    ip6 daddr {{ ::1, {OWN_IPV6} }} return
    meta nfproto ipv4 meta l4proto tcp dnat ip to 127.0.0.1-127.0.0.254:{connections}
{ipv6}  }}
  chain others {{
    type filter hook output priority 0
    ip daddr {{ 127.0.0.0/8, {OWN_IPV4} }} accept
    ip6 daddr {{ ::1, {OWN_IPV6} }} accept
    meta l4proto != tcp reject
  }}
}}
"
    )
}

fn enter_namespaces() -> anyhow::Result<()> {
    let own = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    // A container's root may have one of both.
    let is_enough = capabilities(None)?.effective.contains(needed);
    if !is_enough || unshare(own).is_err() {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let entered = unshare(own | CloneFlags::CLONE_NEWUSER).map_err(io::Error::from);
        let mapped = entered.and_then(|()| {
            // Without this, users could leave groups that keep them from files.
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
        });
        mapped.map_err(namespaces_are_off)?;
        lend_rights(true)?;
    }
    // Later mounts of the system are seen inside, and none of these outside.
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    // The first call that needs the new rights: AppArmor lets unshare succeed, and refuses this.
    mount_change("/", downstream).map_err(|error| namespaces_are_off(error.into()))
}

/// Gives the programs that [`run`] starts this process's right to change its network, or takes it back. Without this,
/// only the user with number 0 keeps it.
fn lend_rights(lend: bool) -> io::Result<()> {
    let mut rights = capabilities(None)?;
    rights.inheritable.set(CapabilitySet::NET_ADMIN, lend);
    set_capabilities(None, rights)?;
    configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, lend)?;
    Ok(())
}

fn namespaces_are_off(error: io::Error) -> anyhow::Error {
    anyhow!(
        "this system does not let this user make a network namespace ({error}): run this with the rights \
         CAP_SYS_ADMIN and CAP_NET_ADMIN, as root has them, or let the program use the proxy of a near end: \
         ALL_PROXY=socks5h://127.0.0.1:1080 CMD"
    )
}

/// Has libraries ask for names by DNS only, and for each as it is.
fn hide_other_resolvers(folder: &Path) -> anyhow::Result<()> {
    let own = folder.join("resolv.conf");
    fs::write(&own, RESOLV_CONF)?;
    // Often a link, to a file that may be missing. Then DNS on loopback is the default.
    let of_system = fs::canonicalize("/etc/resolv.conf");
    for hidden in OTHER_RESOLVERS.map(Path::new) {
        if !hidden.is_dir() {
            continue;
        }
        mount("tmpfs", hidden, "tmpfs", MountFlags::empty(), None)?;
        if let Ok(inside) = &of_system
            && inside.starts_with(hidden)
        {
            fs::write(inside, RESOLV_CONF)?;
        }
    }
    if let Ok(of_system) = of_system
        && !OTHER_RESOLVERS
            .iter()
            .any(|hidden| of_system.starts_with(hidden))
    {
        mount_bind(&own, &of_system)?;
    }
    Ok(())
}
