//! Promise P1 where hashes collide: the build with `--cfg refrain_weak_hashes` leaves three
//! bits of a fingerprint and sixteen of a chunk hash. Max-Match compares bytes, and is as
//! right as ever. Chunk-Match has nothing to compare: the block's check must find it.

use refrain_codec::{
    DecodeError,
    marker::MarkerAlgorithm,
    matching::{Everything, MatchingAlgorithm},
};

use crate::{
    content::Random,
    ends::{BLOCK_BYTES_MAX, CACHE_BYTES, Receiver, Sender, config, markers},
};

/// Noise, in which a weak hash alone sees repeats: how many blocks were refused.
fn refused_blocks(matching: MatchingAlgorithm) -> usize {
    let mut random = Random::new(1);
    let markers = markers(MarkerAlgorithm::SampleByte, 64, 32);
    let mut sender = Sender::new(config(matching, markers));
    let mut receiver = Receiver::new();
    let mut refused = 0;
    for _ in 0..4 * CACHE_BYTES / BLOCK_BYTES_MAX {
        let block = random.noise(BLOCK_BYTES_MAX);
        let sent = sender.send(0, &block, &Everything);
        match receiver.receive(&sent) {
            Ok(plain) => assert!(plain == block, "wrong bytes"),
            // The first time by its check; from then on the caches differ.
            Err(error) => {
                assert!(refused > 0 || error == DecodeError::CheckMismatch);
                refused += 1;
            }
        }
    }
    refused
}

#[test]
fn max_match_believes_bytes_alone() {
    assert_eq!(refused_blocks(MatchingAlgorithm::MaxMatch), 0);
}

#[test]
fn chunk_match_is_caught_by_the_check() {
    let refused = refused_blocks(MatchingAlgorithm::ChunkMatch);
    assert_eq!(refused > 0, cfg!(refrain_weak_hashes), "{refused} blocks");
}
