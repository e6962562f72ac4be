//! Byte ranges of a file on any web server (the paper's section 4.2).
//!
//! A URL and ranges enter, bytes leave. The server needs no knowledge of CZIP, and this crate has none
//! either. What is written for is the web as it is:
//!
//! | a server | is met by |
//! |---|---|
//! | has no ranges (answers 200), or ranges of a file whose length it does not say | one body, read from its beginning, kept between reads |
//! | answers several ranges at once wrongly | asking for one range at a time, over several connections |
//! | lies about what it sends | a strict look at `Content-Range`, lengths and encodings |
//! | has another file than a minute ago | `If-Range`, and a look at `ETag`, `Last-Modified`, length |
//! | is one of several, with equal files | a look at the first bytes, where digests check the others |
//! | breaks off, stalls, is busy | trying again from that byte on, later and later |
//! | redirects | going there, and staying there; asking anew once that has expired |
//!
//! Memory is bounded by [`RemoteOptions::window_bytes`], and by what is asked for in one piece
//! ([`Remote::tail`]). What arrives is not known to be what the file's author wrote: that is for the
//! archive's digests to say.
//!
//! ```text
//! address, options            where, and how patiently
//! ranges                      what is wanted, joined and cut into requests
//! fetch, window               several requests at once, their bytes put in order within bounded memory
//! part, attempts, retry       a range, asked for again from the byte at which it broke
//! server, asked, validator    one request, and whether its answer can be believed; what answers said
//! client, agent, http1        headers and redirects, over connections that are kept
//! connector, proxies          sockets, proxies on the way, TLS
//! body, content_range         what comes back
//! ```
//!
//! Small things on a server, each at an address of its own, are a [`Host`]'s. The example below is
//! `examples/ranges.rs`.
//!
//! Deviation: the paper's client asks for the header, and for chunks one by one. Here chunks that lie
//! close together come with one request.
//!
//! ```
#![doc = include_str!("../examples/ranges.rs")]
//! ```
#![forbid(unsafe_code)]

mod address;
mod agent;
mod asked;
mod attempts;
mod body;
mod client;
mod connector;
mod content_range;
mod counters;
mod error;
mod fetch;
mod host;
mod http1;
mod options;
mod part;
mod proxies;
mod ranges;
mod retry;
mod runtime;
mod server;
mod validator;
mod window;

