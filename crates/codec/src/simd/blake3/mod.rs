//! BLAKE3 of many short messages at once, in its plain hash mode.
//!
//! ```text
//! cut each message into leaves of 1024 bytes
//! chain the blocks of each leaf: 64 bytes, one after another
//! while a message has several nodes left:
//!     make each two neighbours a parent, one block of their chaining values;
//!     an odd last one moves up as it is
//! ```
//!
//! A BLAKE3 leaf is called *chunk* in its specification, which here means something else.
//!
//! The blocks of one leaf depend on each other, those of different leaves do not. So each
//! 32-bit lane of a vector works on a leaf of its own, of whichever message; a lane that
//! has ended its leaf takes the next one from the list, so that lengths may be mixed without
//! lanes that idle. Parents follow level by level, those of all messages together. One
//! message at a time cannot do that before it is many leaves long.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod lanes;
mod portable;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod rounds;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod tree;

use super::Backend;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use super::InstructionSet;

/// Bytes of a whole digest.
pub(crate) const DIGEST_BYTES: usize = 32;

/// Writes to each message's place the first `BYTES` bytes of its digest; nothing is allocated.
pub(crate) fn hash_many<'m, 'd, const BYTES: usize>(
    backend: Backend,
    messages: impl IntoIterator<Item = (&'m [u8], &'d mut [u8; BYTES])>,
) {
    const { assert!(BYTES <= DIGEST_BYTES) };
    match backend.instruction_set() {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        InstructionSet::Avx2 => tree::hash_many::<{ avx2::LANES }, BYTES>(
            messages,
            // SAFETY: the backend exists, so the machine has its instructions.
            |lanes, blocks| unsafe { avx2::compress(lanes, blocks) },
        ),
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        InstructionSet::Avx512 => tree::hash_many::<{ avx512::LANES }, BYTES>(
            messages,
            // SAFETY: the backend exists, so the machine has its instructions.
            |lanes, blocks| unsafe { avx512::compress(lanes, blocks) },
        ),
        _ => portable::hash_many(messages),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};
    use proptest::{collection::vec, prelude::*};

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = core::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        });
        words.take(len).map(|word| (word >> 32) as u8).collect()
    }

    fn assert_equal_to_the_crate(messages: &[&[u8]]) {
        let expected: Vec<[u8; 32]> = messages
            .iter()
            .map(|message| *::blake3::hash(message).as_bytes())
            .collect();
        for backend in Backend::available() {
            let mut digests = vec![[0xaa; 32]; messages.len()];
            hash_many(backend, messages.iter().copied().zip(&mut digests));
            for (index, message) in messages.iter().enumerate() {
                let len = message.len();
                assert_eq!(
                    digests[index], expected[index],
                    "{backend:?}: message {index} of {len} bytes"
                );
            }
        }
    }

    #[test]
    fn a_message_of_any_length_alone() {
        let bytes = noise(1 << 20);
        let edges = [64, 1024, 2048, 8192, 65_536, 262_144, 524_288];
        let around = edges.into_iter().flat_map(|edge| edge - 1..=edge + 1);
        for len in (0..200)
            .chain(around)
            .chain([3 * 1024, 5 * 1024 + 7, 1 << 20])
        {
            assert_equal_to_the_crate(&[&bytes[..len]]);
        }
    }

    #[test]
    fn as_many_as_there_are_lanes_and_a_few_more_or_less() {
        let bytes = noise(4096);
        for len in [0, 1, 64, 65, 1024, 1025, 4096] {
            for count in (0..70).chain([127, 255, 256, 257, 513]) {
                assert_equal_to_the_crate(&vec![&bytes[..len]; count]);
            }
        }
    }

    #[test]
    fn digests_are_cut_short() {
        let bytes = noise(5000);
        for backend in Backend::available() {
            let mut digests = [[0; 20]; 2];
            hash_many(
                backend,
                [&bytes[..70], &bytes].into_iter().zip(&mut digests),
            );
            assert_eq!(digests[0], ::blake3::hash(&bytes[..70]).as_bytes()[..20]);
            assert_eq!(digests[1], ::blake3::hash(&bytes).as_bytes()[..20]);
        }
    }

    fn lengths() -> impl Strategy<Value = Vec<usize>> {
        let len = prop_oneof![
            20 => 0_usize..300,
            5 => 0_usize..3000,
            2 => 0_usize..40_000,
            1 => 0_usize..400_000,
        ];
        vec(len, 0..120)
    }

    proptest! {
        #[test]
        fn messages_of_mixed_lengths(lengths in lengths(), start in 0_usize..64) {
            let bytes = noise(500_000);
            let messages: Vec<&[u8]> = lengths
                .iter()
                .enumerate()
                .map(|(index, &len)| &bytes[start + 37 * index..][..len])
                .collect();
            assert_equal_to_the_crate(&messages);
        }
    }
}
