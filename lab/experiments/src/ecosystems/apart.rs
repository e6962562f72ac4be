//! A process of its own for each ecosystem, apart from the machine's processes, network and mounts.
//!
//! Its servers listen on a loopback that nobody else sees, and the kernel ends all of them with the
//! process, however it ends. Nothing reaches a network, so that all data was there before.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use nix::unistd::geteuid;

use super::row::Row;

/// Where an ecosystem's files are, seen from its process: a short path that any user may enter.
pub(super) const FOLDER: &str = "/mnt";

/// `$0` is a folder on the disk, the rest a command.
///
/// What programs keep outside of the folders that they are told of is kept in memory.
const PREPARE: &str = r#"
for directory in /run /var/cache /var/lib; do mount -t tmpfs none $directory; done
mount --bind "$0" /mnt
{ cat /etc/hosts; echo 127.0.0.1 site.test; } >/run/hosts
mount --bind /run/hosts /etc/hosts
ip link set lo up
cd /mnt
exec "$@"
"#;

/// Measures an ecosystem.
pub(super) fn measure(
    name: &str,
    refrain: &Path,
    data: &Path,
    effort: &str,
) -> anyhow::Result<Vec<Row>> {
    ensure!(
        geteuid().is_root(),
        "ecosystems creates network namespaces and must run as root (use sudo)"
    );
    // One that was ended by a signal left its own.
    let folder = data.join(format!("scratch-{name}"));
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir(&folder)?;
    // Some servers run as another user.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&folder, permissions)?;
    let output = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--fork", "--kill-child", "--mount-proc"])
        .args(["--pid", "--net", "--mount", "--ipc", "bash", "-ec", PREPARE])
        .arg(&folder)
        .arg(std::env::current_exe()?)
        .args(["ecosystems", "--apart", name, "--effort", effort])
        .arg("--refrain")
        .arg(refrain)
        .arg("--data")
        .arg(data)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run setpriv (package util-linux)")?;
    std::fs::remove_dir_all(&folder)?;
    ensure!(output.status.success(), "failed (see above)");
    Ok(serde_json::from_slice(&output.stdout)?)
}
