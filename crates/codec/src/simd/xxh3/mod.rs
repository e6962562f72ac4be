//! XXH3-64 of long inputs, for the check that every block carries.
//!
//! ```text
//! eight accumulators; for each stripe of 64 bytes, as eight words:
//!     key = word ^ secret word
//!     accumulator += low half of key * high half of key
//!     the neighbouring accumulator += word
//! after every 16 stripes, scramble; in the end the last 64 bytes once more, then merge
//! ```
//!
//! The `xxhash-rust` crate, which does the rest and which all versions are held equal to,
//! chooses its instructions when it is compiled: for a binary that runs on every x86-64 that is
//! SSE2, a third of the speed of AVX-512.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Backend;

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod long;

/// Inputs up to this length have formulas of their own.
const MIDDLE_BYTES_MAX: usize = 240;

/// XXH3-64 of `input` with `seed`.
pub(crate) fn xxh3(backend: Backend, seed: u64, input: &[u8]) -> u64 {
    if input.len() <= MIDDLE_BYTES_MAX {
        return xxh3_64_with_seed(input, seed);
    }
    match backend.instruction_set() {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        super::InstructionSet::Avx512 => long::xxh3(seed, input, |sums, stripes, secret| {
            // SAFETY: the backend exists, so its instructions do.
            unsafe { avx512::accumulate(sums, stripes, secret) }
        }),
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        super::InstructionSet::Avx2 => long::xxh3(seed, input, |sums, stripes, secret| {
            // SAFETY: as above.
            unsafe { avx2::accumulate(sums, stripes, secret) }
        }),
        _ => xxh3_64_with_seed(input, seed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_backends_equal_the_crate(
            seed: u64,
            len in prop_oneof![0_usize..600, 1000_usize..1100, 2000_usize..5000],
            factor: u32,
        ) {
            let input: Vec<u8> = (0..len as u32)
                .map(|index| (index.wrapping_mul(factor) >> 13) as u8)
                .collect();
            for seed in [0, seed] {
                let expected = xxh3_64_with_seed(&input, seed);
                for backend in Backend::available() {
                    prop_assert_eq!(xxh3(backend, seed, &input), expected, "{:?}", backend);
                }
            }
        }
    }
}
