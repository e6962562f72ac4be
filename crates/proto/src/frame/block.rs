//! The frame of a block.

use refrain_codec::token::zigzag;

use super::{
    FlowId,
    field::{Field, Fixed},
    varint_bytes,
};
use crate::{
    codes::{block::*, frame::BLOCK},
    limits::BLOCK_BYTES_MAX,
};

/// The frame of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFrame<'a> {
    /// The flow.
    pub flow: FlowId,
    /// Plain bytes.
    pub len: usize,
    /// Plain bytes of the flow's direction before it; `None` where the block begins at the end
    /// of the flow's last one on this lane, or with the direction.
    pub offset: Option<u64>,
    /// Where the block lies in the log, as a step from the end of the lane's last logged
    /// block; `None` for a block that is bypassed.
    pub position_step: Option<i64>,
    /// Whether its bytes are secret, so that the receiver keeps no copy of them. Never so of a logged block.
    pub is_secret: bool,
    /// XXH3-64 of the plain bytes, seeded with the block's number on its lane, its flow and
    /// its offset.
    pub check: u64,
    /// The token stream.
    pub tokens: Stream<'a>,
    /// The literals.
    pub literals: Stream<'a>,
}

/// One of a block's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream<'a> {
    /// Whether `bytes` continue the lane's zstd stream, or are what they are.
    pub compressed: bool,
    /// As on the wire.
    pub bytes: &'a [u8],
}

impl<'a> BlockFrame<'a> {
    /// Appends the frame to `out`, type and length included.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut header = Vec::with_capacity(40);
        self.flow.put(&mut header);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        header.push(
            flag(self.position_step.is_some(), LOGGED)
                | flag(self.tokens.compressed, TOKENS_COMPRESSED)
                | flag(self.literals.compressed, LITERALS_COMPRESSED)
                | flag(self.offset.is_some(), HAS_OFFSET)
                | flag(self.is_secret, SECRET),
        );
        self.len.put(&mut header);
        if let Some(offset) = self.offset {
            offset.put(&mut header);
        }
        if let Some(step) = self.position_step {
            step.put(&mut header);
        }
        Fixed(self.check).put(&mut header);
        self.tokens.bytes.len().put(&mut header);

        out.push(BLOCK);
        let length = header.len() + self.tokens.bytes.len() + self.literals.bytes.len();
        length.put(out);
        out.extend(header);
        out.extend(self.tokens.bytes);
        out.extend(self.literals.bytes);
    }

    /// Bytes of the frame on the wire, type and length included.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        let position = self
            .position_step
            .map_or(0, |step| varint_bytes(zigzag(step)));
        let header = varint_bytes(self.flow.0)
            + 1
            + varint_bytes(self.len as u64)
            + self.offset.map_or(0, varint_bytes)
            + position
            + 8
            + varint_bytes(self.tokens.bytes.len() as u64);
        let body = header + self.tokens.bytes.len() + self.literals.bytes.len();
        1 + varint_bytes(body as u64) + body
    }

    pub(super) fn read_body(body: &mut &'a [u8]) -> Option<Self> {
        let flow = Field::take(body)?;
        let is_known =
            |flags: u8| flags & !FLAGS == 0 && flags & (LOGGED | SECRET) != LOGGED | SECRET;
        let flags = u8::take(body).filter(|flags| is_known(*flags))?;
        let len = usize::take(body).filter(|len| (1..=BLOCK_BYTES_MAX).contains(len))?;
        let offset = match flags & HAS_OFFSET {
            0 => None,
            _ => Some(Field::take(body)?),
        };
        let position_step = match flags & LOGGED {
            0 => None,
            _ => Some(Field::take(body)?),
        };
        let Fixed(check) = Field::take(body)?;
        let token_bytes = usize::take(body)?;
        let (tokens, literals) = body.split_at_checked(token_bytes)?;
        *body = &[];
        Some(Self {
            flow,
            len,
            offset,
            position_step,
            is_secret: flags & SECRET != 0,
            check,
            tokens: Stream {
                compressed: flags & TOKENS_COMPRESSED != 0,
                bytes: tokens,
            },
            literals: Stream {
                compressed: flags & LITERALS_COMPRESSED != 0,
                bytes: literals,
            },
        })
    }
}
