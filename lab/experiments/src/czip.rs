//! `refrain czip` beside its peers: what archives take, what goes over the wire to who has the version
//! before, and how fast it is.
//!
//! All programs, refrain too, run as whole processes, as users run them. Each part's figures are kept in
//! the folder of data sets, so that the page can be written anew from parts measured at several times.

mod data;
mod measured;
mod page;
mod sizes;
mod speed;
mod targets;
mod transfer;
mod ways;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use clap::ValueEnum;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use data::Data;
pub use measured::{SUBCOMMAND as MEASURED, run as run_measured};
use sizes::Sizes;
use speed::Speeds;
use transfer::Transfers;

/// Parts of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// What archives take
    Sizes,
    /// Version N+1 to a client that has N
    Transfer,
    /// Making, reading, checking; memory
    Speed,
}

/// What to measure, and with what.
#[derive(clap::Args)]
pub struct Arguments {
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
    /// Measure only these parts, and take the others as they were measured last
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<Part>>,
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

/// A part's figures, and where they come from.
#[derive(Serialize, Deserialize)]
struct Taken<T> {
    machine: String,
    /// The commit, as far as git knows.
    version: String,
    /// Programs that ran beside it when it began: the load over a minute.
    load: f64,
    figures: T,
}

/// All parts; `None` for what was never measured.
struct Figures {
    sizes: Option<Taken<Sizes>>,
    transfers: Option<Taken<Transfers>>,
    speeds: Option<Taken<Speeds>>,
}

/// Measures, and gives the page.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
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
    let is_asked = |part: Part| {
        let only = arguments.only.as_ref();
        only.is_none_or(|parts| parts.contains(&part))
    };
    page::page(&Figures {
        sizes: taken(&setup, "sizes", is_asked(Part::Sizes), sizes::run)?,
        transfers: taken(&setup, "transfer", is_asked(Part::Transfer), transfer::run)?,
        speeds: taken(&setup, "speed", is_asked(Part::Speed), speed::run)?,
    })
}

/// A part's figures: measured and kept, or what was kept last.
fn taken<T: Serialize + DeserializeOwned>(
    setup: &Setup<'_>,
    name: &str,
    is_asked: bool,
    measure: fn(&Setup<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<Option<Taken<T>>> {
    let kept = setup.data.folder().join(format!("figures-{name}.json"));
    if !is_asked {
        return Ok(match kept.exists() {
            true => Some(serde_json::from_slice(&std::fs::read(&kept)?)?),
            false => None,
        });
    }
    let taken = Taken {
        machine: crate::machine::describe(),
        version: version(),
        load: load(),
        figures: measure(setup)?,
    };
    std::fs::write(&kept, serde_json::to_vec_pretty(&taken)?)?;
    Ok(Some(taken))
}

fn version() -> String {
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty", "--exclude=*"])
        .output();
    let output = git.ok().filter(|output| output.status.success());
    output.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or_default()
}
