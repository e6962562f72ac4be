//! How much memory this machine, or the container around us, has, what of it and of the CPU we take, and which addresses
//! are its own.
//!
//! The bound on caches defaults to a share of it. Within a container the kernel reports the whole
//! host, so the smallest limit of the control groups above us counts too.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::Path,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// The memory that this process may count on, in bytes; `None` where nothing says so.
pub(crate) fn memory_bytes() -> Option<u64> {
    memory_bytes_of("self")
}

/// The same of a process with this number.
pub fn memory_bytes_of(process: &str) -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let meminfo = read(Path::new("/proc/meminfo")).and_then(|text| meminfo_total_bytes(&text));
    let groups = read(&Path::new("/proc").join(process).join("cgroup")).unwrap_or_default();
    let limits = cgroup_limit_files(&groups).into_iter();
    let limits = limits.filter_map(|file| cgroup_limit_bytes(&read(Path::new(&file))?));
    limits.chain(meminfo).min()
}

/// What this process has resident, in bytes, as the kernel counts it.
pub(crate) fn resident_bytes() -> Option<u64> {
    kib_of("VmRSS:", &fs::read_to_string("/proc/self/status").ok()?)
}

/// CPU time that this process has taken, in all its threads.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether a network interface has the address: only then a socket can be bound to it.
pub(crate) fn is_of_this_machine(address: IpAddr) -> bool {
    let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    address != unspecified && UdpSocket::bind((address, 0)).is_ok()
}

/// `MemTotal` of `/proc/meminfo`.
fn meminfo_total_bytes(meminfo: &str) -> Option<u64> {
    kib_of("MemTotal:", meminfo)
}

/// The bytes of a line of such a file that begins with `field`.
fn kib_of(field: &str, text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A control group's limit; `None` for `max`, and for the huge number that version 1 has for none.
fn cgroup_limit_bytes(text: &str) -> Option<u64> {
    const UNLIMITED_FROM: u64 = 1 << 60;
    let bytes = text.trim().parse().ok()?;
    (bytes < UNLIMITED_FROM).then_some(bytes)
}

/// The files that may hold a limit on this process, by its `/proc/self/cgroup`: those of its own
/// group and of each group above.
fn cgroup_limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let ancestors = Path::new(path.trim_start_matches('/')).ancestors();
        files.extend(ancestors.map(|group| {
            let group = Path::new(mount).join(group);
            group.join(file).display().to_string()
        }));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn meminfo_is_in_kib() {
        let text = "MemTotal:       16384256 kB\nMemFree:  1 kB\n";
        assert_eq!(meminfo_total_bytes(text), Some(16_384_256 * 1024));
        assert_eq!(meminfo_total_bytes("MemFree: 1 kB\n"), None);
        assert_eq!(
            meminfo_total_bytes("MemTotal: 18446744073709551615 kB"),
            None
        );
    }

    #[test]
    fn a_process_knows_what_it_has_resident() {
        let resident = resident_bytes().expect("Linux says so");
        let all = memory_bytes().expect("Linux says so");
        assert!((1 << 20..all).contains(&resident), "{resident} of {all}");
    }

    #[test]
    fn a_group_without_a_limit_has_none() {
        assert_eq!(cgroup_limit_bytes("max\n"), None);
        assert_eq!(cgroup_limit_bytes("9223372036854771712\n"), None);
        assert_eq!(cgroup_limit_bytes("2147483648\n"), Some(2 << 30));
    }

    #[test]
    fn the_groups_above_count_too() {
        let files = cgroup_limit_files("0::/a/b\n");
        let expected = [
            "/sys/fs/cgroup/a/b/memory.max",
            "/sys/fs/cgroup/a/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expected);
        let version_1 = cgroup_limit_files("4:memory:/\n3:cpu,cpuacct:/\n");
        assert_eq!(version_1, ["/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in any::<String>()) {
            let _ = meminfo_total_bytes(&text);
            let _ = cgroup_limit_bytes(&text);
            let _ = cgroup_limit_files(&text);
        }
    }
}
