//! `refrain czip` beside its peers: what archives take, what goes over the wire to who has the version
//! before, and how fast it is.
//!
//! All programs, refrain too, run as whole processes, as users run them. Each part's figures are kept in
//! the folder of data sets, so that the page can be written anew from parts measured at several times.

mod by_name;
mod cdn;
mod chapters;
mod data;
mod forgetting;
mod measured;
mod options;
mod origin;
mod page;
mod serving;
mod sizes;
mod speed;
mod targets;
mod transfer;
mod ways;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser};

use by_name::ByName;
use cdn::Cdn;
use chapters::{Chapter, Kept};
use data::Data;
use forgetting::Forgetting;
pub(crate) use measured::{SUBCOMMAND as MEASURED, median, run as run_measured};
use options::Options;
use serving::Servings;
use sizes::Sizes;
use speed::Speeds;
use transfer::Transfers;

/// All chapters, in the order of the page. A new one is added here and nowhere else.
const CHAPTERS: [Chapter; 8] = [
    Chapter::of::<Sizes>(),
    Chapter::of::<Options>(),
    Chapter::of::<Transfers>(),
    Chapter::of::<ByName>(),
    Chapter::of::<Cdn>(),
    Chapter::of::<Speeds>(),
    Chapter::of::<Forgetting>(),
    Chapter::of::<Servings>(),
];

/// What to measure, and with what.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program to measure
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// The folder of data sets, which are made where they are missing; archives are made there too
    #[arg(long, value_name = "DIR", default_value = "target/czip-data")]
    data: PathBuf,
    /// The folder of test data, for lists of packages and for pages
    #[arg(
        long,
        value_name = "DIR",
        env = "REFRAIN_DATA",
        default_value = "../shared/data"
    )]
    shared: PathBuf,
    /// Measure only these chapters, and take the others as they were measured last
    #[arg(long, value_name = "CHAPTER", value_delimiter = ',', value_parser = chapter_names())]
    only: Option<Vec<String>>,
    /// Measure nothing again that was measured at this commit: goes on where a run was ended
    #[arg(long)]
    resume: bool,
    /// How often each thing is measured whose time is of interest
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Bytes of the big archive, in 10^9
    #[arg(long, value_name = "N", default_value_t = 10)]
    big_gb: u64,
    /// Write the page to this file instead of standard output
    #[arg(long)]
    pub write: Option<PathBuf>,
}

/// What all measuring needs.
struct Setup<'a> {
    /// An absolute path.
    refrain: &'a Path,
    data: &'a Data,
    runs: usize,
    big_bytes: u64,
}

fn chapter_names() -> PossibleValuesParser {
    let value = |chapter: &Chapter| PossibleValue::new(chapter.name).help(chapter.title);
    PossibleValuesParser::new(CHAPTERS.iter().map(value))
}

/// Measures, and gives the page.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    anyhow::ensure!(arguments.runs > 0, "no run, no median");
    let refrain = arguments.refrain.canonicalize();
    let refrain = refrain.with_context(|| {
        let program = arguments.refrain.display();
        format!("{program}: build it first: cargo build --release --bin refrain")
    })?;
    let data = Data::new(&arguments.data, &arguments.shared)?;
    let setup = Setup {
        refrain: &refrain,
        data: &data,
        runs: arguments.runs,
        big_bytes: arguments.big_gb * 1_000_000_000,
    };
    let mut written = Vec::new();
    for chapter in &CHAPTERS {
        let only = arguments.only.as_ref();
        let is_asked = only.is_none_or(|names| names.iter().any(|name| name == chapter.name));
        let kept = chapter.kept(&setup)?;
        let is_done = |kept: &Kept| arguments.resume && kept.version == chapters::version();
        written.push(match kept {
            Some(kept) if !is_asked || is_done(&kept) => chapter.written(&kept)?,
            None if !is_asked => chapter.unmeasured()?,
            _ => chapter.written(&chapter.measured(&setup)?)?,
        });
    }
    page::page(&written)
}
