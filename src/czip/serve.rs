//! `refrain czip serve`: archives over HTTP, as they are, as their content, and chunk by chunk.

use std::path::PathBuf;

use anyhow::Context;
use refrain_czip::serve::{ServeOptions, Server};
use refrain_gateway::units::ByteSize;

use super::{bounded, listen::ListenArguments};

#[derive(clap::Args)]
pub(super) struct ServeArguments {
    /// The folder: `x.czip` in it is served as it is at `/x.czip`, and its content at `/x`: a file, or a
    /// folder that is listed in JSON. An encrypted one is served only as it is
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    listen: ListenArguments,
    /// Memory for chunks, which all files share. MiB are 2^20 bytes, MB or M a million
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(ServeOptions::default().cache_bytes), value_parser = bounded::size)]
    cache: ByteSize,
}

pub(super) fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    let options = arguments.listen.options(arguments.cache.0);
    let folder = arguments.folder.display().to_string();
    let make = || {
        Server::new(&arguments.folder, options)
            .with_context(|| format!("{folder} cannot be served"))
    };
    (arguments.listen).serve(&folder, make, async |server, listener, stop, end| {
        server.run(listener, stop, end).await
    })
}
