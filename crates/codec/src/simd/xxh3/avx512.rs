//! All eight accumulators in one register.

use core::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_loadu_si512, _mm512_mul_epu32, _mm512_mullo_epi64,
    _mm512_set1_epi64, _mm512_shuffle_epi32, _mm512_srli_epi64, _mm512_storeu_si512,
    _mm512_xor_si512,
};

use super::long::{
    PRIME_32_1, SCRAMBLE_SECRET, SECRET_STEP_BYTES, STRIPE_BYTES, STRIPES_A_BLOCK, stripe_at,
};

/// Swaps neighbouring words of 64 bits.
const NEIGHBOURS: i32 = 0b01_00_11_10;

#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn accumulate(sums: &mut [u64; 8], stripes: &[[u8; STRIPE_BYTES]], secret: &[u8]) {
    // SAFETY: eight words are 64 bytes.
    let mut all = unsafe { _mm512_loadu_si512(sums.as_ptr().cast()) };
    let (blocks, rest) = stripes.as_chunks::<STRIPES_A_BLOCK>();
    for block in blocks {
        all = add_stripes(all, block, secret);
        let key = load(stripe_at(secret, SCRAMBLE_SECRET));
        let mixed = _mm512_xor_si512(_mm512_xor_si512(all, _mm512_srli_epi64::<47>(all)), key);
        all = _mm512_mullo_epi64(mixed, _mm512_set1_epi64(PRIME_32_1 as i64));
    }
    all = add_stripes(all, rest, secret);
    // SAFETY: as above.
    unsafe { _mm512_storeu_si512(sums.as_mut_ptr().cast(), all) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn add_stripes(mut all: __m512i, stripes: &[[u8; STRIPE_BYTES]], secret: &[u8]) -> __m512i {
    for (index, stripe) in stripes.iter().enumerate() {
        let words = load(stripe);
        let key = _mm512_xor_si512(words, load(stripe_at(secret, index * SECRET_STEP_BYTES)));
        let product = _mm512_mul_epu32(key, _mm512_srli_epi64::<32>(key));
        let neighbours = _mm512_shuffle_epi32::<NEIGHBOURS>(words);
        all = _mm512_add_epi64(all, _mm512_add_epi64(product, neighbours));
    }
    all
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn load(bytes: &[u8; STRIPE_BYTES]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read, at any alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}
