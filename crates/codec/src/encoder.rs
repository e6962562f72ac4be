//! The sending end of a mirrored cache: blocks in, tokens and literals out.

use alloc::vec::Vec;

use crate::{
    LogPosition, Prefault,
    cache::{
        chunk_table::ChunkTable,
        fingerprint_table::FingerprintTable,
        seen_windows::{MissedRepeats, SeenWindows},
    },
    chunk::hash::ChunkHasher,
    geometry::CacheGeometry,
    marker::{MarkerFinder, SamplingPeriod},
    matching::{
        BlockPlace, BlockWriter, MatchingAlgorithm, Reach, chunk_match::ChunkMatch,
        max_match::MaxMatch,
    },
    simd::{Backend, xxh3::xxh3},
    token::{SourceCursor, TokenWriter},
};

/// What an [`Encoder`] is made of.
#[derive(Clone, Debug)]
pub struct EncoderConfig {
    /// Size of the cache and of its guard window, the same at both ends.
    pub geometry: CacheGeometry,
    /// How repeats are found.
    pub matching: MatchingAlgorithm,
    /// How positions are selected; its period also sizes the tables.
    pub markers: MarkerFinder,
    /// The digest of Chunk-Match.
    pub chunk_hasher: ChunkHasher,
    /// The kernels to use, those of `markers` among them.
    pub backend: Backend,
}

/// Encodes blocks against the cache that the other end's [`Decoder`](crate::Decoder)
/// mirrors.
///
/// ```
/// use refrain_codec::{Block, Decoder, Encoder, EncoderConfig, EncodedBlock, SourceCursor};
/// use refrain_codec::{geometry::CacheGeometry, matching::Everything};
///
/// let geometry = CacheGeometry::new(1 << 20).expect("a valid size");
/// let mut encoder = Encoder::new(EncoderConfig::with_defaults(geometry));
/// let mut decoder = Decoder::new(geometry);
/// let (mut near, mut far) = (SourceCursor::default(), SourceCursor::default());
///
/// let page = b"the verse that comes back, and to refrain is to hold back. ".repeat(20);
/// let mut encoded = EncodedBlock::default();
/// let mut plain = Vec::new();
/// for number in 0..2 {
///     let at = encoder.encode(number, &page, &Everything, &mut near, &mut encoded);
///     let block = Block {
///         number,
///         at,
///         len: page.len(),
///         tokens: &encoded.tokens,
///         literals: &encoded.literals,
///         check: encoded.check,
///     };
///     plain.clear();
///     decoder.decode(block, &mut far, &mut plain).expect("what an encoder wrote");
///     assert_eq!(plain, page);
/// }
/// assert!(encoded.literals.len() + encoded.tokens.len() < page.len() / 20);
/// ```
#[derive(Debug)]
pub struct Encoder {
    geometry: CacheGeometry,
    markers: MarkerFinder,
    /// Of the present block; kept for their memory.
    found: Vec<u32>,
    matcher: Matcher,
    head: LogPosition,
    backend: Backend,
}

#[derive(Debug)]
enum Matcher {
    Max(MaxMatch),
    Chunk(ChunkMatch),
}

/// One block as an encoder wrote it; its buffers are used again for the next.
#[derive(Clone, Debug, Default)]
pub struct EncodedBlock {
    /// The token stream.
    pub tokens: Vec<u8>,
    /// The bytes that no region covers.
    pub literals: Vec<u8>,
    /// [`check`](crate::check) of the plain bytes.
    pub check: u64,
    /// Plain bytes that regions cover.
    pub region_bytes: usize,
    /// Where the longest region's bytes lie; `None` without regions.
    pub longest_source: Option<LogPosition>,
    /// Where the oldest bytes of any region lie; `None` without regions.
    pub oldest_source: Option<LogPosition>,
}

impl EncoderConfig {
    /// Max-Match on SAMPLEBYTE markers, p = 32, w = 32.
    #[must_use]
    pub fn with_defaults(geometry: CacheGeometry) -> Self {
        Self {
            geometry,
            matching: MatchingAlgorithm::default(),
            markers: MarkerFinder::default(),
            chunk_hasher: ChunkHasher::default(),
            backend: Backend::best(),
        }
    }

    /// The memory that an encoder so configured holds at most, in bytes.
    #[must_use]
    pub fn memory_bytes_max(&self) -> usize {
        let cache_bytes = self.geometry.cache_bytes();
        let period = self.markers.period();
        match self.matching {
            MatchingAlgorithm::MaxMatch => {
                cache_bytes
                    + FingerprintTable::bytes_for(cache_bytes, period)
                    + SeenWindows::bytes_for(cache_bytes)
            }
            MatchingAlgorithm::ChunkMatch => ChunkTable::bytes_for(cache_bytes, period),
        }
    }
}

