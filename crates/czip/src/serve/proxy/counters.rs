//! What the proxy did, for `/.czip/status`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use super::{super::Shared, Origin};
use crate::{remote, serve::Status};

/// Counts, since the start.
#[derive(Debug, Default)]
pub(super) struct OriginCounters {
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) from_archives: AtomicU64,
    pub(super) passed: AtomicU64,
    pub(super) fell_back: AtomicU64,
}

impl OriginCounters {
    /// Takes what was asked for and got since `before`, the counters of one file of the origin.
    pub(super) fn take(&self, before: &FileCounters, now: remote::Counters) {
        // Threads report in any order: what counts is how far the file's counters have come.
        let requests = before.requests.fetch_max(now.requests, Relaxed);
        let bytes = before.bytes.fetch_max(now.body_bytes, Relaxed);
        let more = now.requests.saturating_sub(requests);
        self.requests.fetch_add(more, Relaxed);
        let more = now.body_bytes.saturating_sub(bytes);
        self.bytes.fetch_add(more, Relaxed);
    }
}

/// How far the counters of one file of the origin were taken.
#[derive(Debug, Default)]
pub(super) struct FileCounters {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// What `/.czip/status` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProxyStatus {
    /// Towards clients. `sent_bytes` is what was delivered to them, `disk_bytes` what was read of the
    /// folder of chunks.
    #[serde(flatten)]
    pub clients: Status,
    /// Requests to the origin.
    pub origin_requests: u64,
    /// Bytes of bodies that came from the origin.
    pub origin_bytes: u64,
    /// Answers with content out of archives.
    pub answers_from_archives: u64,
    /// Requests that were passed to the origin.
    pub answers_passed: u64,
    /// Those among them for which there was an archive that could not be used.
    pub answers_fell_back: u64,
    /// Chunks that were found in the folder.
    chunks_kept: u64,
    /// Chunks that came from the origin.
    pub chunks_fetched: u64,
    /// Chunks in the folder.
    pub folder_chunks: u64,
    /// Whether the folder can be written.
    pub folder_is_writable: bool,
}

impl Origin {
    pub(super) fn status(&self, shared: &Shared) -> ProxyStatus {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let counters = &self.counters;
        let cache = &self.cache;
        let mut clients = shared.status();
        clients.disk_bytes += cache.read_bytes();
        ProxyStatus {
            clients,
            origin_requests: count(&counters.requests),
            origin_bytes: count(&counters.bytes),
            answers_from_archives: count(&counters.from_archives),
            answers_passed: count(&counters.passed),
            answers_fell_back: count(&counters.fell_back),
            chunks_kept: count(&shared.counters.chunks_kept),
            chunks_fetched: count(&shared.counters.chunks_fetched),
            folder_chunks: cache.chunks(),
            folder_is_writable: cache.is_writable(),
        }
    }
}
