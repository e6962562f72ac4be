//! redb, LMDB, fjall and refrain's own log of segments under the load of a receiver.
//!
//! In: a load and a folder. Out: a page of Markdown, or JSON. What was decided with it stands in
//! `docs/decisions/0015-chunk-store.md`.

mod compare;
mod fill;
mod fjall;
mod lmdb;
mod load;
mod measure;
mod own;
mod process;
mod read;
mod redb;
mod report;
mod store;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{
    compare::Plan,
    load::Load,
    process::Step,
    store::{Kind, Settings},
};

/// Compares chunk stores under the load of a receiver. Takes a few minutes and some gigabytes of disk.
#[derive(Parser)]
struct Arguments {
    /// One step of a comparison
    #[command(subcommand)]
    command: Option<Command>,
    /// The load
    #[command(flatten)]
    load: Load,
    /// Which stores; more than once for several
    #[arg(long = "store", value_enum, default_values_t = [Kind::Redb, Kind::RedbAlone, Kind::Lmdb, Kind::Fjall, Kind::Own])]
    stores: Vec<Kind>,
    /// A run with so many chunks of 256 bytes, for what an index costs; 0 for none
    #[arg(long, default_value_t = 1_000_000)]
    many: u32,
    /// How often the load is written and read; medians are shown
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// How often each store is killed while it writes
    #[arg(long, default_value_t = 3)]
    kills: u32,
    /// How stores are opened
    #[command(flatten)]
    settings: Settings,
    /// Put the stores below this folder, on the disk that is to be measured [default: a new
    /// temporary one]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print all figures as JSON
    #[arg(long)]
    json: bool,
    /// Write the page to this file instead of standard output
    #[arg(long)]
    write: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// One step of a comparison, as the comparison itself calls it
    #[command(subcommand, hide = true)]
    Step(Step),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Some(Command::Step(step)) => step.run(),
        None => run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let folder = match &arguments.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let plan = Plan {
        kinds: arguments.stores.clone(),
        load: arguments.load.clone(),
        many: arguments.many,
        runs: arguments.runs,
        kills: arguments.kills,
        settings: arguments.settings,
    };
    let (nothing, measured) = compare::compare(&plan, folder.path())?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&(&plan, &nothing, &measured))? + "\n"
    } else {
        report::page(&plan, &nothing, &measured)
    };
    match &arguments.write {
        Some(path) => std::fs::write(path, text)?,
        None => print!("{text}"),
    }
    Ok(())
}
