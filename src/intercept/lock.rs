//! One change of the rules at a time, in each network.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    process,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// How long a change waits for another one.
const PATIENCE: Duration = Duration::from_secs(3);

/// Held while rules are changed, or kept.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "it holds the lock until it is dropped")] File);

impl Lock {
    /// Waits for another change, but not for rules that are kept.
    pub(super) fn take() -> anyhow::Result<Lock> {
        super::is_root()?;
        let path = path().context("/proc/self/ns/net")?;
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open \"{path}\""))?;
        let until = Instant::now() + PATIENCE;
        while file.try_lock().is_err() {
            if Instant::now() >= until {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                bail!(
                    "process {} keeps the rules (refrain intercept on --keep): stop it with `systemctl stop \
                     refrain-intercept` or `kill {0}`, or let connections go direct with `refrain bypass on`",
                    holder.trim()
                );
            }
            sleep(Duration::from_millis(50));
        }
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{}", process::id())?;
        Ok(Lock(file))
    }
}

/// The file of the lock in this network. It has the number of the process that holds it, or held it last.
pub(crate) fn path() -> io::Result<String> {
    let network = fs::metadata("/proc/self/ns/net")?.ino();
    Ok(format!("/run/refrain-intercept-{network}.lock"))
}
