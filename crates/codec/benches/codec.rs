//! How fast one core encodes and decodes blocks of which nothing, half or all is redundant.
//!
//! The plain bytes are read in a circle that is longer than the cache where they must stay
//! new, and shorter where all of them must be known.

use std::{hint::black_box, time::Duration};

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use refrain_codec::{
    Block, Decoder, EncodedBlock, Encoder, EncoderConfig, LogPosition, SourceCursor,
    geometry::CacheGeometry,
    marker::{MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes},
    matching::{Everything, MatchingAlgorithm},
};

const CACHE_BYTES: usize = 32 << 20;
const BLOCK_BYTES: usize = 64 << 10;

/// Of repeated and new bytes in turn.
const PIECE_BYTES: usize = 1 << 10;
/// Repeated pieces come back after so many bytes.
const REPEAT_BYTES: usize = 4 << 20;

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.take(len / 8).flat_map(u64::to_le_bytes).collect()
}

/// A circle of plain bytes for each share of redundancy.
fn circles() -> [(&'static str, Vec<u8>); 3] {
    let new = noise(2 * CACHE_BYTES);
    let mut half = new.clone();
    for piece in (REPEAT_BYTES..half.len()).step_by(2 * PIECE_BYTES) {
        half.copy_within(
            piece - REPEAT_BYTES..piece - REPEAT_BYTES + PIECE_BYTES,
            piece,
        );
    }
    let known = new[..CACHE_BYTES / 2].to_vec();
    [("0%", new), ("50%", half), ("100%", known)]
}

fn config(matching: MatchingAlgorithm, period: usize) -> EncoderConfig {
    EncoderConfig {
        matching,
        markers: MarkerFinder::new(
            MarkerAlgorithm::SampleByte,
            SamplingPeriod::new(period).expect("a valid period"),
            WindowBytes::DEFAULT,
            SampleByteTable::default(),
        ),
        ..EncoderConfig::with_defaults(geometry())
    }
}

fn geometry() -> CacheGeometry {
    CacheGeometry::new(CACHE_BYTES).expect("a valid size")
}

/// Goes round a circle block by block; each turn is a flow of its own.
struct Walk<'a> {
    circle: &'a [u8],
    index: usize,
    cursor: SourceCursor,
}

impl<'a> Walk<'a> {
    fn new(circle: &'a [u8]) -> Self {
        Self {
            circle,
            index: 0,
            cursor: SourceCursor::default(),
        }
    }

    /// The next block, its index, and the cursor to take it with.
    fn step(&mut self) -> (usize, &'a [u8], &mut SourceCursor) {
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
fn warm_encoder(config: EncoderConfig, circle: &[u8]) -> Encoder {
    let mut encoder = Encoder::new(config);
    let mut out = EncodedBlock::default();
    let mut cursor = SourceCursor::default();
    for block in circle.chunks(BLOCK_BYTES) {
        encoder.encode(0, block, &Everything, &mut cursor, &mut out);
    }
    encoder
}

fn encode(criterion: &mut Criterion) {
    let mut group = group(criterion, "encode");
    for (share, circle) in circles() {
        for (matching, period) in [
            (MatchingAlgorithm::MaxMatch, 64),
            (MatchingAlgorithm::MaxMatch, 32),
            (MatchingAlgorithm::ChunkMatch, 64),
        ] {
            let mut encoder = warm_encoder(config(matching, period), &circle);
            let mut walk = Walk::new(&circle);
            let mut out = EncodedBlock::default();
            group.bench_function(format!("{matching}/p={period}/{share}"), |bencher| {
                bencher.iter(|| {
                    let (_, block, cursor) = walk.step();
                    encoder.encode(0, block, &Everything, cursor, &mut out);
                    black_box(&out);
                });
            });
        }
    }
    group.finish();
}

/// The second turn's tokens are decoded in every turn: the circle's bytes lie at the same
/// distances in all of them.
fn decode(criterion: &mut Criterion) {
    let mut group = group(criterion, "decode");
    for (share, circle) in circles() {
        for period in [64, 32] {
            let mut encoder = warm_encoder(config(MatchingAlgorithm::MaxMatch, period), &circle);
            let mut walk = Walk::new(&circle);
            let turn: Vec<EncodedBlock> = circle
                .chunks(BLOCK_BYTES)
                .map(|_| {
                    let mut out = EncodedBlock::default();
                    let (_, block, cursor) = walk.step();
                    encoder.encode(0, block, &Everything, cursor, &mut out);
                    out
                })
                .collect();

            let mut decoder = Decoder::new(geometry());
            let mut plain = Vec::new();
            let mut head = LogPosition(0);
            let mut decode = |encoded: &EncodedBlock, cursor: &mut SourceCursor| {
                let block = Block {
                    number: 0,
                    at: head,
                    len: BLOCK_BYTES,
                    tokens: &encoded.tokens,
                    literals: &encoded.literals,
                    check: encoded.check,
                };
                plain.clear();
                decoder
                    .decode(block, cursor, &mut plain)
                    .expect("what an encoder wrote");
                black_box(&plain);
                head = head + BLOCK_BYTES as u64;
            };
            for (block, encoded) in circle.chunks(BLOCK_BYTES).zip(&turn) {
                let all_literal = EncodedBlock {
                    literals: block.to_vec(),
                    check: encoded.check,
                    ..EncodedBlock::default()
                };
                decode(&all_literal, &mut SourceCursor::default());
            }
            let mut walk = Walk::new(&circle);
            group.bench_function(format!("max/p={period}/{share}"), |bencher| {
                bencher.iter(|| {
                    let (index, _, cursor) = walk.step();
                    decode(&turn[index], cursor);
                });
            });
        }
    }
    group.finish();
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group
        .throughput(Throughput::Bytes(BLOCK_BYTES as u64))
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    group
}

criterion_group!(benches, encode, decode);
criterion_main!(benches);
