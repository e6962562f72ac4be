//! What it cost.

use std::sync::Mutex;

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
pub(super) type Tally = Mutex<Counters>;
