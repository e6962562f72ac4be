//! `refrain bench`: how fast this machine does what a gateway does, and beside it what
//! everybody knows: reading and copying memory, compressors, hashes, chunkers, files, and our own
//! kernels without vectors. Where a CUDA device can be used, how fast that finds anchors, too.
//!
//! Single core, but for the pair's rows at the end. All of a row take turns, so that a busy
//! machine slows all of them; speeds and ratios are medians over the turns. A row is printed once
//! it was measured, but JSON at the end; Ctrl-C brings the end forward.

mod contests;
mod machine;
mod measure;
mod pair;
mod progress;
mod report;
mod targets;
mod text;

use std::{
    collections::HashSet,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::ensure;
use clap::Args;
use indicatif::ProgressBar;
use refrain_codec::simd::{Backend, BackendChoice, InstructionSet};

use crate::{demo::content, interrupt::Interrupt};
use contests::{Contest, Inputs, RowName};
use machine::{Machine, Steadiness};
use report::{Report, Row};
use text::RunningTable;

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

    /// Only rows whose names have this text in them, in capitals or not
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

impl BenchArguments {
    fn wants(&self, name: &RowName) -> bool {
        let name = name.to_string().to_lowercase();
        name.contains(&self.filter.to_lowercase())
    }
}

/// Measures everything and prints it.
///
/// # Errors
/// [`Interrupted`](crate::interrupt::Interrupted), among others, once all is printed that was measured.
pub fn run(arguments: &BenchArguments) -> anyhow::Result<()> {
    let backends = backends(arguments.simd);
    let progress = progress::line("making content");
    let machine = Machine::this();
    let inputs = match &arguments.data {
        Some(folder) => Inputs::read(folder)?,
        None => Inputs::read(Path::new(DEVELOPERS_DATA))
            .or_else(|_| content::archive().map(Inputs::of_demo))?,
    };
    let mut contests = contests::all(&inputs, &backends);
    let kernels = kernels(&contests);
    contests.retain(|contest| arguments.wants(&contest.name));
    let of_pair = pair::NAMES.into_iter().filter(|name| arguments.wants(name));
    let of_pair: Vec<_> = of_pair.collect();
    let planned = contests.len() + of_pair.len();
    ensure!(
        planned > 0,
        "no row's name has `{}` in it; they begin with {kernels}; and with GPU, where a CUDA device can be used",
        arguments.filter
    );

    let instructions = backends[0].instruction_set();
    let report = Report {
        machine,
        backend: instructions.to_string(),
        seconds_a_row: arguments.seconds.as_secs_f64(),
        data: inputs.note.clone(),
        unsteadiness: 1.0,
        complete: false,
        rows: Vec::new(),
    };
    let table = match arguments.json {
        true => None,
        false => {
            let names = names(&contests, &of_pair);
            let begin = || RunningTable::begin(&report, names, &mut io::stdout());
            Some(progress.suspend(begin)?)
        }
    };
    progress::count(&progress, planned);
    let mut measuring = Measuring {
        arguments,
        instructions,
        steadiness: Steadiness::default(),
        // Until here there was nothing to lose.
        interrupt: Interrupt::listen()?,
        progress,
        table,
        report,
    };
    let ended = measuring.measure_all(contests);
    let finished = measuring.finish(ended.is_ok());
    // Who reads the output may have gone by Ctrl-C too: the exit code says that it was pressed.
    ended.and(finished)
}

/// What was measured so far, and where it is shown.
struct Measuring<'a> {
    arguments: &'a BenchArguments,
    instructions: InstructionSet,
    steadiness: Steadiness,
    interrupt: Interrupt,
    progress: ProgressBar,
    /// `None` where JSON is wanted, which is written at the end.
    table: Option<RunningTable>,
    report: Report,
}

impl Measuring<'_> {
    fn measure_all(&mut self, contests: Vec<Contest<'_>>) -> anyhow::Result<()> {
        for contest in contests {
            self.measure(contest)?;
        }
        if pair::NAMES.iter().any(|name| self.arguments.wants(name)) {
            pair::measure(self)?;
        }
        Ok(())
    }

    /// Measures `contest`, if its name is wanted, and shows its row.
    fn measure(&mut self, mut contest: Contest<'_>) -> anyhow::Result<()> {
        if !self.arguments.wants(&contest.name) {
            return Ok(());
        }
        self.progress.set_message(contest.name.to_string());
        self.steadiness.sample();
        let speeds = measure::measure(&mut contest, self.arguments.seconds, &self.interrupt)?;
        let row = Row::new(contest.name, contest.chunk_bytes, speeds, self.instructions);
        if let Some(table) = &self.table {
            let show = || table.row(&row, &mut io::stdout());
            self.progress.suspend(show)?;
        }
        self.report.rows.push(row);
        self.progress.inc(1);
        Ok(())
    }

    /// Prints what was not printed yet.
    fn finish(mut self, complete: bool) -> anyhow::Result<()> {
        self.progress.finish_and_clear();
        self.report.complete = complete;
        self.report.unsteadiness = self.steadiness.slowest_over_fastest();
        let mut out = io::stdout().lock();
        match self.table {
            Some(table) => table.end(&self.report, &mut out)?,
            None => {
                serde_json::to_writer_pretty(&mut out, &self.report).map_err(io::Error::from)?;
                writeln!(out)?;
            }
        }
        Ok(())
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

/// What rows' names begin with.
fn kernels(contests: &[Contest<'_>]) -> String {
    let names = contests.iter().map(|contest| &contest.name);
    let mut kernels: Vec<_> = names.chain(&pair::NAMES).map(|name| name.kernel).collect();
    let mut seen = HashSet::new();
    kernels.retain(|kernel| seen.insert(*kernel));
    kernels.join("; ")
}

/// What stands in the table's first column.
fn names(contests: &[Contest<'_>], of_pair: &[RowName]) -> Vec<String> {
    let peers = contests.iter().flat_map(|contest| &contest.contestants);
    let peers = peers.map(|peer| text::indented(&peer.name));
    let rows = contests.iter().map(|contest| &contest.name).chain(of_pair);
    rows.map(ToString::to_string).chain(peers).collect()
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
