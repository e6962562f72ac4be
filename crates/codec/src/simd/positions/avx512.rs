//! Eight positions a batch: the bytes 0 to 63 at the set bits, moved together and widened.

use alloc::vec::Vec;
use core::arch::x86_64::*;

const BATCH: usize = 8;

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,avx512vpopcntdq,popcnt")]
pub(super) fn append(bitmap: &[u64], first: u32, positions: &mut Vec<u32>) {
    let found: usize = bitmap.iter().map(|word| word.count_ones() as usize).sum();
    let mut end = positions.len();
    // What the last batch writes too much has room as well.
    positions.resize(end + found + BATCH, 0);
    let places = places();
    let mut base = _mm256_set1_epi32(first.cast_signed());
    for &word in bitmap {
        let mut set = _mm512_maskz_compress_epi8(word, places);
        let count = word.count_ones() as usize;
        let mut batch_start = end;
        loop {
            let batch = positions[batch_start..].first_chunk_mut();
            let wide = _mm256_cvtepu8_epi32(_mm512_castsi512_si128(set));
            store(batch.expect("room"), _mm256_add_epi32(wide, base));
            batch_start += BATCH;
            if batch_start >= end + count {
                break;
            }
            set = _mm512_alignr_epi64::<1>(set, set);
        }
        end += count;
        base = _mm256_add_epi32(base, _mm256_set1_epi32(64));
    }
    positions.truncate(end);
}

/// The bytes 0 to 63.
#[inline]
#[target_feature(enable = "avx512f")]
fn places() -> __m512i {
    let places: [u8; 64] = core::array::from_fn(|place| place as u8);
    // SAFETY: an array of 64 bytes, which need not be aligned.
    unsafe { _mm512_loadu_si512(places.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [u32; BATCH], positions: __m256i) {
    // SAFETY: the array has room for 8 positions, and need not be aligned.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), positions) }
}
