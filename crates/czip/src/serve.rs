//! A server of archives (CZIP, section 4.1): of each as it is, of its content, and of its chunks by
//! name.
//!
//! ```text
//! request ─▶ answer ─▶ site: file ───────────────────────────────────────┐
//!              │        └─▶ content of an archive ─▶ plan of a span ────────┤
//!              └─▶ names: chunks                   ─▶ units ────────────────┴▶ sending ─▶ body
//!                                                                              │
//!                                                                         chunk cache ◀─ disk
//! ```
//!
//! Content and chunks come from one bounded cache, whatever file they were asked for by, so that the
//! working set of overlapping files is the union of their chunks. A client is sent what it takes, and
//! little more is read for it. Reading and decompressing happen in threads; what the cache has goes out
//! without them, and without being copied. Files, archives too, are sent as they are on the disk, damage
//! included.
//!
//! Instead of a folder there may be an origin, any web server: [`proxy`].
//!
//! - Deviation: the paper's cache is a process that Apache's forks share; here one process has many
//!   threads.

mod answer;
mod body;
mod cache;
mod conditions;
mod connection;
mod counters;
mod encoding;
mod file;
mod listing;
mod names;
mod opened;
mod plan;
pub mod proxy;
mod resource;
mod sending;
mod site;
mod socket;
mod tree;

pub use counters::Status;

use std::{io, path::Path, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{net::TcpListener, sync::Semaphore};

use crate::archive::ReadError;
use cache::ChunkCache;
use counters::Counters;
use file::Buffers;
use names::Names;
use site::Site;
use tree::Tree;

/// How a server is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// Memory for the chunk cache.
    pub cache_bytes: u64,
    /// Connections at once. Who comes then takes the place of one that has no request, or waits for it.
    pub connections_max: usize,
    /// A request's head comes within this, or the connection ends; also the time between requests.
    pub head_timeout: Duration,
    /// A client that takes nothing for so long is cut off. On Linux this shows only when it took 128 KiB
    /// of what the kernel has for it: that much in this time is the least.
    pub stall_timeout: Duration,
    /// Told to stop, it sends for so long what is being sent; what is left then is cut off.
    pub drain_timeout: Duration,
    /// Answers that are encoded at once; others go out as they are.
    pub encoders_max: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 512 << 20,
            connections_max: 4096,
            head_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
            encoders_max: 64,
        }
    }
}

/// Why a request cannot be answered, or not to its end.
#[derive(Debug, Error)]
pub(crate) enum ServeError {
    /// An archive, or a file, cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An encoder failed.
    #[error("encoding failed: {0}")]
    Encoding(#[from] io::Error),
    /// The origin's answer breaks off.
    #[error("the origin's answer was cut off: {error}")]
    Origin {
        /// How.
        error: String,
    },
    /// The server stops.
    #[error("the server is stopping")]
    Stopped,
}

/// What all connections share.
struct Shared {
    options: ServeOptions,
    counters: Arc<Counters>,
    cache: Arc<ChunkCache>,
    content: Content,
    buffers: Arc<Buffers>,
    encoders: Arc<Semaphore>,
}

/// Where what is served comes from.
enum Content {
    Folder(Folder),
    Origin(Box<proxy::Origin>),
}

/// A folder.
struct Folder {
    site: Arc<Site>,
    names: Names,
}

impl Shared {
    fn new(options: ServeOptions, counters: Arc<Counters>, content: Content) -> Arc<Self> {
        Arc::new(Self {
            options,
            cache: Arc::new(ChunkCache::new(options.cache_bytes, counters.clone())),
            content,
            buffers: Arc::default(),
            encoders: Arc::new(Semaphore::new(options.encoders_max)),
            counters,
        })
    }

    fn status(&self) -> Status {
        self.counters
            .status(self.cache.bytes(), self.options.cache_bytes)
    }
}

/// A server of a folder.
pub struct Server {
    shared: Arc<Shared>,
}

impl Server {
    /// A server of `folder`.
    ///
    /// # Errors
    /// If it is no folder that can be read.
    pub fn new(folder: &Path, options: ServeOptions) -> io::Result<Self> {
        let counters = Arc::new(Counters::default());
        let content = Content::Folder(Folder {
            site: Arc::new(Site::new(Tree::new(folder)?, counters.clone())),
            names: Names::default(),
        });
        let shared = Shared::new(options, counters, content);
        Ok(Self { shared })
    }

    /// What it did so far.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Serves until `stop` is done, and then what is being sent to its end: until `end` is done, or for
    /// [`drain_timeout`](ServeOptions::drain_timeout).
    ///
    /// # Errors
    /// If connections cannot be taken at all.
    pub async fn run(
        &self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        end: impl Future<Output = ()>,
    ) -> io::Result<()> {
        connection::serve(self.shared.clone(), listener, stop, end).await
    }
}
