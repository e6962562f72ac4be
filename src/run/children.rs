//! The program and its children: signals reach it, its exit code becomes that of `refrain run`, and the network stays
//! until the last of them has ended.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, IsTerminal},
    process::Child,
    thread,
    time::Duration,
};

use anyhow::Context;
use rustix::{
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpgrp, getpid, pidfd_open,
        pidfd_send_signal, set_child_subreaper, wait,
    },
    termios::tcgetpgrp,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot},
    time::sleep,
};

use crate::interrupt::{EXIT_CODE_BASE, is_ignored};

/// After this time, a terminal shows the reason for waiting.
const EXPLAINED_AFTER: Duration = Duration::from_secs(2);

/// The signals that are passed on. Of the first two, a terminal sends its own to the program itself.
const PASSED_ON: [Signal; 6] = [
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
];

/// This process as the parent of all that the program leaves behind, and the signals that it gets.
pub(super) struct Children {
    signals: mpsc::Receiver<Signal>,
    /// Children of an earlier program in this process, and the watchdog.
    others: BTreeSet<i32>,
}

impl Children {
    /// From now on, this process is the parent of its children's orphans, and takes signals. Within a runtime.
    pub(super) fn adopt() -> io::Result<Children> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Children {
            signals: signals()?,
            others: own_children().unwrap_or_default(),
        })
    }

    /// Passes signals on to the program, until it and all its children have ended. Says its exit code. Once it has
    /// ended, a signal ends the waiting for the others.
    pub(super) async fn ended(&mut self, program: &Child) -> anyhow::Result<u8> {
        let pid = Pid::from_raw(program.id() as i32).context("the program has no number")?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let (program_ended, mut exit_status) = oneshot::channel();
        let (all_ended, none_left) = oneshot::channel();
        let others = self.others.clone();
        thread::Builder::new().spawn(move || {
            let mut program_ended = Some(program_ended);
            while own_children().is_none_or(|children| !children.is_subset(&others)) {
                match wait(WaitOptions::empty()) {
                    Ok(Some((ended, status))) if ended == pid => {
                        let _ = program_ended.take().map(|sender| sender.send(status));
                    }
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(_) => break,
                }
            }
            let _ = all_ended.send(());
        })?;
        let status: WaitStatus = loop {
            tokio::select! {
                status = &mut exit_status => {
                    break status.context("the program's exit code is unknown: its parent ignores SIGCHLD")?;
                }
                Some(number) = self.signals.recv() => {
                    let is_of_terminal = [Signal::INT, Signal::QUIT].contains(&number) && is_in_foreground();
                    if !is_of_terminal {
                        // The program may have just ended.
                        let _ = pidfd_send_signal(&process, number);
                    }
                }
            }
        };
        self.unless_signalled("processes that it started still run", async {
            let _ = none_left.await;
        })
        .await;
        Ok(exit_code(status))
    }

    /// Waits for `end`, but no longer than until a signal comes. A terminal shows the reason.
    pub(super) async fn unless_signalled(&mut self, reason: &str, end: impl Future<Output = ()>) {
        let explained = async {
            sleep(EXPLAINED_AFTER).await;
            if io::stderr().is_terminal() {
                crate::stderr::warn(format_args!(
                    "the program has ended, but {reason} (Ctrl-C: do not wait, and end their network)"
                ));
            }
            std::future::pending().await
        };
        tokio::select! {
            () = end => {}
            _ = self.signals.recv() => {}
            () = explained => {}
        }
    }
}

/// The signals to pass on, as they come. Those that are ignored, as by `nohup`, stay ignored.
fn signals() -> io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(PASSED_ON.len());
    for number in PASSED_ON {
        let kind = SignalKind::from_raw(number.as_raw());
        if is_ignored(kind) {
            continue;
        }
        let mut received = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while received.recv().await.is_some() && sender.send(number).await.is_ok() {}
        });
    }
    Ok(receiver)
}

/// Whether the kernel lists the children of a process.
pub(super) fn are_listed() -> bool {
    own_children().is_some()
}

/// The children of this process; none where the kernel does not list them.
fn own_children() -> Option<BTreeSet<i32>> {
    let mut children = BTreeSet::new();
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let listed = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        children.extend(
            listed
                .split_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    Some(children)
}

/// Whether a terminal sends its signals to this process and to the program.
fn is_in_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

fn exit_code(status: WaitStatus) -> u8 {
    let of_signal = status.terminating_signal();
    let code = status
        .exit_status()
        .or(of_signal.map(|signal| i32::from(EXIT_CODE_BASE) + signal));
    code.unwrap_or(1) as u8
}
