//! `refrain czip serve`: archives over HTTP, as they are, as their content, and chunk by chunk.

use std::path::PathBuf;

use anyhow::Context;
use refrain_czip::serve::{ServeOptions, Server};
use refrain_gateway::units::ByteSize;
use tokio::{
    net::TcpListener,
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};
use tracing::level_filters::LevelFilter;

use crate::{log_json_to_stderr, log_to_stderr};

/// Threads that read and decompress what is not cached: they wait for the disk most of the time.
const READERS_MAX: usize = 64;

#[derive(clap::Args)]
pub struct ServeArguments {
    /// The folder: `x.czip` in it is served as it is at `/x.czip`, and its content at `/x`
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// Memory for chunks, which all files share
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    cache: ByteSize,
    /// Connections at once; others wait
    #[arg(long, value_name = "N", default_value_t = ServeOptions::default().connections_max)]
    connections: usize,
    /// Write the log, a line a request, as JSON
    #[arg(long)]
    json_log: bool,
}

pub fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    let _log = match arguments.json_log {
        true => log_json_to_stderr(LevelFilter::INFO),
        false => log_to_stderr(LevelFilter::INFO),
    };
    let options = ServeOptions {
        cache_bytes: arguments.cache.0,
        connections_max: arguments.connections.max(1),
        ..ServeOptions::default()
    };
    let server = Server::new(&arguments.folder, options)
        .with_context(|| format!("{} cannot be served", arguments.folder.display()))?;
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(READERS_MAX)
        .build()?;
    let served = runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let listener = TcpListener::bind(&arguments.listen)
            .await
            .with_context(|| format!("cannot listen on {}", arguments.listen))?;
        // With port 0 this alone says which one it is.
        let address = listener.local_addr()?;
        tracing::info!(%address, folder = %arguments.folder.display(), "serving");
        let stop = async {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
            tracing::info!("stopping: what is being sent is sent to its end");
        };
        server.run(listener, stop).await?;
        anyhow::Ok(())
    });
    // A read that hangs on a disk is not waited for.
    runtime.shutdown_background();
    served
}
