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
pub(crate) use measured::{SUBCOMMAND as MEASURED, run as run_measured};
use options::Options;
use serving::Servings;
use sizes::Sizes;
use speed::Speeds;
use transfer::Transfers;
pub(crate) use ways::are_installed;

const INTRODUCTION: &str = "# CZIP archives and other tools\n\n\
     Written by `cargo run --release -p refrain-experiments -- czip --write \
     docs/results-czip.md`.\n\
     The other tools are Debian's packages (`lab/setup --peers`), with default options where \
     no option is named.\n\n\
     All programs run as whole processes. CPU time and memory are the system's counts for\n\
     child processes. Times are medians; the ways took turns. MB = 10^6 bytes. Missing data\n\
     is *not available*, and missing programs are *not installed*. Chapters with clients and\n\
     servers went over sockets on loopback. No network takes part in the others.\n\
     `lab/data get django systems dvd pages linux mail` gets or makes the data sets, as root.\n";

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

/// The options of `czip`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Keep data sets and archives in this directory; missing data sets are created
    #[arg(long, value_name = "DIR", default_value = "target/czip-data")]
    data: PathBuf,
    /// Read lists of packages and test data from this directory
    #[arg(
        long,
        value_name = "DIR",
        env = "REFRAIN_DATA",
        default_value = "../shared/data"
    )]
    shared: PathBuf,
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
    /// Repeat each timed measurement this many times
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Create a big archive of this size, in 10^9 bytes
    #[arg(long, value_name = "N", default_value_t = 10)]
    big_gb: u64,
    /// Write the page to this file instead of standard output, and plots to the directory `plots` next to it
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
    anyhow::ensure!(arguments.runs > 0, "--runs must be greater than zero");
    let refrain = arguments.refrain.canonicalize();
    let refrain = refrain.with_context(|| {
        let program = arguments.refrain.display();
        format!("cannot find \"{program}\" (build it: cargo build --release --bin refrain)")
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
