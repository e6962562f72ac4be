//! What the server did, for `/.czip/status`.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counts, since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) connections_now: AtomicU64,
    pub(super) connections_idle: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) requests_failed: AtomicU64,
    /// Answers that were cut off because the server was told to stop.
    pub(super) drain_cut_off: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) cache_hits: AtomicU64,
    pub(super) cache_misses: AtomicU64,
    pub(super) disk_bytes: AtomicU64,
    /// Chunks of archives far away that were kept, and that were fetched.
    pub(super) chunks_kept: AtomicU64,
    pub(super) chunks_fetched: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// What `/.czip/status` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Connections that were taken.
    pub connections: u64,
    /// Those that are open.
    pub connections_now: u64,
    /// Of those that are open, those without a request.
    pub connections_idle: u64,
    /// Requests.
    pub requests: u64,
    /// Those answered with a status of 500 or more, or cut off.
    pub requests_failed: u64,
    /// Bytes of bodies sent.
    pub sent_bytes: u64,
    /// What was found in the cache: chunks, frames and plans.
    cache_hits: u64,
    cache_misses: u64,
    /// Bytes in the cache.
    pub cache_bytes: u64,
    cache_bytes_max: u64,
    /// Bytes read of files.
    pub disk_bytes: u64,
}

impl Counters {
    pub(super) fn status(&self, cache_bytes: u64, cache_bytes_max: u64) -> Status {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Status {
            connections: count(&self.connections),
            connections_now: count(&self.connections_now),
            connections_idle: count(&self.connections_idle),
            requests: count(&self.requests),
            requests_failed: count(&self.requests_failed),
            sent_bytes: count(&self.sent_bytes),
            cache_hits: count(&self.cache_hits),
            cache_misses: count(&self.cache_misses),
            cache_bytes,
            cache_bytes_max,
            disk_bytes: count(&self.disk_bytes),
        }
    }
}
