//! 8 lanes.

use core::arch::x86_64::*;

use super::{
    DIGEST_BYTES,
    lanes::{BLOCK_BYTES, CHUNK_START, Lanes, PARENT},
    rounds::{IV, rounds},
};

pub(super) const LANES: usize = 8;

/// One word of each lane.
type Words = __m256i;

#[inline]
#[target_feature(enable = "avx2")]
fn add(a: Words, b: Words) -> Words {
    _mm256_add_epi32(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor(a: Words, b: Words) -> Words {
    _mm256_xor_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn rotate_right<const BITS: i32>(a: Words) -> Words {
    match BITS {
        16 => _mm256_shuffle_epi8(a, each_word([2, 3, 0, 1])),
        8 => _mm256_shuffle_epi8(a, each_word([1, 2, 3, 0])),
        12 => _mm256_or_si256(_mm256_srli_epi32::<12>(a), _mm256_slli_epi32::<20>(a)),
        7 => _mm256_or_si256(_mm256_srli_epi32::<7>(a), _mm256_slli_epi32::<25>(a)),
        _ => unreachable!("no such rotation in a round"),
    }
}

/// For a shuffle: takes these bytes of each word.
#[inline]
#[target_feature(enable = "avx2")]
fn each_word(bytes: [u8; 4]) -> __m256i {
    let first = _mm_cvtsi32_si128(i32::from_le_bytes(bytes));
    let offsets = _mm256_setr_epi32(
        0,
        0x0404_0404,
        0x0808_0808,
        0x0c0c_0c0c,
        0,
        0x0404_0404,
        0x0808_0808,
        0x0c0c_0c0c,
    );
    _mm256_add_epi8(_mm256_broadcastd_epi32(first), offsets)
}

/// Compresses one block in each lane.
#[target_feature(enable = "avx2")]
pub(super) fn compress(lanes: &mut Lanes<LANES>, blocks: &[&[u8]; LANES]) {
    let message = transposed_blocks(blocks);
    let flags = load(&lanes.flags);
    let starts = _mm256_set1_epi32(i32::from(CHUNK_START | PARENT));
    let continuing = _mm256_cmpeq_epi32(_mm256_and_si256(flags, starts), _mm256_setzero_si256());
    let mut v = [_mm256_setzero_si256(); 16];
    for word in 0..8 {
        let initial = _mm256_set1_epi32(IV[word] as i32);
        v[word] = _mm256_blendv_epi8(initial, load(&lanes.chain[word]), continuing);
    }
    for word in 0..4 {
        v[8 + word] = _mm256_set1_epi32(IV[word] as i32);
    }
    v[12] = load(&lanes.counter);
    v[14] = load(&lanes.block_bytes);
    v[15] = flags;

    rounds!(v, message);

    let mut chain = [_mm256_setzero_si256(); 8];
    for word in 0..8 {
        chain[word] = xor(v[word], v[8 + word]);
        store(&mut lanes.chain[word], chain[word]);
    }
    for (value, row) in lanes.values.iter_mut().zip(transposed(chain)) {
        store_value(value, row);
    }
}

/// Word by word, what the blocks hold; zeros after the end of a block.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed_blocks(blocks: &[&[u8]; LANES]) -> [__m256i; 16] {
    let mut low = [_mm256_setzero_si256(); 8];
    let mut high = low;
    for lane in 0..LANES {
        (low[lane], high[lane]) = load_block(blocks[lane]);
    }
    let (low, high) = (transposed(low), transposed(high));
    let mut words = [_mm256_setzero_si256(); 16];
    words[..8].copy_from_slice(&low);
    words[8..].copy_from_slice(&high);
    words
}

/// 8 × 8 words.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed([a, b, c, d, e, f, g, h]: [__m256i; 8]) -> [__m256i; 8] {
    let low = transposed_fours([a, b, c, d]);
    let high = transposed_fours([e, f, g, h]);
    let mut words = [_mm256_setzero_si256(); 8];
    for n in 0..4 {
        words[n] = _mm256_permute2x128_si256::<0x20>(low[n], high[n]);
        words[4 + n] = _mm256_permute2x128_si256::<0x31>(low[n], high[n]);
    }
    words
}

/// The 4 × 4 words in each 128 bits of four rows, transposed.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed_fours([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    let ab_low = _mm256_unpacklo_epi32(a, b);
    let ab_high = _mm256_unpackhi_epi32(a, b);
    let cd_low = _mm256_unpacklo_epi32(c, d);
    let cd_high = _mm256_unpackhi_epi32(c, d);
    [
        _mm256_unpacklo_epi64(ab_low, cd_low),
        _mm256_unpackhi_epi64(ab_low, cd_low),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_block(block: &[u8]) -> (__m256i, __m256i) {
    match block.as_array() {
        Some(block) => load_whole_block(block),
        None => {
            let mut padded = [0; BLOCK_BYTES];
            padded[..block.len()].copy_from_slice(block);
            load_whole_block(&padded)
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_whole_block(block: &[u8; BLOCK_BYTES]) -> (__m256i, __m256i) {
    // SAFETY: 64 bytes are two vectors.
    unsafe {
        let vectors = block.as_ptr().cast::<__m256i>();
        (
            _mm256_loadu_si256(vectors),
            _mm256_loadu_si256(vectors.add(1)),
        )
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(words: &[u32; LANES]) -> __m256i {
    // SAFETY: 8 words are a vector.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(words: &mut [u32; LANES], value: __m256i) {
    // SAFETY: 8 words are a vector.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), value) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_value(place: &mut [u8; DIGEST_BYTES], value: __m256i) {
    // SAFETY: 32 bytes are a vector.
    unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), value) }
}
