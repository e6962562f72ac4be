//! Tokens: what an encoder says about a block.
//!
//! A block is a sequence of literal runs and *regions* (ranges of bytes that lie in
//! the cache). The literals go to a stream of their own; the token stream holds, for
//! each region, three varints:
//!
//! ```text
//! literals   plain bytes between the region before (or the block's start) and this one
//! length     the region's length minus REGION_BYTES_MIN
//! step       zigzag(source − expected source)
//! ```
//!
//! What follows the last region is literal. The *expected source* is where the bytes
//! after the flow's last region would lie if its source simply went on: a change in the
//! middle of a file costs a one-byte step, whatever other flows wrote in between. It is
//! kept for a flow, from block to block, by a [`SourceCursor`] at either end.
//!
//! Deviation from EndRE, section 5.2.1: the paper sends a fixed `<offset, length>` of
//! four bytes; relative varints are shorter, reach 4 GiB, and compress further.

use alloc::vec::Vec;

use crate::LogPosition;

/// Shortest region that a token can name.
pub const REGION_BYTES_MIN: usize = 8;

/// Longest encoding of a varint of 64 bits.
const VARINT_BYTES_MAX: usize = 10;

/// Where the source of a flow's last region goes on, one at each end of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCursor {
    expected: Option<LogPosition>,
}

impl SourceCursor {
    /// The source that would continue the flow's last region, if it had one.
    #[must_use]
    pub fn expected(&self) -> Option<LogPosition> {
        self.expected
    }

    /// Literals move the expected source as well: after a change, files go on in step.
    pub(crate) fn skip(&mut self, literals: usize) {
        if let Some(expected) = &mut self.expected {
            expected.0 = expected.0.wrapping_add(literals as u64);
        }
    }

    pub(crate) fn set(&mut self, source_end: LogPosition) {
        self.expected = Some(source_end);
    }
}

/// One region as a token names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Literals since the region before, or since the block's start.
    pub literals: usize,
    /// Length in bytes.
    pub len: usize,
    /// Where its bytes lie in the log.
    pub source: LogPosition,
}

/// Writes a block's tokens.
#[derive(Debug)]
pub(crate) struct TokenWriter<'a> {
    tokens: &'a mut Vec<u8>,
    cursor: &'a mut SourceCursor,
    /// Position of the block: what the first region of a flow is counted from.
    block_at: LogPosition,
}

impl<'a> TokenWriter<'a> {
    pub(crate) fn new(
        tokens: &'a mut Vec<u8>,
        cursor: &'a mut SourceCursor,
        block_at: LogPosition,
    ) -> Self {
        Self {
            tokens,
            cursor,
            block_at,
        }
    }

    pub(crate) fn expected(&self) -> Option<LogPosition> {
        self.cursor.expected()
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, region: Region) {
        debug_assert!(region.len >= REGION_BYTES_MIN);
        self.cursor.skip(region.literals);
        let expected = self.cursor.expected().unwrap_or(self.block_at);
        let values = [
            region.literals as u64,
            (region.len - REGION_BYTES_MIN) as u64,
            zigzag(region.source.0.wrapping_sub(expected.0) as i64),
        ];
        if (values[0] | values[1] | values[2]) < 0x80 {
            // What most regions are: close to the last one, and short.
            self.tokens
                .extend_from_slice(&values.map(|value| value as u8));
        } else {
            for value in values {
                push_varint(self.tokens, value);
            }
        }
        self.cursor.set(region.source + region.len as u64);
    }

    /// Ends the block with `literals` bytes after its last region.
    pub(crate) fn finish(self, literals: usize) {
        self.cursor.skip(literals);
    }
}

/// Reads a block's tokens; the mirror of `TokenWriter`.
#[derive(Debug)]
pub struct TokenReader<'a> {
    tokens: &'a [u8],
    block_at: LogPosition,
}

/// A token stream that no encoder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedTokens;

