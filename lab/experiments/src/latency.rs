//! Latency over the lab's link: direct connections and pairs in turns, from the same clients to the same origin.

mod first_byte;
mod http;
mod objects;
mod round_trips;
mod silesia;
mod transactions;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use refrain_link::LinkConfig;
use refrain_relay::Rate;

use crate::chapters::{self, Chapter, Choice, FiguresFolder};
use first_byte::FirstBytes;
use round_trips::RoundTrips;
use silesia::Silesia;
use transactions::Transactions;

const INTRODUCTION: &str = "# Latency\n\n\
     Written by `cargo run --release -p refrain-experiments -- latency --write \
     docs/results-latency.md`, as root.\n\n\
     Clients and the origin are at the two ends of a link between network namespaces\n\
     (`lab/link`). All connections are real TCP of the kernel. Direct connections and pairs of whole\n\
     `refrain` processes take turns on the same link. The link is checked before each use.\n\
     *Delay* is one way, the *round trip* is twice that. CUBIC and BBR are the congestion\n\
     control of direct connections, set by name; lanes have the program's default, BBR. All\n\
     programs share the machine. Rates count the headers of IP and TCP. All transfers go\n\
     over sockets, and each is compared byte by byte. `lab/data get silesia` gets the data\n\
     set.\n";

/// All chapters, in the order of the page.
fn chapters<'a>() -> [Chapter<Setup<'a>>; 4] {
    [
        Chapter::of::<Transactions>(),
        Chapter::of::<Silesia>(),
        Chapter::of::<FirstBytes>(),
        Chapter::of::<RoundTrips>(),
    ]
}

/// The options of `latency`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Read test data from this directory
    #[arg(long, env = "REFRAIN_DATA", default_value = "../shared/data")]
    data: PathBuf,
    /// Keep the figures of chapters in this directory
    #[arg(long, value_name = "DIR", default_value = "target/latency")]
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
    #[arg(long, default_value_t = 31)]
    runs: usize,
    /// Transfer the files of Silesia this many times, which takes half an hour
    #[arg(long, default_value_t = 3)]
    silesia_runs: usize,
    /// Print all figures as JSON instead of the page
    #[arg(long)]
    json: bool,
    /// Write to this file instead of standard output, and plots to the directory `plots` next to it
    #[arg(long)]
    pub write: Option<PathBuf>,
}

/// What all measuring needs.
struct Setup<'a> {
    /// An absolute path.
    refrain: &'a Path,
    data: &'a Path,
    figures: &'a Path,
    runs: usize,
    silesia_runs: usize,
}

impl FiguresFolder for Setup<'_> {
    fn folder(&self) -> &Path {
        self.figures
    }
}

/// Measures, and gives the page.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    anyhow::ensure!(
        arguments.runs > 0 && arguments.silesia_runs > 0,
        "--runs and --silesia-runs must be greater than zero"
    );
    let refrain = arguments.refrain.canonicalize();
    let refrain = refrain.with_context(|| {
        let program = arguments.refrain.display();
        format!("cannot find \"{program}\" (build it: cargo build --release --bin refrain)")
    })?;
    std::fs::create_dir_all(&arguments.figures)?;
    let setup = Setup {
        refrain: &refrain,
        data: &arguments.data,
        figures: &arguments.figures,
        runs: arguments.runs,
        silesia_runs: arguments.silesia_runs,
    };
    let choice = Choice {
        only: arguments.only.as_deref(),
        resume: arguments.resume,
    };
    if arguments.json {
        return chapters::json(&chapters(), &setup, choice);
    }
    chapters::page(
        INTRODUCTION,
        &chapters(),
        &setup,
        choice,
        arguments.write.as_deref(),
    )
}

fn link(mbit: u32, delay_ms: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::mbit(mbit)),
        delay: Duration::from_millis(delay_ms),
        ..LinkConfig::default()
    }
}
