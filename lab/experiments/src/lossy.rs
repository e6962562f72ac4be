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
     Written by `cargo run --release -p refrain-experiments -- lossy --write \
     docs/results-lossy.md`, as root.\n\n\
     Clients and the origin are at the two ends of a link between network namespaces\n\
     (`lab/link`). All connections are real TCP of the kernel. Segments are lost at random, in both\n\
     directions. Direct connections and the lanes of pairs (`--congestion`) have the\n\
     congestion control that a column names. Nothing in the content repeats. *Noise* does\n\
     not compress; *text* compresses to about a third. Both come from fixed seeds: no data\n\
     set is needed. All transfers go over sockets.\n";

/// The ways: direct connections, then pairs, by their congestion control.
const DIRECT: [&str; 2] = ["cubic", "bbr"];
const PAIRS: [&str; 3] = ["cubic", "reno", "bbr"];

fn chapters<'a>() -> [Chapter<Setup<'a>>; 2] {
    [Chapter::of::<Losses>(), Chapter::of::<SlowStarts>()]
}

/// The options of `lossy`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Keep the figures of chapters in this directory
    #[arg(long, value_name = "DIR", default_value = "target/lossy")]
    figures: PathBuf,
    /// Measure only these chapters, and keep the last figures of the others; without a name, measure none
    #[arg(
        long,
        value_name = "CHAPTER",
        num_args = 0..,
        value_delimiter = ',',
        value_parser = chapters::names(&chapters())
    )]
    only: Option<Vec<String>>,
    /// Skip chapters that were already measured at this commit, to resume a stopped run
    #[arg(long)]
    resume: bool,
    /// Measure each way this many times
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print all figures as JSON instead of the page
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
        format!("cannot find \"{program}\" (build it: cargo build --release --bin refrain)")
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
