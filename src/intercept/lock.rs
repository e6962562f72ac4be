//! One process that keeps or changes the rules, in each network.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    process,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a process waits for one that may be ending, and for one that it told to end.
const PATIENCE: Duration = Duration::from_secs(3);
const PATIENCE_AT_END: Duration = Duration::from_secs(20);

/// Held while rules are kept, or changed.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "it holds the lock until it is dropped")] File);

impl Lock {
    /// Takes it, unless another process keeps the rules.
    pub(super) fn take() -> anyhow::Result<Lock> {
        Lock::take_within(PATIENCE, |holder| {
            format!(
                "process {holder} keeps the rules (refrain intercept on): `kill -HUP {holder}` has it read its file again, \
                 and `refrain intercept off` ends it"
            )
        })
    }

    /// Ends the process that keeps the rules, and takes it. Returns whether there was one.
    pub(super) fn take_over() -> anyhow::Result<(Lock, bool)> {
        super::is_root()?;
        let keeper = keeper().filter(|process| is_of_interception(*process));
        if let Some(process) = keeper.and_then(|process| Pid::from_raw(process as i32)) {
            // It may have ended by itself.
            let _ = kill_process(process, Signal::TERM);
        }
        let lock = Lock::take_within(PATIENCE_AT_END, |holder| {
            format!(
                "process {holder} keeps the rules (refrain intercept on), and does not end: is it in another container?"
            )
        })?;
        Ok((lock, keeper.is_some()))
    }

    fn take_within(patience: Duration, is_held: fn(&str) -> String) -> anyhow::Result<Lock> {
        super::is_root()?;
        let path = path().context("/proc/self/ns/net")?;
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open \"{path}\""))?;
        let until = Instant::now() + patience;
        while file.try_lock().is_err() {
            if Instant::now() >= until {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                bail!(is_held(holder.trim()));
            }
            sleep(Duration::from_millis(50));
        }
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{}", process::id())?;
        Ok(Lock(file))
    }
}

/// The process that keeps the rules in this network; none that this process may see.
pub(crate) fn keeper() -> Option<u32> {
    let mut file = File::open(path().ok()?).ok()?;
    if file.try_lock_shared().is_ok() {
        return None;
    }
    let mut holder = String::new();
    file.read_to_string(&mut holder).ok()?;
    holder.trim().parse().ok()
}

/// Whether this number is such a process here: in another container, it may be any.
fn is_of_interception(process: u32) -> bool {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let mut words = command.split(|byte| *byte == 0);
    words.any(|word| word == b"intercept") && words.any(|word| word == b"on")
}

/// The file of the lock in this network. It has the number of the process that holds it, or held it last.
fn path() -> io::Result<String> {
    let network = fs::metadata("/proc/self/ns/net")?.ino();
    Ok(format!("/run/refrain-intercept-{network}.lock"))
}
