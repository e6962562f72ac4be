//! Blocks of several flows, encoded and decoded: what arrives is equal.
//!
//! Input: four bytes that choose the algorithms, p and w, and then one part after another,
//! each an operation and its arguments. Parts make up blocks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_codec::{
    Block, Decoder, EncodedBlock, Encoder, EncoderConfig, SourceCursor,
    chunk::hash::ChunkHasher,
    geometry::{CACHE_BYTES_MIN, CacheGeometry},
    marker::{MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes},
    matching::{Everything, MatchingAlgorithm},
    simd::Backend,
};

const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Enough to wrap the cache; more would only be slow.
const PLAIN_BYTES_MAX: usize = 3 << 20;

const FLOWS: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Some((&choices, mut script)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut ends = Ends::new(choices);
    let mut history: Vec<u8> = Vec::new();
    let mut block_start = 0;
    while let Some((operation, arguments)) = script.split_first_chunk::<4>() {
        script = arguments;
        let [operation, a, b, c] = operation.map(usize::from);
        match operation % 6 {
            // The script's own bytes.
            0 => {
                let len = (a + 1).min(script.len());
                history.extend_from_slice(script.split_off(..len).unwrap_or_default());
            }
            // A run, of zeros or of another byte.
            1 => history.resize(history.len() + (a + 1) * 16, b as u8),
            // A short period.
            2 => {
                let period = b % 64 + 1;
                let start = history.len().saturating_sub(period);
                let verse = history.split_off(start);
                history.extend(verse.repeat(a + 2));
            }
            // The past again.
            3 | 4 => {
                let start = history.len() * (a << 8 | b) / (1 << 16);
                let end = history.len().min(start + (c + 1) * 64);
                history.extend_from_within(start..end);
            }
            _ => {
                ends.carry(a % FLOWS, &history[block_start..]);
                block_start = history.len();
            }
        }
        while history.len() - block_start > BLOCK_BYTES_MAX {
            let end = block_start + BLOCK_BYTES_MAX;
            ends.carry(a % FLOWS, &history[block_start..end]);
            block_start = end;
        }
        if history.len() > PLAIN_BYTES_MAX {
            break;
        }
    }
    ends.carry(0, &history[block_start..]);
});

struct Ends {
    encoder: Encoder,
    near_cursors: [SourceCursor; FLOWS],
    decoder: Decoder,
    far_cursors: [SourceCursor; FLOWS],
    next_number: u64,
    encoded: EncodedBlock,
    plain: Vec<u8>,
}

impl Ends {
    fn new([matching, algorithm, period, window]: [u8; 4]) -> Self {
        let geometry = CacheGeometry::new(CACHE_BYTES_MIN).expect("a valid size");
        let period = SamplingPeriod::new(32 << (period % 5)).expect("a valid period");
        let window = WindowBytes::new(12 + usize::from(window % 53)).expect("a valid window");
        let algorithm = MarkerAlgorithm::ALL[usize::from(algorithm) % MarkerAlgorithm::ALL.len()];
        let table = SampleByteTable::default();
        Self {
            encoder: Encoder::new(EncoderConfig {
                geometry,
                matching: match matching % 2 {
                    0 => MatchingAlgorithm::MaxMatch,
                    _ => MatchingAlgorithm::ChunkMatch,
                },
                markers: MarkerFinder::new(algorithm, period, window, table),
                chunk_hasher: ChunkHasher::default(),
                backend: Backend::best(),
            }),
            near_cursors: Default::default(),
            decoder: Decoder::new(geometry),
            far_cursors: Default::default(),
            next_number: 0,
            encoded: EncodedBlock::default(),
            plain: Vec::new(),
        }
    }

    fn carry(&mut self, flow: usize, block: &[u8]) {
        let number = self.next_number;
        self.next_number += 1;
        let near_cursor = &mut self.near_cursors[flow];
        let at = self
            .encoder
            .encode(number, block, &Everything, near_cursor, &mut self.encoded);
        let EncodedBlock {
            tokens,
            literals,
            check,
            region_bytes,
            ..
        } = &self.encoded;
        assert_eq!(region_bytes + literals.len(), block.len());
        let encoded = Block {
            number,
            at,
            len: block.len(),
            tokens,
            literals,
            check: *check,
        };
        self.plain.clear();
        self.decoder
            .decode(encoded, &mut self.far_cursors[flow], &mut self.plain)
            .expect("what an encoder wrote");
        assert!(self.plain == block, "block {number} differs");
    }
}
