//! `refrain czip serve`: archives over HTTP, as they are, as their content, and chunk by chunk.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context;
use refrain_czip::serve::{ServeOptions, Server};
use refrain_gateway::units::ByteSize;

use super::{bounded, listen::ListenArguments};

#[derive(clap::Args)]
pub(super) struct ServeArguments {
    /// Serve all files below this directory, and the content of archives: that of `x.czip` at `/x`
    ///
    /// Every client can read every file there. Do not keep private files, such as keys, below it. The content of an
    /// archive is a file, or a directory that is listed in JSON. An encrypted archive is served only as a file.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    listen: ListenArguments,
    /// Use at most this much memory for chunks of all files
    ///
    /// 1MiB is 2^20 bytes. 1MB or 1M is a million.
    #[arg(long, alias = "cache", value_name = "SIZE", default_value_t = ByteSize(ServeOptions::default().cache_bytes), value_parser = bounded::size)]
    cache_size: ByteSize,
}

pub(super) fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    let options = arguments.listen.options(arguments.cache_size.0);
    let folder = arguments.folder.display().to_string();
    let make = || {
        Server::new(&arguments.folder, options)
            .with_context(|| format!("cannot serve \"{folder}\""))
    };
    let log = |address: SocketAddr| {
        tracing::info!(%address, directory = folder, "serving");
        if !address.ip().is_loopback() {
            tracing::warn!(
                "other machines can reach {address}, and read every file below \"{folder}\""
            );
        }
    };
    (arguments.listen).serve(log, make, async |server, listener, stop, end| {
        server.run(listener, stop, end).await
    })
}
