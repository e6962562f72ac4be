//! The eight accumulators in two registers.

use core::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32, _mm256_shuffle_epi32,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::long::{SECRET_STEP_BYTES, STRIPE_BYTES, stripe_at};

/// Swaps neighbouring words of 64 bits.
const NEIGHBOURS: i32 = 0b01_00_11_10;

#[target_feature(enable = "avx2")]
pub(super) fn accumulate(sums: &mut [u64; 8], stripes: &[[u8; STRIPE_BYTES]], secret: &[u8]) {
    let (halves, _) = sums.as_chunks_mut::<4>();
    for (half, sums) in halves.iter_mut().enumerate() {
        // SAFETY: four words are 32 bytes.
        let mut all = unsafe { _mm256_loadu_si256(sums.as_ptr().cast()) };
        for (index, stripe) in stripes.iter().enumerate() {
            let words = load(stripe, half);
            let secret = load(stripe_at(secret, index * SECRET_STEP_BYTES), half);
            let key = _mm256_xor_si256(words, secret);
            let product = _mm256_mul_epu32(key, _mm256_srli_epi64::<32>(key));
            let neighbours = _mm256_shuffle_epi32::<NEIGHBOURS>(words);
            all = _mm256_add_epi64(all, _mm256_add_epi64(product, neighbours));
        }
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(sums.as_mut_ptr().cast(), all) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(stripe: &[u8; STRIPE_BYTES], half: usize) -> __m256i {
    let (halves, _) = stripe.as_chunks::<32>();
    // SAFETY: the array has the 32 bytes that are read, at any alignment.
    unsafe { _mm256_loadu_si256(halves[half].as_ptr().cast()) }
}
