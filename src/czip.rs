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

use crate::{bounded, report, standard_io, table::percent};

const AFTER_HELP: &str = "\
Example:
  refrain czip create docs -o docs.czip

A SIZE is a number of bytes, with or without a unit. KiB, MiB, GiB and TiB are powers of two. kB, MB, GB and TB are \
powers of ten, and K, M, G and T are short for them: 512M is 512 million bytes. Reports use powers of ten.";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CzipArguments {
    #[command(subcommand)]
    command: CzipCommand,
}

#[derive(Subcommand)]
enum CzipCommand {
    /// Make an archive of files and directories, or of standard input
    Create(create::CreateArguments),
    /// Extract files, directories and links from an archive
    Extract(extract::ExtractArguments),
    /// Write the content of an archive to standard output: everything, one file, or a range
    #[command(after_help = "Example:\n  refrain czip cat docs.czip docs/index.html")]
    Cat(cat::CatArguments),
    /// Fetch the content of an archive from any web server, except data that exists locally
    Get(Box<get::GetArguments>),
    /// List the files, directories and links in an archive
    #[command(after_help = "Example:\n  refrain czip list docs.czip")]
    List(list::ListArguments),
    /// Check whether an archive is intact, by its digests
    Verify(verify::VerifyArguments),
    /// Show how much an archive saves, and how it was made
    #[command(after_help = "Example:\n  refrain czip stat docs.czip")]
    Stat(stat::StatArguments),
    /// Serve a directory over HTTP: all files, the content of archives, and chunks by name
    #[command(after_help = "Example:\n  refrain czip serve --listen 8080 /srv/www")]
    Serve(serve::ServeArguments),
    /// Serve the content of a web server's archives to clients, and fetch each chunk only once
    Proxy(Box<proxy::ProxyArguments>),
    /// Mount an archive, on disk or on a web server, as a read-only directory
    ///
    /// From a web server, only the data that is read is fetched. The command runs until Ctrl-C, SIGTERM or `umount DIR`.
    #[command(after_help = "Example:\n  refrain czip mount docs.czip /mnt")]
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

/// The share of its content that an archive takes, in brackets with `of` after it; nothing of no content.
fn share(archive_bytes: u64, plain_bytes: u64, of: &str) -> String {
    match plain_bytes {
        0 => String::new(),
        plain_bytes => {
            let share = percent(archive_bytes as f64, plain_bytes as f64);
            format!(" ({share}{of})")
        }
    }
}

/// As many threads as were asked for, or as there are processors.
fn threads(asked: Option<usize>) -> usize {
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or_else(processors)
}
