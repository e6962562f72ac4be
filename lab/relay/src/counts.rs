//! What has crossed the link: the counters of a running relay, and their reading, [`Counts`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// A reading of a relay's counters. All bytes are payload; headers are not counted.
#[derive(Clone, Debug, Serialize)]
pub struct Counts {
    /// Connections that were accepted so far.
    pub accepted: u64,
    /// Those of them that are open.
    pub open: u64,
    /// Those of them for which the target could not be reached.
    pub unreachable: u64,
    /// All connections together, towards the target.
    pub up: DirectionCounts,
    /// All connections together, from the target.
    pub down: DirectionCounts,
}

/// Bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DirectionCounts {
    /// Read from the sending side.
    pub entered_bytes: u64,
    /// Written to the receiving side: `delivered_bytes <= entered_bytes`, and less after a reset
    /// or a cut.
    pub delivered_bytes: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            accepted,
            open,
            unreachable,
            up,
            down,
        } = self;
        write!(
            f,
            "connections {accepted} accepted, {open} open, {unreachable} unreachable"
        )?;
        for (name, direction) in [("up", up), ("down", down)] {
            let DirectionCounts {
                entered_bytes,
                delivered_bytes,
            } = direction;
            write!(
                f,
                "\n{name:<5} {entered_bytes:>14} bytes entered {delivered_bytes:>14} delivered"
            )?;
        }
        Ok(())
    }
}

/// The counters of a relay.
#[derive(Default)]
pub(crate) struct Ledger {
    accepted: AtomicU64,
    open: AtomicU64,
    unreachable: AtomicU64,
    pub(crate) up: DirectionCounters,
    pub(crate) down: DirectionCounters,
}

impl Ledger {
    /// Counts a new connection, and returns its number: how many came before it.
    pub(crate) fn open(&self) -> u64 {
        let connection = self.accepted.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        connection
    }

    pub(crate) fn close(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    pub(crate) fn target_was_unreachable(&self) {
        self.unreachable.fetch_add(1, Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            accepted: self.accepted.load(Relaxed),
            open: self.open.load(Relaxed),
            unreachable: self.unreachable.load(Relaxed),
            up: self.up.counts(),
            down: self.down.counts(),
        }
    }
}

/// The counters of one direction.
#[derive(Default)]
pub(crate) struct DirectionCounters {
    entered_bytes: AtomicU64,
    delivered_bytes: AtomicU64,
}

impl DirectionCounters {
    pub(crate) fn entered(&self, bytes: usize) {
        self.entered_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn delivered(&self, bytes: usize) {
        self.delivered_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn counts(&self) -> DirectionCounts {
        // In this order, since the other would let a reading show more delivered than entered.
        let delivered_bytes = self.delivered_bytes.load(Relaxed);
        DirectionCounts {
            entered_bytes: self.entered_bytes.load(Relaxed),
            delivered_bytes,
        }
    }
}
