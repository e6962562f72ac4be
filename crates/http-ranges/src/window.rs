//! What has arrived and was not handed on yet, and what workers do next.
//!
//! Pieces are claimed in order and handed on in order; that of which bytes are handed on now is the
//! *head*. A worker reserves room before it reads. All but the head's leave a block's room free: so the
//! head can always go on, and whatever is held, it ends.
//!
//! Invariant: `held_bytes` is at most `bytes_max`, and at most `bytes_max - block_bytes` of it belongs to
//! pieces behind the head.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{body::Body, counters::Tally, error::RemoteError, lock};

const BLOCK_BYTES_MAX: usize = 64 << 10;

/// The fetch window: between the threads that fetch and the one that hands on.
pub(super) struct Window<'a> {
    state: Mutex<State>,
    changed: Condvar,
    tally: &'a Tally,
    pieces: usize,
    bytes_max: usize,
    block_bytes: usize,
}

#[derive(Default)]
struct State {
    /// Pieces that workers have claimed.
    claimed: usize,
    /// The piece that is handed on.
    head: usize,
    /// What arrived of the head and the claimed pieces behind it.
    arrived: VecDeque<Arrived>,
    held_bytes: usize,
    end: Option<End>,
}

#[derive(Default)]
struct Arrived {
    blocks: VecDeque<Vec<u8>>,
    is_complete: bool,
}

/// Why it ended before all was handed on.
enum End {
    Stopped,
    Failed(RemoteError),
    Whole(Body),
}

/// What to do with what came.
pub(super) enum Next {
    /// Hand on, and [`release`](Window::release).
    Block(Vec<u8>),
    /// All was handed on.
    Done,
    /// The server turned out to have no ranges.
    Whole(Body),
}

impl<'a> Window<'a> {
    pub(super) fn new(bytes_max: usize, pieces: usize, tally: &'a Tally) -> Self {
        let bytes_max = bytes_max.max(2);
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            tally,
            pieces,
            bytes_max,
            block_bytes: (bytes_max / 2).min(BLOCK_BYTES_MAX),
        }
    }

    /// The number of a piece to fetch. None if there is no more to do.
    pub(super) fn claim(&self) -> Option<usize> {
        let mut state = lock(&self.state);
        if state.end.is_some() || state.claimed == self.pieces {
            return None;
        }
        state.claimed += 1;
        state.arrived.push_back(Arrived::default());
        Some(state.claimed - 1)
    }

    /// Room for the next at most `left` bytes of a piece, once there is some. None if it ended.
    pub(super) fn reserve(&self, piece: usize, left: u64) -> Option<Vec<u8>> {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let wanted = left.min(self.block_bytes);
        let mut state = lock(&self.state);
        while state.end.is_none() {
            let kept_free = match state.head == piece {
                true => 0,
                false => self.block_bytes,
            };
            if state.held_bytes + wanted + kept_free <= self.bytes_max {
                state.held_bytes += wanted;
                let mut tally = lock(self.tally);
                tally.held_bytes_max = tally.held_bytes_max.max(state.held_bytes as u64);
                return Some(vec![0; wanted]);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// The next bytes of a piece, in what was reserved for them.
    pub(super) fn put(&self, piece: usize, block: Vec<u8>, is_complete: bool) {
        let mut state = lock(&self.state);
        let index = piece - state.head;
        let arrived = &mut state.arrived[index];
        arrived.blocks.push_back(block);
        arrived.is_complete = is_complete;
        self.changed.notify_all();
    }

    /// Waits. False if it ended meanwhile.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = lock(&self.state);
        while state.end.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    pub(super) fn fail(&self, error: RemoteError) {
        self.end(End::Failed(error));
    }

    pub(super) fn no_ranges(&self, body: Body) {
        self.end(End::Whole(body));
    }

    /// Nobody claims or reserves any more. What ended it first counts.
    pub(super) fn stop(&self) {
        self.end(End::Stopped);
    }

    /// The next bytes in order, once they have arrived.
    pub(super) fn next(&self) -> Result<Next, RemoteError> {
        let mut state = lock(&self.state);
        loop {
            // What arrived before a failure counts: who goes on later need not have it sent again.
            let head = state.arrived.front();
            let has_arrived = head.is_some_and(|head| !head.blocks.is_empty() || head.is_complete);
            let is_failed = matches!(state.end, Some(End::Failed(_)));
            if state.end.is_some() && !(is_failed && has_arrived) {
                return match state.end.replace(End::Stopped) {
                    Some(End::Failed(error)) => Err(error),
                    Some(End::Whole(body)) => Ok(Next::Whole(body)),
                    // A worker panicked: that shows when it is joined.
                    Some(End::Stopped) | None => Ok(Next::Done),
                };
            }
            if state.head == self.pieces {
                return Ok(Next::Done);
            }
            if let Some(head) = state.arrived.front_mut() {
                if let Some(block) = head.blocks.pop_front() {
                    return Ok(Next::Block(block));
                }
                if head.is_complete {
                    state.arrived.pop_front();
                    state.head += 1;
                    // The new head may use the room that was kept free.
                    self.changed.notify_all();
                    continue;
                }
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What [`next`](Self::next) gave is held no more.
    pub(super) fn release(&self, block: Vec<u8>) {
        lock(&self.state).held_bytes -= block.len();
        self.changed.notify_all();
    }

    fn end(&self, end: End) {
        lock(&self.state).end.get_or_insert(end);
        self.changed.notify_all();
    }
}
