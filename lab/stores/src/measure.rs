//! What Linux counts for a process and a folder.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

/// Bytes that this process has had written to the disk, by all of its threads.
pub fn written_bytes() -> Result<u64> {
    number_after("/proc/self/io", "write_bytes:")
}

/// Resident memory of this process: now, and at its highest.
pub fn memory_bytes() -> Result<(u64, u64)> {
    let now = number_after("/proc/self/status", "VmRSS:")?;
    let highest = number_after("/proc/self/status", "VmHWM:")?;
    Ok((now << 10, highest << 10))
}

fn number_after(file: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("{file} has no {name}"))
}

/// Processor time of this process, user and system, all threads.
pub fn process_time() -> Result<Duration> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit_once(')').context("no name")?.1;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map_while(|field| field.parse::<u64>().ok())
        .sum();
    // A hundredth of a second: USER_HZ is the same on all machines that Linux runs on.
    Ok(Duration::from_millis(ticks * 10))
}

/// Processor time of this thread.
pub fn thread_time() -> Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().context("empty")?.parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// Bytes of disk that a folder takes. Files that vanish meanwhile count as nothing.
pub fn disk_bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for file in files(folder)? {
        match fs::metadata(file) {
            Ok(metadata) => sum += metadata.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sum)
}

/// Lets the next reader of a folder read from the disk.
pub fn forget_cached(folder: &Path) -> Result<()> {
    for file in files(folder)? {
        let file = File::open(file)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Copies a folder file by file, while it may be written.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in files(from)? {
        let copied = to.join(file.strip_prefix(from)?);
        fs::create_dir_all(copied.parent().context("a file in a folder")?)?;
        match fs::copy(&file, copied) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        for entry in entries {
            let entry = entry?;
            let list = match entry.file_type() {
                Ok(kind) if kind.is_dir() => &mut folders,
                Ok(_) => &mut files,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            list.push(entry.path());
        }
    }
    Ok(files)
}