impl<'a> TokenReader<'a> {
    /// The tokens of a block at this position.
    #[must_use]
    pub fn new(tokens: &'a [u8], block_at: LogPosition) -> Self {
        Self { tokens, block_at }
    }

    /// The next region, whose bounds nobody has checked yet; `None` after the last. `cursor` is as the encoder's was before
    /// the block.
    ///
    /// # Errors
    /// If no encoder writes what follows.
    #[inline(always)]
    pub fn next(&mut self, cursor: &mut SourceCursor) -> Result<Option<Region>, MalformedTokens> {
        if self.tokens.is_empty() {
            return Ok(None);
        }
        let (literals, len, step) = match self.tokens.split_first_chunk() {
            // What most regions are: three varints of a byte each.
            Some((&[literals, len, step], rest)) if (literals | len | step) < 0x80 => {
                self.tokens = rest;
                (usize::from(literals), usize::from(len), u64::from(step))
            }
            _ => {
                let (literals, len) = (self.length()?, self.length()?);
                let step = take_varint(&mut self.tokens).ok_or(MalformedTokens)?;
                (literals, len, step)
            }
        };
        let len = len.checked_add(REGION_BYTES_MIN).ok_or(MalformedTokens)?;
        let step = unzigzag(step);
        cursor.skip(literals);
        let expected = cursor.expected().unwrap_or(self.block_at);
        let source = LogPosition(expected.0.wrapping_add(step as u64));
        cursor.set(LogPosition(source.0.wrapping_add(len as u64)));
        Ok(Some(Region {
            literals,
            len,
            source,
        }))
    }

    #[inline(always)]
    fn length(&mut self) -> Result<usize, MalformedTokens> {
        let value = take_varint(&mut self.tokens).ok_or(MalformedTokens)?;
        // No block is longer than 32 bits.
        u32::try_from(value)
            .map(|value| value as usize)
            .map_err(|_| MalformedTokens)
    }
}

/// Appends `value` in 7-bit groups, low ones first (LEB128).
pub fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes one varint off the front of `bytes`; `None` if it is cut short or has more
/// than 64 bits.
#[inline]
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    if let Some((&byte @ ..0x80, rest)) = bytes.split_first() {
        *bytes = rest;
        return Some(byte.into());
    }
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        let group = u64::from(byte & 0x7f);
        if index == VARINT_BYTES_MAX - 1 && group > 1 {
            return None;
        }
        value |= group << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Signed to unsigned such that small magnitudes stay small.
#[must_use]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverse of [`zigzag`].
#[must_use]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_return(value: u64, rest in proptest::collection::vec(any::<u8>(), 0..4)) {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            bytes.extend(&rest);
            let mut reader = &bytes[..];
            prop_assert_eq!(take_varint(&mut reader), Some(value));
            prop_assert_eq!(reader, &rest[..]);
            prop_assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut cursor = SourceCursor::default();
            let mut reader = TokenReader::new(&bytes, LogPosition(1 << 40));
            while let Ok(Some(_)) = reader.next(&mut cursor) {}
        }
    }

    #[test]
    fn a_varint_of_65_bits_is_refused() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(take_varint(&mut bytes), None);
        let mut bytes: &[u8] = &[0x80; 11];
        assert_eq!(take_varint(&mut bytes), None);
    }

    #[test]
    fn continuing_at_the_same_source_costs_a_byte() {
        let mut tokens = Vec::new();
        let mut cursor = SourceCursor::default();
        let mut writer = TokenWriter::new(&mut tokens, &mut cursor, LogPosition(1000));
        writer.push(Region {
            literals: 0,
            len: 100,
            source: LogPosition(10),
        });
        writer.push(Region {
            literals: 5,
            len: 50,
            source: LogPosition(115),
        });
        writer.finish(3);
        assert_eq!(cursor.expected(), Some(LogPosition(168)));
        assert_eq!(tokens.len(), (1 + 1 + 2) + (1 + 1 + 1));
    }
}
