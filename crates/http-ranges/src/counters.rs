//! What it cost.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a [`Remote`](super::Remote) has asked for and got, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that were sent, those that were redirected or failed too.
    pub requests: u64,
    /// Bytes of answers' bodies: what was asked for, gaps, and what was skipped.
    pub body_bytes: u64,
    /// Attempts after one that failed.
    pub retries: u64,
    /// The most bytes that were held for a fetch at any time, at most the window.
    pub held_bytes_max: u64,
}

/// The same, while several threads count.
#[derive(Debug, Default)]
pub(super) struct Tally {
    requests: AtomicU64,
    body_bytes: AtomicU64,
    retries: AtomicU64,
    held_bytes_max: AtomicU64,
}

impl Tally {
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.body_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    pub(super) fn held(&self, bytes: usize) {
        self.held_bytes_max.fetch_max(bytes as u64, Relaxed);
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            requests: self.requests.load(Relaxed),
            body_bytes: self.body_bytes.load(Relaxed),
            retries: self.retries.load(Relaxed),
            held_bytes_max: self.held_bytes_max.load(Relaxed),
        }
    }
}
