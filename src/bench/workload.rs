//! What the codec is measured on: plain bytes of which nothing, half or all is redundant, and
//! an encoder and a decoder that have seen them.
//!
//! The bytes are read in a circle that is longer than the cache where they must stay new, and
//! shorter where all of them must be known. `benches/` takes this file in as well, so that
//! both measure the same.

use std::hint::black_box;

use refrain_codec::{
    Block, Decoder, EncodedBlock, Encoder, EncoderConfig, LogPosition, SourceCursor, check,
    geometry::CacheGeometry,
    marker::{MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes},
    matching::{Everything, MatchingAlgorithm},
};

/// What the codec takes at once.
pub const BLOCK_BYTES: usize = 64 << 10;

const CACHE_BYTES: usize = 32 << 20;

/// Of repeated and new bytes by turns, where half is redundant.
const PIECE_BYTES: usize = 1 << 10;
/// Repeated pieces come back after so many bytes.
const REPEAT_BYTES: usize = 4 << 20;

/// A circle for each share of redundancy, the least redundant first.
pub fn circles() -> [(&'static str, Vec<u8>); 3] {
    let new = noise(2 * CACHE_BYTES);
    let half = half_redundant(new.clone());
    let known = new[..CACHE_BYTES / 2].to_vec();
    [("0%", new), ("50%", half), ("100%", known)]
}

/// Bytes of full entropy.
pub fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Noise::new(1).fill(&mut bytes);
    bytes
}

/// A source of bytes of full entropy (xorshift64), the same for the same seed.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        // The state must not be 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next bytes, eight by eight.
    pub fn fill(&mut self, out: &mut [u8]) {
        for word in out.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes());
        }
    }
}

/// Every other piece repeats the one at the same place a while before.
fn half_redundant(mut circle: Vec<u8>) -> Vec<u8> {
    for piece in (REPEAT_BYTES..circle.len()).step_by(2 * PIECE_BYTES) {
        let before = piece - REPEAT_BYTES;
        circle.copy_within(before..before + PIECE_BYTES, piece);
    }
    circle
}

/// Goes round a circle block by block; each time round is a flow of its own.
pub struct Walk<'a> {
    circle: &'a [u8],
    index: usize,
    cursor: SourceCursor,
}

impl<'a> Walk<'a> {
    pub fn new(circle: &'a [u8]) -> Self {
        Self {
            circle,
            index: 0,
            cursor: SourceCursor::default(),
        }
    }

    /// The next block, its index, and the cursor to take it with.
    pub fn step(&mut self) -> (usize, &'a [u8], &mut SourceCursor) {
        let index = self.index;
        if index == 0 {
            self.cursor = SourceCursor::default();
        }
        self.index = (index + 1) % (self.circle.len() / BLOCK_BYTES);
        let block = &self.circle[index * BLOCK_BYTES..][..BLOCK_BYTES];
        (index, block, &mut self.cursor)
    }
}

/// An encoder that was once around the circle, so that it knows what there is to know.
pub fn warm_encoder(circle: &[u8], matching: MatchingAlgorithm, period: usize) -> Encoder {
    let mut encoder = Encoder::new(EncoderConfig {
        matching,
        markers: finder(MarkerAlgorithm::SampleByte, period),
        ..EncoderConfig::with_defaults(geometry())
    });
    let mut out = EncodedBlock::default();
    let mut cursor = SourceCursor::default();
    for block in circle.chunks(BLOCK_BYTES) {
        encoder.encode(0, block, &Everything, &mut cursor, &mut out);
    }
    encoder
}

/// What the encoder writes in its second time around a circle: bytes lie at the same
/// distances in all later ones.
pub fn encoded_again(
    circle: &[u8],
    matching: MatchingAlgorithm,
    period: usize,
) -> Vec<EncodedBlock> {
    let mut encoder = warm_encoder(circle, matching, period);
    let mut walk = Walk::new(circle);
    let blocks = circle.chunks(BLOCK_BYTES).map(|_| {
        let mut out = EncodedBlock::default();
        let (_, block, cursor) = walk.step();
        encoder.encode(0, block, &Everything, cursor, &mut out);
        out
    });
    blocks.collect()
}

/// A decoder that has the whole circle behind it, and where it stands.
pub struct WarmDecoder {
    decoder: Decoder,
    head: LogPosition,
    plain: Vec<u8>,
}

impl WarmDecoder {
    pub fn new(circle: &[u8]) -> Self {
        let mut warm = Self {
            decoder: Decoder::new(geometry()),
            head: LogPosition(0),
            plain: Vec::new(),
        };
        for block in circle.chunks(BLOCK_BYTES) {
            let literals = EncodedBlock {
                literals: block.to_vec(),
                check: check(0, block),
                ..EncodedBlock::default()
            };
            warm.decode(&literals, &mut SourceCursor::default());
        }
        warm
    }

    /// Decodes the next block.
    pub fn decode(&mut self, encoded: &EncodedBlock, cursor: &mut SourceCursor) {
        let block = Block {
            number: 0,
            at: self.head,
            len: BLOCK_BYTES,
            tokens: &encoded.tokens,
            literals: &encoded.literals,
            check: encoded.check,
        };
        self.plain.clear();
        self.decoder
            .decode(block, cursor, &mut self.plain)
            .expect("what an encoder wrote");
        black_box(&self.plain);
        self.head = self.head + BLOCK_BYTES as u64;
    }
}

/// Markers of `algorithm`, one in `period` bytes.
pub fn finder(algorithm: MarkerAlgorithm, period: usize) -> MarkerFinder {
    MarkerFinder::new(
        algorithm,
        SamplingPeriod::new(period).expect("a valid period"),
        WindowBytes::DEFAULT,
        SampleByteTable::default(),
    )
}

fn geometry() -> CacheGeometry {
    CacheGeometry::new(CACHE_BYTES).expect("a valid size")
}
