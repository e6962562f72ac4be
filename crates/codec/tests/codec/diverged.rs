//! A decoder with another cache: it errs, and never emits a wrong byte.

use refrain_codec::{
    DecodeError,
    marker::MarkerAlgorithm,
    matching::{Everything, MatchingAlgorithm},
};

use crate::{
    content::{Content, Random},
    ends::{BLOCK_BYTES_MAX, CACHE_BYTES, Receiver, Sender, Sent, config, markers},
};

/// Several flows' blocks, enough to wrap the cache, and their plain bytes.
fn sent_blocks(seed: u64) -> Vec<(Sent, Vec<u8>)> {
    let matching = match seed % 3 {
        _ if cfg!(refrain_weak_hashes) => MatchingAlgorithm::MaxMatch,
        0 => MatchingAlgorithm::ChunkMatch,
        _ => MatchingAlgorithm::MaxMatch,
    };
    let mut content = Content::new(seed);
    let mut random = Random::new(seed);
    let mut sender = Sender::new(config(
        matching,
        markers(MarkerAlgorithm::SampleByte, 32, 32),
    ));
    let mut sent_bytes = 0;
    let mut blocks = Vec::new();
    while sent_bytes < 2 * CACHE_BYTES {
        let block = content.block(BLOCK_BYTES_MAX);
        sent_bytes += block.len();
        let sent = sender.send(random.below(3) as u8, &block, &Everything);
        blocks.push((sent, block));
    }
    blocks
}

/// How often something that is allowed, but must not be the rule, happened.
#[derive(Default)]
struct Outcomes {
    equal: usize,
    refused: usize,
}

impl Outcomes {
    fn count(&mut self, decoded: Result<Vec<u8>, DecodeError>, block: &[u8]) {
        match decoded {
            Ok(plain) => {
                assert!(plain == block, "wrong bytes");
                self.equal += 1;
            }
            Err(_) => self.refused += 1,
        }
    }

    fn assert_both_occurred(&self) {
        assert!(self.equal > 0, "everything was refused");
        assert!(self.refused > 0, "nothing was refused");
    }
}

#[test]
fn missing_blocks_cost_errors_and_no_wrong_byte() {
    for seed in 0..9 {
        let mut random = Random::new(seed);
        let mut receiver = Receiver::new();
        let mut outcomes = Outcomes::default();
        for (sent, block) in sent_blocks(seed) {
            if !random.one_in(20) {
                outcomes.count(receiver.receive(&sent), &block);
            }
        }
        outcomes.assert_both_occurred();
    }
}

#[test]
fn an_empty_cache_costs_errors_and_no_wrong_byte() {
    for seed in 0..6 {
        let blocks = sent_blocks(seed);
        let mut receiver = Receiver::new();
        let mut outcomes = Outcomes::default();
        for (sent, block) in &blocks[blocks.len() / 2..] {
            outcomes.count(receiver.receive(sent), block);
        }
        outcomes.assert_both_occurred();
    }
}

/// The receiver mirrored another sender, and then this one goes on at the same positions.
#[test]
fn other_content_costs_errors_and_no_wrong_byte() {
    for seed in 0..6 {
        let (ours, theirs) = (sent_blocks(seed), sent_blocks(seed + 100));
        let mut receiver = Receiver::new();
        for (sent, block) in &theirs {
            assert_eq!(receiver.receive(sent).as_ref(), Ok(block));
        }
        let mut outcomes = Outcomes::default();
        for (sent, block) in &ours[ours.len() / 2..] {
            outcomes.count(receiver.receive(sent), block);
        }
        outcomes.assert_both_occurred();
    }
}

/// Blocks of one ordered stream carry their number in the check.
#[test]
fn a_block_out_of_turn_is_refused() {
    for (sent, block) in sent_blocks(1).into_iter().take(20) {
        let mut late = sent.as_block();
        late.number += 1;
        let mut receiver = Receiver::new();
        // What refers to other blocks may fail for that reason first.
        let is_literal = sent.encoded.tokens.is_empty();
        let decoded = receiver.receive_block(sent.flow, late);
        assert!(decoded.is_err());
        if is_literal {
            assert_eq!(decoded, Err(DecodeError::CheckMismatch));
            assert_eq!(receiver.receive(&sent), Ok(block));
        }
    }
}
