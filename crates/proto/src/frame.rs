//! Frames: what a lane carries after the hello.
//!
//! ```text
//! type     1 byte
//! length   varint, of the body
//! body
//! ```
//!
//! `docs/wire-format.md` has each body byte by byte. Parsing borrows from the lane's
//! buffer and allocates nothing; every length is held against [`limits`](crate::limits)
//! before it is believed.

mod block;
mod field;
mod offers;

use refrain_codec::token::{push_varint, take_varint};

pub use block::{BlockFrame, Stream};
pub use offers::{ConfirmFrame, Offer, OfferFrame, OfferList};

use crate::{
    codes::frame::*,
    limits::{FRAME_BYTES_MAX, PADDING_BYTES_MAX, REASON_BYTES_MAX, TARGET_BYTES_MAX},
};
use field::{Field, Fixed};

/// Number of a flow: even ones are opened by the end that dials lanes, odd ones by the
/// other; each end counts up and never uses one twice in a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// Number of a lane, never used twice in a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// A frame, borrowed from where it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A new flow; its first blocks may follow at once, within the initial credit.
    Open {
        /// The flow.
        flow: FlowId,
        /// Plain bytes that the other end may send on it, beyond the initial credit.
        credit_bytes: u64,
        /// Whether the opener keeps it out of the cache.
        excluded: bool,
        /// Where it shall go, `host:port` as the user named it.
        target: &'a str,
    },
    /// The target was reached.
    Accept {
        /// The flow.
        flow: FlowId,
        /// Further plain bytes that the opener may send on it.
        credit_bytes: u64,
        /// Whether this end keeps it out of the cache; the opener is to do so too.
        excluded: bool,
    },
    /// The target was not reached; the flow is over.
    Refuse {
        /// The flow.
        flow: FlowId,
        /// A number that the gateways agree on.
        code: u8,
        /// The same in words.
        text: &'a str,
    },
    /// Plain bytes of a flow, encoded.
    Block(BlockFrame<'a>),
    /// No more blocks in this direction of the flow (half-close). Said on each lane that has
    /// one of its strands.
    End {
        /// The flow.
        flow: FlowId,
        /// Plain bytes of this direction, on all lanes.
        plain_bytes: u64,
        /// See [`end_check`].
        check: u64,
        /// The lanes of its strands, but for the home lane.
        lanes: LaneList<'a>,
    },
    /// The flow is over, both ways, at once. Said on each lane that has one of its strands.
    Reset {
        /// The flow.
        flow: FlowId,
        /// A number that the gateways agree on.
        code: u8,
    },
    /// Further plain bytes that the other end may send on a flow.
    Credit {
        /// The flow.
        flow: FlowId,
        /// How many.
        bytes: u64,
    },
    /// How many blocks of this lane its receiver has applied, since the lane began.
    Ack {
        /// The count, bypassed blocks included.
        blocks: u64,
    },
    /// A lane is dead; nothing more will be read from it.
    LaneClosed {
        /// The dead lane.
        lane: LaneId,
        /// How many of its blocks the sender of this frame applied in the end.
        blocks: u64,
        /// Whether the sender of this frame knows the other end's final count.
        answered: bool,
    },
    /// Please answer with the same number.
    Ping {
        /// Any number.
        nonce: u64,
        /// Padding that the answer shall have, to measure the way back.
        answer_bytes: usize,
        /// Bytes without meaning, to measure the way there.
        padding: &'a [u8],
    },
    /// The answer to a ping.
    Pong {
        /// The ping's number.
        nonce: u64,
        /// Bytes without meaning.
        padding: &'a [u8],
    },
    /// This end opens and takes no more flows; those that are open go on.
    Drain,
    /// Loss slows down what this end sends on the lane; in version 1, what came on it.
    Stalled,
    /// The near end opens no more flows on this lane; in answer, nothing more of a flow comes from the far end on it.
    Spare,
    /// Chunks that the receiver of a flow has and expects on it.
    Offer(OfferFrame<'a>),
    /// Plain bytes of a flow that the other end offered: it is to take its own.
    Confirm(ConfirmFrame),
    /// Offers of a flow that were withdrawn are forgotten: no confirmation at or behind
    /// `offset` names one of them.
    Withdrawn {
        /// The flow.
        flow: FlowId,
        /// All offers with lower numbers were withdrawn.
        below: u64,
        /// Plain bytes of the flow's direction that were sent until then.
        offset: u64,
    },
    /// How often a flow's chains break, as its receiver sees it (PACK's DISPER).
    Dispersion {
        /// The flow.
        flow: FlowId,
        /// 0: long smooth chains; 255: broken all the time.
        level: u8,
    },
    /// Which end finds what repeats on a flow from now on, as its sender decided.
    Driven {
        /// The flow.
        flow: FlowId,
        /// Whether the sender does: offers are of no use.
        by_sender: bool,
    },
    /// Aligned offers of a flow that were made so far are expected elsewhere: what lies before
    /// them became longer, or shorter.
    Moved {
        /// The flow.
        flow: FlowId,
        /// So many bytes further on.
        by: i64,
    },
    /// The link is over: the ends disagree. Both start anew.
    Abort {
        /// Why, for the other end's log.
        text: &'a str,
    },
}

/// Lanes' numbers, as an end carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneList<'a>(&'a [u8]);

/// Bytes that are no frame of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A type that this version does not know.
    #[error("unknown frame type {0}")]
    UnknownType(u8),
    /// A length beyond the limits.
    #[error("frame too large: {0} bytes, more than this version sends")]
    TooLong(u64),
    /// A body that is cut short, too long, or holds a value out of its bounds.
    #[error("malformed frame of type {0}")]
    Malformed(u8),
}

