//! An array of servers that grows and shrinks with its load (PACK, section 5.3 and Figure 9).

use super::{Findings, Interval};

/// A server is added when the array has less free CPU than this.
const FREE_MIN: f64 = 0.25;

/// One is removed if this much free CPU is left after that.
const FREE_AFTER_REMOVAL: f64 = 0.5;

/// More are not counted.
const SERVERS_MAX: u32 = 1_000_000;

/// The work for which servers are needed, as shares of the CPU that sending a byte takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// For each sent byte.
    pub by_byte: f64,
    /// For each byte that the same client had.
    pub by_repeated_byte: f64,
}

/// Servers in each interval. `bits_per_second` is the rate that a server sends with all of its CPU.
#[must_use]
pub fn servers(findings: &Findings, bits_per_second: f64, work: Work) -> Vec<u32> {
    let bytes_per_server = bits_per_second / 8.0 * findings.interval_seconds as f64;
    let load = |interval: &Interval| {
        let (bytes, repeated) = (interval.bytes as f64, interval.same_client_bytes as f64);
        (bytes * (1.0 + work.by_byte) + repeated * work.by_repeated_byte) / bytes_per_server
    };
    let mut servers: u32 = 1;
    let counts = findings.intervals.iter().map(|interval| {
        let load = load(interval);
        // Of a number beyond its range, the cast makes the largest one.
        let count = |servers: f64| (servers as u32).clamp(1, SERVERS_MAX);
        let enough = count((load + FREE_MIN).ceil());
        let most = count((load + 1.0 + FREE_AFTER_REMOVAL).ceil() - 1.0);
        servers = servers.clamp(enough, most.max(enough));
        servers
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(loads: &[u64]) -> Findings {
        let interval = |load: &u64| Interval {
            bytes: load * 600,
            same_client_bytes: load * 300,
            any_client_bytes: 0,
        };
        Findings {
            interval_seconds: 600,
            intervals: loads.iter().map(interval).collect(),
            ..Findings::default()
        }
    }

    #[test]
    fn servers_come_below_a_quarter_and_leave_above_a_half() {
        let loads = findings(&[10, 74, 76, 60, 51, 49, 0, 175, 176, 160, 151, 149]);
        // A server sends 100 bytes per second.
        let none = servers(&loads, 800.0, Work::default());
        assert_eq!(none, [1, 1, 2, 2, 2, 1, 1, 2, 3, 3, 3, 2]);
    }

    #[test]
    fn elimination_needs_more_of_them() {
        let loads = findings(&[70, 170, 270]);
        let of = |by_byte, by_repeated_byte| {
            let work = Work {
                by_byte,
                by_repeated_byte,
            };
            servers(&loads, 800.0, work)
        };
        assert_eq!(of(0.0, 0.0), [1, 2, 3]);
        assert_eq!(of(0.0, 0.2), [2, 3, 4]);
        assert_eq!(of(0.5, 0.0), [2, 3, 5]);
    }

    #[test]
    fn a_slow_server_is_not_multiplied_forever() {
        let many = servers(&findings(&[u64::MAX / 600]), 1.0, Work::default());
        assert_eq!(many, [SERVERS_MAX]);
    }
}
