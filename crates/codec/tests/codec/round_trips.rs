//! `decode(encode(x)) == x`.

use proptest::{collection::vec, prelude::*, sample::select};
use refrain_codec::{
    chunk::hash::ChunkHasher,
    marker::{MarkerAlgorithm, SamplingPeriod},
    matching::{Everything, MatchingAlgorithm},
};

use crate::{
    content::{Content, Random},
    ends::{BLOCK_BYTES_MAX, CACHE_BYTES, Receiver, Sender, config, markers},
    model::Model,
};

const PERIODS: [usize; 5] = [32, 64, 128, 256, 512];
const WINDOWS: [usize; 3] = [12, 32, 64];
const FLOWS: usize = 4;

/// Every algorithm with every period and window, until the cache has wrapped several times.
fn every_choice_of_markers_returns(matching: MatchingAlgorithm) {
    for algorithm in MarkerAlgorithm::ALL {
        for (period, window) in PERIODS
            .into_iter()
            .flat_map(|period| WINDOWS.map(|window| (period, window)))
        {
            let choice = format!("{matching}, {algorithm}, p = {period}, w = {window}");
            let seed = (period * window) as u64;
            let mut content = Content::new(seed);
            let mut random = Random::new(seed);
            let mut sender = Sender::new(config(matching, markers(algorithm, period, window)));
            let mut receiver = Receiver::new();
            let mut model = Model::default();
            let (mut sent_bytes, mut region_bytes) = (0, 0);
            while sent_bytes < 4 * CACHE_BYTES {
                let block = content.block(BLOCK_BYTES_MAX);
                let flow = random.below(FLOWS) as u8;
                let sent = sender.send(flow, &block, &Everything);
                sent_bytes += block.len();
                region_bytes += sent.encoded.region_bytes;
                let decoded = receiver.receive(&sent).expect(&choice);
                assert!(decoded == block, "{choice}: block {} differs", sent.number);
                let (modelled, _) = model.receive(&sent);
                assert!(modelled == block, "{choice}: block {} differs", sent.number);
            }
            // With weak hashes, a fingerprint's place is taken by any other's.
            assert!(
                region_bytes > sent_bytes / 10 || cfg!(refrain_weak_hashes),
                "{choice}: nothing was found"
            );
        }
    }
}

#[test]
fn every_choice_of_markers_returns_with_max_match() {
    every_choice_of_markers_returns(MatchingAlgorithm::MaxMatch);
}

#[cfg(not(refrain_weak_hashes))]
#[test]
fn every_choice_of_markers_returns_with_chunk_match() {
    every_choice_of_markers_returns(MatchingAlgorithm::ChunkMatch);
}

/// The size of a block must not matter, least of all at the edges of a window and a region.
#[test]
fn blocks_of_every_small_size_return() {
    let mut content = Content::new(1);
    let mut sender = Sender::new(config(
        MatchingAlgorithm::MaxMatch,
        markers(MarkerAlgorithm::SampleByte, 32, 12),
    ));
    let mut receiver = Receiver::new();
    for len in (0..300).chain([1000, 1460, BLOCK_BYTES_MAX, BLOCK_BYTES_MAX * 4]) {
        let mut block = content.block(len.max(1));
        block.resize(len, 7);
        for flow in [0, 1] {
            let sent = sender.send(flow, &block, &Everything);
            assert_eq!(receiver.receive(&sent).as_ref(), Ok(&block));
        }
    }
}

/// A run that repeats itself a byte, or a few, before: sources right before their regions.
#[test]
fn blocks_that_repeat_themselves_return() {
    for period in [1, 2, 7, 8, 9, 31, 32, 33, 255, 256, 257, 1000] {
        for matching in [MatchingAlgorithm::MaxMatch, MatchingAlgorithm::ChunkMatch] {
            let mut sender = Sender::new(config(
                matching,
                markers(MarkerAlgorithm::SampleByte, 32, 32),
            ));
            let mut receiver = Receiver::new();
            // Without repeats inside a period, no two of its chunks collide by chance.
            let verse: Vec<u8> = (0..period).map(|index| (index * 7 / 3) as u8).collect();
            let block = verse.repeat(BLOCK_BYTES_MAX / period + 1);
            for _ in 0..3 {
                let sent = sender.send(0, &block[..BLOCK_BYTES_MAX], &Everything);
                let decoded = receiver.receive(&sent);
                assert_eq!(decoded.as_deref(), Ok(&block[..BLOCK_BYTES_MAX]));
            }
        }
    }
}

/// A block of a small history.
#[derive(Clone, Debug)]
enum Step {
    /// Bytes of an alphabet so small that they repeat by chance.
    New { flow: u8, bytes: Vec<u8> },
    /// The piece of the past at `start / 65536`, with one byte changed.
    Again {
        flow: u8,
        start: u16,
        len: usize,
        changed: usize,
    },
    /// Sample with another period from now on.
    Period { bytes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let new = (0..3_u8, vec(select(b"aest 0".to_vec()), 0..400))
        .prop_map(|(flow, bytes)| Step::New { flow, bytes });
    let again = (0..3_u8, any::<u16>(), 1..2000_usize, 0..2000_usize).prop_map(
        |(flow, start, len, changed)| Step::Again {
            flow,
            start,
            len,
            changed,
        },
    );
    let period = select(PERIODS.to_vec()).prop_map(|bytes| Step::Period { bytes });
    prop_oneof![8 => new, 8 => again, 1 => period]
}

proptest! {
    /// Small enough to shrink to something that a reader can follow.
    #[test]
    fn small_histories_return(
        steps in vec(step(), 1..30),
        is_chunk_match in prop::bool::weighted(if cfg!(refrain_weak_hashes) { 0.0 } else { 0.5 }),
        hasher in select(vec![ChunkHasher::Blake3, ChunkHasher::Sha1]),
        algorithm in select(MarkerAlgorithm::ALL.to_vec()),
        window in 12..=64_usize,
    ) {
        let matching = match is_chunk_match {
            true => MatchingAlgorithm::ChunkMatch,
            false => MatchingAlgorithm::MaxMatch,
        };
        let mut config = config(matching, markers(algorithm, 32, window));
        config.chunk_hasher = hasher;
        let mut sender = Sender::new(config);
        let mut receiver = Receiver::new();
        let mut model = Model::default();
        let mut history: Vec<u8> = Vec::new();
        for step in steps {
            let (flow, block) = match step {
                Step::New { flow, bytes } => (flow, bytes),
                Step::Again { flow, start, len, changed } => {
                    let start = history.len() * usize::from(start) / (1 << 16);
                    let end = history.len().min(start + len);
                    let mut block = history[start..end].to_vec();
                    if let Some(byte) = block.get_mut(changed) {
                        *byte ^= 1;
                    }
                    (flow, block)
                }
                Step::Period { bytes } => {
                    sender.set_period(SamplingPeriod::new(bytes).expect("a valid period"));
                    continue;
                }
            };
            history.extend_from_slice(&block);
            let sent = sender.send(flow, &block, &Everything);
            let decoded = receiver.receive(&sent);
            prop_assert_eq!(decoded.as_ref(), Ok(&block));
            prop_assert_eq!(model.receive(&sent).0, block);
        }
    }
}
