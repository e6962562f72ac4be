//! Chunks of an archive that a cache keeps: what is there need not be read of the archive, whichever archive it
//! came from.
//!
//! Of an archive that is encrypted the cache has frames as they are stored, and nothing plain.

use std::{collections::BTreeMap, sync::Arc};

use super::{Archive, ReadError, Source, table::Chunk};
use crate::{
    cache::Cache,
    format::{ChunkName, Stream, header::Profile},
};

/// Of a stream with more chunks it is not known which share a frame.
const CHUNKS_LISTED_MAX: u64 = 1 << 22;

/// Chunks that are brought at once have about so many bytes.
const BROUGHT_BYTES_MAX: u64 = 8 << 20;

/// Chunks by their frames.
pub(super) type ChunksByFrame = Vec<(u32, u32)>;

impl<S: Source> Archive<S> {
    /// Takes out of `cache` whatever that has, and keeps there what is read.
    #[must_use]
    pub fn with_cache(mut self, cache: Arc<Cache>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Memory for the chunks that share frames, once they are looked for in the content.
    pub(crate) fn listed_bytes(&self) -> u64 {
        let chunks = self.root.stream(Stream::Content).lengths.items();
        match self.header.profile {
            Profile::Small if chunks <= CHUNKS_LISTED_MAX => chunks * 8,
            _ => 0,
        }
    }

    /// The plain bytes of chunks of the content, by their numbers: of the first, and of as many
    /// that follow as are brought at once. And how many of them were kept.
    ///
    /// # Errors
    /// If the archive is damaged, or a chunk that is not kept cannot be read.
    pub(crate) fn chunks(
        &self,
        stream: Stream,
        numbers: &[u64],
    ) -> Result<(Vec<Vec<u8>>, u64), ReadError> {
        let mut chunks: Vec<Option<Vec<u8>>> = Vec::new();
        let mut missing: BTreeMap<u64, Vec<(usize, Chunk)>> = BTreeMap::new();
        let mut total = 0;
        for &number in numbers {
            let chunk = self.chunk(stream, number)?;
            total += u64::from(chunk.bytes);
            if total > BROUGHT_BYTES_MAX && !chunks.is_empty() {
                break;
            }
            let kept = self.kept(&chunk);
            if kept.is_none() {
                let of_frame = missing.entry(chunk.frame).or_default();
                of_frame.push((chunks.len(), chunk));
            }
            chunks.push(kept);
        }
        let kept = chunks.iter().flatten().count() as u64;
        self.frames_together(stream, missing.keys().copied(), &mut |frame, plain| {
            for (index, chunk) in missing.get(&frame).into_iter().flatten() {
                let bytes = chunk.of(plain).filter(|is| ChunkName::of(is) == chunk.name);
                let bytes = bytes.ok_or_else(|| ReadError::damaged_frame(stream, frame))?;
                chunks[*index] = Some(bytes.to_vec());
                // Where it is not known which chunks are in a frame, those that are wanted are.
                if let Some(cache) = self.plain_cache() {
                    cache.add(chunk.name, bytes);
                }
            }
            Ok(())
        })?;
        if let Some(cache) = self.plain_cache() {
            cache.flush();
        }
        Ok((chunks.into_iter().flatten().collect(), kept))
    }

    /// Whether chunks of it are taken from a cache and kept there.
    pub(crate) fn has_plain_cache(&self) -> bool {
        self.plain_cache().is_some()
    }

    /// The cache of what is plain.
    fn plain_cache(&self) -> Option<&Cache> {
        let is_plain = self.header.encryption.is_none();
        self.cache.as_deref().filter(|_| is_plain)
    }

    /// The cache of what is sealed.
    pub(super) fn sealed_cache(&self) -> Option<&Cache> {
        let is_sealed = self.header.encryption.is_some();
        self.cache.as_deref().filter(|_| is_sealed)
    }

    /// The bytes of a chunk, if they are kept.
    pub(super) fn kept_chunk(&self, stream: Stream, number: u64) -> Option<Vec<u8>> {
        self.plain_cache()?;
        self.kept(&self.chunk(stream, number).ok()?)
    }

    fn kept(&self, chunk: &Chunk) -> Option<Vec<u8>> {
        let kept = self.plain_cache()?.find(chunk.name);
        kept.filter(|kept| kept.len() == chunk.bytes as usize)
    }

    /// The plain bytes of a frame that consists of chunks that are kept.
    pub(super) fn rebuilt(&self, stream: Stream, frame: u64) -> Option<Vec<u8>> {
        let cache = self.plain_cache()?;
        let chunks = self.chunks_of(stream, frame)?;
        let is_there = |chunk: &Chunk| cache.chunk_bytes(chunk.name) == Some(chunk.bytes);
        if chunks.is_empty() || !chunks.iter().all(is_there) {
            return None;
        }
        let mut plain = Vec::new();
        for chunk in chunks {
            if chunk.offset as usize != plain.len() {
                return None;
            }
            plain.extend(self.kept(&chunk)?);
        }
        Some(plain)
    }

    /// Keeps the chunks of a plain frame that are what their names say. Whether all are, as far as it is
    /// known which there are.
    pub(super) fn keep_chunks(&self, (stream, frame): (Stream, u64), plain: &[u8]) -> bool {
        let Some(cache) = self.plain_cache() else {
            return true;
        };
        let mut are_right = true;
        for chunk in self.chunks_of(stream, frame).unwrap_or_default() {
            match chunk.of(plain).filter(|is| ChunkName::of(is) == chunk.name) {
                Some(bytes) => cache.add(chunk.name, bytes),
                None => are_right = false,
            }
        }
        cache.flush();
        are_right
    }

    /// The chunks of a frame, by where they begin in it; none if that is not known.
    fn chunks_of(&self, stream: Stream, frame: u64) -> Option<Vec<Chunk>> {
        let chunk = |number: u64| self.chunk(stream, number).ok();
        if self.header.profile == Profile::Shared {
            return Some(vec![chunk(frame)?]);
        }
        let by_frame = self.by_frame[stream.index()].get_or_init(|| self.list_by_frame(stream));
        let first = by_frame.partition_point(|&(of, _)| u64::from(of) < frame);
        let numbers = by_frame[first..].iter();
        let numbers = numbers.take_while(|&&(of, _)| u64::from(of) == frame);
        let chunks = numbers.map(|&(_, number)| chunk(number.into()));
        let mut chunks = chunks.collect::<Option<Vec<_>>>()?;
        chunks.sort_unstable_by_key(|chunk| (chunk.offset, chunk.bytes));
        Some(chunks)
    }

    /// All chunks of a stream by their frames; none if they are too many, or the table is damaged.
    fn list_by_frame(&self, stream: Stream) -> ChunksByFrame {
        let lengths = &self.root.stream(stream).lengths;
        let mut by_frame = Vec::new();
        if lengths.items() > CHUNKS_LISTED_MAX {
            return by_frame;
        }
        for (row, length_row) in lengths.rows().iter().enumerate() {
            let Ok(places) = self.chunk_places(stream, row) else {
                return Vec::new();
            };
            for (number, (_, place)) in (length_row.before[0]..).zip(places) {
                let frame = u32::try_from(place.frame);
                by_frame.extend(frame.map(|frame| (frame, number as u32)));
            }
        }
        by_frame.sort_unstable();
        by_frame
    }
}

#[cfg(test)]
mod tests;