/// What the end of a direction of `flow` carries: XXH3-64 of its count of plain bytes, as 8
/// bytes, little endian, seeded with the flow's number. So no end is taken for a flow that
/// has not ended there.
#[must_use]
pub fn end_check(flow: FlowId, plain_bytes: u64) -> u64 {
    refrain_codec::check(flow.0, &plain_bytes.to_le_bytes())
}

impl<'a> Frame<'a> {
    /// Appends the frame to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        if let Self::Block(block) = self {
            return block.write(out);
        }
        let mut body = Vec::with_capacity(16);
        let kind = self.write_body(&mut body);
        out.push(kind);
        push_varint(out, body.len() as u64);
        out.extend(body);
    }

    /// Reads the frame at the front of `bytes` and says how many bytes it took; `None`
    /// while it is incomplete.
    ///
    /// # Errors
    /// See [`FrameError`]. Nothing after an error can be read.
    pub fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((&kind, mut rest)) = bytes.split_first() else {
            return Ok(None);
        };
        if !TYPES.contains(&kind) {
            return Err(FrameError::UnknownType(kind));
        }
        let Some(length) = take_varint(&mut rest) else {
            return if rest.len() >= 10 {
                Err(FrameError::Malformed(kind))
            } else {
                Ok(None)
            };
        };
        if length > FRAME_BYTES_MAX as u64 {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = rest.get(..length as usize) else {
            return Ok(None);
        };
        let header = bytes.len() - rest.len();
        let frame = Self::read_body(kind, body).ok_or(FrameError::Malformed(kind))?;
        Ok(Some((frame, header + body.len())))
    }
}

/// Defines the bodies of frames: the type of each, and its fields in the order in which they go over the
/// wire. Fields are [`Field`]s, or wrapped in one (`as`), and may have bounds (`if`).
macro_rules! bodies {
    ($($kind:ident $frame:ident $(($inner:ident))? {
        $($field:ident $(as $wire:ident)? $(if $valid:expr)?),*
    })*) => {
        impl<'a> Frame<'a> {
            fn write_body(&self, body: &mut Vec<u8>) -> u8 {
                match *self {
                    $(shape!($frame [$($inner)?] { $($field),* }) => {
                        $(Field::put($($wire)?($field), body);)*
                        $kind
                    })*
                    Self::Block(_) => unreachable!("blocks are written in one piece"),
                }
            }

            fn read_body(kind: u8, mut body: &'a [u8]) -> Option<Self> {
                let body = &mut body;
                let (frame, is_valid) = match kind {
                    $($kind => {
                        $(
                            let $field = Field::take(body)?;
                            $(let $wire($field) = $field;)?
                        )*
                        let frame = shape!($frame [$($inner)?] { $($field),* });
                        (frame, true $($(&& $valid)?)*)
                    })*
                    BLOCK => (Self::Block(BlockFrame::read_body(body)?), true),
                    _ => return None,
                };
                (is_valid && body.is_empty()).then_some(frame)
            }
        }
    };
}

macro_rules! shape {
    ($frame:ident [] $fields:tt) => { Frame::$frame $fields };
    ($frame:ident [$inner:ident] $fields:tt) => { Frame::$frame($inner $fields) };
}

bodies! {
    OPEN Open { flow, credit_bytes, excluded, target if target.len() <= TARGET_BYTES_MAX }
    ACCEPT Accept { flow, credit_bytes, excluded }
    REFUSE Refuse { flow, code, text if text.len() <= REASON_BYTES_MAX }
    END End { flow, plain_bytes, check as Fixed, lanes }
    RESET Reset { flow, code }
    CREDIT Credit { flow, bytes }
    ACK Ack { blocks }
    LANE_CLOSED LaneClosed { lane, blocks, answered }
    PING Ping {
        nonce,
        answer_bytes if answer_bytes <= PADDING_BYTES_MAX,
        padding if padding.len() <= PADDING_BYTES_MAX
    }
    PONG Pong { nonce, padding if padding.len() <= PADDING_BYTES_MAX }
    DRAIN Drain {}
    STALLED Stalled {}
    ABORT Abort { text if text.len() <= REASON_BYTES_MAX }
    OFFER Offer(OfferFrame) { flow, withdrawn_below, start, offers }
    CONFIRM Confirm(ConfirmFrame) { flow, first, count if count > 0, len if len > 0, offset, digest }
    WITHDRAWN Withdrawn { flow, below, offset }
    DISPERSION Dispersion { flow, level }
    DRIVEN Driven { flow, by_sender }
    MOVED Moved { flow, by }
    SPARE Spare {}
}

impl<'a> LaneList<'a> {
    /// The list of `lanes`, written to `bytes`.
    pub fn write(lanes: impl Iterator<Item = LaneId>, bytes: &'a mut Vec<u8>) -> Self {
        lanes.for_each(|lane| lane.put(bytes));
        Self(bytes)
    }

    /// The lanes.
    pub fn iter(&self) -> impl Iterator<Item = LaneId> + 'a {
        let mut rest = self.0;
        core::iter::from_fn(move || LaneId::take(&mut rest))
    }
}

fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests;
