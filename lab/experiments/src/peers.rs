//! The pair beside programs that people use instead of it, and with caches before and after it.
//!
//! Whole programs with Debian's packages' options, over the lab's link and on loopback. Each turn of a way has a link
//! of its own and programs that have just started; ways take turns, in an order that moves from run to run. The
//! figures of each place are kept in a folder, so that the page can be written from places measured at several times.

mod client;
mod content;
mod measure;
mod page;
mod place;
mod wanproxy;
mod ways;
mod web;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use clap::builder::PossibleValuesParser;

use measure::{Figures, Setup};

/// The options of `peers`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Read test data from this directory
    #[arg(
        long,
        value_name = "DIR",
        env = "REFRAIN_DATA",
        default_value = "../shared/data"
    )]
    data: PathBuf,
    /// Unpack files and keep figures in this directory
    #[arg(long, value_name = "DIR", default_value = "target/peers-data")]
    folder: PathBuf,
    /// Measure only at these places, and keep the last figures of the others
    #[arg(long, value_name = "PLACE", value_delimiter = ',', value_parser = place_names())]
    only: Option<Vec<String>>,
    /// Measure only ways whose names contain one of these texts
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    ways: Vec<String>,
    /// Measure only with these contents
    #[arg(
        long,
        value_name = "CONTENT",
        value_delimiter = ',',
        default_values = content::NAMES,
        value_parser = PossibleValuesParser::new(content::NAMES)
    )]
    contents: Vec<String>,
    /// Measure everything this many times
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Print all figures as JSON instead of the page
    #[arg(long)]
    json: bool,
    /// Write the plot to this directory
    #[arg(long, value_name = "DIR", default_value = "docs/plots")]
    plots: PathBuf,
    /// Write the page to this file instead of standard output
    #[arg(long)]
    pub write: Option<PathBuf>,
}

fn place_names() -> PossibleValuesParser {
    PossibleValuesParser::new(place::KINDS.iter().map(|kind| kind.name))
}

/// Measures, and gives the page.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    ensure!(arguments.runs > 0, "--runs must be greater than zero");
    ensure!(
        nix::unistd::geteuid().is_root(),
        "peers creates network namespaces and must run as root (use sudo)"
    );
    let refrain = arguments.refrain.canonicalize();
    let refrain = refrain.with_context(|| {
        let program = arguments.refrain.display();
        format!("cannot find \"{program}\" (build it: cargo build --release --bin refrain)")
    })?;
    fs::create_dir_all(&arguments.folder)?;
    let files = tempfile::tempdir_in(arguments.folder.canonicalize()?)?;
    let names = content::NAMES.into_iter();
    let names = names.filter(|name| arguments.contents.iter().any(|asked| asked == name));
    let contents = names.map(|name| content::load(name, &arguments.data, files.path()));
    let setup = Setup {
        refrain: &refrain,
        contents: &contents.collect::<Result<Vec<_>, _>>()?,
        files: files.path(),
        ways: &arguments.ways,
        runs: arguments.runs,
    };
    let mut all = Vec::new();
    for kind in &place::KINDS {
        let file = arguments.folder.join(format!("figures-{}.json", kind.name));
        let only = arguments.only.as_ref();
        let is_asked = only.is_none_or(|names| names.iter().any(|name| name == kind.name));
        let figures = match is_asked {
            true => Some(measured(&setup, kind, &file)?),
            false => kept(&file)?,
        };
        all.push((kind, figures));
    }
    if arguments.json {
        let named = all.iter().map(|(kind, figures)| (kind.name, figures));
        let named: std::collections::BTreeMap<_, _> = named.collect();
        return Ok(serde_json::to_string_pretty(&named)? + "\n");
    }
    page::write(&all, &arguments.plots, arguments.write.as_deref())
}

/// Measures at a place, and keeps the figures.
fn measured(setup: &Setup<'_>, kind: &place::Kind, file: &Path) -> anyhow::Result<Figures> {
    let figures = measure::measure(setup, kind).with_context(|| kind.name)?;
    fs::write(file, serde_json::to_vec_pretty(&figures)?)?;
    Ok(figures)
}

/// The figures of a place that were measured last.
fn kept(file: &Path) -> anyhow::Result<Option<Figures>> {
    if !file.exists() {
        return Ok(None);
    }
    let figures = serde_json::from_slice(&fs::read(file)?);
    let figures = figures.with_context(|| format!("{}: invalid (remove it)", file.display()))?;
    Ok(Some(figures))
}
