//! A group is two vectors of bytes, or sixteen of eight-byte values.

use core::arch::x86_64::*;

use super::{
    VALUE_BYTES,
    stretch::{Comparisons, GROUP, Near, Shadow, choose, in_signed_order},
};

/// Eight-byte values in a vector.
const LANES: usize = 4;

/// Vectors of eight-byte values in a group.
const VECTORS: usize = GROUP / LANES;

/// Marks the markers among bytes.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn choose_bytes(values: &[u8], shadow: &mut Shadow, bitmap: &mut [u64]) {
    match shadow.reach {
        16 => choose_bytes_in::<16>(values, shadow, bitmap),
        32 => choose_bytes_in::<32>(values, shadow, bitmap),
        _ => choose_bytes_in::<64>(values, shadow, bitmap),
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn choose_bytes_in<const SEGMENT: usize>(values: &[u8], shadow: &mut Shadow, bitmap: &mut [u64]) {
    choose::<_, SEGMENT>(
        values,
        shadow,
        bitmap,
        |values| largest_byte(values),
        |near, to, index| compare_bytes::<SEGMENT>(near, to, index),
        Comparisons::maxima::<SEGMENT>,
    );
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn compare_bytes<const SEGMENT: usize>(near: Near<'_, u8>, to: &mut Comparisons, index: usize) {
    let here = load_bytes(near.here);
    let [lower, upper] = here;
    let halves = if SEGMENT == GROUP {
        [_mm256_max_epu8(lower, upper); 2]
    } else {
        here
    };
    let peak = _mm256_set1_epi8(near.peak.cast_signed());
    let peaks = halves.map(|half| _mm256_max_epu8(largest_bytes::<SEGMENT>(half), peak));
    to.equal[index] = equal(here, peaks).to_le_bytes();
    to.larger_before[index] = larger(load_bytes(near.before), peaks).to_le_bytes();
    to.larger_after[index] = larger(load_bytes(near.after), peaks).to_le_bytes();
}

/// In each byte, the largest of its segment, or of the 32 if the segment is longer.
#[inline]
#[target_feature(enable = "avx2")]
fn largest_bytes<const SEGMENT: usize>(mut values: __m256i) -> __m256i {
    if SEGMENT >= 32 {
        values = _mm256_max_epu8(values, _mm256_permute4x64_epi64::<0b01_00_11_10>(values));
    }
    values = _mm256_max_epu8(values, _mm256_shuffle_epi32::<0b01_00_11_10>(values));
    values = _mm256_max_epu8(values, _mm256_shuffle_epi32::<0b10_11_00_01>(values));
    let halves_swapped = _mm256_or_si256(
        _mm256_slli_epi32::<16>(values),
        _mm256_srli_epi32::<16>(values),
    );
    values = _mm256_max_epu8(values, halves_swapped);
    let bytes_swapped = _mm256_or_si256(
        _mm256_slli_epi16::<8>(values),
        _mm256_srli_epi16::<8>(values),
    );
    _mm256_max_epu8(values, bytes_swapped)
}

/// The largest byte of a group.
#[inline]
#[target_feature(enable = "avx2")]
fn largest_byte(values: &[u8; GROUP]) -> u8 {
    let [lower, upper] = load_bytes(values);
    let largest = largest_bytes::<32>(_mm256_max_epu8(lower, upper));
    _mm_cvtsi128_si32(_mm256_castsi256_si128(largest)) as u8
}

/// Where bytes are equal.
#[inline]
#[target_feature(enable = "avx2")]
fn equal(a: [__m256i; 2], b: [__m256i; 2]) -> u64 {
    let lower = _mm256_movemask_epi8(_mm256_cmpeq_epi8(a[0], b[0])) as u32;
    let upper = _mm256_movemask_epi8(_mm256_cmpeq_epi8(a[1], b[1])) as u32;
    u64::from(lower) | u64::from(upper) << 32
}

/// Where a byte is larger than its peak.
#[inline]
#[target_feature(enable = "avx2")]
fn larger(values: [__m256i; 2], peaks: [__m256i; 2]) -> u64 {
    let larger = [
        _mm256_max_epu8(values[0], peaks[0]),
        _mm256_max_epu8(values[1], peaks[1]),
    ];
    !equal(larger, peaks)
}

/// Marks the markers among eight-byte values.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn choose_words(values: &[i64], shadow: &mut Shadow, bitmap: &mut [u64]) {
    match shadow.reach {
        16 => choose_words_in::<16>(values, shadow, bitmap),
        32 => choose_words_in::<32>(values, shadow, bitmap),
        _ => choose_words_in::<64>(values, shadow, bitmap),
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn choose_words_in<const SEGMENT: usize>(values: &[i64], shadow: &mut Shadow, bitmap: &mut [u64]) {
    choose::<_, SEGMENT>(
        values,
        shadow,
        bitmap,
        |values| largest_word(values),
        |near, to, index| compare_words::<SEGMENT>(near, to, index),
        Comparisons::maxima::<SEGMENT>,
    );
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn compare_words<const SEGMENT: usize>(near: Near<'_, i64>, to: &mut Comparisons, index: usize) {
    let here = load_words(near.here);
    let mut peaks = here;
    for segment in peaks.chunks_exact_mut(SEGMENT / LANES) {
        let peak = _mm256_set1_epi64x(near.peak);
        segment.fill(max_words(largest_words(segment), peak));
    }
    let (before, after) = (load_words(near.before), load_words(near.after));
    // The masks of two vectors make up a byte.
    for (byte, peaks) in peaks.as_chunks().0.iter().enumerate() {
        let of = |vectors: &[__m256i; VECTORS]| [vectors[2 * byte], vectors[2 * byte + 1]];
        to.equal[index][byte] = equal_words(of(&here), *peaks);
        to.larger_before[index][byte] = larger_words(of(&before), *peaks);
        to.larger_after[index][byte] = larger_words(of(&after), *peaks);
    }
}

/// Where values are equal.
#[inline]
#[target_feature(enable = "avx2")]
fn equal_words(a: [__m256i; 2], b: [__m256i; 2]) -> u8 {
    mask(_mm256_cmpeq_epi64(a[0], b[0])) | mask(_mm256_cmpeq_epi64(a[1], b[1])) << LANES
}

/// Where a value is larger than its peak.
#[inline]
#[target_feature(enable = "avx2")]
fn larger_words(values: [__m256i; 2], peaks: [__m256i; 2]) -> u8 {
    let lower = mask(_mm256_cmpgt_epi64(values[0], peaks[0]));
    let upper = mask(_mm256_cmpgt_epi64(values[1], peaks[1]));
    lower | upper << LANES
}

/// A bit a lane.
#[inline]
#[target_feature(enable = "avx2")]
fn mask(lanes: __m256i) -> u8 {
    _mm256_movemask_pd(_mm256_castsi256_pd(lanes)) as u8
}

/// In each lane, the larger.
#[inline]
#[target_feature(enable = "avx2")]
fn max_words(a: __m256i, b: __m256i) -> __m256i {
    _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(b, a))
}

/// In each lane, the largest of all.
#[inline]
#[target_feature(enable = "avx2")]
fn largest_words(vectors: &[__m256i]) -> __m256i {
    let mut values = vectors[0];
    for vector in &vectors[1..] {
        values = max_words(values, *vector);
    }
    values = max_words(values, _mm256_permute4x64_epi64::<0b01_00_11_10>(values));
    max_words(values, _mm256_shuffle_epi32::<0b01_00_11_10>(values))
}

/// The largest value of a group.
#[inline]
#[target_feature(enable = "avx2")]
fn largest_word(values: &[i64; GROUP]) -> i64 {
    let largest = largest_words(&load_words(values));
    _mm_cvtsi128_si64(_mm256_castsi256_si128(largest))
}

/// Reads the eight-byte values from `block` on, as numbers with a sign in the same order.
#[target_feature(enable = "avx2")]
pub(super) fn read_words(block: &[u8], values: &mut [i64]) {
    // Of each 16 bytes: a value from each of the first eight on, their bytes swapped.
    let order: [u8; GROUP] = core::array::from_fn(|i| (i / 8 + 7 - i % 8) as u8);
    let orders = load_bytes(&order);
    let sign = _mm256_set1_epi64x(i64::MIN);
    let (eights, rest) = values.as_chunks_mut::<8>();
    let pairs = block.as_chunks::<8>().0.windows(2);
    assert!(pairs.len() >= eights.len(), "a window begins at each");
    for (eight, pair) in eights.iter_mut().zip(pairs) {
        let bytes = broadcast(pair);
        for (values, order) in eight.as_chunks_mut().0.iter_mut().zip(orders) {
            let words = _mm256_shuffle_epi8(bytes, order);
            store_words(values, _mm256_xor_si256(words, sign));
        }
    }
    let read = 8 * eights.len();
    for (value, bytes) in rest.iter_mut().zip(block[read..].windows(VALUE_BYTES)) {
        *value = in_signed_order(bytes);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_bytes(values: &[u8; GROUP]) -> [__m256i; 2] {
    let halves = values.as_ptr().cast::<__m256i>();
    // SAFETY: an array of 64 bytes, which need not be aligned.
    unsafe {
        [
            _mm256_loadu_si256(halves),
            _mm256_loadu_si256(halves.add(1)),
        ]
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_words(values: &[i64; GROUP]) -> [__m256i; VECTORS] {
    let mut vectors = [_mm256_setzero_si256(); VECTORS];
    for (vector, values) in vectors.iter_mut().zip(values.as_chunks::<LANES>().0) {
        // SAFETY: an array of 32 bytes, which need not be aligned.
        *vector = unsafe { _mm256_loadu_si256(values.as_ptr().cast()) };
    }
    vectors
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_words(to: &mut [i64; LANES], values: __m256i) {
    // SAFETY: the array has room for 32 bytes, and need not be aligned.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), values) }
}

/// Sixteen bytes in each half.
#[inline]
#[target_feature(enable = "avx2")]
fn broadcast(pair: &[[u8; 8]]) -> __m256i {
    let bytes: &[u8; 16] = pair.as_flattened().first_chunk().expect("a pair");
    // SAFETY: an array of 16 bytes, which need not be aligned.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}
