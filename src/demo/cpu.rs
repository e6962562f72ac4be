//! CPU time of threads by name, where the system has /proc.

/// Clock ticks a second, as Linux shows times to programs on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds, user and system, of this process's threads whose name is `name`.
pub(super) fn seconds_of_threads(name: &str) -> Option<f64> {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        // A thread may end while the list is read.
        let Ok(stat) = std::fs::read_to_string(task.ok()?.path().join("stat")) else {
            continue;
        };
        ticks += ticks_of(&stat, name).unwrap_or(0);
    }
    Some(ticks as f64 / TICKS_PER_SECOND)
}

/// utime + stime of `/proc/PID/task/TID/stat` (proc(5), fields 14 and 15) if its name fits.
fn ticks_of(stat: &str, name: &str) -> Option<u64> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let (_, thread) = head.split_once('(')?;
    if thread != name {
        return None;
    }
    let mut fields = rest.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "12 (demo (far) 1) S 1 2 3 4 5 6 7 8 9 10 300 45 0 0 20 0 1 0 5";
        assert_eq!(ticks_of(stat, "demo (far) 1"), Some(345));
        assert_eq!(ticks_of(stat, "demo-near"), None);
        assert_eq!(ticks_of("", "x"), None);
    }
}
