//! Real clients and servers through a pair: the bytes of a version, of the next one, and of that again.
//!
//! Data is fetched once, by name of package. Each ecosystem is then measured in a process of its own
//! without a network ([`apart`]), and its figures are kept in the folder of data, so that the page can
//! be written from ecosystems that were measured at several times.

mod apart;
mod apt;
mod bench;
mod borg;
mod data;
mod git;
mod images;
mod nginx;
mod npm;
mod page;
mod pip;
mod postgres;
mod programs;
mod restic;
mod row;
mod rsync;
mod smb;
mod web;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde::{Deserialize, Serialize};

use crate::machine;
use bench::Bench;
use data::Recipe;
use row::Row;

/// All ecosystems, in the order of the page. A new one is added here and nowhere else.
const ECOSYSTEMS: [Ecosystem; 11] = [
    pip::PIP,
    npm::NPM,
    web::WEB,
    git::GIT,
    images::IMAGES,
    apt::APT,
    postgres::POSTGRES,
    smb::SMB,
    rsync::RSYNC,
    restic::RESTIC,
    borg::BORG,
];

/// A kind of clients and their servers.
struct Ecosystem {
    /// What `--only` calls it.
    name: &'static str,
    title: &'static str,
    /// Each as the command that prints its version; its first word is the program.
    programs: &'static [&'static str],
    data: &'static [Recipe],
    measure: fn(&Bench) -> anyhow::Result<Vec<Row>>,
}

/// The options of `ecosystems`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Keep packages and figures in this directory; missing packages are fetched
    #[arg(long, value_name = "DIR", default_value = "target/ecosystems-data")]
    data: PathBuf,
    /// Measure only these ecosystems, and keep the last figures of the others
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',', value_parser = names())]
    only: Option<Vec<String>>,
    /// Skip ecosystems that were already measured at this commit, to resume a stopped run
    #[arg(long)]
    resume: bool,
    /// Set the effort of both ends; with `max`, bytes do not depend on the machine's load
    #[arg(long, value_parser = ["auto", "max"], default_value = "max")]
    effort: String,
    /// Print the names of the ecosystems, and measure nothing
    #[arg(long)]
    list: bool,
    /// Print all figures as JSON instead of the page
    #[arg(long)]
    json: bool,
    /// Write to this file instead of standard output, and the plot to the directory `plots` next to it
    #[arg(long)]
    pub write: Option<PathBuf>,
    /// Measure this ecosystem in this process, and print its rows
    #[arg(long, hide = true)]
    apart: Option<String>,
}

/// Figures of an ecosystem as a file holds them, and where they come from.
#[derive(Serialize, Deserialize)]
struct Kept {
    name: String,
    machine: String,
    /// The commit, as far as git knows.
    version: String,
    effort: String,
    /// Programs that ran when it began.
    load: f64,
    took_s: f64,
    /// What clients and servers call themselves.
    programs: Vec<String>,
    outcome: Outcome,
}

#[derive(Serialize, Deserialize)]
enum Outcome {
    Measured(Vec<Row>),
    /// Why not.
    Skipped(String),
}

fn names() -> PossibleValuesParser {
    let value = |ecosystem: &Ecosystem| PossibleValue::new(ecosystem.name).help(ecosystem.title);
    PossibleValuesParser::new(ECOSYSTEMS.iter().map(value))
}

/// Measures, and gives the page.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    if arguments.list {
        let line = |it: &Ecosystem| format!("{:10} {}\n", it.name, it.title);
        return Ok(ECOSYSTEMS.iter().map(line).collect());
    }
    let refrain = arguments.refrain.canonicalize().with_context(|| {
        let program = arguments.refrain.display();
        format!("cannot find \"{program}\" (build it: cargo build --release --bin refrain)")
    })?;
    std::fs::create_dir_all(&arguments.data)?;
    let data = arguments.data.canonicalize()?;
    if let Some(name) = &arguments.apart {
        let bench = Bench::new(refrain, data, arguments.effort.clone());
        let ecosystem = ECOSYSTEMS.iter().find(|it| it.name == name);
        let rows = (ecosystem.context("unknown ecosystem")?.measure)(&bench)?;
        return Ok(serde_json::to_string(&rows)?);
    }
    let mut all = Vec::new();
    for ecosystem in &ECOSYSTEMS {
        let only = arguments.only.as_ref();
        let is_asked = only.is_none_or(|names| names.iter().any(|name| name == ecosystem.name));
        let kept = ecosystem.kept(&data)?;
        let is_done = |kept: &Kept| {
            arguments.resume
                && kept.version == machine::version()
                && kept.effort == arguments.effort
        };
        all.push(match kept {
            Some(kept) if !is_asked || is_done(&kept) => kept,
            None if !is_asked => continue,
            _ => ecosystem.measured(&refrain, &data, &arguments.effort)?,
        });
    }
    if arguments.json {
        return Ok(serde_json::to_string_pretty(&all)? + "\n");
    }
    if let (Some(page), Some(plot)) = (&arguments.write, page::plot(&all)?) {
        plot.write_beside(page)?;
    }
    page::page(&all)
}

impl Ecosystem {
    fn file(&self, data: &Path) -> PathBuf {
        data.join(format!("figures-{}.json", self.name))
    }

    /// What was measured last.
    fn kept(&self, data: &Path) -> anyhow::Result<Option<Kept>> {
        let file = self.file(data);
        if !file.exists() {
            return Ok(None);
        }
        let kept = serde_json::from_slice(&std::fs::read(&file)?);
        kept.with_context(|| format!("{}: invalid (remove it)", file.display()))
    }

    /// Measures it, and keeps what came out.
    fn measured(&self, refrain: &Path, data: &Path, effort: &str) -> anyhow::Result<Kept> {
        let (load, began) = (machine::load(), std::time::Instant::now());
        eprintln!("{}: measuring", self.name);
        let outcome = match programs::missing(self.programs) {
            Some(reason) => Outcome::Skipped(reason),
            None => {
                for recipe in self.data {
                    recipe.fetch(data)?;
                }
                let rows = apart::measure(self.name, refrain, data, effort);
                Outcome::Measured(rows.with_context(|| self.name)?)
            }
        };
        let kept = Kept {
            name: self.name.to_owned(),
            machine: machine::describe(),
            version: machine::version(),
            effort: effort.to_owned(),
            load,
            took_s: began.elapsed().as_secs_f64(),
            programs: programs::versions(self.programs),
            outcome,
        };
        match &kept.outcome {
            Outcome::Measured(_) => eprintln!("{}: took {:.0} s", self.name, kept.took_s),
            Outcome::Skipped(reason) => eprintln!("{}: skipped: {reason}", self.name),
        }
        std::fs::write(self.file(data), serde_json::to_vec_pretty(&kept)?)?;
        Ok(kept)
    }
}
