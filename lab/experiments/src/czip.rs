//! `refrain czip` beside its peers: what archives take, what goes over the wire to who has the version
//! before, and how fast it is.
//!
//! All programs, refrain too, run as whole processes, as users run them. Each part's figures are kept in
//! the folder of data sets, so that the page can be written anew from parts measured at several times.

mod by_name;
mod cdn;
mod data;
mod forgetting;
mod measured;
mod options;
mod origin;
mod serving;
mod sizes;
mod speed;
mod transfer;
mod ways;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::chapters::{self, Chapter, Choice, FiguresFolder};
use by_name::ByName;
use cdn::Cdn;
use data::Data;
use forgetting::Forgetting;
pub(crate) use measured::{SUBCOMMAND as MEASURED, median, run as run_measured};
use options::Options;
use serving::Servings;
use sizes::Sizes;
use speed::Speeds;
use transfer::Transfers;
pub(crate) use ways::are_installed;

const INTRODUCTION: &str = "# CZIP archives beside their peers\n\n\
     Written by `cargo run --release -p refrain-experiments -- czip --write \
     docs/results-czip.md`.\nPeers are Debian's packages (`lab/setup --peers`), with default \
     options where none are named.\n\n\
     All programs are whole processes; CPU time and memory are the system's counts of their \
     children. Times\nare medians of runs in which the ways took turns. MB = 10^6 bytes. \
     What could not be had is *not there*.\n";

/// All chapters, in the order of the page. A new one is added here and nowhere else.
fn chapters<'a>() -> [Chapter<Setup<'a>>; 8] {
    [
        Chapter::of::<Sizes>(),
        Chapter::of::<Options>(),
        Chapter::of::<Transfers>(),
        Chapter::of::<ByName>(),
        Chapter::of::<Cdn>(),
        Chapter::of::<Speeds>(),
        Chapter::of::<Forgetting>(),
        Chapter::of::<Servings>(),
    ]
}

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
    #[arg(long, value_name = "CHAPTER", value_delimiter = ',', value_parser = chapters::names(&chapters()))]
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

impl FiguresFolder for Setup<'_> {
    fn folder(&self) -> &Path {
        self.data.folder()
    }
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
    let choice = Choice {
        only: arguments.only.as_deref(),
        resume: arguments.resume,
    };
    chapters::page(
        INTRODUCTION,
        &chapters(),
        &setup,
        choice,
        arguments.write.as_deref(),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_chapters_have_a_name() {
        let chapters = chapters();
        let names: HashSet<_> = chapters.iter().map(|chapter| chapter.name).collect();
        assert_eq!(names.len(), chapters.len());
    }
}
