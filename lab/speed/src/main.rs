//! How fast refrain is on this machine: its kernels on each set of instructions, both ends of predictions,
//! the chunk store, GPUs and a whole pair, beside other programs. It writes `docs/performance.md`.
//!
//! All of a row take turns, so that a busy machine slows all of them; speeds and ratios are medians
//! over the turns. Single core, but for the pair's rows. What the rows were built to reach goes to standard error.

mod contests;
mod machine;
mod measure;
mod page;
mod pair;
mod report;
mod targets;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::Parser;
use refrain_codec::simd::{Backend, InstructionSet};

use contests::{Contest, Inputs, RowName};
use machine::{Machine, Steadiness};
use report::{Report, Row};

/// Where the project's developers have the real content.
const DEVELOPERS_DATA: &str = "../shared/data";

/// Stands in for it elsewhere.
const DEMO: &[u8] = include_bytes!("../../../demo/corpus/objects.tar.zst");

/// Measures the speed of refrain compared with other programs, and writes a page of Markdown.
#[derive(Parser)]
struct Arguments {
    /// Write the page to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,

    /// Measure each row for this time, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    seconds: Duration,

    /// Measure only the rows whose names contain this text, in upper or lower case, such as GPU
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Measure only the SIMD path for this set: portable, avx2, avx512 or neon; auto measures all
    /// that this machine has
    #[arg(long, value_name = "SET", default_value = "auto")]
    simd: String,

    /// Take real content from this directory: `linux-2.0.1-2.0.40.tar.zst`, a tar of the releases' tars, and
    /// `silesia/NAME.zst`, the files of the corpus
    #[arg(long, value_name = "DIR", env = "REFRAIN_DATA")]
    data: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let backends = backends(&arguments.simd)?;
    let inputs = match &arguments.data {
        Some(folder) => Inputs::read(folder)?,
        None => Inputs::read(Path::new(DEVELOPERS_DATA))
            .or_else(|_| zstd::decode_all(DEMO).map(Inputs::of_demo))?,
    };
    let mut measuring = Measuring {
        arguments: &arguments,
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
    ensure!(
        !measuring.rows.is_empty(),
        "no row that can be measured here has \"{}\" in its name",
        arguments.filter
    );
    let report = Report {
        machine: Machine::this(),
        backend: measuring.instructions.to_string(),
        seconds_a_row: arguments.seconds.as_secs_f64(),
        data: inputs.note.clone(),
        unsteadiness: measuring.steadiness.slowest_over_fastest(),
        rows: measuring.rows,
    };
    report.print_targets();
    let page = page::page(&report);
    match &arguments.write {
        Some(path) => fs::write(path, page).with_context(|| path.display().to_string()),
        None => {
            print!("{page}");
            Ok(())
        }
    }
}

/// What was measured so far.
struct Measuring<'a> {
    arguments: &'a Arguments,
    instructions: InstructionSet,
    steadiness: Steadiness,
    rows: Vec<Row>,
}

impl Measuring<'_> {
    fn wants(&self, name: &RowName) -> bool {
        let name = name.to_string().to_lowercase();
        name.contains(&self.arguments.filter.to_lowercase())
    }

    /// Measures `contest`, if its name is wanted.
    fn measure(&mut self, mut contest: Contest<'_>) {
        if !self.wants(&contest.name) {
            return;
        }
        self.steadiness.sample();
        let speeds = measure::measure(&mut contest, self.arguments.seconds);
        let row = Row::new(contest.name, contest.chunk_bytes, speeds, self.instructions);
        eprintln!("{}: {:.2} GB/s", contest.name, row.gb_per_s);
        self.rows.push(row);
    }
}

/// The backend to measure, and then those to set beside it.
fn backends(simd: &str) -> anyhow::Result<Vec<Backend>> {
    if simd != "auto" {
        return Ok(vec![simd.parse()?]);
    }
    let mut available: Vec<Backend> = Backend::available().collect();
    available.reverse();
    Ok(available)
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|&seconds| seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "must be a number of seconds greater than zero".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_backend_comes_first_unless_another_is_wanted() {
        let all = backends("auto").expect("always valid");
        assert_eq!(all[0], Backend::best());
        assert_eq!(all.len(), Backend::available().count());
        let portable = backends("portable").expect("every machine has it");
        assert_eq!(portable, [Backend::PORTABLE]);
    }
}
