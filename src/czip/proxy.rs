//! `refrain czip proxy`: between clients that know nothing of CZIP and any web server.

use std::{fs, path::PathBuf};

use anyhow::ensure;
use refrain_czip::{
    cache::CacheOptions,
    serve::proxy::{Proxy, ProxyOptions},
};
use refrain_gateway::units::{ByteSize, TimeSpan};

use super::{bounded, listen::ListenArguments};

const AFTER_HELP: &str = "\
A request for /x is answered with the content of the origin's /x.czip, if there is one: its chunks come \
out of the cache, or from the origin by ranges, once for all files that have them; an origin without ranges \
sends the archive once, as a whole. An archive of a folder is a folder at /x/, listed in JSON. All else is \
passed on as it is, and so is /x where the archive cannot be used, or is encrypted. /.czip/status says what came from where.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ProxyArguments {
    #[command(flatten)]
    listen: ListenArguments,
    /// The web server that requests go to: its http or https address, perhaps with a folder
    #[arg(long, value_name = "URL", value_parser = bounded::web_address)]
    origin: String,
    /// A folder that keeps chunks. Other proxies, and `get`, may share it
    #[arg(long, value_name = "DIR")]
    cache: PathBuf,
    /// The bound of the cache on disk; the oldest chunks go first. As much again is for archives that come
    /// as wholes, since their server sends no parts of them; of that one has at most a quarter. GiB are 2^30
    /// bytes, GB or G 10^9
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(CacheOptions::BYTES_MAX), value_parser = bounded::size)]
    cache_size: ByteSize,
    /// Memory for chunks, which all files share. MiB are 2^20 bytes, MB or M a million
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(ProxyOptions::MEMORY_BYTES), value_parser = bounded::size)]
    memory: ByteSize,
    /// So long the proxy believes what the origin said of an archive: that it has it, which, or none. If
    /// the origin cannot be asked then, what is kept here is served on, stale or not
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = bounded::time)]
    recheck: TimeSpan,
    /// The origin's answers begin within this, and their pieces follow each other so
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = bounded::time_to_wait)]
    timeout: TimeSpan,
    /// Certificates to trust instead of the system's, in PEM
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
}

pub(super) fn run(arguments: &ProxyArguments) -> anyhow::Result<()> {
    // Whatever else is wrong with it may come right again, and costs fetching meanwhile.
    ensure!(
        !fs::metadata(&arguments.cache).is_ok_and(|there| !there.is_dir()),
        "{}: it is a file, where a folder should be",
        arguments.cache.display()
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
        roots: arguments.roots.clone(),
        ..defaults
    };
    let make = || Ok(Proxy::new(&options)?);
    (arguments.listen).serve(
        &arguments.origin,
        make,
        async |proxy, listener, stop, end| proxy.run(listener, stop, end).await,
    )
}
