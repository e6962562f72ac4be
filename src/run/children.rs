//! The program and its children: signals reach it, its exit code becomes that of `refrain run`, and the network stays
//! until the last of them has ended.

use std::{fs::File, io, process::Child, thread};

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
};

/// What is added to the number of the signal that ended a program.
const EXIT_CODE_BASE: i32 = 128;

/// This process as the parent of all that the program leaves behind.
pub(super) struct Children(());

/// The signals that are passed on. Of the first two, a terminal sends its own to the program itself.
const PASSED_ON: [Signal; 6] = [
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
];

impl Children {
    /// From now on, this process is the parent of its children's orphans.
    pub(super) fn adopt() -> io::Result<Children> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Children(()))
    }

    /// Passes signals on to the program, until it and all its children have ended. Says its exit code. Once it has
    /// ended, a signal ends the waiting for the others.
    pub(super) async fn ended(self, program: &Child) -> anyhow::Result<u8> {
        let pid = Pid::from_raw(program.id() as i32).context("the program has no number")?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let mut signals = signals()?;
        let (program_ended, mut exit_status) = oneshot::channel();
        let (all_ended, mut none_left) = oneshot::channel();
        thread::Builder::new().spawn(move || {
            let mut program_ended = Some(program_ended);
            loop {
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
                status = &mut exit_status => break status.context("the program was lost")?,
                Some(number) = signals.recv() => {
                    let is_of_terminal = [Signal::INT, Signal::QUIT].contains(&number) && is_in_foreground();
                    if !is_of_terminal {
                        // The program may have just ended.
                        let _ = pidfd_send_signal(&process, number);
                    }
                }
            }
        };
        tokio::select! {
            _ = &mut none_left => {}
            _ = signals.recv() => {}
        }
        Ok(exit_code(status))
    }
}

/// The signals to pass on, as they come.
fn signals() -> io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(PASSED_ON.len());
    for number in PASSED_ON {
        let mut received = signal(SignalKind::from_raw(number.as_raw()))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while received.recv().await.is_some() && sender.send(number).await.is_ok() {}
        });
    }
    Ok(receiver)
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
        .or(of_signal.map(|signal| EXIT_CODE_BASE + signal));
    code.unwrap_or(1) as u8
}
