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
mod offers;

use refrain_codec::token::{push_varint, take_varint, unzigzag, zigzag};

pub use block::{BlockFrame, Stream};
pub use offers::{ConfirmFrame, Offer, OfferFrame, OfferList};

use crate::{
    codes::frame::*,
    limits::{
        FRAME_BYTES_MAX, LANES_EVER_MAX, LANES_MAX, PADDING_BYTES_MAX, REASON_BYTES_MAX,
        TARGET_BYTES_MAX,
    },
    terms::RunDigest,
};

/// Number of a flow: even ones are opened by the end that dials lanes, odd ones by the
/// other; each end counts up and never uses one twice in a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// Number of a lane, never used twice in a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Loss held up what came on this lane.
    Stalled,
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
    #[error("a frame of unknown type {0}")]
    UnknownType(u8),
    /// A length beyond the limits.
    #[error("a frame of {0} bytes, more than this version sends")]
    TooLong(u64),
    /// A body that is cut short, too long, or holds a value out of its bounds.
    #[error("a malformed frame of type {0}")]
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

    fn write_body(&self, body: &mut Vec<u8>) -> u8 {
        match *self {
            Self::Open {
                flow,
                credit_bytes,
                excluded,
                target,
            } => {
                push_varint(body, flow.0);
                push_varint(body, credit_bytes);
                body.push(u8::from(excluded));
                body.extend(target.as_bytes());
                OPEN
            }
            Self::Accept {
                flow,
                credit_bytes,
                excluded,
            } => {
                push_varint(body, flow.0);
                push_varint(body, credit_bytes);
                body.push(u8::from(excluded));
                ACCEPT
            }
            Self::Refuse { flow, code, text } => {
                push_varint(body, flow.0);
                body.push(code);
                body.extend(text.as_bytes());
                REFUSE
            }
            Self::Block(_) => unreachable!("blocks are written in one piece"),
            Self::End {
                flow,
                plain_bytes,
                check,
                lanes,
            } => {
                push_varint(body, flow.0);
                push_varint(body, plain_bytes);
                body.extend(check.to_le_bytes());
                body.extend(lanes.0);
                END
            }
            Self::Reset { flow, code } => {
                push_varint(body, flow.0);
                body.push(code);
                RESET
            }
            Self::Credit { flow, bytes } => {
                push_varint(body, flow.0);
                push_varint(body, bytes);
                CREDIT
            }
            Self::Ack { blocks } => {
                push_varint(body, blocks);
                ACK
            }
            Self::LaneClosed {
                lane,
                blocks,
                answered,
            } => {
                push_varint(body, u64::from(lane.0));
                push_varint(body, blocks);
                body.push(u8::from(answered));
                LANE_CLOSED
            }
            Self::Ping {
                nonce,
                answer_bytes,
                padding,
            } => {
                push_varint(body, nonce);
                push_varint(body, answer_bytes as u64);
                body.extend(padding);
                PING
            }
            Self::Pong { nonce, padding } => {
                push_varint(body, nonce);
                body.extend(padding);
                PONG
            }
            Self::Drain => DRAIN,
            Self::Stalled => STALLED,
            Self::Offer(ref frame) => {
                push_varint(body, frame.flow.0);
                push_varint(body, frame.withdrawn_below);
                push_option(body, frame.start);
                body.extend(frame.offers.0);
                OFFER
            }
            Self::Confirm(ref frame) => {
                push_varint(body, frame.flow.0);
                push_varint(body, frame.first);
                push_varint(body, frame.count);
                push_varint(body, frame.len);
                push_option(body, frame.offset);
                body.extend(frame.digest.0);
                CONFIRM
            }
            Self::Withdrawn {
                flow,
                below,
                offset,
            } => {
                push_varint(body, flow.0);
                push_varint(body, below);
                push_varint(body, offset);
                WITHDRAWN
            }
            Self::Dispersion { flow, level } => {
                push_varint(body, flow.0);
                body.push(level);
                DISPERSION
            }
            Self::Driven { flow, by_sender } => {
                push_varint(body, flow.0);
                body.push(u8::from(by_sender));
                DRIVEN
            }
            Self::Moved { flow, by } => {
                push_varint(body, flow.0);
                push_varint(body, zigzag(by));
                MOVED
            }
            Self::Abort { text } => {
                body.extend(text.as_bytes());
                ABORT
            }
        }
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

    fn read_body(kind: u8, mut body: &'a [u8]) -> Option<Self> {
        let body = &mut body;
        let frame = match kind {
            OPEN => Self::Open {
                flow: flow(body)?,
                credit_bytes: take_varint(body)?,
                excluded: boolean(body)?,
                target: text(body, TARGET_BYTES_MAX)?,
            },
            ACCEPT => Self::Accept {
                flow: flow(body)?,
                credit_bytes: take_varint(body)?,
                excluded: boolean(body)?,
            },
            REFUSE => Self::Refuse {
                flow: flow(body)?,
                code: byte(body)?,
                text: text(body, REASON_BYTES_MAX)?,
            },
            BLOCK => Self::Block(BlockFrame::read_body(body)?),
            END => Self::End {
                flow: flow(body)?,
                plain_bytes: take_varint(body)?,
                check: u64_le(body)?,
                lanes: LaneList::read(body)?,
            },
            RESET => Self::Reset {
                flow: flow(body)?,
                code: byte(body)?,
            },
            CREDIT => Self::Credit {
                flow: flow(body)?,
                bytes: take_varint(body)?,
            },
            ACK => Self::Ack {
                blocks: take_varint(body)?,
            },
            LANE_CLOSED => Self::LaneClosed {
                lane: lane(body)?,
                blocks: take_varint(body)?,
                answered: boolean(body)?,
            },
            PING => Self::Ping {
                nonce: take_varint(body)?,
                answer_bytes: usize::try_from(take_varint(body)?)
                    .ok()
                    .filter(|&bytes| bytes <= PADDING_BYTES_MAX)?,
                padding: padding(body)?,
            },
            PONG => Self::Pong {
                nonce: take_varint(body)?,
                padding: padding(body)?,
            },
            DRAIN => Self::Drain,
            STALLED => Self::Stalled,
            ABORT => Self::Abort {
                text: text(body, REASON_BYTES_MAX)?,
            },
            OFFER => Self::Offer(OfferFrame {
                flow: flow(body)?,
                withdrawn_below: take_varint(body)?,
                start: option(body)?,
                offers: OfferList::read(body)?,
            }),
            CONFIRM => Self::Confirm(ConfirmFrame {
                flow: flow(body)?,
                first: take_varint(body)?,
                count: take_varint(body).filter(|&count| count > 0)?,
                len: take_varint(body).filter(|&len| len > 0)?,
                offset: option(body)?,
                digest: RunDigest(array(body)?),
            }),
            WITHDRAWN => Self::Withdrawn {
                flow: flow(body)?,
                below: take_varint(body)?,
                offset: take_varint(body)?,
            },
            DISPERSION => Self::Dispersion {
                flow: flow(body)?,
                level: byte(body)?,
            },
            DRIVEN => Self::Driven {
                flow: flow(body)?,
                by_sender: boolean(body)?,
            },
            MOVED => Self::Moved {
                flow: flow(body)?,
                by: unzigzag(take_varint(body)?),
            },
            _ => return None,
        };
        body.is_empty().then_some(frame)
    }
}

