//! Kills a gateway that hangs, so that the kernel resets its connections. The gate of the firewall's table keeps new
//! connections away from it, but those that are open would hang with it.
//!
//! The watchdog is a process of its own. It gets a byte each time that a probe went through the gateway's listener.

use std::{
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
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

/// Keeps a watchdog for this process, which it kills if `probes` stops changing.
pub(crate) async fn keep(mut probes: watch::Receiver<u64>) {
    loop {
        let started = Command::new("/proc/self/exe")
            .arg0("refrain")
            .arg("watchdog")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        match started {
            Ok(mut watchdog) => {
                if let Some(mut bytes) = watchdog.stdin.take() {
                    while probes.changed().await.is_ok() && bytes.write_all(&[0]).is_ok() {}
                }
                let _ = watchdog.wait();
            }
            Err(error) => tracing::warn!("cannot start the watchdog: {error}"),
        }
        sleep(RESTART_AFTER).await;
    }
}

/// The watchdog itself: until its parent has ended.
pub(crate) fn run() -> anyhow::Result<()> {
    let parent = getppid().context("the gateway has ended")?;
    let parent = pidfd_open(parent, PidfdFlags::empty())?;
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
