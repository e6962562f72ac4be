//! The memory of a process: touched, or used up.

use std::{fs, io::Write, ops::Range, os::unix::fs::FileExt, path::Path};

use anyhow::{Context, ensure};
use nix::unistd::Pid;

use crate::processes::{resident_bytes, wait};

/// The memory that a large process has touched.
const TOUCHED_BYTES: u64 = 4 << 30;

pub(super) fn free_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

/// Touches the unused part of a gateway's caches.
pub(super) fn touch(process: Pid) -> anyhow::Result<()> {
    for range in largest_mappings(process)? {
        let before = resident_bytes(process);
        if before >= TOUCHED_BYTES {
            break;
        }
        let missing = TOUCHED_BYTES + (64 << 20) - before;
        write_zeros(process, unused(&range, missing))?;
    }
    let touched = resident_bytes(process);
    ensure!(
        touched >= TOUCHED_BYTES,
        "a process touched only {touched} bytes"
    );
    Ok(())
}

/// So many bytes at most of a new cache, which begins to be filled at its other end.
fn unused(cache: &Range<u64>, bytes_max: u64) -> Range<u64> {
    let bytes = (cache.end - cache.start) / 4 * 3;
    cache.end - bytes.min(bytes_max)..cache.end
}

/// Touches memory of a process, from outside. No byte of it may be in use.
fn write_zeros(process: Pid, range: Range<u64>) -> anyhow::Result<()> {
    let memory = fs::File::options()
        .write(true)
        .open(format!("/proc/{process}/mem"))?;
    let zeros = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let bytes = zeros.len().min((range.end - at) as usize);
        let written = memory.write_at(&zeros[..bytes], at)?;
        ensure!(written > 0, "process {process} has ended");
        at += written as u64;
    }
    Ok(())
}

/// Memory that belongs to no file, the largest first.
fn largest_mappings(process: Pid) -> anyhow::Result<Vec<Range<u64>>> {
    let text = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let mut ranges: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [range, "rw-p", _, _, "0"] = words[..] else {
                return None;
            };
            let (start, end) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some(number(start)?..number(end)?)
        })
        .collect();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.end - range.start));
    Ok(ranges)
}

/// A control group whose memory is used up.
pub(super) struct MemoryGroup;

impl MemoryGroup {
    /// The folder in which such groups can be made, and the file of their limit.
    pub(super) fn parent() -> Option<(&'static Path, &'static str)> {
        let candidates = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        candidates.into_iter().find_map(|(folder, limit)| {
            let controllers = fs::read_to_string(format!("{folder}/cgroup.subtree_control"));
            let has_limit = fs::exists(format!("{folder}/memory.limit_in_bytes")).unwrap_or(false)
                || controllers.is_ok_and(|names| names.contains("memory"));
            has_limit.then_some((Path::new(folder), limit))
        })
    }

    /// Puts the process into one, and uses it up.
    pub(super) fn exhaust(process: Pid) -> anyhow::Result<()> {
        const LIMIT_BYTES: u64 = 64 << 20;
        let (parent, limit) = MemoryGroup::parent().context("no control groups for memory")?;
        let folder = parent.join(format!("refrain-{process}"));
        fs::create_dir(&folder)?;
        fs::write(folder.join(limit), LIMIT_BYTES.to_string())?;
        let mut members = fs::File::options()
            .write(true)
            .open(folder.join("cgroup.procs"))?;
        members.write_all(process.to_string().as_bytes())?;
        let mappings = largest_mappings(process)?;
        let cache = mappings.first().context("no memory")?;
        // It ends as the process is killed.
        let _ = write_zeros(process, unused(cache, cache.end - cache.start));
        Ok(())
    }

    /// Removes that of a process that has ended.
    pub(super) fn remove(process: Pid) -> anyhow::Result<()> {
        let (parent, _) = MemoryGroup::parent().context("no control groups for memory")?;
        let folder = parent.join(format!("refrain-{process}"));
        wait(
            || Ok(fs::remove_dir(&folder).is_ok()),
            "the end of a control group",
        )
    }
}
