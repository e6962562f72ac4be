//! What has crossed the link: the counters of a running relay, and their reading, [`Counts`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::Direction;
use crate::link::lock;

/// A reading of a relay's counters. All bytes are payload; headers are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// Stalls towards the target.
    pub up_stalls: u64,
    /// Stalls from the target.
    pub down_stalls: u64,
    /// The latest [`CONNECTIONS_KEPT_MAX`] connections, in the order in which they came.
    pub connections: Vec<ConnectionCounts>,
}

/// How many connections a relay remembers one by one; the totals know them all.
pub const CONNECTIONS_KEPT_MAX: usize = 4096;

/// Bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DirectionCounts {
    /// Read from the sending side.
    pub entered_bytes: u64,
    /// Written to the receiving side: `delivered_bytes <= entered_bytes`, and less after a reset
    /// or a cut.
    pub delivered_bytes: u64,
}

/// Bytes of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectionCounts {
    /// The connection's number, from 0 in the order in which the relay accepted them.
    pub connection: u64,
    /// Whether it is still open.
    pub open: bool,
    /// Towards the target.
    pub up: DirectionCounts,
    /// From the target.
    pub down: DirectionCounts,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            accepted,
            open,
            unreachable,
            up,
            down,
            ..
        } = self;
        write!(
            f,
            "connections {accepted} accepted, {open} open, {unreachable} unreachable"
        )?;
        let rows = [("up", up, self.up_stalls), ("down", down, self.down_stalls)];
        for (
            name,
            DirectionCounts {
                entered_bytes,
                delivered_bytes,
            },
            stalls,
        ) in rows
        {
            write!(
                f,
                "\n{name:<5} {entered_bytes:>14} bytes entered {delivered_bytes:>14} delivered {stalls:>6} stalls"
            )?;
        }
        Ok(())
    }
}

/// The counters of all connections of a relay.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    accepted: AtomicU64,
    open: AtomicU64,
    unreachable: AtomicU64,
    totals: Totals,
    connections: Mutex<VecDeque<Arc<Account>>>,
}

type Totals = Arc<[DirectionCounters; 2]>;

impl Ledger {
    /// Starts the account of the next connection, which gets the next number.
    pub(crate) fn open(&self) -> Arc<Account> {
        let mut connections = lock(&self.connections);
        let account = Arc::new(Account {
            connection: self.accepted.fetch_add(1, Relaxed),
            open: AtomicBool::new(true),
            own: Default::default(),
            totals: Arc::clone(&self.totals),
        });
        self.open.fetch_add(1, Relaxed);
        if connections.len() == CONNECTIONS_KEPT_MAX {
            connections.pop_front();
        }
        connections.push_back(Arc::clone(&account));
        account
    }

    pub(crate) fn close(&self, account: &Account) {
        account.open.store(false, Relaxed);
        self.open.fetch_sub(1, Relaxed);
    }

    pub(crate) fn target_was_unreachable(&self) {
        self.unreachable.fetch_add(1, Relaxed);
    }

    /// A reading, but for the stalls, of which the links know.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            accepted: self.accepted.load(Relaxed),
            open: self.open.load(Relaxed),
            unreachable: self.unreachable.load(Relaxed),
            up: self.totals[Direction::Up as usize].counts(),
            down: self.totals[Direction::Down as usize].counts(),
            connections: lock(&self.connections)
                .iter()
                .map(|account| account.counts())
                .collect(),
            ..Counts::default()
        }
    }
}

/// The counters of one connection, which add to the relay's.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) connection: u64,
    open: AtomicBool,
    own: [DirectionCounters; 2],
    totals: Totals,
}

impl Account {
    pub(crate) fn entered(&self, direction: Direction, bytes: usize) {
        for counters in [&self.own, &*self.totals] {
            counters[direction as usize]
                .entered_bytes
                .fetch_add(bytes as u64, Relaxed);
        }
    }

    pub(crate) fn delivered(&self, direction: Direction, bytes: usize) {
        for counters in [&self.own, &*self.totals] {
            counters[direction as usize]
                .delivered_bytes
                .fetch_add(bytes as u64, Relaxed);
        }
    }

    fn counts(&self) -> ConnectionCounts {
        ConnectionCounts {
            connection: self.connection,
            open: self.open.load(Relaxed),
            up: self.own[Direction::Up as usize].counts(),
            down: self.own[Direction::Down as usize].counts(),
        }
    }
}

#[derive(Debug, Default)]
struct DirectionCounters {
    entered_bytes: AtomicU64,
    delivered_bytes: AtomicU64,
}

impl DirectionCounters {
    fn counts(&self) -> DirectionCounts {
        // In this order, since the other would let a reading show more delivered than entered.
        let delivered_bytes = self.delivered_bytes.load(Relaxed);
        DirectionCounts {
            entered_bytes: self.entered_bytes.load(Relaxed),
            delivered_bytes,
        }
    }
}
