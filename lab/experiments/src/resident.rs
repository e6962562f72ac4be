//! The memory of a process.

use std::fs;

use nix::unistd::Pid;

/// What it has in memory; 0 for a process that has ended.
pub(crate) fn resident_bytes(process: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}
