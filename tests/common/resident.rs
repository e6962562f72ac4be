//! Memory that a gateway's process has resident, as the kernel counts it.

use std::fs;

use super::gateway::Gateway;

/// What a gateway's process may have resident beyond `--memory`: the program, its threads,
/// the allocator's slack. `docs/configuration.md` tells users under `memory`.
pub(crate) const PROCESS_BYTES_MAX: u64 = 64 << 20;

/// What is resident now, in bytes.
pub(crate) fn resident_bytes(gateway: &Gateway) -> u64 {
    read(gateway, "VmRSS:")
}

/// The most that ever was, in bytes.
pub(crate) fn resident_bytes_max(gateway: &Gateway) -> u64 {
    read(gateway, "VmHWM:")
}

fn read(gateway: &Gateway, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.process()))
        .expect("the process runs, on Linux");
    let line = status.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") << 10
}
