//! Every back end that this machine has against the slow twins: markers, anchors, digests,
//! checks, and what an encoder writes.
//!
//! Input: four bytes that choose the algorithm, p and w and the number of table values, the table,
//! and then the block, twice over, the second time with a byte changed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_codec::{
    EncodedBlock, Encoder, EncoderConfig, SourceCursor, check,
    chunk::{
        hash::ChunkHasher,
        stream::{ChunkBounds, StreamChunks},
    },
    geometry::{CACHE_BYTES_MIN, CacheGeometry},
    marker::{
        MarkerAlgorithm, MarkerFinder, PackMask, SampleByteTable, SamplingPeriod, WindowBytes,
    },
    matching::{Everything, MatchingAlgorithm},
    reference,
    simd::Backend,
};

const BLOCK_BYTES_MAX: usize = 4 << 10;

fuzz_target!(|input: &[u8]| {
    let Some((&[algorithm, period, window, values], rest)) = input.split_first_chunk() else {
        return;
    };
    let (values, block) = rest.split_at(rest.len().min(usize::from(values) + 1));
    let Ok(table) = SampleByteTable::from_bytes(values) else {
        return;
    };
    let mut block = block[..block.len().min(BLOCK_BYTES_MAX)].to_vec();
    let start = block.len();
    block.extend_from_within(..);
    if let Some(byte) = block.get_mut(start + start / 2) {
        *byte ^= 1;
    }
    let algorithm = MarkerAlgorithm::ALL[usize::from(algorithm) % MarkerAlgorithm::ALL.len()];
    let period = SamplingPeriod::new(32 << (period % 5)).expect("a valid period");
    let window = WindowBytes::new(12 + usize::from(window % 53)).expect("a valid window");
    let finder = MarkerFinder::new(algorithm, period, window, table.clone());

    let expected = reference::markers::find(algorithm, &block, period, window, &table);
    let expected_check = check(7, &block);
    let mut written: Option<EncodedBlock> = None;
    for backend in Backend::available() {
        let mut markers = Vec::new();
        finder
            .clone()
            .with_backend(backend)
            .find(&block, &mut markers);
        assert_eq!(markers, expected, "{algorithm} with {backend:?}");
        hash_chunks(backend, &block, &markers);
        cut_stream(backend, &block, usize::from(values.len() as u8) + 1);

        let geometry = CacheGeometry::new(CACHE_BYTES_MIN).expect("a valid size");
        for matching in [MatchingAlgorithm::MaxMatch, MatchingAlgorithm::ChunkMatch] {
            let mut encoder = Encoder::new(EncoderConfig {
                geometry,
                matching,
                markers: finder.clone(),
                chunk_hasher: ChunkHasher::default(),
                backend,
            });
            let mut out = EncodedBlock::default();
            encoder.encode(
                7,
                &block,
                &Everything,
                &mut SourceCursor::default(),
                &mut out,
            );
            assert_eq!(out.check, expected_check, "{backend:?}");
            if matching == MatchingAlgorithm::MaxMatch {
                let first = written.get_or_insert_with(|| out.clone());
                assert_eq!(first.tokens, out.tokens, "{backend:?}");
                assert_eq!(first.literals, out.literals, "{backend:?}");
            }
        }
    }
});

/// Cuts `block` at `markers`; all chunks' digests at once are those of each alone.
fn hash_chunks(backend: Backend, block: &[u8], markers: &[u32]) {
    let cuts = markers.iter().map(|&marker| marker as usize);
    let ends: Vec<usize> = cuts.chain([block.len()]).collect();
    let mut start = 0;
    let chunks = ends.iter().map(|&end| {
        let chunk = start..end;
        start = end;
        chunk
    });
    let chunks: Vec<_> = chunks.collect();
    let hasher = ChunkHasher::default();
    let mut hashes = Vec::new();
    hasher.hash_all(backend, block, &chunks, &mut hashes);
    for (chunk, hash) in chunks.into_iter().zip(hashes) {
        assert_eq!(hasher.hash(&block[chunk]), hash, "{backend:?}");
    }
}

/// A stream in pieces has the chunks that its bytes have as a whole.
fn cut_stream(backend: Backend, stream: &[u8], piece_bytes: usize) {
    let mask = PackMask::with_bits(6 + (piece_bytes % 10) as u8).expect("6 to 15 bits");
    let bounds = ChunkBounds::new(48, 48 + 64 * piece_bytes).expect("valid bounds");
    let mut cutter = StreamChunks::new(mask, bounds).with_backend(backend);
    let mut chunks = Vec::new();
    for piece in stream.chunks(piece_bytes * 16) {
        cutter.feed(piece, &mut chunks);
    }
    cutter.finish(&mut chunks);
    let expected = reference::pack::chunks(stream, mask, bounds);
    assert_eq!(chunks, expected, "{backend:?}");
}
