//! Promise P5 at the codec: what its ends take. Logs and tables are mapped, and say how much of
//! them was touched; the rest comes from the allocator, and is counted there.
//!
//! One test alone in its process, so that nobody else allocates.

use refrain_codec::{
    Block, Decoder, EncodedBlock, Encoder, EncoderConfig, LogPosition, SourceCursor, check,
    geometry::CacheGeometry,
    marker::{MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes},
    matching::{Everything, MatchingAlgorithm},
};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const BLOCK_BYTES: usize = 64 << 10;

/// What an end needs beside its cache and table: the markers of a block, the block's plain
/// bytes and its two streams, and the tables of the marker algorithm.
const WORKING_BYTES: usize = 4 * BLOCK_BYTES;

#[test]
fn ends_stay_within_their_memory() {
    for mebibytes in [1, 5, 17] {
        let geometry = CacheGeometry::new(mebibytes << 20).expect("a valid size");
        for matching in [MatchingAlgorithm::MaxMatch, MatchingAlgorithm::ChunkMatch] {
            for algorithm in MarkerAlgorithm::ALL {
                let config = config(geometry, matching, algorithm);
                let promised = config.memory_bytes_max();
                let (held, peak) = peak_of(|| encode(config));
                assert!(
                    (promised / 2..=promised).contains(&held),
                    "{matching}, {algorithm}: {held} bytes, not {promised}"
                );
                assert!(
                    peak <= allocated(promised) + WORKING_BYTES,
                    "{matching}, {algorithm}: {peak} bytes beside them"
                );
            }
        }
        let promised = geometry.cache_bytes();
        let (held, peak) = peak_of(|| decode(geometry));
        assert_eq!(held, promised, "the decoder's log");
        assert!(
            peak <= allocated(promised) + WORKING_BYTES,
            "the decoder: {peak} bytes beside its log"
        );
    }
}

fn config(
    geometry: CacheGeometry,
    matching: MatchingAlgorithm,
    algorithm: MarkerAlgorithm,
) -> EncoderConfig {
    EncoderConfig {
        matching,
        markers: MarkerFinder::new(
            algorithm,
            SamplingPeriod::new(64).expect("a valid period"),
            WindowBytes::DEFAULT,
            SampleByteTable::default(),
        ),
        ..EncoderConfig::with_defaults(geometry)
    }
}

/// What of a log or table comes from the allocator.
fn allocated(bytes: usize) -> usize {
    match cfg!(target_os = "linux") {
        true => 0,
        false => bytes,
    }
}

/// What `work` says that it held, and most bytes that were allocated at once while it ran.
fn peak_of(work: impl FnOnce() -> usize) -> (usize, usize) {
    let _profiler = dhat::Profiler::builder().testing().build();
    let held = work();
    (held, dhat::HeapStats::get().max_bytes)
}

/// Calls `each` with blocks of noise until a cache has wrapped.
fn for_each_block(geometry: CacheGeometry, mut each: impl FnMut(LogPosition, &[u8])) {
    let mut state = 1_u64;
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = LogPosition(0);
    while at.0 < geometry.cache_bytes() as u64 * 5 / 4 {
        for byte in &mut block {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        each(at, &block);
        at = at + BLOCK_BYTES as u64;
    }
}

fn encode(config: EncoderConfig) -> usize {
    let (geometry, promised) = (config.geometry, config.memory_bytes_max());
    let mut encoder = Encoder::new(config);
    let mut out = EncodedBlock::default();
    let mut cursor = SourceCursor::default();
    for_each_block(geometry, |_, block| {
        encoder.encode(0, block, &Everything, &mut cursor, &mut out);
        assert!(encoder.allocated_bytes() <= promised);
    });
    encoder.allocated_bytes()
}

fn decode(geometry: CacheGeometry) -> usize {
    let mut decoder = Decoder::new(geometry);
    let mut plain = Vec::new();
    for_each_block(geometry, |at, literals| {
        let block = Block {
            number: 0,
            at,
            len: literals.len(),
            tokens: &[],
            literals,
            check: check(0, literals),
        };
        plain.clear();
        decoder
            .decode(block, &mut SourceCursor::default(), &mut plain)
            .expect("a literal block");
        assert!(decoder.allocated_bytes() <= geometry.cache_bytes());
    });
    decoder.allocated_bytes()
}
