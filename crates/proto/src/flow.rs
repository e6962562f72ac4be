//! One flow: an application's connection as this end of the link sees it.
//!
//! Each direction of a flow ends on the wire exactly once, with an end, a reset or a
//! refusal. Until the other end's has come, the flow is remembered even where its
//! application is long gone: the blocks that still arrive must be decoded to keep the
//! caches equal, and that takes the flow's cursor.

use refrain_codec::{LogRange, SourceCursor};

use crate::{
    counters::LayerCounters,
    credit::ReceiveCredit,
    frame::LaneId,
    limits::{BLOCK_BYTES_MAX, PENDING_BYTES_MAX},
    moment::Moment,
    traffic::TrafficClass,
};

/// State of a flow at one end.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) target: String,
    pub(crate) opened_here: bool,
    /// The target was reached; always true where the flow was offered and taken.
    pub(crate) accepted: bool,
    /// The application is gone: received bytes are decoded and dropped.
    pub(crate) abandoned: bool,
    pub(crate) opened_at: Moment,
    pub(crate) send: SendHalf,
    pub(crate) receive: ReceiveHalf,
}

/// What this end sends on a flow.
#[derive(Debug)]
pub(crate) struct SendHalf {
    /// The lane that this direction's blocks travel on.
    pub(crate) lane: LaneId,
    /// Where it is going to travel, once the other end expects it there.
    pub(crate) moving: Option<Moving>,
    /// A reset that waits for the move to be over.
    pub(crate) reset_after_move: Option<u8>,
    /// Plain bytes that wait for their lane.
    pub(crate) pending: Vec<u8>,
    /// Plain bytes that the other end takes beyond `pending`.
    pub(crate) credit_bytes: u64,
    /// The application has finished; the end frame follows the pending bytes.
    pub(crate) ending: bool,
    /// End, reset or refusal has been said.
    pub(crate) is_over: bool,
    /// Whether the flow stands in its lane's queue.
    pub(crate) queued: bool,
    /// Whether a writer was told to wait and wants to hear when it may go on.
    pub(crate) writer_waits: bool,
    pub(crate) cursor: SourceCursor,
    pub(crate) class: TrafficClass,
    /// Full-entropy bytes in the log that nothing has referred to yet.
    pub(crate) unproven: Option<LogRange>,
    pub(crate) unproven_bytes: u64,
    pub(crate) counters: LayerCounters,
}

/// A direction on its way from a lane that loss holds up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) to: LaneId,
    /// How many blocks of the old lane will be acknowledged when the other end has read of
    /// the move; `None` until it was said.
    pub(crate) said_at: Option<u64>,
}

/// What this end receives on a flow.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    /// The lane that this direction's blocks come on.
    pub(crate) lane: LaneId,
    /// The lane that they came on before.
    pub(crate) left_lane: Option<LaneId>,
    /// Plain bytes that the application has not taken.
    pub(crate) ready: Vec<u8>,
    pub(crate) credit: ReceiveCredit,
    /// End, reset or refusal has come.
    pub(crate) is_over: bool,
    /// The other end lost the flow; what it sent before may still come on `lane`.
    pub(crate) is_lost: bool,
    /// The application has heard of the end.
    pub(crate) end_taken: bool,
    pub(crate) cursor: SourceCursor,
    pub(crate) counters: LayerCounters,
}

impl Flow {
    /// Nothing of it is on its way in either direction, and its application knows.
    pub(crate) fn is_gone(&self) -> bool {
        let heard = self.abandoned || self.receive.end_taken;
        let moving = self.send.moving.is_some();
        self.send.is_over && self.receive.is_over && heard && !moving
    }

    /// Plain bytes that a writer may hand over now.
    pub(crate) fn writable_bytes(&self) -> usize {
        if self.abandoned || self.send.ending || self.send.is_over {
            return 0;
        }
        let credit = usize::try_from(self.send.credit_bytes).unwrap_or(usize::MAX);
        credit.min(PENDING_BYTES_MAX.saturating_sub(self.send.pending.len()))
    }

    /// Whether the lane has something to send for it.
    pub(crate) fn wants_lane(&self) -> bool {
        let has_something = !self.send.pending.is_empty() || self.send.ending;
        match self.send.moving {
            Some(moving) => moving.said_at.is_none(),
            None => has_something && !self.send.is_over,
        }
    }

    /// Whether anything of it depends on `lane`.
    pub(crate) fn travels_on(&self, lane: LaneId) -> bool {
        let moves_there = self.send.moving.is_some_and(|moving| moving.to == lane);
        self.send.lane == lane || self.receive.lane == lane || moves_there
    }

    pub(crate) fn next_block_bytes(&self) -> usize {
        self.send.pending.len().min(BLOCK_BYTES_MAX)
    }
}