impl<'a> LaneList<'a> {
    /// The list of `lanes`, written to `bytes`.
    pub fn write(lanes: impl Iterator<Item = LaneId>, bytes: &'a mut Vec<u8>) -> Self {
        lanes.for_each(|lane| push_varint(bytes, u64::from(lane.0)));
        Self(bytes)
    }

    /// The lanes.
    pub fn iter(&self) -> impl Iterator<Item = LaneId> + 'a {
        let mut rest = self.0;
        core::iter::from_fn(move || lane(&mut rest))
    }

    fn read(body: &mut &'a [u8]) -> Option<Self> {
        let list = Self(core::mem::take(body));
        let mut rest = list.0;
        for _ in 0..LANES_MAX {
            if rest.is_empty() {
                break;
            }
            lane(&mut rest)?;
        }
        rest.is_empty().then_some(list)
    }
}

/// 0 stands for nothing, n + 1 for n.
fn push_option(body: &mut Vec<u8>, value: Option<u64>) {
    push_varint(body, value.map_or(0, |value| value + 1));
}

fn option(body: &mut &[u8]) -> Option<Option<u64>> {
    take_varint(body).map(|value| value.checked_sub(1))
}

fn array<const N: usize>(body: &mut &[u8]) -> Option<[u8; N]> {
    let (&bytes, rest) = body.split_first_chunk::<N>()?;
    *body = rest;
    Some(bytes)
}

fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn flow(body: &mut &[u8]) -> Option<FlowId> {
    take_varint(body).map(FlowId)
}

fn lane(body: &mut &[u8]) -> Option<LaneId> {
    let number = u32::try_from(take_varint(body)?).ok()?;
    (number < LANES_EVER_MAX).then_some(LaneId(number))
}

fn byte(body: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = body.split_first()?;
    *body = rest;
    Some(byte)
}

fn u64_le(body: &mut &[u8]) -> Option<u64> {
    array(body).map(u64::from_le_bytes)
}

fn boolean(body: &mut &[u8]) -> Option<bool> {
    match byte(body)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn padding<'a>(body: &mut &'a [u8]) -> Option<&'a [u8]> {
    let padding = core::mem::take(body);
    (padding.len() <= PADDING_BYTES_MAX).then_some(padding)
}

fn text<'a>(body: &mut &'a [u8], bytes_max: usize) -> Option<&'a str> {
    let text = core::str::from_utf8(body).ok()?;
    *body = &[];
    (text.len() <= bytes_max).then_some(text)
}

#[cfg(test)]
mod tests;
