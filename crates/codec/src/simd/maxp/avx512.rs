//! A group is one vector of bytes, or eight of eight-byte values.

use core::arch::x86_64::*;

use super::{
    VALUE_BYTES,
    stretch::{BATCH, Comparisons, GROUP, Near, Shadow, choose, in_signed_order},
};

/// Eight-byte values in a vector.
const LANES: usize = 8;

/// Vectors of eight-byte values in a group.
const VECTORS: usize = GROUP / LANES;

/// Marks the markers among bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vbmi2,bmi1,bmi2,popcnt")]
pub(super) fn choose_bytes(values: &[u8], shadow: &mut Shadow, bitmap: &mut [u64]) {
    match shadow.reach {
        16 => choose_bytes_in::<16>(values, shadow, bitmap),
        32 => choose_bytes_in::<32>(values, shadow, bitmap),
        _ => choose_bytes_in::<64>(values, shadow, bitmap),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vbmi2,bmi1,bmi2,popcnt")]
fn choose_bytes_in<const SEGMENT: usize>(values: &[u8], shadow: &mut Shadow, bitmap: &mut [u64]) {
    choose::<_, SEGMENT>(
        values,
        shadow,
        bitmap,
        |values| largest_byte(values),
        |near, to, index| compare_bytes::<SEGMENT>(near, to, index),
        |all| maxima::<SEGMENT>(all),
    );
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vbmi2,bmi1,bmi2,popcnt")]
fn compare_bytes<const SEGMENT: usize>(near: Near<'_, u8>, to: &mut Comparisons, index: usize) {
    let here = load_bytes(near.here);
    let peak = _mm512_set1_epi8(near.peak.cast_signed());
    let peaks = _mm512_max_epu8(largest_bytes::<SEGMENT>(here), peak);
    let equal = _mm512_cmpeq_epu8_mask(here, peaks);
    let larger_before = _mm512_cmpgt_epu8_mask(load_bytes(near.before), peaks);
    let larger_after = _mm512_cmpgt_epu8_mask(load_bytes(near.after), peaks);
    to.equal[index] = equal.to_le_bytes();
    to.larger_before[index] = larger_before.to_le_bytes();
    to.larger_after[index] = larger_after.to_le_bytes();
}

/// In each byte, the largest of its segment.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2")]
fn largest_bytes<const SEGMENT: usize>(mut values: __m512i) -> __m512i {
    if SEGMENT >= 64 {
        values = _mm512_max_epu8(
            values,
            _mm512_shuffle_i64x2::<0b01_00_11_10>(values, values),
        );
    }
    if SEGMENT >= 32 {
        values = _mm512_max_epu8(
            values,
            _mm512_shuffle_i64x2::<0b10_11_00_01>(values, values),
        );
    }
    values = _mm512_max_epu8(values, _mm512_shuffle_epi32::<0b01_00_11_10>(values));
    values = _mm512_max_epu8(values, _mm512_shuffle_epi32::<0b10_11_00_01>(values));
    values = _mm512_max_epu8(values, _mm512_rol_epi32::<16>(values));
    _mm512_max_epu8(values, _mm512_shldi_epi16::<8>(values, values))
}

/// Where nothing within reach is larger.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd")]
fn maxima<const SEGMENT: usize>(comparisons: &Comparisons) -> [u64; BATCH] {
    let load = |masks: &[[u8; 8]; BATCH]| {
        load_bytes(masks.as_flattened().first_chunk().expect("a vector"))
    };
    let equal = load(&comparisons.equal);
    let before = load(&comparisons.larger_before);
    let after = load(&comparisons.larger_after);
    // In each segment: all bits up to the last before, and from the first after.
    let zero = _mm512_setzero_si512();
    let all = _mm512_set1_epi8(-1);
    let (below_larger, above_larger) = match SEGMENT {
        16 => {
            let mut below = before;
            below = _mm512_or_si512(below, _mm512_srli_epi16::<1>(below));
            below = _mm512_or_si512(below, _mm512_srli_epi16::<2>(below));
            below = _mm512_or_si512(below, _mm512_srli_epi16::<4>(below));
            below = _mm512_or_si512(below, _mm512_srli_epi16::<8>(below));
            (below, _mm512_sub_epi16(zero, after))
        }
        32 => (
            _mm512_srlv_epi32(all, _mm512_lzcnt_epi32(before)),
            _mm512_sub_epi32(zero, after),
        ),
        _ => (
            _mm512_srlv_epi64(all, _mm512_lzcnt_epi64(before)),
            _mm512_sub_epi64(zero, after),
        ),
    };
    let larger = _mm512_or_si512(_mm512_or_si512(below_larger, above_larger), after);
    let mut maxima = [0; BATCH];
    store(&mut maxima, _mm512_andnot_si512(larger, equal));
    maxima.map(i64::cast_unsigned)
}

/// The largest byte of a group.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2")]
fn largest_byte(values: &[u8; GROUP]) -> u8 {
    let largest = largest_bytes::<GROUP>(load_bytes(values));
    _mm_cvtsi128_si32(_mm512_castsi512_si128(largest)) as u8
}

/// Marks the markers among eight-byte values.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vbmi2,bmi1,bmi2,popcnt")]
pub(super) fn choose_words(values: &[i64], shadow: &mut Shadow, bitmap: &mut [u64]) {
    match shadow.reach {
        16 => choose_words_in::<16>(values, shadow, bitmap),
        32 => choose_words_in::<32>(values, shadow, bitmap),
        _ => choose_words_in::<64>(values, shadow, bitmap),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vbmi2,bmi1,bmi2,popcnt")]
fn choose_words_in<const SEGMENT: usize>(values: &[i64], shadow: &mut Shadow, bitmap: &mut [u64]) {
    choose::<_, SEGMENT>(
        values,
        shadow,
        bitmap,
        |values| largest_word(values),
        |near, to, index| compare_words::<SEGMENT>(near, to, index),
        |all| maxima::<SEGMENT>(all),
    );
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vbmi2,bmi1,bmi2,popcnt")]
fn compare_words<const SEGMENT: usize>(near: Near<'_, i64>, to: &mut Comparisons, index: usize) {
    let here = load_words(near.here);
    let mut peaks = here;
    for segment in peaks.chunks_exact_mut(SEGMENT / LANES) {
        let peak = _mm512_set1_epi64(near.peak);
        segment.fill(_mm512_max_epi64(largest_words(segment), peak));
    }
    let (before, after) = (load_words(near.before), load_words(near.after));
    for (vector, &peak) in peaks.iter().enumerate() {
        to.equal[index][vector] = _mm512_cmpeq_epi64_mask(here[vector], peak);
        to.larger_before[index][vector] = _mm512_cmpgt_epi64_mask(before[vector], peak);
        to.larger_after[index][vector] = _mm512_cmpgt_epi64_mask(after[vector], peak);
    }
}

/// In each lane, the largest of all.
#[inline]
#[target_feature(enable = "avx512f")]
fn largest_words(vectors: &[__m512i]) -> __m512i {
    let mut values = vectors[0];
    for vector in &vectors[1..] {
        values = _mm512_max_epi64(values, *vector);
    }
    values = _mm512_max_epi64(
        values,
        _mm512_shuffle_i64x2::<0b01_00_11_10>(values, values),
    );
    values = _mm512_max_epi64(
        values,
        _mm512_shuffle_i64x2::<0b10_11_00_01>(values, values),
    );
    _mm512_max_epi64(values, _mm512_shuffle_epi32::<0b01_00_11_10>(values))
}

/// The largest value of a group.
#[inline]
#[target_feature(enable = "avx512f")]
fn largest_word(values: &[i64; GROUP]) -> i64 {
    let largest = largest_words(&load_words(values));
    _mm_cvtsi128_si64(_mm512_castsi512_si128(largest))
}

/// Reads the eight-byte values from `block` on, as numbers with a sign in the same order.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn read_words(block: &[u8], values: &mut [i64]) {
    // Of each 16 bytes: a value from each of the first eight on, their bytes swapped.
    let order: [u8; 64] = core::array::from_fn(|i| (i / 8 + 7 - i % 8) as u8);
    let order = load_bytes(&order);
    let sign = _mm512_set1_epi64(i64::MIN);
    let (vectors, rest) = values.as_chunks_mut::<LANES>();
    let pairs = block.as_chunks::<8>().0.windows(2);
    assert!(pairs.len() >= vectors.len(), "a window begins at each");
    for (vector, pair) in vectors.iter_mut().zip(pairs) {
        let words = _mm512_shuffle_epi8(broadcast(pair), order);
        store(vector, _mm512_xor_si512(words, sign));
    }
    let read = LANES * vectors.len();
    for (value, bytes) in rest.iter_mut().zip(block[read..].windows(VALUE_BYTES)) {
        *value = in_signed_order(bytes);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_bytes(values: &[u8; GROUP]) -> __m512i {
    // SAFETY: an array of 64 bytes, which need not be aligned.
    unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_words(values: &[i64; GROUP]) -> [__m512i; VECTORS] {
    let mut vectors = [_mm512_setzero_si512(); VECTORS];
    for (vector, values) in vectors.iter_mut().zip(values.as_chunks::<LANES>().0) {
        // SAFETY: an array of 64 bytes, which need not be aligned.
        *vector = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
    }
    vectors
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [i64; LANES], values: __m512i) {
    // SAFETY: the array has room for 64 bytes, and need not be aligned.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), values) }
}

/// Sixteen bytes in each quarter.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(pair: &[[u8; 8]]) -> __m512i {
    let bytes: &[u8; 16] = pair.as_flattened().first_chunk().expect("a pair");
    // SAFETY: an array of 16 bytes, which need not be aligned.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}
