//! Kills a gateway that hangs, so that the kernel resets its connections. The gate of the firewall's table keeps new
//! connections away from it, but those that are open would hang with it.
//!
//! The watchdog is a process of its own. It gets a byte each time that the gateway's listener made progress. The end of
//! the bytes ends it, and no signal of a terminal or of systemd: they go to the gateway too, which may continue.
//!
//! On a busy machine a gateway may have to wait for a processor for seconds. It does not hang, and is not killed. One whose
//! threads run is given more time: the first data of large caches has the kernel clear gigabytes.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    io::{self, Read, Write},
    mem,
    os::unix::{fs::FileTypeExt, process::CommandExt},
    process::{self, Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
    process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal},
};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{interval, sleep},
};

/// How often a gateway that does nothing is looked at.
const STEP: Duration = Duration::from_millis(500);

/// A gateway without progress hangs after so many steps, in any case.
const STEPS_MAX: u32 = 40;

/// The same by what its threads did: after 4 steps in which none could run, and after 10 in which one ran. Steps in which
/// one waited for a processor do not count.
const DOUBT_MAX: u32 = 20;
const DOUBT_OF_SLEEP: u32 = 5;
const DOUBT_OF_RUN: u32 = 2;

/// A watchdog that was killed is replaced after this time.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// The signals that are for the gateway.
const SURVIVED: [fn() -> SignalKind; 4] = [
    SignalKind::interrupt,
    SignalKind::quit,
    SignalKind::terminate,
    SignalKind::hangup,
];

/// Keeps a watchdog for this process, which it kills if `progress` stops changing. Aborted, it ends the watchdog.
pub(crate) async fn keep(mut progress: watch::Receiver<u64>) {
    if is_first_process() {
        return tracing::warn!(
            "no watchdog: the kernel lets no process of a container kill its first one (start the container with an \
             init process)"
        );
    }
    loop {
        match start() {
            Ok(mut watchdog) => {
                if let Some(bytes) = watchdog.stdin.take() {
                    // The first byte at once: a gateway may hang before it makes progress.
                    progress.mark_unchanged();
                    while send(&bytes).is_ok() && progress.changed().await.is_ok() {}
                }
                let _ = tokio::task::spawn_blocking(move || watchdog.wait()).await;
            }
            Err(error) => warn_of(&error),
        }
        sleep(RESTART_AFTER).await;
    }
}

/// Starts a watchdog for this process, which it kills if a timer stops. It is not replaced. Within a runtime.
pub(crate) fn start_with_timer() {
    if is_first_process() {
        return;
    }
    let bytes = match start() {
        Ok(mut watchdog) => watchdog.stdin.take(),
        Err(error) => return warn_of(&error),
    };
    tokio::spawn(async move {
        let mut timer = interval(STEP / 2);
        while bytes.as_ref().is_some_and(|bytes| send(bytes).is_ok()) {
            timer.tick().await;
        }
    });
}

fn is_first_process() -> bool {
    process::id() == 1
}

fn start() -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("refrain")
        .arg("watchdog")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
}

fn warn_of(error: &io::Error) {
    tracing::warn!("cannot start the watchdog: {error}");
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
    let parent_number = getppid().context("the gateway has ended")?;
    let parent = pidfd_open(parent_number, PidfdFlags::empty())?;
    let step = Timespec::try_from(STEP)?;
    let is_pipe = fs::metadata("/proc/self/fd/0").is_ok_and(|stdin| stdin.file_type().is_fifo());
    if !is_pipe {
        bail!("gateways start this command themselves");
    }
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let _guard = runtime.enter();
    for survived in SURVIVED {
        // From now on, it only interrupts.
        let _ = signal(survived())?;
    }
    let mut stdin = io::stdin().lock();
    let mut bytes = [0; 64];
    // The start may take as long as it needs.
    let mut time_limit = None;
    let (mut doubt, mut silent) = (0, 0);
    let mut tasks = HashMap::new();
    loop {
        let mut events = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut events, time_limit) {
            Ok(0) => {
                let before = mem::replace(&mut tasks, tasks_of(parent_number));
                silent += 1;
                doubt += doubt_of(&before, &tasks);
                if doubt < DOUBT_MAX && silent < STEPS_MAX {
                    continue;
                }
                crate::stderr::warn(format_args!(
                    "the process that serves connections did nothing for {} s: killing it to reset them",
                    (silent * STEP).as_secs()
                ));
                pidfd_send_signal(&parent, Signal::KILL)?;
                return Ok(());
            }
            Ok(_) => match stdin.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    time_limit = Some(&step);
                    (doubt, silent) = (0, 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A thread of a gateway, by /proc.
#[derive(Debug)]
struct Task {
    /// Whether it runs or waits for a processor.
    is_runnable: bool,
    /// How long it has run.
    run: Duration,
}

/// The threads of a process, by their numbers.
fn tasks_of(process: Pid) -> HashMap<OsString, Task> {
    let folder = format!("/proc/{}/task", process.as_raw_nonzero());
    let tasks = fs::read_dir(folder).into_iter().flatten().flatten();
    let tasks = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let run = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let run = run.split(' ').next()?.parse().ok()?;
        // The name is in brackets, and may have any characters.
        let is_runnable = stat.rsplit_once(')')?.1.trim_start().starts_with('R');
        let run = Duration::from_nanos(run);
        Some((task.file_name(), Task { is_runnable, run }))
    });
    tasks.collect()
}

/// The doubt that a step without progress adds.
fn doubt_of(before: &HashMap<OsString, Task>, now: &HashMap<OsString, Task>) -> u32 {
    let mut doubt = DOUBT_OF_SLEEP;
    for (number, task) in now.iter().filter(|(_, task)| task.is_runnable) {
        let has_run = before
            .get(number)
            .is_none_or(|before| task.run.saturating_sub(before.run) >= STEP / 2);
        doubt = doubt.min(if has_run { DOUBT_OF_RUN } else { 0 });
    }
    doubt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_sleep_run_or_wait_are_told_apart() {
        let tasks = |is_runnable, run_ms| {
            let run = Duration::from_millis(run_ms);
            HashMap::from([(OsString::from("1"), Task { is_runnable, run })])
        };
        let before = tasks(true, 1000);
        assert_eq!(doubt_of(&before, &tasks(true, 1100)), 0, "it waited");
        assert_eq!(doubt_of(&before, &tasks(true, 1500)), DOUBT_OF_RUN);
        assert_eq!(doubt_of(&before, &tasks(false, 1100)), DOUBT_OF_SLEEP);
        assert_eq!(doubt_of(&HashMap::new(), &tasks(true, 1100)), DOUBT_OF_RUN);
        let own = tasks_of(rustix::process::getpid());
        assert!(own.values().any(|task| task.is_runnable));
    }
}
