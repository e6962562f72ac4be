//! Direct connections and pairs over the lab's link, between the same clients and the same origin.
//!
//! ```text
//! near namespace                            far namespace
//! client ───────────────── link ──────────────────▶ origin      direct
//! client ─▶ refrain near ─ link ─ refrain far ────▶ origin      pair
//! ```
//!
//! ```ignore
//! let link = LinkConfig { rate: Some(Rate::mbit(100)), ..LinkConfig::default() };
//! let over = OverLink::start(&link, Arc::new(|mut stream| stream.write_all(b"an answer")))?;
//! let pair = over.pair(refrain, &["--effort", "max"], &[])?;
//! let direct = over.direct("cubic")?;
//! over.client(|| fetch(direct, 0))?;
//! over.client(|| fetch(pair.address, 0))?;
//! over.wire().bytes(); pair.far()?.sent.link_bytes;
//! ```
//!
//! All ends when it is dropped, on errors and on SIGINT and SIGTERM too.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Context;
use refrain_link::{Checked, End, Link, LinkConfig};
use refrain_relay::addresses::free_address;

use crate::processes::{Gateways, Setup};

/// Where the origin listens in the far namespace, at all addresses.
pub(crate) const ORIGIN_PORT: u16 = 8080;

/// How often a link is checked before the machine counts as too busy, and the pause between.
const CHECKS: usize = 60;
const CHECK_PAUSE: Duration = Duration::from_secs(3);

/// The service behind the link: called with each connection, on a thread of its own.
pub(crate) type Origin = Arc<dyn Fn(TcpStream) -> io::Result<()> + Send + Sync>;

/// A link and an origin at its far end, until dropped.
pub(crate) struct OverLink {
    /// As measured before the first use.
    pub checked: Checked,
    // The origin ends before the link.
    _origin: RunningOrigin,
    link: Arc<Link>,
}

struct RunningOrigin {
    link: Arc<Link>,
    is_over: Arc<AtomicBool>,
}

impl OverLink {
    /// Makes the link, checks it and starts the origin.
    ///
    /// # Errors
    /// The machine does not keep up with the link, or root is missing.
    pub(crate) fn start(config: &LinkConfig, origin: Origin) -> anyhow::Result<Self> {
        let link = Arc::new(Link::start(config.clone()).context("cannot create the link")?);
        let checked = check(&link)?;
        let origin = serve(&link, origin)?;
        Ok(Self {
            checked,
            _origin: origin,
            link,
        })
    }

    /// Starts a pair with empty caches and further options for each end, and waits until all its lanes are up.
    ///
    /// Clients of its `address` must be at the near end: [`client`](Self::client).
    pub(crate) fn pair(
        &self,
        refrain: &Path,
        near: &[&str],
        far: &[&str],
    ) -> anyhow::Result<Gateways> {
        // Another pair may run at the same time.
        let port = free_address().port();
        let listen = SocketAddr::from((self.link.address(End::Far), port));
        Gateways::start(&Setup {
            refrain,
            target: SocketAddr::from(([127, 0, 0, 1], ORIGIN_PORT)),
            listen: Some(listen),
            dial: None,
            far,
            near,
            link: Some(&self.link),
        })
    }

    /// The origin's address over the link. Connections made from now on have this congestion control.
    pub(crate) fn direct(&self, congestion: &str) -> anyhow::Result<SocketAddr> {
        self.link.set_congestion(congestion)?;
        Ok(SocketAddr::from((self.link.address(End::Far), ORIGIN_PORT)))
    }

    /// Runs `call` on a thread at the near end. Threads and connections that it makes are there too.
    pub(crate) fn client<R: Send>(
        &self,
        call: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        self.link.at(End::Near, call)
    }

    /// The link, for its counts and for programs at its ends.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Bytes that crossed so far in both directions, with headers, lost packets left out.
    pub(crate) fn wire_bytes(&self) -> u64 {
        let bytes = [End::Near, End::Far].map(|from| self.link.counts(from).bytes());
        bytes.iter().sum()
    }
}

/// Checks a link until the machine keeps up with it, a few times.
pub(crate) fn check(link: &Link) -> anyhow::Result<Checked> {
    for _ in 1..CHECKS {
        match link.check() {
            Ok(checked) => return Ok(checked),
            Err(error) => eprintln!("checking the link again: {error}"),
        }
        thread::sleep(CHECK_PAUSE);
    }
    link.check()
}

fn serve(link: &Arc<Link>, handler: Origin) -> anyhow::Result<RunningOrigin> {
    let is_over = Arc::<AtomicBool>::default();
    link.at(End::Far, || {
        let listener = TcpListener::bind(("0.0.0.0", ORIGIN_PORT))?;
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let handler = Arc::clone(&handler);
                // A client that leaves early reports its own error.
                thread::spawn(move || handler(stream).ok());
            }
        });
        Ok(())
    })?;
    let link = Arc::clone(link);
    Ok(RunningOrigin { link, is_over })
}

impl Drop for RunningOrigin {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for connections.
        let wake = || Ok(TcpStream::connect(("127.0.0.1", ORIGIN_PORT))?);
        let _ = self.link.at(End::Far, wake);
    }
}
