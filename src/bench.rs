//! `refrain bench`: how fast this machine does the work of gateways and archives, in ten rows.
//!
//! A row is printed as soon as it is measured, JSON at the end; Ctrl-C keeps the finished rows.
//! `lab/speed` measures the same code beside other programs, and on each set of instructions.

mod noise;
mod pair;
mod rows;

use std::{
    fs,
    io::{self, Write},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use clap::Args;
use refrain_codec::simd::Backend;
use serde::Serialize;

use crate::{bounded::time_from, interrupt::Interrupt};
use rows::{CHUNK_BYTES, ROWS, Row};

/// Turns that are measured at least, however little time there is.
const TURNS_MIN: usize = 3;

/// Which rows `bench` measures, and for how long.
#[derive(Args)]
pub(crate) struct BenchArguments {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Measure each row for this time, such as 5s or 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_from(Duration::from_millis(1)))]
    seconds: Duration,

    /// Measure only the rows whose names contain this text, in upper or lower case
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
}

#[derive(Serialize)]
struct Report {
    machine: Machine,
    /// The instructions that the kernels use.
    backend: String,
    seconds_a_row: f64,
    /// Whether all rows that were asked for are there.
    complete: bool,
    rows: Vec<Speed>,
}

#[derive(Serialize)]
struct Machine {
    processor: String,
    cores: usize,
    /// Processes that wanted to run in the minute before; `None` if unknown.
    load: Option<f64>,
}

#[derive(Serialize)]
struct Speed {
    name: &'static str,
    /// Plain bytes, 10^9 of them, in a second: the median of all turns.
    gb_per_s: f64,
    /// The same in chunks, where the row is about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks_per_s: Option<f64>,
}

/// Measures all rows that are asked for, and prints them.
///
/// # Errors
/// [`Interrupted`](crate::interrupt::Interrupted), among others, after the finished rows are printed.
pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<()> {
    let filter = arguments.filter.to_lowercase();
    let rows: Vec<&Row> = ROWS
        .iter()
        .filter(|row| row.name.contains(&filter))
        .collect();
    ensure!(
        !rows.is_empty(),
        "no row has \"{}\" in its name; the rows are: {}",
        arguments.filter,
        ROWS.map(|row| row.name).join(", ")
    );
    let mut report = Report {
        machine: Machine::this(),
        backend: Backend::best().instruction_set().to_string(),
        seconds_a_row: arguments.seconds.as_secs_f64(),
        complete: false,
        rows: Vec::new(),
    };
    let mut out = io::stdout();
    if !arguments.json {
        report.print_head(&mut out)?;
    }
    let interrupt = Interrupt::listen()?;
    let measured = rows.into_iter().try_for_each(|row| {
        let speed = measure(row, arguments.seconds, &interrupt)?;
        if !arguments.json {
            speed.print(&mut out)?;
        }
        report.rows.push(speed);
        Ok(())
    });
    report.complete = measured.is_ok();
    let printed = match (arguments.json, report.complete) {
        (true, _) => serde_json::to_writer_pretty(&mut out, &report)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out)),
        (false, true) => Ok(()),
        (false, false) => writeln!(out, "NOT COMPLETE: the remaining rows were not measured"),
    };
    // After Ctrl-C the exit code says so, even if nobody reads the output any more.
    measured.and(printed.map_err(Into::into))
}

/// Lets a row take turns for `time`. The first turn warms up and does not count.
fn measure(row: &Row, time: Duration, interrupt: &Interrupt) -> anyhow::Result<Speed> {
    interrupt.check()?;
    let mut work = (row.make)()?;
    (work.turn)()?;
    let mut speeds = Vec::new();
    let start = Instant::now();
    while speeds.len() < TURNS_MIN || start.elapsed() < time {
        interrupt.check()?;
        speeds.push(work.bytes as f64 / (work.turn)()?.as_secs_f64() / 1e9);
    }
    speeds.sort_by(f64::total_cmp);
    let gb_per_s = speeds[speeds.len() / 2];
    Ok(Speed {
        name: row.name,
        gb_per_s,
        chunks_per_s: row
            .is_of_chunks
            .then(|| gb_per_s * 1e9 / CHUNK_BYTES as f64),
    })
}

impl Report {
    fn print_head(&self, out: &mut impl Write) -> io::Result<()> {
        let Machine {
            processor,
            cores,
            load,
        } = &self.machine;
        let load = load.unwrap_or(f64::NAN);
        writeln!(
            out,
            "{processor}, {cores} cores, SIMD path {}; load before: {load:.1}\n\n\
             Speeds are medians, for plain data. Archives use all cores, the other rows use one.\n\
             A pair is two gateways with a thread each, a server and a client on this machine.\n\n\
             {:36}{:>8}{:>9}",
            self.backend, "", "GB/s", "Gbit/s"
        )
    }
}

impl Speed {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { name, gb_per_s, .. } = self;
        writeln!(out, "{name:36}{gb_per_s:8.2}{:9.1}", 8.0 * gb_per_s)?;
        out.flush()
    }
}

impl Machine {
    fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo
            .lines()
            .find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1));
        let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            processor: model.unwrap_or("unknown processor").trim().to_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            load: loads.split(' ').next().and_then(|load| load.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupted;

    #[test]
    fn the_median_of_the_turns_counts() {
        let row = Row {
            name: "row",
            is_of_chunks: true,
            make: || {
                let mut turns = [9, 4, 1, 2].into_iter();
                Ok(rows::Work::new(8_192_000, move || {
                    Ok(Duration::from_millis(turns.next().unwrap_or(2)))
                }))
            },
        };
        let interrupt = Interrupt::default();
        let speed = measure(&row, Duration::ZERO, &interrupt).expect("no error");
        assert_eq!(
            (speed.gb_per_s, speed.chunks_per_s),
            (4.096, Some(500_000.0))
        );
        interrupt.set(130);
        let error = measure(&row, Duration::ZERO, &interrupt).err();
        let interrupted = error.and_then(|error| error.downcast::<Interrupted>().ok());
        assert_eq!(interrupted, Some(Interrupted { exit_code: 130 }));
    }
}
