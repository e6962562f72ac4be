//! `refrain bench`: how fast this machine does what a gateway does, and beside it what
//! everybody knows: reading and copying memory, compressors, hashes, chunkers, and our own
//! kernels without vectors.
//!
//! Single core, but for the pair's rows at the end. All of a row take turns, so that a busy
//! machine slows all of them; speeds and ratios are medians over the turns.

mod contests;
mod machine;
mod measure;
mod pair;
mod report;
mod targets;
mod text;

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::ensure;
use clap::Args;
use refrain_codec::simd::{Backend, BackendChoice, InstructionSet};

use crate::demo::content;
use contests::{Contest, Inputs, RowName};
use machine::{Machine, Steadiness};
use report::{Report, Row};

/// Where the project's developers have the real content.
const DEVELOPERS_DATA: &str = "../shared/data";

/// What `bench` measures, and for how long.
#[derive(Args)]
pub struct BenchArguments {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,

    /// Time for each row, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    seconds: Duration,

    /// Only rows whose names have this text in them
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Only kernels for these instructions: portable, avx2, avx512 or neon; with auto, the fastest
    /// that this machine has, and its others beside them
    #[arg(long, value_name = "SET", env = "REFRAIN_SIMD", default_value = "auto")]
    simd: BackendChoice,

    /// Folder with real content: `linux-2.0.1-2.0.40.tar.zst`, a tar of the releases' tars, and
    /// `silesia/NAME.zst`, the corpus' files; without it the demo's content is taken
    #[arg(long, value_name = "DIR", env = "REFRAIN_DATA")]
    data: Option<PathBuf>,
}

/// Measures everything and prints it.
pub fn run(arguments: &BenchArguments) -> anyhow::Result<()> {
    let backends = backends(arguments.simd);
    say_progress("making content");
    let machine = Machine::this();
    let inputs = match &arguments.data {
        Some(folder) => Inputs::read(folder)?,
        None => Inputs::read(Path::new(DEVELOPERS_DATA))
            .or_else(|_| content::archive().map(Inputs::of_demo))?,
    };
    let mut measuring = Measuring {
        arguments,
        instructions: backends[0].instruction_set(),
        steadiness: Steadiness::default(),
        rows: Vec::new(),
    };
    for contest in contests::all(&inputs, &backends) {
        measuring.measure(contest);
    }
    if pair::NAMES.iter().any(|name| measuring.wants(name)) {
        pair::measure(&mut measuring)?;
    }
    clear_progress();
    ensure!(
        !measuring.rows.is_empty(),
        "no row's name has `{}` in it",
        arguments.filter
    );

    let report = Report {
        machine,
        backend: measuring.instructions.to_string(),
        seconds_a_row: arguments.seconds.as_secs_f64(),
        data: inputs.note,
        unsteadiness: measuring.steadiness.slowest_over_fastest(),
        rows: measuring.rows,
    };
    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        text::print(&report, &mut out)?;
    }
    Ok(())
}

/// What was measured so far.
struct Measuring<'a> {
    arguments: &'a BenchArguments,
    instructions: InstructionSet,
    steadiness: Steadiness,
    rows: Vec<Row>,
}

impl Measuring<'_> {
    fn wants(&self, name: &RowName) -> bool {
        name.to_string().contains(&self.arguments.filter)
    }

    /// Measures `contest`, if its name is wanted.
    fn measure(&mut self, mut contest: Contest<'_>) {
        if !self.wants(&contest.name) {
            return;
        }
        say_progress(&format!("measuring {}", contest.name));
        self.steadiness.sample();
        let speeds = measure::measure(&mut contest, self.arguments.seconds);
        self.rows
            .push(Row::new(contest.name, speeds, self.instructions));
    }
}

/// The backend to measure, and then those to set beside it.
fn backends(choice: BackendChoice) -> Vec<Backend> {
    match choice {
        BackendChoice::Auto => {
            let mut available: Vec<Backend> = Backend::available().collect();
            available.reverse();
            available
        }
        BackendChoice::Only(backend) => vec![backend],
    }
}

/// On one line of a terminal; nothing elsewhere.
fn say_progress(text: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    }
}

fn clear_progress() {
    say_progress("");
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
    fn the_best_backend_comes_first_unless_another_is_wanted() {
        let all = backends(BackendChoice::Auto);
        assert_eq!(all[0], Backend::best());
        assert_eq!(all.len(), Backend::available().count());
        let portable = BackendChoice::Only(Backend::PORTABLE);
        assert_eq!(backends(portable), [Backend::PORTABLE]);
    }
}
