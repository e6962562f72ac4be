//! Chunks by their names (CZIP, sections 4.3 and 6.2), from *edges*: caches in front of a server that knows
//! them, or that server itself.
//!
//! ```text
//! missing chunks ─▶ queue ─▶ rendezvous ─▶ servers, many requests each ─▶ checked ─▶ put
//!                     ▲                        │
//!                     └──── a server is left ──┘     what nobody has: ranges of the archive (`frames`)
//! ```
//!
//! A request for a chunk waits a round trip for its answer, so many are in flight together, each on a
//! connection of its own that is used again. Their number and the bytes that they may bring are bounded.
//!
//! A chunk is used if it is what its name says, whoever sent it and however it is compressed: so frame
//! parts of the table are not needed here, and a server can do no more harm than waste time. One that
//! refuses, does not answer or sends something else is left for the rest of the get. That a chunk is not
//! there is no failure: it comes by a range.
//!
//! Caches are asked for parts of the table as well, which digests in the root vouch for: by ranges of the
//! archive, at its path below the edge's own (`parts`). Header and root come from the archive's server.
//!
//! Profile `shared` alone, and not encrypted: chunks of profile `small` have no frames of their own, and
//! sealed ones are not known by what they decompress to.

mod asking;
mod parts;
mod queue;
mod rendezvous;

use std::io;

use tokio::task::JoinSet;
use url::Url;

use super::{
    GetError, GetOptions, Getting, Phase,
    report::{NamedReport, NotByName},
};
use crate::{
    archive::Chunk,
    format::header::Profile,
    remote::{RemoteError, RemoteOptions, block_on, parse_address},
};
use asking::Server;
use queue::Queue;
use rendezvous::Rendezvous;

/// Caches that are too slow, or gone, are noticed sooner than the one server that has the archive: there
/// are others to ask.
mod edge {
    use std::time::Duration;

    pub(super) const RETRIES_MAX: u32 = 2;
    pub(super) const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(5);
    pub(super) const PROGRESS_TIMEOUT_MAX: Duration = Duration::from_secs(10);
    pub(super) const FIELDS_MAX: usize = 1000;
}

/// The archive's own server takes thousands of connections, and gets so many times the requests of a cache: the default
/// nginx takes 256 clients, with a connection for each behind it.
const OWN_SERVER_TIMES: usize = 2;

/// The servers that are asked for chunks by name.
pub(super) struct Named {
    servers: Vec<Server>,
    rendezvous: Rendezvous,
    /// Requests that may be in flight to a cache.
    requests_max: usize,
    window_bytes: u64,
}

impl Named {
    /// The edges for the archive at `url`, if there are any.
    pub(super) fn new(url: &str, options: &GetOptions) -> Result<Option<Self>, GetError> {
        if options.edges.is_empty() {
            return Ok(None);
        }
        let (url, remote) = (parse_address(url)?, &options.remote);
        let mut servers: Vec<Server> = Vec::new();
        for edge in &options.edges {
            let of_edge = edge_options(&url, edge, remote);
            let connections = OWN_SERVER_TIMES * options.edge_requests_max;
            let server = Server::new(&url, edge, of_edge, connections)?;
            // One that is named twice is one.
            if servers.iter().all(|other| other.url() != server.url()) {
                servers.push(server);
            }
        }
        Ok(Some(Self {
            rendezvous: Rendezvous::new(servers.iter().map(|server| server.url().to_owned())),
            requests_max: (options.edge_requests_max / servers.len()).max(1),
            servers,
            window_bytes: remote.window_bytes as u64,
        }))
    }

    /// How many requests may be in flight to `server`, if it is there.
    fn requests_max(&self, server: &Server) -> Option<usize> {
        let times = match server.archive_url {
            None => OWN_SERVER_TIMES,
            Some(_) => 1,
        };
        server.is_there().then_some(times * self.requests_max)
    }

    /// Whether there are caches, and not the archive's own server alone.
    pub(super) fn has_caches(&self) -> bool {
        self.servers
            .iter()
            .any(|server| server.archive_url.is_some())
    }

    /// What each server did.
    pub(super) fn reports(self) -> Vec<NamedReport> {
        self.servers.into_iter().map(Server::report).collect()
    }
}

/// Caches get no headers that are meant for the archive's server, unless they are there.
fn edge_options(url: &Url, edge: &str, remote: &RemoteOptions) -> RemoteOptions {
    let mut options = RemoteOptions {
        retries: remote.retries.min(edge::RETRIES_MAX),
        connect_timeout: remote.connect_timeout.min(edge::CONNECT_TIMEOUT_MAX),
        progress_timeout: remote.progress_timeout.min(edge::PROGRESS_TIMEOUT_MAX),
        fields_max: edge::FIELDS_MAX,
        ..remote.clone()
    };
    if Url::parse(edge).map(|edge| edge.origin()) != Ok(url.origin()) {
        options.headers.clear();
        options.bearer = None;
    }
    options
}

impl Getting<'_> {
    /// Has nobody asked for chunks by name where that cannot be, and says why.
    pub(super) fn choose_names(&mut self, keeps_archive: bool) {
        let header = self.archive.header();
        let problem = match header.profile {
            _ if keeps_archive => Some(NotByName::Archive),
            Profile::Small => Some(NotByName::Profile),
            Profile::Shared if header.encryption.is_some() => Some(NotByName::Encrypted),
            Profile::Shared => None,
        };
        self.report.not_by_name = problem.filter(|_| self.named.is_some());
        self.named = self.named.filter(|_| problem.is_none());
    }

    /// Asks all servers of `named` that are there, and takes what comes. What nobody has is missing still.
    pub(super) fn ask_all(&mut self, named: &Named, wanted: &[Chunk]) -> Result<(), GetError> {
        let total = wanted.iter().map(|wanted| u64::from(wanted.bytes)).sum();
        let mut done = 0;
        let mut queue = Queue::new(
            &named.rendezvous,
            named
                .servers
                .iter()
                .map(|server| named.requests_max(server)),
            named.window_bytes,
        );
        wanted.iter().for_each(|&wanted| queue.push(wanted));
        // Those in flight end with it.
        let mut in_flight = JoinSet::new();
        loop {
            let answered = block_on(async {
                while let Some((number, wanted)) = queue.claim() {
                    let came = named.servers[number].ask(wanted);
                    in_flight.spawn(async move { (number, wanted, came.await) });
                }
                in_flight.join_next().await
            });
            let failed = |source| RemoteError::Thread { source };
            let Some(answered) = answered.map_err(failed)? else {
                return Ok(());
            };
            let answered = answered.map_err(|error| failed(io::Error::other(error)));
            let (number, wanted, came) = answered?;
            queue.answered(number, &wanted);
            let has_failed = came.is_err();
            let server = &named.servers[number];
            let plain = server.note(came);
            if !server.is_there() {
                queue.leave(number);
            }
            if has_failed {
                queue.push(wanted);
            }
            // What is not there comes by a range.
            if let Some(plain) = plain {
                self.put(&wanted, &plain)?;
                self.report.by_name.add(plain.len());
                if let Some(cache) = &self.cache {
                    cache.add(wanted.name, &plain);
                }
                done += plain.len() as u64;
                self.go_on(Phase::Named, done, total)?;
            }
        }
    }
}
