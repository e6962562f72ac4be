//! Serving until the program is told to stop.

use std::{io, net::SocketAddr};

use refrain_czip::serve::ServeOptions;
use refrain_gateway::{acceptor, address::parse_listen, units::TimeSpan};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{net::TcpListener, runtime::Builder, sync::oneshot};

use super::bounded;
use crate::{interrupt::Signals, log::LogArguments};

/// Threads that read and decompress what is not cached: they wait most of the time.
const READERS_MAX: usize = 64;

/// Where to listen, and the log.
#[derive(clap::Args)]
pub(super) struct ListenArguments {
    /// Listen on this port of loopback, or on this local address; `*:PORT` is all addresses
    #[arg(long, value_name = "[HOST:]PORT", value_parser = parse_listen)]
    listen: SocketAddr,
    /// Let running transfers continue for at most this long after SIGTERM or Ctrl-C
    ///
    /// The rest is cut off then. A second signal ends the program at once.
    #[arg(long, alias = "drain", value_name = "TIME", default_value = "30s", value_parser = bounded::time)]
    drain_timeout: TimeSpan,
    /// Accept at most N connections at the same time; others wait
    #[arg(long, value_name = "N", default_value_t = ServeOptions::default().connections_max, value_parser = bounded::count())]
    connections: usize,
    #[command(flatten)]
    log: LogArguments,
}

impl ListenArguments {
    /// With so many bytes of memory for chunks.
    pub(super) fn options(&self, cache_bytes: u64) -> ServeOptions {
        ServeOptions {
            cache_bytes,
            connections_max: self.connections,
            drain_timeout: self.drain_timeout.0,
            ..ServeOptions::default()
        }
    }

    /// Has `make` make what serves, and that serve until SIGTERM or Ctrl-C. `log` logs where it listens.
    pub(super) fn serve<S>(
        &self,
        log: impl FnOnce(SocketAddr),
        make: impl FnOnce() -> anyhow::Result<S>,
        run: impl AsyncFnOnce(&S, TcpListener, Stop, Stop) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let _log = self.log.begin();
        allow_open_files(self.connections);
        let server = make()?;
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .max_blocking_threads(READERS_MAX)
            .build()?;
        let served = runtime.block_on(async {
            let mut signals = Signals::listen()?;
            // With port 0 this alone says which one it is.
            let (listener, address) = acceptor::bind(self.listen, "listen")?;
            log(address);
            let (stop, stopped) = oneshot::channel();
            let (end, ended) = oneshot::channel();
            let drain = self.drain_timeout;
            tokio::spawn(async move {
                signals.next().await;
                tracing::info!(
                    "stopping: running transfers have {drain} to finish; a second signal cuts them off"
                );
                let _ = stop.send(());
                signals.next().await;
                tracing::info!("second signal: ending at once");
                let _ = end.send(());
            });
            run(&server, listener, sent(stopped), sent(ended)).await?;
            anyhow::Ok(())
        });
        // A read that hangs is not waited for.
        runtime.shutdown_background();
        served
    }
}

/// Done when the program is told to stop.
pub(super) type Stop = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn sent(stop: oneshot::Receiver<()>) -> Stop {
    Box::pin(async { drop(stop.await) })
}

/// Lets the process have as many files open as its connections need, as far as the system allows: by
/// default a process may have a few hundred.
fn allow_open_files(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    // Each has its socket and a file; archives stay open.
    let needed = connections as u64 * 2 + 256;
    let Some(current) = limit.current.filter(|&current| current < needed) else {
        return;
    };
    let allowed = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = Rlimit {
        current: Some(allowed),
        ..limit
    };
    let open_files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => allowed,
        Err(_) => current,
    };
    if open_files < needed {
        tracing::warn!(
            open_files,
            needed,
            "the limit of open files is too low for so many connections: raise it (ulimit -n, LimitNOFILE), \
             or lower --connections"
        );
    }
}
