//! `refrain analyze`: its columns over the captures at hand, and the checks of its estimates.

mod captures;
mod made;
mod objects;
mod replay;
mod requests;
mod training;
mod tshark;

use std::{
    fs::File,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use refrain_capture::{Fragments, Layer, Limits, Sink, Streams, read_packets};

use crate::chapters::{self, Chapter, Choice, FiguresFolder};
use captures::Captures;
use made::Made;
use objects::Objects;
use replay::Replays;
use requests::Requests;
use training::Training;
use tshark::Comparison;

const INTRODUCTION: &str = "# Estimates from captures\n\n\
     Written by `cargo run --release -p refrain-experiments -- analyze --write docs/results-analyze.md`, as root.\n\n\
     `refrain analyze` over the captures of `../shared/data/pcap`. [Estimates from captures](analyze.md) explains the\n\
     columns. Nine captures were set aside by name (`lab/experiments/src/analyze/set_aside.txt`) before the\n\
     first comparison, and nothing was fitted to them. Savings are estimates. Only the chapter on\n\
     replays has traffic over sockets. Requests and files are other data of `../shared/data`.\n";

/// Captures to which no constant of the estimates was fitted.
const SET_ASIDE: &str = include_str!("analyze/set_aside.txt");

fn chapters<'a>() -> [Chapter<Setup<'a>>; 7] {
    [
        Chapter::of::<Captures>(),
        Chapter::of::<Made>(),
        Chapter::of::<Replays>(),
        Chapter::of::<Requests>(),
        Chapter::of::<Objects>(),
        Chapter::of::<Training>(),
        Chapter::of::<Comparison>(),
    ]
}

/// The options of `analyze`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Read test data from this directory; its directory `pcap` has the captures
    #[arg(
        long,
        value_name = "DIR",
        env = "REFRAIN_DATA",
        default_value = "../shared/data"
    )]
    data: PathBuf,
    /// Skip the captures that are set aside
    #[arg(long)]
    development: bool,
    /// Keep the figures of chapters in this directory
    #[arg(long, value_name = "DIR", default_value = "target/analyze")]
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
    data: &'a Path,
    captures: Vec<PathBuf>,
    figures: &'a Path,
}

impl FiguresFolder for Setup<'_> {
    fn folder(&self) -> &Path {
        self.figures
    }
}

fn name(capture: &Path) -> String {
    capture
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn is_set_aside(name: &str) -> bool {
    SET_ASIDE.lines().any(|line| line == name)
}

/// Gives the connections of a capture to `sink`.
fn read_streams(path: &Path, sink: &mut impl Sink) -> anyhow::Result<()> {
    let mut streams = Streams::new(Limits::default());
    let mut fragments = Fragments::default();
    read_packets(File::open(path)?, |packet| {
        if let Layer::Tcp(segment) = Layer::of(&packet, &mut fragments) {
            streams.segment(packet.at, &segment, sink);
        }
        ControlFlow::Continue(())
    })?;
    streams.finish(sink);
    Ok(())
}

/// Measures, and gives the page.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let refrain = arguments.refrain.canonicalize();
    let refrain = refrain.with_context(|| {
        let program = arguments.refrain.display();
        format!("cannot find \"{program}\" (build it: cargo build --release --bin refrain)")
    })?;
    std::fs::create_dir_all(&arguments.figures)?;
    let folder = &arguments.data.join("pcap");
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut captures = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_capture = path
            .extension()
            .is_some_and(|kind| kind == "pcap" || kind == "pcapng");
        if is_capture && !(arguments.development && is_set_aside(&name(&path))) {
            captures.push(path);
        }
    }
    ensure!(
        !captures.is_empty(),
        "\"{}\" has no captures",
        folder.display()
    );
    captures.sort();
    let setup = Setup {
        refrain: &refrain,
        data: &arguments.data,
        captures,
        figures: &arguments.figures,
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
