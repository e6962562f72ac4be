//! What has arrived and was not handed on yet, and what workers do next.
//!
//! Pieces are claimed in order and handed on in order; that of which bytes are handed on now is the
//! *head*. A worker reserves room before it reads. All but the head's leave a block's room free: so the
//! head can always go on, and whatever is held, it ends.
//!
//! Invariant: `held_bytes` is at most `bytes_max`, and at most `bytes_max - block_bytes` of it belongs to
//! pieces behind the head.

use std::{collections::VecDeque, ops::Range, sync::Mutex};

use tokio::sync::{Notify, futures::Notified};

use super::{body::Body, lock, server::Server};

/// Bytes that are handed on together, at most.
pub(super) const BLOCK_BYTES_MAX: usize = 64 << 10;

/// The fetch window: between those that fetch and the one that hands on.
pub(super) struct Window {
    state: Mutex<State>,
    changed: Notify,
    pieces: Vec<Range<u64>>,
    bytes_max: usize,
    block_bytes: usize,
}

#[derive(Default)]
struct State {
    /// The piece that is handed on, and what was of it already.
    head: usize,
    handed_on: u64,
    /// What arrived of the head and the claimed pieces behind it.
    arrived: VecDeque<VecDeque<Vec<u8>>>,
    held_bytes: usize,
    /// Whether nothing more is to be fetched.
    is_stopped: bool,
}

/// What to do with what came.
pub(super) enum Next {
    /// Hand on, and [`release`](Window::release). With its offset in the file.
    Block(u64, Vec<u8>),
    /// All was handed on.
    Done,
    /// The server turned out to have no ranges.
    Whole(Body),
}

impl Window {
    pub(super) fn new(bytes_max: usize, pieces: Vec<Range<u64>>) -> Self {
        let bytes_max = bytes_max.max(2);
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            pieces,
            bytes_max,
            block_bytes: (bytes_max / 2).min(BLOCK_BYTES_MAX),
        }
    }

    /// A piece to fetch, and its number. None if there is no more to do.
    pub(super) fn claim(&self) -> Option<(usize, Range<u64>)> {
        let mut state = lock(&self.state);
        let number = state.head + state.arrived.len();
        let piece = self
            .pieces
            .get(number)
            .filter(|_| !state.is_stopped)?
            .clone();
        state.arrived.push_back(VecDeque::new());
        Some((number, piece))
    }

    /// Room for some of the `left` bytes of a piece, once there is some; after a [`stop`](Self::stop) never.
    pub(super) async fn reserve(&self, server: &Server, piece: usize, left: usize) -> usize {
        let wanted = left.min(self.block_bytes);
        loop {
            let changed = self.changed();
            {
                let mut state = lock(&self.state);
                let kept_free = match state.head == piece {
                    true => 0,
                    false => self.block_bytes,
                };
                let has_room = state.held_bytes + wanted + kept_free <= self.bytes_max;
                if has_room && !state.is_stopped {
                    state.held_bytes += wanted;
                    let mut tally = lock(&server.client.tally);
                    tally.held_bytes_max = tally.held_bytes_max.max(state.held_bytes as u64);
                    return wanted;
                }
            }
            changed.await;
        }
    }

    /// The next bytes of a piece, for which room was reserved.
    pub(super) fn put(&self, piece: usize, block: Vec<u8>) {
        let mut state = lock(&self.state);
        let index = piece - state.head;
        state.arrived[index].push_back(block);
        self.changed.notify_waiters();
    }

    /// What to do next in order, if it is known by now.
    pub(super) fn next(&self) -> Option<Next> {
        let mut state = lock(&self.state);
        loop {
            let Some(head) = self.pieces.get(state.head) else {
                return Some(Next::Done);
            };
            let offset = head.start + state.handed_on;
            if offset < head.end {
                let block = state.arrived.front_mut()?.pop_front()?;
                state.handed_on += block.len() as u64;
                return Some(Next::Block(offset, block));
            }
            state.arrived.pop_front();
            (state.head, state.handed_on) = (state.head + 1, 0);
            // The new head may use the room that was kept free.
            self.changed.notify_waiters();
        }
    }

    /// What [`next`](Self::next) gave is held no more.
    pub(super) fn release(&self, block: Vec<u8>) {
        lock(&self.state).held_bytes -= block.len();
        self.changed.notify_waiters();
    }

    /// Has nothing more fetched. What arrived is there still.
    pub(super) fn stop(&self) {
        lock(&self.state).is_stopped = true;
    }

    /// Ends with the next change from now on.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}
