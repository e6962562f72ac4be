//! `refrain czip`: archives that name their chunks.
//!
//! One thin file a subcommand; the work is `refrain_czip`'s.

mod cat;
mod create;
mod open;
mod range;
mod report;
mod standard_io;

use std::thread;

use clap::{Args, Subcommand};

#[derive(Args)]
pub struct CzipArguments {
    #[command(subcommand)]
    command: CzipCommand,
}

#[derive(Subcommand)]
enum CzipCommand {
    /// Make an archive of files and folders, or of standard input
    Create(create::CreateArguments),
    /// Write what is in an archive to standard output: all of it, one file, or a range
    Cat(cat::CatArguments),
}

pub fn run(arguments: &CzipArguments) -> anyhow::Result<()> {
    match &arguments.command {
        CzipCommand::Create(arguments) => create::run(arguments),
        CzipCommand::Cat(arguments) => cat::run(arguments),
    }
}

/// As many threads as were asked for, or as there are processors.
fn threads(asked: Option<usize>) -> usize {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or_else(processors).max(1)
}