impl Encoder {
    /// An encoder with an empty cache.
    #[must_use]
    pub fn new(config: EncoderConfig) -> Self {
        let EncoderConfig {
            geometry,
            matching,
            markers,
            chunk_hasher,
            backend,
        } = config;
        let (cache_bytes, period) = (geometry.cache_bytes(), markers.period());
        let matcher = match matching {
            MatchingAlgorithm::MaxMatch => {
                let window = markers.window();
                Matcher::Max(MaxMatch::new(cache_bytes, period, window, backend))
            }
            MatchingAlgorithm::ChunkMatch => {
                Matcher::Chunk(ChunkMatch::new(cache_bytes, period, chunk_hasher, backend))
            }
        };
        Self {
            geometry,
            markers: markers.with_backend(backend),
            found: Vec::new(),
            matcher,
            head: LogPosition(0),
            backend,
        }
    }

    /// The position that the next block will take.
    #[must_use]
    pub fn head(&self) -> LogPosition {
        self.head
    }

    /// Memory that the cache and its table hold now, in bytes.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        match &self.matcher {
            Matcher::Max(matcher) => matcher.allocated_bytes(),
            Matcher::Chunk(matcher) => matcher.allocated_bytes(),
        }
    }

    /// Whether there is memory to prefault.
    #[must_use]
    pub fn wants_prefault(&self) -> bool {
        match &self.matcher {
            Matcher::Max(matcher) => matcher.wants_prefault(),
            // It keeps no bytes.
            Matcher::Chunk(_) => false,
        }
    }

    /// A piece of the memory that the cache will need next. Beyond what it has filled it never has more than was written,
    /// nor more than 64 MiB.
    pub fn prefault(&mut self) -> Option<Prefault> {
        match &mut self.matcher {
            Matcher::Max(matcher) => matcher.prefault(),
            Matcher::Chunk(_) => None,
        }
    }

    /// Samples blocks from now on with `period`; what was remembered stays.
    pub fn set_period(&mut self, period: SamplingPeriod) {
        self.markers.set_period(period);
    }

    /// Repeats that a larger cache would have found since the last call: in encoded blocks, and in those of which
    /// [`repeats`](Self::repeats) said that they repeat nothing. Chunk-Match does not count them.
    pub fn take_missed(&mut self) -> MissedRepeats {
        match &mut self.matcher {
            Matcher::Max(matcher) => matcher.take_missed(),
            Matcher::Chunk(_) => MissedRepeats::default(),
        }
    }

    /// Whether `block` repeats something that it may refer to, if it is encoded next: whether it
    /// is worth its place in the log. Changes nothing of the log.
    pub fn repeats(&mut self, block: &[u8], reach: &impl Reach) -> bool {
        let end = self.head + block.len() as u64;
        let place = BlockPlace {
            at: self.head,
            oldest: self.geometry.oldest_for(end),
        };
        self.markers.find(block, &mut self.found);
        match &mut self.matcher {
            Matcher::Max(matcher) => matcher.repeats(block, place, reach, &self.found),
            Matcher::Chunk(matcher) => matcher.repeats(block, place, reach, &self.found),
        }
    }

    /// Takes the next log positions for `block` and encodes it into `out`, whose former
    /// content is dropped; returns the block's first position.
    ///
    /// `number` counts the blocks of an ordered stream (a lane) and goes into the check;
    /// `reach` says what may be referred to, `cursor` belongs to the block's flow.
    ///
    /// # Panics
    /// If `block` is longer than the guard window.
    pub fn encode(
        &mut self,
        number: u64,
        block: &[u8],
        reach: &impl Reach,
        cursor: &mut SourceCursor,
        out: &mut EncodedBlock,
    ) -> LogPosition {
        assert!(
            block.len() <= self.geometry.window_bytes(),
            "a block longer than the window"
        );
        let at = self.head;
        self.head = at + block.len() as u64;
        let place = BlockPlace {
            at,
            oldest: self.geometry.oldest_for(self.head),
        };

        out.tokens.clear();
        out.literals.clear();
        let tokens = TokenWriter::new(&mut out.tokens, cursor, at);
        let mut writer = BlockWriter::new(block, tokens, &mut out.literals);
        self.markers.find(block, &mut self.found);
        match &mut self.matcher {
            Matcher::Max(matcher) => matcher.encode(block, place, reach, &self.found, &mut writer),
            Matcher::Chunk(matcher) => {
                matcher.encode(block, place, reach, &self.found, &mut writer);
            }
        }
        let regions = writer.finish();
        out.region_bytes = regions.bytes;
        out.longest_source = regions.longest_source;
        out.oldest_source = regions.oldest_source;
        out.check = xxh3(self.backend, number, block);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{matching::Everything, token::TokenReader};
    use proptest::prelude::*;

    fn noise(len: usize, mut state: u64) -> Vec<u8> {
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
            (state >> 56) as u8
        };
        core::iter::repeat_with(next).take(len).collect()
    }

    #[test]
    fn what_repeats_is_known_before_it_is_encoded() {
        for matching in [MatchingAlgorithm::MaxMatch, MatchingAlgorithm::ChunkMatch] {
            let geometry = CacheGeometry::new(1 << 20).expect("a valid size");
            let mut encoder = Encoder::new(EncoderConfig {
                matching,
                ..EncoderConfig::with_defaults(geometry)
            });
            let (old, new) = (noise(60_000, 1), noise(60_000, 2));
            let twice = [&new[..30_000], &new[..30_000]].concat();
            let encode = |encoder: &mut Encoder, block: &[u8]| {
                let (mut cursor, mut out) = (SourceCursor::default(), EncodedBlock::default());
                encoder.encode(0, block, &Everything, &mut cursor, &mut out);
            };
            // Of truncated hashes some say that a chunk is there which is not.
            let collides = cfg!(refrain_weak_hashes) && matching == MatchingAlgorithm::ChunkMatch;
            assert!(!encoder.repeats(&old, &Everything), "nothing is there");
            encode(&mut encoder, &old);
            for _ in 0..2 {
                assert!(encoder.repeats(&old[1000..], &Everything));
                assert!(!encoder.repeats(&new, &Everything) || collides);
                assert!(
                    !encoder.repeats(&twice, &Everything) || collides,
                    "only in itself"
                );
            }
            assert_eq!(encoder.head(), LogPosition(60_000), "nothing was taken");
            // What has left the cache is not there to be repeated.
            for seed in 3..30 {
                encode(&mut encoder, &noise(60_000, seed));
            }
            assert!(!encoder.repeats(&old, &Everything) || collides);
        }
    }

    #[test]
    #[cfg(not(refrain_weak_hashes))]
    fn what_a_larger_cache_would_have_found_is_estimated() {
        // Not a multiple of the cache: a repeat would lie where its source lay.
        let content = noise((3 << 20) + 54_321, 1);
        for period in [32, 512] {
            let geometry = CacheGeometry::new(1 << 20).expect("a valid size");
            let mut encoder = Encoder::new(EncoderConfig::with_defaults(geometry));
            encoder.set_period(SamplingPeriod::new(period).expect("valid"));
            let (mut cursor, mut out) = (SourceCursor::default(), EncodedBlock::default());
            let mut pass = || {
                for block in content.chunks(64 << 10) {
                    encoder.encode(0, block, &Everything, &mut cursor, &mut out);
                }
                encoder.take_missed()
            };
            assert_eq!(pass().missed(), 0, "it is new");
            let again = pass();
            // The cache has the last part, and nothing of these.
            let (first, half) = content.split_at(1 << 20);
            for block in first
                .chunks(64 << 10)
                .chain(half[..1 << 19].chunks(64 << 10))
            {
                assert!(!encoder.repeats(block, &Everything));
            }
            let outside = encoder.take_missed();
            for (pass, bytes) in [(again, 3_u32 << 20), (outside, 3 << 19)] {
                let expected = bytes / (512 * period) as u32;
                assert!(
                    (expected / 3..expected * 3).contains(&pass.sampled),
                    "{pass:?}"
                );
                assert_eq!(pass.missed(), pass.sampled);
                assert_eq!(pass.sufficient_cache_bytes(), Some(8 << 20));
            }
            // Data in the cache is not missed.
            encoder.encode(0, &content[..64 << 10], &Everything, &mut cursor, &mut out);
            encoder.take_missed();
            encoder.encode(0, &content[..64 << 10], &Everything, &mut cursor, &mut out);
            assert!(out.region_bytes > 60 << 10);
            assert_eq!(encoder.take_missed().missed(), 0);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A sender overwrites nothing from this position on while the block is on its way.
        #[test]
        fn the_oldest_source_is_the_lowest_one_among_the_tokens(
            pieces in proptest::collection::vec((0..50_000_usize, 1..5000_usize, any::<bool>()), 1..30),
        ) {
            let old = noise(55_000, 1);
            for matching in [MatchingAlgorithm::MaxMatch, MatchingAlgorithm::ChunkMatch] {
                let geometry = CacheGeometry::new(1 << 20).expect("a valid size");
                let mut encoder = Encoder::new(EncoderConfig {
                    matching,
                    ..EncoderConfig::with_defaults(geometry)
                });
                let (mut cursor, mut reader_cursor) = (SourceCursor::default(), SourceCursor::default());
                for piece in pieces.chunks(3) {
                    let mut block = Vec::new();
                    for &(start, len, repeats) in piece {
                        match repeats {
                            true => block.extend_from_slice(&old[start..][..len]),
                            false => block.extend_from_slice(&noise(len, start as u64)),
                        }
                    }
                    let (at, mut out) = (encoder.head(), EncodedBlock::default());
                    encoder.encode(0, &block, &Everything, &mut cursor, &mut out);
                    let mut tokens = TokenReader::new(&out.tokens, at);
                    let (mut lowest, mut literals) = (None, 0);
                    while let Some(region) = tokens.next(&mut reader_cursor).expect("well-formed") {
                        literals += region.literals;
                        lowest = Some(lowest.map_or(region.source, |lowest: LogPosition| lowest.min(region.source)));
                    }
                    reader_cursor.skip(out.literals.len() - literals);
                    prop_assert_eq!(out.oldest_source, lowest);
                }
            }
        }
    }
}