use std::{
    cell::Cell,
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

pub use address::check_address;
pub use attempts::Attempts;
pub use counters::Counters;
pub use error::{
    ConnectionError, Lie, ProxyProblem, RedirectProblem, RemoteError, UrlProblem, VersionField,
};
pub use host::Host;
pub use options::{ProxyChoice, RemoteOptions};
pub use ranges::union;
pub use ranges::{join, split};
pub use retry::{OnRetry, Retry};
pub use {
    connector::Connector,
    error::causes,
    http1::{FIELDS_MAX, HEAD_BYTES_MAX},
    runtime::block_on,
};

pub use address::parse as parse_address;
use body::Body;
use part::Part;
use runtime::wait;
use server::Server;
use window::BLOCK_BYTES_MAX;

/// What bytes are handed to, with the offset in the file of the first.
pub type Sink<'a, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'a;

/// Less is not worth moving bytes for.
const TAIL_SLACK_BYTES: usize = 64 << 10;

/// A file on a web server.
///
/// Threads may share it. A file that changes while it is open is an error
/// ([`RemoteError::Changed`]), and has to be opened anew.
pub struct Remote {
    server: Arc<Server>,
    /// How many of the first bytes are used, which came when it was opened.
    first_used: AtomicUsize,
    /// The only body of a server without ranges, as far as it was read: who reads onward gets all from one
    /// request, and who goes back makes the server send all again. None while somebody reads it.
    body: Mutex<Option<Body>>,
    progress: Option<Box<dyn Fn(Counters) + Send + Sync>>,
}

impl Remote {
    /// Opens the file at `url`: one request, for its first bytes.
    ///
    /// # Errors
    ///
    /// If `url` or an option cannot be used, or the server has no such file or says what cannot be.
    pub fn open(url: &str, options: RemoteOptions) -> Result<Self, RemoteError> {
        let server = Arc::new(Server::new(url, options)?);
        let body = wait(server.ask_first())?;
        let remote = Self {
            first_used: AtomicUsize::new(usize::MAX),
            body: Mutex::new(Some(body)),
            progress: None,
            server,
        };
        let wanted = remote.server.client.options.first_bytes.max(1) as u64;
        let wanted = wanted.min(remote.len().unwrap_or(u64::MAX));
        let mut first = Vec::new();
        remote.read_in_order(0..wanted, None, &mut |_, bytes| {
            first.extend_from_slice(bytes);
            Ok::<(), RemoteError>(())
        })?;
        let _ = remote.server.first.set(first);
        Ok(remote)
    }

    /// Has `progress` called whenever bytes have come, in the thread that waits for them.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(Counters) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// The file's bytes. None if the server, without ranges, does not say.
    pub fn len(&self) -> Option<u64> {
        self.server.len()
    }

    /// Whether the file is known to have no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether the server sends parts of the file. Where it does not, a read that goes back costs all of
    /// the file again, and one that goes on all that lies between.
    pub fn has_ranges(&self) -> bool {
        self.server.has_ranges()
    }

    /// Where the file was found in the end, after redirects.
    pub fn url(&self) -> String {
        self.server.current().into()
    }

    /// What was asked for and got so far.
    pub fn counters(&self) -> Counters {
        *lock(&self.server.client.tally)
    }

    /// The first bytes, which came when it was opened: as many as the options say, or all.
    pub fn first(&self) -> &[u8] {
        let first = self.server.first.get().map_or(&[][..], Vec::as_slice);
        &first[..self.first_used.load(Relaxed).min(first.len())]
    }

    /// What came of the bytes from `offset` on is damaged: whoever reads them gets others, where they came
    /// when this was opened.
    pub fn forget(&self, offset: u64) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        self.first_used.fetch_min(offset, Relaxed);
    }

    /// Fills `buffer` with the bytes at `offset`: by one request, or none if they came with the first.
    ///
    /// # Errors
    ///
    /// [`RemoteError::BeyondEnd`] if the file ends before; else what kept them from coming.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), RemoteError> {
        // An end past all numbers is past the file's.
        let range = offset..offset.saturating_add(buffer.len() as u64);
        self.check_end(&range)?;
        self.fetch_within(&[range], 1, &mut |at, bytes| {
            let at = (at - offset) as usize;
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })
    }

    /// The last `bytes` of the file, or all of it if it has fewer.
    ///
    /// # Errors
    ///
    /// What kept them from coming.
    pub fn tail(&self, bytes: usize) -> Result<Vec<u8>, RemoteError> {
        let mut tail = Vec::new();
        if let Some(len) = self.len() {
            let range = len.saturating_sub(bytes as u64)..len;
            self.fetch_within(&[range], 1, &mut |_, bytes| {
                tail.extend_from_slice(bytes);
                Ok::<(), RemoteError>(())
            })?;
            return Ok(tail);
        }
        // Where it ends is known only there.
        self.read_in_order(0..u64::MAX, None, &mut |_, more| {
            tail.extend_from_slice(more);
            // Twice as many are kept, so that moving them costs little.
            if tail.len() > bytes.saturating_mul(2).saturating_add(TAIL_SLACK_BYTES) {
                tail.drain(..tail.len() - bytes);
            }
            Ok::<(), RemoteError>(())
        })?;
        tail.drain(..tail.len().saturating_sub(bytes));
        Ok(tail)
    }

    /// Hands all bytes of `ranges` to `sink`, each once, with the offset in the file of the first: in the
    /// order in which they lie in the file, from this thread, while others still arrive.
    ///
    /// Ranges may overlap and come in any order; they are joined and cut into requests as the options
    /// say ([`join`], [`split`]). What is between them is not handed on.
    ///
    /// # Errors
    ///
    /// What `sink` returns ends it, and its connections. [`RemoteError::BeyondEnd`] if the file ends
    /// before a range does; else what kept bytes from coming.
    pub fn fetch<E: From<RemoteError>>(
        &self,
        ranges: &[Range<u64>],
        sink: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        self.fetch_within(ranges, usize::MAX, sink)
    }

    /// As [`fetch`](Self::fetch), by at most `requests_max` requests, at least one: ranges are joined
    /// until there are no more. Retries come on top.
    pub fn fetch_within<E: From<RemoteError>>(
        &self,
        ranges: &[Range<u64>],
        requests_max: usize,
        sink: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        let wanted = union(ranges);
        if let Some(last) = wanted.last() {
            self.check_end(last)?;
        }
        let first = self.first();
        let here = first.len() as u64;
        for range in wanted.iter().filter(|range| range.start < here) {
            let end = range.end.min(here);
            sink(range.start, &first[range.start as usize..end as usize])?;
        }
        let left: Vec<Range<u64>> = wanted
            .into_iter()
            .map(|range| range.start.max(here)..range.end)
            .filter(|range| !range.is_empty())
            .collect();
        let [span, ..] = &join(&left, u64::MAX, 1)[..] else {
            return Ok(());
        };
        let pieces = match self.has_ranges() {
            true => {
                let options = &self.server.client.options;
                let joined_max = options.requests_max.min(requests_max);
                let joined = join(&left, options.gap_bytes, joined_max);
                let pieces_max = options.pieces_max.min(requests_max);
                split(&joined, options.piece_bytes, pieces_max)
            }
            false => vec![span.clone()],
        };
        let handed_on = Cell::new(span.start);
        let mut hand_on = |offset, bytes: &[u8]| {
            self.report();
            each_wanted(&left, offset, bytes, sink)?;
            handed_on.set(offset + bytes.len() as u64);
            Ok::<(), E>(())
        };
        // A small piece has come before there is anything to do meanwhile.
        let is_long = span.end - span.start > BLOCK_BYTES_MAX as u64;
        let mut body = None;
        if pieces.len() > 1 || self.has_ranges() && is_long {
            body = fetch::fetch(&self.server, pieces, &mut hand_on)?;
            if body.is_none() {
                return Ok(());
            }
        }
        let came = self.read_in_order(handed_on.get()..span.end, body, &mut hand_on)?;
        match left.into_iter().find(|range| range.end > came) {
            Some(range) => Err(self.beyond_end(range, came).into()),
            None => Ok(()),
        }
    }

    /// Reads a range, up to the file's end at most, one piece after the other, from `body` if there is one.
    /// Returns how far it came.
    fn read_in_order<E: From<RemoteError>>(
        &self,
        range: Range<u64>,
        body: Option<Body>,
        each: &mut Sink<'_, E>,
    ) -> Result<u64, E> {
        // `each` may read this file too: it then begins another body.
        let body = body.or_else(|| lock(&self.body).take());
        let mut part = Part::new(&self.server, range, body);
        while part.left_bytes() > 0 {
            let at = part.left.start;
            let read = wait(part.read(usize::MAX, true))?;
            if read.is_empty() {
                break;
            }
            each(at, &read)?;
        }
        if part.body.is_some() {
            *lock(&self.body) = part.body;
        }
        Ok(part.left.start)
    }

    fn check_end(&self, range: &Range<u64>) -> Result<(), RemoteError> {
        match self.len() {
            Some(len) if range.end > len => Err(self.beyond_end(range.clone(), len)),
            _ => Ok(()),
        }
    }

    fn beyond_end(&self, range: Range<u64>, len: u64) -> RemoteError {
        let url = self.server.shown();
        RemoteError::BeyondEnd { url, range, len }
    }

    fn report(&self) {
        if let Some(progress) = &self.progress {
            progress(self.counters());
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.server.shown())
            .field("len", &self.len())
            .field("has_ranges", &self.has_ranges())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

/// Hands on those of `bytes`, which are at `offset`, that are in `wanted`.
fn each_wanted<E>(
    wanted: &[Range<u64>],
    offset: u64,
    bytes: &[u8],
    sink: &mut Sink<'_, E>,
) -> Result<(), E> {
    let end = offset + bytes.len() as u64;
    let first = wanted.partition_point(|range| range.end <= offset);
    for range in wanted[first..].iter().take_while(|range| range.start < end) {
        let (start, stop) = (range.start.max(offset), range.end.min(end));
        sink(
            start,
            &bytes[(start - offset) as usize..(stop - offset) as usize],
        )?;
    }
    Ok(())
}

/// Their data is whole between any two statements, also after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
