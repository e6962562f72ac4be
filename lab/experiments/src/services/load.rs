//! Requests at a steady rate, by h2load.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use nix::{time::clock_getcpuclockid, unistd::Pid};
use serde::Serialize;

use super::ways::{Ready, h2load};
use crate::processes::ok;

/// Clients, each with a connection and a request at a time, and the requests of all in a second.
pub(super) const CLIENTS: usize = 64;
pub(super) const PER_SECOND: usize = 2_000;

/// Of a turn: ten seconds.
const REQUESTS: usize = 20_000;

/// The first of them are made while connections begin.
const FIRST: usize = 2_000;

/// A version of HTTP.
pub(super) struct Version {
    pub name: &'static str,
    option: Option<&'static str>,
}

pub(super) const VERSIONS: [Version; 2] = [
    Version {
        name: "HTTP/2",
        option: None,
    },
    Version {
        name: "HTTP/1.1",
        option: Some("--h1"),
    },
];

/// A turn. Times are in seconds.
#[derive(Debug, Serialize)]
pub(super) struct Requests {
    pub median: f64,
    /// Of a hundred, the last but one.
    pub p99: f64,
    /// CPU time per request of the processes between the clients and the site.
    pub cpu: Vec<f64>,
}

/// Makes the requests.
pub(super) fn requests(ready: &Ready, version: &Version) -> anyhow::Result<Requests> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let (clients, requests) = (CLIENTS.to_string(), REQUESTS.to_string());
    let rate = (PER_SECOND as f64 / CLIENTS as f64).to_string();
    let log_file = format!("--log-file={}", log.display());
    let mut options = vec!["--clients", &clients, "--requests", &requests];
    options.extend(["--rps", &rate, &log_file]);
    // The clients begin one after the other: their requests would all come at once otherwise.
    options.extend(["--rate", "2", "--rate-period", "1ms"]);
    options.extend(version.option);
    let before = clocks(&ready.between)?;
    ok(&mut h2load(ready, "object", &options))?;
    let after = clocks(&ready.between)?;
    let cpu = before.iter().zip(after);
    let cpu = cpu.map(|(before, after)| (after - *before).as_secs_f64() / REQUESTS as f64);
    let mut times = times(&fs::read_to_string(log)?)?;
    times.sort_by(f64::total_cmp);
    Ok(Requests {
        median: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
        cpu: cpu.collect(),
    })
}

/// The seconds that requests took, but for the first ones. A line has a request's beginning, its status, and the time that
/// it took, in microseconds.
fn times(log: &str) -> anyhow::Result<Vec<f64>> {
    let mut requests = Vec::new();
    for line in log.lines() {
        let words: Option<Vec<u64>> = line.split('\t').map(|word| word.parse().ok()).collect();
        let words = words.filter(|words| words.len() == 3);
        let words = words.with_context(|| format!("invalid line of h2load: {line:?}"))?;
        ensure!(words[1] == 200, "a request had status {}", words[1]);
        requests.push((words[0], words[2] as f64 / 1e6));
    }
    ensure!(
        requests.len() == REQUESTS,
        "h2load made {} requests of {REQUESTS}",
        requests.len()
    );
    requests.sort_by_key(|&(begin, _)| begin);
    Ok(requests
        .split_off(FIRST)
        .into_iter()
        .map(|(_, time)| time)
        .collect())
}

fn clocks(processes: &[Pid]) -> anyhow::Result<Vec<Duration>> {
    let clock = |process: &Pid| Ok(clock_getcpuclockid(*process)?.now()?.into());
    processes.iter().map(clock).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_requests_do_not_count() {
        let line = |number: usize| format!("{}\t200\t{}\n", REQUESTS - number, number + 1);
        let log: String = (0..REQUESTS).map(line).collect();
        let times = times(&log).expect("a log");
        assert_eq!(times.len(), REQUESTS - FIRST);
        // The lines are in another order than the requests.
        assert_eq!(times[0], (REQUESTS - FIRST) as f64 / 1e6);
        assert_eq!(times[times.len() - 1], 1e-6);
    }

    #[test]
    fn a_failed_request_is_an_error() {
        let ok = "1\t200\t5\n".repeat(REQUESTS - 1);
        for last in ["1\t502\t5\n", "1\t-1\t5\n", "1\t200\n", ""] {
            assert!(times(&format!("{ok}{last}")).is_err(), "{last:?}");
        }
    }
}
