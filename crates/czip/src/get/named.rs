//! Chunks by their names (CZIP, sections 4.3 and 6.2): of servers that know them, and of caches in front
//! of those.
//!
//! ```text
//! missing chunks ─▶ queue ─▶ rendezvous ─▶ servers, a few threads each ─▶ checked ─▶ queue ─▶ put
//!                     ▲                        │
//!                     └──── a server is left ──┘     what nobody has: ranges of the archive (`frames`)
//! ```
//!
//! A chunk is used if it is what its name says, whoever sent it and however it is compressed: so frame
//! parts of the table are not needed here, and a server can do no more harm than waste time. One that
//! refuses, does not answer or sends something else is left for the rest of the get. That a chunk is not
//! there is no failure: it comes by a range.
//!
//! Edges are asked for parts of the table as well, which digests in the root vouch for: by ranges of the
//! archive, at its path below the edge's own (`parts`). Header and root come from the archive's server.
//!
//! Profile `shared` alone, and not encrypted: chunks of profile `small` have no frames of their own, and
//! sealed ones are not known by what they decompress to.

mod asking;
mod parts;
mod queue;
mod rendezvous;

use std::{mem, thread};

use url::Url;

use super::{
    GetError, GetOptions, Getting, Phase,
    report::{NamedReport, NotByName},
};
use crate::{
    format::{ChunkName, Stream, header::Profile},
    remote::{Host, RemoteError, RemoteOptions},
};
use asking::Server;
use queue::Queue;
use rendezvous::Rendezvous;

/// Missing chunks that are worked on together.
const ROUND_CHUNKS: usize = 1 << 18;

/// Threads for all servers together, but for one each.
const THREADS_MAX: usize = 64;

/// Caches that are too slow, or gone, are noticed sooner than the one server that has the archive: there
/// are others to ask.
mod edge {
    use std::time::Duration;

    pub(super) const RETRIES_MAX: u32 = 2;
    pub(super) const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(5);
    pub(super) const PROGRESS_TIMEOUT_MAX: Duration = Duration::from_secs(10);
}

/// How missing chunks are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FetchBy {
    /// By ranges of the archive, from any web server.
    #[default]
    Range,
    /// Each by its name, from a server that knows them.
    Name,
    /// Many by their names in a request, from such a server.
    Batch,
}

/// A chunk that is missing.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    stream: Stream,
    chunk: u64,
    name: ChunkName,
    /// Plain.
    bytes: u32,
    /// Where in the stream's unique bytes it belongs.
    at: u64,
}

/// Where a round begins: a row of a stream's lengths.
#[derive(Default)]
struct Cursor {
    stream: usize,
    row: usize,
}

/// Who is asked for chunks by name.
pub(super) struct Named {
    servers: Vec<Server>,
    rendezvous: Rendezvous,
    by: FetchBy,
    connections: usize,
    window_bytes: u64,
    /// How edges are asked for files. None if the one server is that of the archive.
    edges: Option<Edges>,
}

/// Caches in front of the archive's server, in the order in which they were named.
struct Edges {
    /// The archive's address.
    url: Url,
    options: Vec<RemoteOptions>,
}

impl Named {
    /// The edges; without any the server of the archive at `url`; nobody if ranges are asked for.
    pub(super) fn new(url: &str, options: &GetOptions) -> Result<Option<Self>, GetError> {
        let remote = &options.remote;
        let mut hosts: Vec<Host> = Vec::new();
        let mut edges = Vec::new();
        for edge in &options.edges {
            let options = edge_options(url, edge, remote);
            let host = Host::new(edge, options.clone())?;
            // One that is named twice is one.
            if hosts.iter().all(|other| other.url() != host.url()) {
                hosts.push(host);
                edges.push(options);
            }
        }
        let by = match hosts.is_empty() {
            true => options.by,
            false => FetchBy::Name,
        };
        if hosts.is_empty() && by != FetchBy::Range {
            hosts.push(Host::new(&root_of(url), remote.clone())?);
        }
        if hosts.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            rendezvous: Rendezvous::new(hosts.iter().map(|host| host.url().to_owned())),
            connections: remote.connections.min(THREADS_MAX / hosts.len()).max(1),
            servers: hosts.into_iter().map(Server::new).collect(),
            by,
            window_bytes: remote.window_bytes as u64,
            edges: (Url::parse(url).ok().filter(|_| !edges.is_empty())).map(|url| Edges {
                url,
                options: edges,
            }),
        }))
    }

    /// What each server did.
    pub(super) fn reports(self) -> Vec<NamedReport> {
        self.servers.into_iter().map(Server::report).collect()
    }
}

