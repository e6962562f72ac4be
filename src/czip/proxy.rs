//! `refrain czip proxy`: between clients that know nothing of CZIP and any web server.

use std::{fs, net::SocketAddr, path::PathBuf};

use anyhow::ensure;
use refrain_czip::{
    cache::CacheOptions,
    serve::proxy::{Proxy, ProxyOptions},
};
use refrain_gateway::units::{ByteSize, TimeSpan};

use super::{bounded, listen::ListenArguments};
use crate::stderr::cannot_open;

const AFTER_HELP: &str = "\
Example:
  refrain czip proxy --listen 8080 --origin http://origin.example.org --cache /var/cache/czip

The answer to a request for /x is the content of the origin's /x.czip, if it exists. Chunks come from the cache, or \
from the origin in ranges, once for all files that contain them. An origin without Range requests sends the archive \
once, as a whole. An archive of a directory is a directory at /x/, listed in JSON. All other requests are passed on \
unchanged. The same applies to /x if the archive is encrypted or cannot be used. /.czip/status has counters of the \
bytes from each source.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ProxyArguments {
    #[command(flatten)]
    listen: ListenArguments,
    /// Send requests to the web server at this http or https address, optionally with a directory
    #[arg(long, value_name = "URL", value_parser = bounded::web_address)]
    origin: String,
    /// Keep chunks in this directory, which other proxies and `get` can share
    #[arg(long, value_name = "DIR")]
    cache: PathBuf,
    /// Limit the cache on disk
    ///
    /// At least 1MB. The oldest chunks are deleted first. Whole archives, from servers that do not support Range requests,
    /// take up at most as much space again. Each of them takes up at most a quarter of SIZE.
    ///
    /// 1GiB is 2^30 bytes. 1GB or 1G is 10^9 bytes.
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(CacheOptions::BYTES_MAX), value_parser = bounded::disk_cache)]
    cache_size: ByteSize,
    /// Use at most this much memory for chunks of all files
    ///
    /// 1MiB is 2^20 bytes. 1MB or 1M is a million.
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(ProxyOptions::MEMORY_BYTES), value_parser = bounded::size)]
    memory: ByteSize,
    /// Ask the origin about each archive at most once in this time: whether it exists, and which version
    ///
    /// If the origin cannot be reached then, cached data is still served, stale or not.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = bounded::time)]
    recheck: TimeSpan,
    /// Wait at most this long for the origin to begin or continue an answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = bounded::time_to_wait)]
    timeout: TimeSpan,
    /// Accept certificates of the origin from the CAs in this file (PEM), and from no others [default: the system's]
    #[arg(long, alias = "roots", value_name = "FILE")]
    origin_ca: Option<PathBuf>,
}

pub(super) fn run(arguments: &ProxyArguments) -> anyhow::Result<()> {
    // Whatever else is wrong with it may come right again, and costs fetching meanwhile.
    ensure!(
        !fs::metadata(&arguments.cache).is_ok_and(|there| !there.is_dir()),
        "--cache: {}: it is a file, not a directory",
        cannot_open(&arguments.cache)
    );
    let defaults = ProxyOptions::new(&arguments.origin, arguments.cache.clone());
    let options = ProxyOptions {
        cache: CacheOptions {
            bytes_max: arguments.cache_size.0,
            ..defaults.cache
        },
        serve: arguments.listen.options(arguments.memory.0),
        remembered: arguments.recheck.0,
        origin_timeout: arguments.timeout.0,
        roots: arguments.origin_ca.clone(),
        ..defaults
    };
    let make = || Ok(Proxy::new(&options)?);
    let log = |address: SocketAddr| {
        tracing::info!(%address, origin = arguments.origin, "serving");
    };
    (arguments.listen).serve(log, make, async |proxy, listener, stop, end| {
        proxy.run(listener, stop, end).await
    })
}
