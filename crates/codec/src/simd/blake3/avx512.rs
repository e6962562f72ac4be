//! 32 lanes: two vectors of 16, whose steps alternate, since those of one wait for each other.

use core::arch::x86_64::*;

use super::{
    DIGEST_BYTES,
    lanes::{BLOCK_BYTES, CHUNK_START, Lanes, PARENT},
    rounds::{IV, rounds},
};

pub(super) const LANES: usize = 32;

/// One word of each lane.
type Words = [__m512i; 2];

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add(a: Words, b: Words) -> Words {
    [_mm512_add_epi32(a[0], b[0]), _mm512_add_epi32(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn xor(a: Words, b: Words) -> Words {
    [_mm512_xor_si512(a[0], b[0]), _mm512_xor_si512(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn rotate_right<const BITS: i32>(a: Words) -> Words {
    [
        _mm512_ror_epi32::<BITS>(a[0]),
        _mm512_ror_epi32::<BITS>(a[1]),
    ]
}

/// Compresses one block in each lane.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn compress(lanes: &mut Lanes<LANES>, blocks: &[&[u8]; LANES]) {
    let (low, high) = blocks.split_at(LANES / 2);
    let (low, high) = (transposed_blocks(low), transposed_blocks(high));
    let mut message = [[_mm512_setzero_si512(); 2]; 16];
    for word in 0..16 {
        message[word] = [low[word], high[word]];
    }

    let flags = load(&lanes.flags);
    let starts = _mm512_set1_epi32(i32::from(CHUNK_START | PARENT));
    let starting = [
        _mm512_test_epi32_mask(flags[0], starts),
        _mm512_test_epi32_mask(flags[1], starts),
    ];
    let zero = [_mm512_setzero_si512(); 2];
    let mut v = [zero; 16];
    for word in 0..8 {
        let initial = _mm512_set1_epi32(IV[word] as i32);
        let chain = load(&lanes.chain[word]);
        v[word] = [
            _mm512_mask_mov_epi32(chain[0], starting[0], initial),
            _mm512_mask_mov_epi32(chain[1], starting[1], initial),
        ];
    }
    for word in 0..4 {
        v[8 + word] = [_mm512_set1_epi32(IV[word] as i32); 2];
    }
    v[12] = load(&lanes.counter);
    v[14] = load(&lanes.block_bytes);
    v[15] = flags;

    rounds!(v, message);

    let mut chain = [zero; 8];
    for word in 0..8 {
        chain[word] = xor(v[word], v[8 + word]);
        store(&mut lanes.chain[word], chain[word]);
    }
    let (low, high) = lanes.values.split_at_mut(LANES / 2);
    store_values(low, chain.map(|words| words[0]));
    store_values(high, chain.map(|words| words[1]));
}

/// Word by word, what the blocks of 16 lanes hold; zeros after the end of a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transposed_blocks(blocks: &[&[u8]]) -> [__m512i; 16] {
    let mut rows = [_mm512_setzero_si512(); 16];
    for (row, block) in rows.iter_mut().zip(blocks) {
        *row = load_block(block);
    }
    let (rows, _) = rows.as_chunks::<4>();
    let fours = [
        transposed_fours(rows[0]),
        transposed_fours(rows[1]),
        transposed_fours(rows[2]),
        transposed_fours(rows[3]),
    ];
    let mut words = [_mm512_setzero_si512(); 16];
    for n in 0..4 {
        let [a, b, c, d] = [fours[0][n], fours[1][n], fours[2][n], fours[3][n]];
        let even_ab = _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b);
        let even_cd = _mm512_shuffle_i32x4::<0b10_00_10_00>(c, d);
        let odd_ab = _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b);
        let odd_cd = _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d);
        words[n] = _mm512_shuffle_i32x4::<0b10_00_10_00>(even_ab, even_cd);
        words[4 + n] = _mm512_shuffle_i32x4::<0b10_00_10_00>(odd_ab, odd_cd);
        words[8 + n] = _mm512_shuffle_i32x4::<0b11_01_11_01>(even_ab, even_cd);
        words[12 + n] = _mm512_shuffle_i32x4::<0b11_01_11_01>(odd_ab, odd_cd);
    }
    words
}

/// Writes the chaining values of 16 lanes lane by lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_values(values: &mut [[u8; DIGEST_BYTES]], chain: [__m512i; 8]) {
    let [a, b, c, d, e, f, g, h] = chain;
    let low = transposed_fours([a, b, c, d]);
    let high = transposed_fours([e, f, g, h]);
    let front = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    let back = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for n in 0..4 {
        let values_front = _mm512_permutex2var_epi64(low[n], front, high[n]);
        let values_back = _mm512_permutex2var_epi64(low[n], back, high[n]);
        store_value(&mut values[n], _mm512_castsi512_si256(values_front));
        store_value(
            &mut values[4 + n],
            _mm512_extracti64x4_epi64::<1>(values_front),
        );
        store_value(&mut values[8 + n], _mm512_castsi512_si256(values_back));
        store_value(
            &mut values[12 + n],
            _mm512_extracti64x4_epi64::<1>(values_back),
        );
    }
}

/// The 4 x 4 words in each 128 bits of four rows, transposed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transposed_fours([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let ab_low = _mm512_unpacklo_epi32(a, b);
    let ab_high = _mm512_unpackhi_epi32(a, b);
    let cd_low = _mm512_unpacklo_epi32(c, d);
    let cd_high = _mm512_unpackhi_epi32(c, d);
    [
        _mm512_unpacklo_epi64(ab_low, cd_low),
        _mm512_unpackhi_epi64(ab_low, cd_low),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_block(block: &[u8]) -> __m512i {
    // What a mask leaves out is not read, but is slow where it could not be.
    let mask = match block.len() {
        0 => return _mm512_setzero_si512(),
        BLOCK_BYTES.. => u64::MAX,
        len => (1 << len) - 1,
    };
    // SAFETY: the mask has no bit beyond the block's length.
    unsafe { _mm512_maskz_loadu_epi8(mask, block.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(words: &[u32; LANES]) -> Words {
    let (vectors, _) = words.as_chunks::<16>();
    // SAFETY: 16 words each.
    unsafe {
        [
            _mm512_loadu_si512(vectors[0].as_ptr().cast()),
            _mm512_loadu_si512(vectors[1].as_ptr().cast()),
        ]
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store(words: &mut [u32; LANES], value: Words) {
    let (vectors, _) = words.as_chunks_mut::<16>();
    // SAFETY: 16 words each.
    unsafe {
        _mm512_storeu_si512(vectors[0].as_mut_ptr().cast(), value[0]);
        _mm512_storeu_si512(vectors[1].as_mut_ptr().cast(), value[1]);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_value(place: &mut [u8; DIGEST_BYTES], value: __m256i) {
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), value) }
}
