//! Finding in the cache what a block repeats (EndRE, section 5.2).
//!
//! Two ways share one kind of token, so that a decoder need not know which was used:
//! [`max_match`] keeps the plain bytes and grows matches around
//! fingerprints, [`chunk_match`] keeps digests alone and finds
//! chunks that repeat in full.

pub mod chunk_match;
pub mod max_match;

use alloc::vec::Vec;

use crate::{
    LogPosition,
    position::LogRange,
    token::{Region, TokenWriter},
};

/// Which positions before the present block the sender may refer to.
///
/// The codec knows the cache's size and its guard window; what was applied at the other
/// end, lost with a lane, or is still on its way on another lane only the protocol knows.
pub trait Reach {
    /// A range of positions around `at` that may all be referred to, as wide as is
    /// cheap to say; `None` if `at` itself may not.
    fn around(&self, at: LogPosition) -> Option<LogRange>;
}

/// Everything ever written may be referred to: one ordered stream that loses nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Everything;

impl Reach for Everything {
    fn around(&self, _at: LogPosition) -> Option<LogRange> {
        Some(LogPosition(0)..LogPosition(u64::MAX))
    }
}

names! {
    /// How an encoder finds repeats.
    #[derive(Default)]
    pub enum MatchingAlgorithm {
        /// Maximal regions around fingerprints; the sender keeps the plain bytes.
        #[default]
        MaxMatch = "max",
        /// Whole chunks by their digests; the sender keeps no payload.
        ChunkMatch = "chunk",
    }
}

/// The present block's place in the log, as both algorithms need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPlace {
    /// Position of the block's first byte.
    pub(crate) at: LogPosition,
    /// Oldest position that stays unwritten over until the block was applied.
    pub(crate) oldest: LogPosition,
}

impl BlockPlace {
    /// Where a source around `hint` may lie for bytes from `index` of the block on.
    #[inline(always)]
    pub(crate) fn sources(
        &self,
        reach: &impl Reach,
        hint: LogPosition,
        index: usize,
    ) -> Option<LogRange> {
        if hint >= self.at {
            // The part of this very block that is decoded by then.
            let decoded = self.at + index as u64;
            return (hint < decoded).then_some(self.at..decoded);
        }
        if hint < self.oldest {
            return None;
        }
        let around = reach.around(hint)?;
        Some(around.start.max(self.oldest)..around.end.min(self.at))
    }
}

/// A range of the block and where its bytes lie in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) source: LogPosition,
}

impl Match {
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }
}

/// Appends the first `len` bytes of `from` to `out`.
///
/// Most runs are short. Where more can be read and there is room, a fixed number of bytes is
/// copied, which takes a few instructions, and what is too much is taken back.
#[inline(always)]
pub(crate) fn append(out: &mut Vec<u8>, from: &[u8], len: usize) {
    const SHORT_BYTES: usize = 64;
    match from.first_chunk::<SHORT_BYTES>() {
        Some(short) if len <= SHORT_BYTES && out.capacity() - out.len() >= SHORT_BYTES => {
            let end = out.len() + len;
            out.extend_from_slice(short);
            out.truncate(end);
        }
        _ => out.extend_from_slice(&from[..len]),
    }
}

/// Takes a block's matches in order and writes its two streams, tokens and literals.
#[derive(Debug)]
pub(crate) struct BlockWriter<'a> {
    block: &'a [u8],
    tokens: TokenWriter<'a>,
    literals: &'a mut Vec<u8>,
    covered: usize,
    region_bytes: usize,
    longest: Option<Match>,
    oldest_source: Option<LogPosition>,
}

/// What the regions of a block are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Regions {
    /// How many bytes of the block they cover.
    pub(crate) bytes: usize,
    /// Where the bytes of the longest lie.
    pub(crate) longest_source: Option<LogPosition>,
    /// Where the oldest bytes of any lie.
    pub(crate) oldest_source: Option<LogPosition>,
}

impl<'a> BlockWriter<'a> {
    pub(crate) fn new(block: &'a [u8], tokens: TokenWriter<'a>, literals: &'a mut Vec<u8>) -> Self {
        Self {
            block,
            tokens,
            literals,
            covered: 0,
            region_bytes: 0,
            longest: None,
            oldest_source: None,
        }
    }

    /// Index of the first byte after the last match.
    pub(crate) fn covered(&self) -> usize {
        self.covered
    }

    /// Where the flow's last source would go on at [`covered`](Self::covered).
    pub(crate) fn expected(&self) -> Option<LogPosition> {
        self.tokens.expected()
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, match_: Match) {
        let literals = match_.start - self.covered;
        append(self.literals, &self.block[self.covered..], literals);
        self.tokens.push(Region {
            literals,
            len: match_.len(),
            source: match_.source,
        });
        self.covered = match_.end;
        self.region_bytes += match_.len();
        let oldest = self.oldest_source.unwrap_or(match_.source);
        self.oldest_source = Some(oldest.min(match_.source));
        if self
            .longest
            .is_none_or(|longest| longest.len() < match_.len())
        {
            self.longest = Some(match_);
        }
    }

    /// Ends the block; returns what its regions are.
    pub(crate) fn finish(self) -> Regions {
        let run = &self.block[self.covered..];
        self.literals.extend_from_slice(run);
        self.tokens.finish(run.len());
        Regions {
            bytes: self.region_bytes,
            longest_source: self.longest.map(|longest| longest.source),
            oldest_source: self.oldest_source,
        }
    }
}
