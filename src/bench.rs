//! `refrain bench`: how fast this machine does what a gateway does, and beside it what
//! everybody knows: reading and copying memory, zstd.
//!
//! Single core, but for the pair's rows at the end. Each is measured beside its peer in turns,
//! so that a busy machine slows both; speeds and ratios are medians over the turns.

mod codec;
mod contest;
mod pair;
mod workload;

use std::{
    fs,
    io::{self, IsTerminal, Write},
    thread,
    time::Duration,
};

use clap::Args;

use crate::table::Table;
use contest::{Contest, Row};

/// What `bench` measures, and for how long.
#[derive(Args)]
pub struct BenchArguments {
    /// Print a JSON list instead of a table
    #[arg(long)]
    json: bool,

    /// Time for each measurement, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    seconds: Duration,
}

/// Measures everything and prints it.
pub fn run(arguments: &BenchArguments) -> io::Result<()> {
    let mut report = Report {
        time: arguments.seconds,
        rows: Vec::new(),
    };
    codec::measure(&mut report)?;
    pair::measure(&mut report)?;
    clear_progress();

    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &report.rows)?;
        writeln!(out)
    } else {
        print_table(&report.rows, &mut out)
    }
}

/// What was measured so far.
struct Report {
    /// For each contest.
    time: Duration,
    rows: Vec<Row>,
}

impl Report {
    /// Measures `contest`, whose rows bear `name`.
    fn add(&mut self, name: &str, contest: Contest<'_>) {
        say_progress(name);
        self.rows.extend(contest.measure(name, self.time));
    }
}

fn print_table(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}, one core of {}\n", processor(), cores())?;
    let mut table = Table::new(&["", "GB/s", "beside", "GB/s", "ratio"]);
    for row in rows {
        let [peer, peer_speed, ratio] = match &row.peer {
            None => ["", "", ""].map(str::to_owned),
            Some(peer) => [
                peer.name.to_owned(),
                format!("{:.2}", peer.gb_per_s),
                format!("{:.2}", peer.ratio),
            ],
        };
        let speed = format!("{:.2}", row.gb_per_s);
        table.row([row.name.clone(), speed, peer, peer_speed, ratio]);
    }
    table.print(out)
}

/// On one line of a terminal; nothing elsewhere.
fn say_progress(name: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[Kmeasuring {name}");
    }
}

fn clear_progress() {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models = cpuinfo
        .lines()
        .filter_map(|line| line.strip_prefix("model name")?.split_once(": "));
    models
        .map(|(_, model)| model.trim().to_owned())
        .next()
        .unwrap_or_else(|| "unknown processor".to_owned())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "expected a number of seconds above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_above_zero() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "NaN", "inf", "1e300", "1s", ""] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rows_without_a_peer_name_none() {
        let row = Row {
            name: "decode".to_owned(),
            gb_per_s: 1.5,
            peer: None,
        };
        let json = serde_json::to_value(&row).expect("JSON");
        assert_eq!(json, serde_json::json!({"name": "decode", "gb_per_s": 1.5}));
        let mut out = Vec::new();
        print_table(&[row], &mut out).expect("memory");
        let out = String::from_utf8(out).expect("text");
        assert!(out.ends_with("decode  1.50\n"), "{out}");
    }
}
