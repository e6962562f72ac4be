//! The eight accumulators in two registers.

use core::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32, _mm256_set1_epi64x,
    _mm256_shuffle_epi32, _mm256_slli_epi64, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use super::long::{
    PRIME_32_1, SCRAMBLE_SECRET, SECRET_STEP_BYTES, STRIPE_BYTES, STRIPES_A_BLOCK, stripe_at,
};

/// Swaps neighbouring words of 64 bits.
const NEIGHBOURS: i32 = 0b01_00_11_10;

#[target_feature(enable = "avx2")]
pub(super) fn accumulate(sums: &mut [u64; 8], stripes: &[[u8; STRIPE_BYTES]], secret: &[u8]) {
    let (halves, _) = sums.as_chunks_mut::<4>();
    // SAFETY: four words are 32 bytes.
    let mut all = [0, 1].map(|half| unsafe { _mm256_loadu_si256(halves[half].as_ptr().cast()) });
    let (blocks, rest) = stripes.as_chunks::<STRIPES_A_BLOCK>();
    for block in blocks {
        all = add_stripes(all, block, secret);
        let keys = load(stripe_at(secret, SCRAMBLE_SECRET));
        all = [scramble(all[0], keys[0]), scramble(all[1], keys[1])];
    }
    all = add_stripes(all, rest, secret);
    for (half, all) in halves.iter_mut().zip(all) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), all) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn add_stripes(
    mut all: [__m256i; 2],
    stripes: &[[u8; STRIPE_BYTES]],
    secret: &[u8],
) -> [__m256i; 2] {
    for (index, stripe) in stripes.iter().enumerate() {
        let keys = load(stripe_at(secret, index * SECRET_STEP_BYTES));
        let stripe = load(stripe);
        for half in 0..2 {
            let key = _mm256_xor_si256(stripe[half], keys[half]);
            let product = _mm256_mul_epu32(key, _mm256_srli_epi64::<32>(key));
            let neighbours = _mm256_shuffle_epi32::<NEIGHBOURS>(stripe[half]);
            all[half] = _mm256_add_epi64(all[half], _mm256_add_epi64(product, neighbours));
        }
    }
    all
}

#[inline]
#[target_feature(enable = "avx2")]
fn scramble(sums: __m256i, key: __m256i) -> __m256i {
    let mixed = _mm256_xor_si256(_mm256_xor_si256(sums, _mm256_srli_epi64::<47>(sums)), key);
    // A product by 32 bits, in halves: AVX2 has none of 64.
    let prime = _mm256_set1_epi64x(PRIME_32_1 as i64);
    let low = _mm256_mul_epu32(mixed, prime);
    let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(mixed), prime);
    _mm256_add_epi64(low, _mm256_slli_epi64::<32>(high))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(stripe: &[u8; STRIPE_BYTES]) -> [__m256i; 2] {
    let (halves, _) = stripe.as_chunks::<32>();
    // SAFETY: either array has the 32 bytes that are read, at any alignment.
    [0, 1].map(|half| unsafe { _mm256_loadu_si256(halves[half].as_ptr().cast()) })
}
