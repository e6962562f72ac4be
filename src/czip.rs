//! `refrain czip`: archives that name their chunks.
//!
//! One thin file a subcommand; the work is `refrain_czip`'s.

mod cat;
pub(crate) mod create;
mod extract;
mod get;
mod headers;
mod keys;
mod list;
mod listen;
mod mount;
mod open;
mod proxy;
mod range;
mod retry;
mod serve;
mod stat;
mod verify;

use std::thread;

use clap::{Args, Subcommand};

use crate::{bounded, report, standard_io};

const AFTER_HELP: &str = "\
A SIZE is a number of bytes, or has a unit: KiB, MiB and GiB are powers of two, and kB, MB, GB and TB powers of \
ten, which may be given as K, M, G and T: 512M is 512 million bytes. Reports are in powers of ten.";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CzipArguments {
    #[command(subcommand)]
    command: CzipCommand,
}

#[derive(Subcommand)]
enum CzipCommand {
    /// Make an archive of files and folders, or of standard input
    Create(create::CreateArguments),
    /// Extract files, folders and links from an archive
    Extract(extract::ExtractArguments),
    /// Write what is in an archive to standard output: all of it, one file, or a range
    Cat(cat::CatArguments),
    /// Fetch what is in an archive from any web server, without what is here already
    Get(Box<get::GetArguments>),
    /// Show which files, folders and links an archive holds
    List(list::ListArguments),
    /// Check all that an archive stores against its digests
    Verify(verify::VerifyArguments),
    /// Show how an archive is made, and what its chunks save
    Stat(stat::StatArguments),
    /// Serve a folder over HTTP: archives as they are, their content, and chunks by name
    Serve(serve::ServeArguments),
    /// Stand between clients and a web server, and fetch each chunk of its archives once
    Proxy(Box<proxy::ProxyArguments>),
    /// Show an archive, on disk or on a web server, as a folder that can only be read
    ///
    /// Of one on a web server no more is fetched than is read.
    Mount(mount::MountArguments),
}

impl CzipArguments {
    /// Whether it writes to standard output. That a mount is there is also seen where it is.
    pub(crate) fn prints(&self) -> bool {
        use CzipCommand::{Mount, Proxy, Serve};
        !matches!(self.command, Serve(_) | Proxy(_) | Mount(_))
    }
}

pub(crate) fn run(arguments: &CzipArguments) -> anyhow::Result<()> {
    match &arguments.command {
        CzipCommand::Create(arguments) => create::run(arguments),
        CzipCommand::Extract(arguments) => extract::run(arguments),
        CzipCommand::Cat(arguments) => cat::run(arguments),
        CzipCommand::Get(arguments) => get::run(arguments),
        CzipCommand::List(arguments) => list::run(arguments),
        CzipCommand::Verify(arguments) => verify::run(arguments),
        CzipCommand::Stat(arguments) => stat::run(arguments),
        CzipCommand::Serve(arguments) => serve::run(arguments),
        CzipCommand::Proxy(arguments) => proxy::run(arguments),
        CzipCommand::Mount(arguments) => mount::run(arguments),
    }
}

/// As many threads as were asked for, or as there are processors.
fn threads(asked: Option<usize>) -> usize {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or_else(processors)
}