/// Caches get no headers that are meant for the archive's server, unless they are there.
fn edge_options(url: &str, edge: &str, remote: &RemoteOptions) -> RemoteOptions {
    let mut options = RemoteOptions {
        retries: remote.retries.min(edge::RETRIES_MAX),
        connect_timeout: remote.connect_timeout.min(edge::CONNECT_TIMEOUT_MAX),
        progress_timeout: remote.progress_timeout.min(edge::PROGRESS_TIMEOUT_MAX),
        ..remote.clone()
    };
    let origin = |url: &str| Url::parse(url).map(|url| url.origin());
    if origin(url) != origin(edge) {
        options.headers.clear();
        options.bearer = None;
    }
    options
}

/// The address on the server of `url` that chunks' addresses are below. What is none is left for others
/// to refuse.
fn root_of(url: &str) -> String {
    let root = Url::parse(url).and_then(|url| url.join("/"));
    root.map_or_else(|_| url.to_owned(), String::from)
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

    /// Asks `named` for all chunks that are missing. What nobody has is missing still.
    pub(super) fn fetch_by_name(&mut self, named: &Named) -> Result<(), GetError> {
        let mut cursor = Cursor::default();
        loop {
            let wanted = self.next_wanted(&mut cursor)?;
            let is_there: Vec<bool> = named.servers.iter().map(Server::is_there).collect();
            if wanted.is_empty() || !is_there.contains(&true) {
                return Ok(());
            }
            let window_bytes = named.window_bytes;
            let queue = Queue::new(&wanted, &named.rendezvous, &is_there, window_bytes);
            self.ask_all(named, &wanted, &queue)?;
        }
    }

    /// The next missing chunks.
    fn next_wanted(&self, cursor: &mut Cursor) -> Result<Vec<Wanted>, GetError> {
        let mut wanted = Vec::new();
        while let Some(&stream) = Stream::ALL.get(cursor.stream) {
            let rows = self.archive.root().stream(stream).lengths.rows();
            while let Some(row) = rows.get(cursor.row) {
                if wanted.len() >= ROUND_CHUNKS {
                    return Ok(wanted);
                }
                let [first, mut at, ..] = row.before;
                let names = self.archive.chunk_names(stream, cursor.row)?;
                let places = self.archive.chunk_places(stream, cursor.row)?;
                for ((chunk, name), (bytes, _)) in (first..).zip(names).zip(places) {
                    if !self.presence.has(stream, chunk) {
                        wanted.push(Wanted {
                            stream,
                            chunk,
                            name,
                            bytes,
                            at,
                        });
                    }
                    at += u64::from(bytes);
                }
                cursor.row += 1;
            }
            *cursor = Cursor {
                stream: cursor.stream + 1,
                row: 0,
            };
        }
        Ok(wanted)
    }

    /// Has all servers asked, in threads, and takes what comes.
    fn ask_all(
        &mut self,
        named: &Named,
        wanted: &[Wanted],
        queue: &Queue<'_>,
    ) -> Result<(), GetError> {
        thread::scope(|threads| {
            // Also when this panics: the scope waits for who asks, and they for room.
            let _stop = Stop(queue);
            for (number, server) in named.servers.iter().enumerate() {
                for started in 0..named.connections.min(wanted.len()) {
                    let builder = thread::Builder::new().name("chunks".to_owned());
                    let work = move || {
                        let stop = Stop(queue);
                        server.ask(number, named.by, wanted, queue);
                        // Reached without a panic: the others go on.
                        mem::forget(stop);
                    };
                    match builder.spawn_scoped(threads, work) {
                        Ok(_) => {}
                        Err(source) if started == 0 => {
                            server.leave(RemoteError::Thread { source }.into());
                            queue.leave(number, &[]);
                            break;
                        }
                        // Fewer do it too.
                        Err(_) => break,
                    }
                }
            }
            let taken = self.take_all(wanted, queue);
            if taken.is_err() {
                queue.stop();
                named.servers.iter().for_each(Server::close);
            }
            taken
        })
    }

    fn take_all(&mut self, wanted: &[Wanted], queue: &Queue<'_>) -> Result<(), GetError> {
        let total = wanted.iter().map(|wanted| u64::from(wanted.bytes)).sum();
        let mut done = 0;
        while let Some((number, plain)) = queue.next() {
            let Wanted {
                stream,
                chunk,
                name,
                at,
                ..
            } = wanted[number];
            self.put(stream, chunk, at, &plain)?;
            self.report.by_name.add(plain.len());
            if let Some(cache) = &mut self.cache {
                cache.add(name, &plain)?;
            }
            done += plain.len() as u64;
            self.go_on(Phase::Named, done, total)?;
        }
        Ok(())
    }
}

/// Stops a queue when it goes.
struct Stop<'a>(&'a Queue<'a>);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
