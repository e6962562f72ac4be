//! The receiving end of a mirrored cache: a circular log and look-ups, nothing else
//! (EndRE, section 5.2.1).
//!
//! Tokens come from a peer. Every bound is tested before a byte is copied, a block's
//! output never exceeds its announced length, and the block's check is tested before
//! the log takes it or anyone sees it.

use alloc::vec::Vec;

use thiserror::Error;

use crate::{
    LogPosition, Prefault,
    cache::log::Log,
    geometry::CacheGeometry,
    matching::append,
    simd::{Backend, xxh3::xxh3},
    token::{SourceCursor, TokenReader},
};

/// Decodes blocks and mirrors the cache of the [`Encoder`](crate::Encoder) that wrote them.
#[derive(Debug)]
pub struct Decoder {
    geometry: CacheGeometry,
    log: Log,
    backend: Backend,
}

/// One block as it came.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Its number in its ordered stream, as the encoder counted it.
    pub number: u64,
    /// Position of its first byte.
    pub at: LogPosition,
    /// Plain bytes.
    pub len: usize,
    /// The token stream.
    pub tokens: &'a [u8],
    /// The literals.
    pub literals: &'a [u8],
    /// [`check`](crate::check) of the plain bytes.
    pub check: u64,
}

/// Why a block could not be decoded. In each case the log is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The token stream is cut short or no encoder's.
    #[error("malformed tokens")]
    MalformedTokens,
    /// A region lies outside of the cache, or in the part that is not decoded yet.
    #[error("a token refers to position {}, outside of the cache", source.0)]
    SourceOutOfCache {
        /// Where the region was said to lie.
        r#source: LogPosition,
    },
    /// Literals and regions do not add up to the block's length.
    #[error("tokens do not add up to the block's length")]
    WrongLength,
    /// The block is longer than the guard window or its position is beyond use.
    #[error("a block is outside of the guard window")]
    OutOfBounds,
    /// The decoded bytes are not the ones that were encoded: the caches differ.
    #[error("a block's check failed: the caches differ")]
    CheckMismatch,
}

impl Decoder {
    /// A decoder with an empty cache.
    #[must_use]
    pub fn new(geometry: CacheGeometry) -> Self {
        Self::with_backend(geometry, Backend::best())
    }

    /// A decoder with an empty cache, on the kernels of `backend`.
    #[must_use]
    pub fn with_backend(geometry: CacheGeometry, backend: Backend) -> Self {
        Self {
            geometry,
            log: Log::new(geometry.cache_bytes(), backend),
            backend,
        }
    }

    /// Memory that the cache holds now, in bytes.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.log.allocated_bytes()
    }

    /// Whether there is memory to prefault.
    #[must_use]
    pub fn wants_prefault(&self) -> bool {
        self.log.wants_prefault()
    }

    /// A piece of the memory that the cache will need next. Beyond what it has filled it never has more than was written,
    /// nor more than 64 MiB.
    pub fn prefault(&mut self) -> Option<Prefault> {
        self.log.prefault()
    }

    /// Appends the block's plain bytes to `plain` and writes them to the log.
    ///
    /// `cursor` belongs to the block's flow. On an error it is left undefined: the
    /// caches have diverged, and the link starts anew.
    ///
    /// # Errors
    /// See [`DecodeError`]; `plain` is left as it was.
    pub fn decode(
        &mut self,
        block: Block<'_>,
        cursor: &mut SourceCursor,
        plain: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        if block.len > self.geometry.window_bytes() || block.at.0 > u64::MAX / 2 {
            return Err(DecodeError::OutOfBounds);
        }
        let start = plain.len();
        plain.reserve(block.len);
        let decoded = self.backend.run(
            #[inline(always)]
            || self.decode_regions(&block, cursor, plain),
        );
        let decoded = decoded.and_then(|()| {
            let is_whole = xxh3(self.backend, block.number, &plain[start..]) == block.check;
            is_whole.then_some(()).ok_or(DecodeError::CheckMismatch)
        });
        match decoded {
            Ok(()) => self.log.write(block.at, &plain[start..]),
            Err(_) => plain.truncate(start),
        }
        decoded
    }

    #[inline(always)]
    fn decode_regions(
        &self,
        block: &Block<'_>,
        cursor: &mut SourceCursor,
        plain: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let Block {
            at,
            len,
            tokens,
            mut literals,
            ..
        } = *block;
        let start = plain.len();
        let oldest = self.geometry.oldest_for(at + len as u64);
        let mut reader = TokenReader::new(tokens, at);
        while let Some(region) = reader
            .next(cursor)
            .map_err(|_| DecodeError::MalformedTokens)?
        {
            let rest = literals
                .get(region.literals..)
                .ok_or(DecodeError::WrongLength)?;
            let room = len - (plain.len() - start);
            if region.literals > room || region.len > room - region.literals {
                return Err(DecodeError::WrongLength);
            }
            append(plain, literals, region.literals);
            literals = rest;
            let done = plain.len() - start;
            let out_of_cache = DecodeError::SourceOutOfCache {
                source: region.source,
            };
            let source_end = region
                .source
                .0
                .checked_add(region.len as u64)
                .ok_or(out_of_cache)?;
            if region.source < oldest || source_end > at.0 + done as u64 {
                return Err(out_of_cache);
            }
            self.copy(at, start, region.source, region.len, plain)
                .ok_or(out_of_cache)?;
        }
        if literals.len() != len - (plain.len() - start) {
            return Err(DecodeError::WrongLength);
        }
        plain.extend_from_slice(literals);
        cursor.skip(literals.len());
        Ok(())
    }

    /// Appends the `len` bytes at `source`, the first of which may lie in the log and the
    /// last in this block's own decoded part.
    #[inline(always)]
    fn copy(
        &self,
        at: LogPosition,
        start: usize,
        source: LogPosition,
        len: usize,
        plain: &mut Vec<u8>,
    ) -> Option<()> {
        if source >= at {
            let own = start + source.since(at) as usize;
            plain.extend_from_within(own..own + len);
            return Some(());
        }
        let from_log = at.since(source).min(len as u64) as usize;
        let run = self.log.run(source);
        if from_log == len && len <= run.len() {
            append(plain, run, len);
            return Some(());
        }
        let (head, tail) = self.log.pieces(source, from_log)?;
        plain.extend_from_slice(head);
        plain.extend_from_slice(tail);
        plain.extend_from_within(start..start + (len - from_log));
        Some(())
    }
}
