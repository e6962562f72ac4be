//! Thin and long links: real programs over the lab's link, held to bounds.
//!
//! Gateways, origin, clients and the link itself share the machine. Each figure is a median of runs in which the ways
//! took turns, and each body is compared.

mod client;
mod effort;
mod fairness;

mod first;
mod keystrokes;
mod origin;
mod second;
mod series;
mod table;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::chapters::{self, Chapter, Choice, FiguresFolder};

use effort::Efforts;
use fairness::Fairness;
use first::FirstTransfers;
use keystrokes::Keystrokes;
use second::SecondTransfers;
use series::ReleaseSeries;

const INTRODUCTION: &str = "# Slow and high-latency links\n\n\
     Written by `cargo run --release -p refrain-experiments -- links --write \
     docs/results-links.md`. `--json` prints every run.\n\n\
     Real programs run over `lab/link`: two network namespaces, with real TCP between them,\n\
     a rate, a delay and a queue of 100 ms. The client and the near gateway are at one end,\n\
     the far gateway and the origin at the other. All of them and the link share the\n\
     machine. Delays are one way. Rates count the headers of IP and TCP. *Link bytes* are\n\
     those of the gateways' TCP connections. Times are medians; the ways took turns. Each\n\
     body was compared. MB = 10^6 bytes. All transfers go over sockets. Only the rows\n\
     *engines* of the last chapter are simulated. `lab/data get linux silesia mail pages`\n\
     gets the data sets.\n";

/// All chapters, in the order of the page. A new one is added here and nowhere else.
const CHAPTERS: [Chapter<Setup>; 7] = [
    Chapter::of::<SecondTransfers>(),
    Chapter::of::<FirstTransfers>(),
    Chapter::of::<Efforts<false>>(),
    Chapter::of::<Efforts<true>>(),
    Chapter::of::<Fairness>(),
    Chapter::of::<Keystrokes>(),
    Chapter::of::<ReleaseSeries>(),
];

/// The options of `links`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Measure this older build too
    #[arg(long, value_name = "BINARY")]
    before: Option<PathBuf>,
    /// Read test data from this directory
    #[arg(
        long,
        value_name = "DIR",
        env = "REFRAIN_DATA",
        default_value = "../shared/data"
    )]
    data: PathBuf,
    /// Keep the figures of chapters in this directory
    #[arg(long, value_name = "DIR", default_value = "target/links")]
    figures: PathBuf,
    /// Measure only these chapters, and keep the last figures of the others; without a name, measure none
    #[arg(
        long,
        value_name = "CHAPTER",
        num_args = 0..,
        value_delimiter = ',',
        value_parser = chapters::names(&CHAPTERS)
    )]
    only: Option<Vec<String>>,
    /// Skip chapters that were already measured at this commit, to resume a stopped run
    #[arg(long)]
    resume: bool,
    /// Measure everything this many times
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print all figures as JSON instead of the page
    #[arg(long)]
    json: bool,
    /// Write to this file instead of standard output, and plots to the directory `plots` next to it
    #[arg(long)]
    pub write: Option<PathBuf>,
}

/// What all measuring needs.
struct Setup {
    builds: Vec<Build>,
    data: PathBuf,
    figures: PathBuf,
    runs: usize,
}

/// A program to measure.
struct Build {
    name: &'static str,
    /// An absolute path.
    refrain: PathBuf,
}

impl FiguresFolder for Setup {
    fn folder(&self) -> &Path {
        &self.figures
    }
}

/// Measures, and gives the page or the figures.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    anyhow::ensure!(arguments.runs > 0, "--runs must be greater than zero");
    let build = |name, path: &Path| {
        let refrain = path.canonicalize();
        let refrain = refrain.with_context(|| {
            let program = path.display();
            format!("cannot find \"{program}\" (build it: cargo build --release --bin refrain)")
        })?;
        anyhow::Ok(Build { name, refrain })
    };
    let mut builds = vec![build("now", &arguments.refrain)?];
    if let Some(before) = &arguments.before {
        builds.push(build("before", before)?);
    }
    std::fs::create_dir_all(&arguments.figures)?;
    let setup = Setup {
        builds,
        data: arguments.data.clone(),
        figures: arguments.figures.clone(),
        runs: arguments.runs,
    };
    let choice = Choice {
        only: arguments.only.as_deref(),
        resume: arguments.resume,
    };
    match arguments.json {
        true => chapters::json(&CHAPTERS, &setup, choice),
        false => chapters::page(
            INTRODUCTION,
            &CHAPTERS,
            &setup,
            choice,
            arguments.write.as_deref(),
        ),
    }
}
