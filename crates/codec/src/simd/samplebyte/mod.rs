//! SAMPLEBYTE's loop: bytes of a set, each followed by a skip.
//!
//! ```text
//! i = 0
//! while i < candidates.len():
//!     if candidates[i] in set:
//!         marker at i
//!         i += stride
//!     else:
//!         i += 1
//! ```
//!
//! The portable version does that. The others first classify all bytes, to a bitmap of one bit
//! a byte, and then [`walk`] along its set bits.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
mod portable;
#[cfg(any(
    all(target_arch = "x86_64", target_feature = "sse2"),
    all(target_arch = "aarch64", target_feature = "neon")
))]
mod walk;

use alloc::vec::Vec;

use super::Backend;

/// Replaces the contents of `markers` by the positions of the markers among `candidates`.
pub(crate) fn find(
    backend: Backend,
    set: &ByteSet,
    candidates: &[u8],
    stride: usize,
    markers: &mut Vec<u32>,
) {
    match backend.instruction_set() {
        // SAFETY: a backend exists only where its instructions do.
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        super::InstructionSet::Avx512 => unsafe { avx512::find(set, candidates, stride, markers) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        super::InstructionSet::Avx2 => unsafe { avx2::find(set, candidates, stride, markers) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        super::InstructionSet::Neon => unsafe { neon::find(set, candidates, stride, markers) },
        _ => portable::find(set, candidates, stride, markers),
    }
}

/// A set of byte values, in the forms in which kernels look them up.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ByteSet {
    is_member: [bool; 256],
    /// Bit `value % 8` of byte `value / 8`.
    bits: [u8; 32],
}

impl ByteSet {
    pub(crate) const fn new(is_member: [bool; 256]) -> Self {
        let mut bits = [0; 32];
        let mut value = 0;
        while value < is_member.len() {
            bits[value / 8] |= (is_member[value] as u8) << (value % 8);
            value += 1;
        }
        Self { is_member, bits }
    }

    pub(crate) fn contains(&self, value: u8) -> bool {
        self.is_member[usize::from(value)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        marker::{SampleByteTable, SamplingPeriod, WindowBytes},
        reference,
    };
    use proptest::{collection::vec, prelude::*, sample::select};

    /// A piece of a block: 0 for a byte that is in the set, 1 for one that is not.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![0_usize..300, 0_usize..40_000];
        let motif = prop_oneof![
            // From all in the set to none.
            (any::<u64>(), 0_u32..=8).prop_map(|(seed, rarity)| members(seed, rarity, 10_007)),
            // Walks along a period may never meet.
            (any::<u64>(), 0_u32..8, 1_usize..400)
                .prop_map(|(seed, rarity, period)| members(seed, rarity, period)),
        ];
        (motif, length).prop_map(|(motif, length)| motif.into_iter().cycle().take(length).collect())
    }

    /// One byte in 2^`rarity` is in the set, for 8 none.
    fn members(mut seed: u64, rarity: u32, length: usize) -> Vec<u8> {
        let step = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let dice = (seed >> 32) as u32;
            u8::from(rarity == 8 || dice.trailing_zeros() < rarity)
        };
        (0..length).map(step).collect()
    }

    /// Long enough for four walks, and of two bitmaps now and then; ends anywhere, and often
    /// near the end of a word, of a bitmap, or of the least that is walked four ways.
    fn block() -> impl Strategy<Value = Vec<u8>> {
        let near = |length: usize| length.saturating_sub(70)..length + 70;
        let length = prop_oneof![
            near(0),
            near(64 * 17 + 64),
            near(4 << 10),
            near(64 << 10),
            near(64 * 257 + 64),
            0_usize..140_000,
        ];
        (vec(piece(), 1..8), length)
            .prop_map(|(pieces, length)| pieces.concat().into_iter().cycle().take(length).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn every_backend_equals_the_reference(
            block in block(),
            p in select(&[32, 64, 128, 256, 512][..]),
            w in 12_usize..=64,
            member in any::<u8>(),
        ) {
            let block: Vec<u8> = block.iter().map(|&byte| member.wrapping_add(byte)).collect();
            let table = SampleByteTable::from_bytes(&[member]).expect("not empty");
            let window = WindowBytes::new(w).expect("valid");
            let period = SamplingPeriod::new(p).expect("valid");
            let expected = reference::markers::samplebyte(&block, period, window, &table);
            let candidates = &block[..(block.len() + 1).saturating_sub(w)];
            let set = ByteSet::new(core::array::from_fn(|value| value == usize::from(member)));
            let mut found = alloc::vec![7; 3];
            for backend in Backend::available() {
                find(backend, &set, candidates, p / 2 + 1, &mut found);
                // Whole blocks and lists would flood the report.
                let differ = found.iter().zip(&expected).position(|(found, expected)| found != expected);
                prop_assert!(found == expected, "{:?}: markers differ at index {:?}", backend, differ);
            }
        }
    }

    #[test]
    fn every_backend_classifies_every_value() {
        let block: Vec<u8> = (0..=255).collect();
        for member in 0..256 {
            for is_in in [true, false] {
                let set = ByteSet::new(core::array::from_fn(|value| (value == member) == is_in));
                let expected: Vec<u32> = (0..=255)
                    .filter(|&value| set.contains(value))
                    .map(u32::from)
                    .collect();
                for backend in Backend::available() {
                    let mut found = Vec::new();
                    find(backend, &set, &block, 1, &mut found);
                    assert_eq!(found, expected, "{member}, {is_in}, {backend:?}");
                }
            }
        }
    }

    #[test]
    fn there_is_room_for_as_many_markers_as_can_be_and_hardly_more() {
        let set = ByteSet::new([true; 256]);
        for backend in Backend::available() {
            for (length, stride) in [(1, 17), (17, 17), (18, 17), (65_505, 17), (200_000, 257)] {
                let mut found = Vec::new();
                find(backend, &set, &alloc::vec![0; length], stride, &mut found);
                assert_eq!(found.len(), length.div_ceil(stride), "{backend:?}");
                assert!(found.capacity() <= 2 * found.len().max(4), "{backend:?}");
            }
        }
    }
}
