//! Lost segments and slow start over the lab's link, for lanes and for direct connections.

mod flows;
mod loss;
mod slow_start;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::chapters::{self, Chapter, Choice, FiguresFolder};
use loss::Losses;
use slow_start::SlowStarts;

const INTRODUCTION: &str = "# Flows on a lossy link\n\n\
     Written by `cargo run --release -p refrain-experiments -- lossy --write docs/results-lossy.md`, as root.\n\n\
     Clients and the origin are at the two ends of a link between network namespaces (`lab/link`), over which the\n\
     kernel speaks real TCP. Lost segments are lost by chance, in both directions. Direct connections have the\n\
     congestion control that a column names, and so have the lanes of pairs (`--congestion`). Nothing in the\n\
     content repeats. *Noise* does not compress; *text* compresses to about a third.\n";

/// The ways: direct connections, then pairs, by their congestion control.
const DIRECT: [&str; 2] = ["cubic", "bbr"];
const PAIRS: [&str; 3] = ["cubic", "reno", "bbr"];

fn chapters<'a>() -> [Chapter<Setup<'a>>; 2] {
    [Chapter::of::<Losses>(), Chapter::of::<SlowStarts>()]
}

/// What to measure, and with what.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program to measure
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// The folder that keeps the figures of chapters
    #[arg(long, value_name = "DIR", default_value = "target/lossy")]
    figures: PathBuf,
    /// Measure only these chapters, and take the others as they were measured last
    #[arg(long, value_name = "CHAPTER", value_delimiter = ',', value_parser = chapters::names(&chapters()))]
    only: Option<Vec<String>>,
    /// Measure nothing again that was measured at this commit
    #[arg(long)]
    resume: bool,
    /// How often each way takes its turn
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// All figures as JSON instead of the page
    #[arg(long)]
    json: bool,
    /// Write to this file instead of standard output
    #[arg(long)]
    pub write: Option<PathBuf>,
}

struct Setup<'a> {
    /// An absolute path.
    refrain: &'a Path,
    figures: &'a Path,
    runs: usize,
}

impl FiguresFolder for Setup<'_> {
    fn folder(&self) -> &Path {
        self.figures
    }
}

/// Measures, and gives the page.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    anyhow::ensure!(arguments.runs > 0, "--runs must be greater than zero");
    let refrain = arguments.refrain.canonicalize();
    let refrain = refrain.with_context(|| {
        let program = arguments.refrain.display();
        format!("{program}: build it first: cargo build --release --bin refrain")
    })?;
    std::fs::create_dir_all(&arguments.figures)?;
    let setup = Setup {
        refrain: &refrain,
        figures: &arguments.figures,
        runs: arguments.runs,
    };
    let choice = Choice {
        only: arguments.only.as_deref(),
        resume: arguments.resume,
    };
    match arguments.json {
        true => chapters::json(&chapters(), &setup, choice),
        false => chapters::page(
            INTRODUCTION,
            &chapters(),
            &setup,
            choice,
            arguments.write.as_deref(),
        ),
    }
}
