//! Kills a gateway that hangs, so that the kernel resets its connections. The gate of the firewall's table keeps new
//! connections away from it, but those that are open would hang with it.
//!
//! The watchdog is a process of its own. It gets a byte each time that the gateway's listener made progress. The end of
//! the bytes ends it.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::{fs::FileTypeExt, process::CommandExt},
    process::{self, ChildStdin, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
    process::{PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal},
};
use tokio::{sync::watch, time::sleep};

/// A gateway that does nothing for so long hangs.
const HANGS_AFTER: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// A watchdog that was killed is replaced after this time.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Keeps a watchdog for this process, which it kills if `progress` stops changing. Aborted, it ends the watchdog.
pub(crate) async fn keep(mut progress: watch::Receiver<u64>) {
    if process::id() == 1 {
        return tracing::warn!(
            "no watchdog: the kernel lets no process of a container kill its first one (start the container with an \
             init process)"
        );
    }
    loop {
        let started = Command::new("/proc/self/exe")
            .arg0("refrain")
            .arg("watchdog")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        match started {
            Ok(mut watchdog) => {
                if let Some(bytes) = watchdog.stdin.take() {
                    progress.mark_unchanged();
                    while progress.changed().await.is_ok() && send(&bytes).is_ok() {}
                }
                let _ = tokio::task::spawn_blocking(move || watchdog.wait()).await;
            }
            Err(error) => tracing::warn!("cannot start the watchdog: {error}"),
        }
        sleep(RESTART_AFTER).await;
    }
}

/// Sends a byte, unless so many wait that it is not needed.
fn send(mut bytes: &ChildStdin) -> io::Result<()> {
    ioctl_fionbio(bytes, true)?;
    match bytes.write(&[0]) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// The watchdog itself: until its parent has ended.
pub(crate) fn run() -> anyhow::Result<()> {
    let parent = getppid().context("the gateway has ended")?;
    let parent = pidfd_open(parent, PidfdFlags::empty())?;
    let is_pipe = fs::metadata("/proc/self/fd/0").is_ok_and(|stdin| stdin.file_type().is_fifo());
    if !is_pipe {
        bail!("gateways start this command themselves");
    }
    let mut stdin = io::stdin().lock();
    let mut bytes = [0; 64];
    // The start may take as long as it needs.
    let mut time_limit = None;
    loop {
        let mut events = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut events, time_limit) {
            Ok(0) => {
                crate::stderr::warn(
                    "the gateway did nothing for 2 s: killing it, so that its connections are reset",
                );
                pidfd_send_signal(&parent, Signal::KILL)?;
                return Ok(());
            }
            Ok(_) => {
                if stdin.read(&mut bytes)? == 0 {
                    return Ok(());
                }
                time_limit = Some(&HANGS_AFTER);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
