//! Four blocks in a register, sixteen registers before a reduction.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_loadu_si128, _mm_shuffle_epi32,
    _mm_slli_si128, _mm_srli_si128, _mm_storeu_si128, _mm_xor_si128, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_setzero_si512, _mm512_ternarylogic_epi64,
    _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::LINE_BYTES;

/// Lines of a stretch.
const LINES: usize = 16;

/// x^127 + x^126 + x^121 + 1, which the field's polynomial has beside x^128, without its last
/// term.
const POLYNOMIAL: i64 = 0xc2 << 56;

/// The powers of a key.
pub(super) struct KeyedPolyval {
    /// From the 64th, by which a stretch's first block is multiplied, to the first.
    powers: [[u8; LINE_BYTES]; LINES],
}

/// A product that is to be reduced: the two halves' own, and the sum of the two between.
#[derive(Clone, Copy)]
struct Product {
    low: __m512i,
    middle: __m512i,
    high: __m512i,
}

impl KeyedPolyval {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq,pclmulqdq")]
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let key = load_block(key);
        let mut powers = [[0; LINE_BYTES]; LINES];
        let mut power = key;
        for block in powers.as_flattened_mut().rchunks_exact_mut(16) {
            let block: &mut [u8; 16] = block.try_into().expect("16 bytes");
            store(power, block);
            power = dot(power, key);
        }
        Self { powers }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq,pclmulqdq")]
    pub(super) fn hash(&self, first: [u8; 16], message: &[u8]) -> [u8; 16] {
        let key = load_block(self.powers[LINES - 1].last_chunk().expect("16 bytes"));
        let mut sum = dot(load_block(&first), key);
        let (lines, rest) = message.as_chunks::<LINE_BYTES>();
        let (stretches, lines) = lines.as_chunks::<LINES>();
        for stretch in stretches {
            sum = self.add_stretch(sum, stretch, &[]);
        }
        if !lines.is_empty() || !rest.is_empty() {
            sum = self.add_stretch(sum, lines, rest);
        }
        let mut hash = [0; 16];
        store(sum, &mut hash);
        hash
    }

    /// Adds up to [`LINES`] lines, the last of which may be `rest`, one that is not whole.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,vpclmulqdq,pclmulqdq")]
    fn add_stretch(&self, sum: __m128i, lines: &[[u8; LINE_BYTES]], rest: &[u8]) -> __m128i {
        let count = lines.len() + usize::from(!rest.is_empty());
        let powers = &self.powers[LINES - count..];
        let zero = _mm512_setzero_si512();
        let mut product = Product {
            low: zero,
            middle: zero,
            high: zero,
        };
        let mut before = _mm512_zextsi128_si512(sum);
        for (line, power) in lines.iter().zip(powers) {
            product.add(_mm512_xor_si512(load(line), before), load(power));
            before = zero;
        }
        if !rest.is_empty() {
            product.add(
                _mm512_xor_si512(load_rest(rest), before),
                load(&powers[count - 1]),
            );
        }
        product.reduced()
    }
}

impl Product {
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn add(&mut self, a: __m512i, b: __m512i) {
        let low = _mm512_clmulepi64_epi128::<0x00>(a, b);
        let high = _mm512_clmulepi64_epi128::<0x11>(a, b);
        let one = _mm512_clmulepi64_epi128::<0x01>(a, b);
        let other = _mm512_clmulepi64_epi128::<0x10>(a, b);
        self.low = _mm512_xor_si512(self.low, low);
        self.high = _mm512_xor_si512(self.high, high);
        self.middle = _mm512_ternarylogic_epi64::<0b1001_0110>(self.middle, one, other);
    }

    /// The sum of the four, reduced as Montgomery does: twice 64 bits from below.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,pclmulqdq")]
    fn reduced(self) -> __m128i {
        let [low, middle, high] = [self.low, self.middle, self.high].map(|four| folded(four));
        reduce(
            _mm_xor_si128(low, _mm_slli_si128::<8>(middle)),
            _mm_xor_si128(high, _mm_srli_si128::<8>(middle)),
        )
    }
}

/// a * b * x^-128.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn dot(a: __m128i, b: __m128i) -> __m128i {
    let middle = _mm_xor_si128(
        _mm_clmulepi64_si128::<0x01>(a, b),
        _mm_clmulepi64_si128::<0x10>(a, b),
    );
    reduce(
        _mm_xor_si128(
            _mm_clmulepi64_si128::<0x00>(a, b),
            _mm_slli_si128::<8>(middle),
        ),
        _mm_xor_si128(
            _mm_clmulepi64_si128::<0x11>(a, b),
            _mm_srli_si128::<8>(middle),
        ),
    )
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
fn reduce(low: __m128i, high: __m128i) -> __m128i {
    let polynomial = _mm_cvtsi64_si128(POLYNOMIAL);
    let mut low = low;
    for _ in 0..2 {
        let quotient = _mm_clmulepi64_si128::<0x00>(low, polynomial);
        low = _mm_xor_si128(_mm_shuffle_epi32::<0b01_00_11_10>(low), quotient);
    }
    _mm_xor_si128(low, high)
}

/// The sum of the four blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn folded(four: __m512i) -> __m128i {
    let [a, b] = [
        _mm512_extracti32x4_epi32::<0>(four),
        _mm512_extracti32x4_epi32::<1>(four),
    ];
    let [c, d] = [
        _mm512_extracti32x4_epi32::<2>(four),
        _mm512_extracti32x4_epi32::<3>(four),
    ];
    _mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(line: &[u8; LINE_BYTES]) -> __m512i {
    // SAFETY: the array has the 64 bytes that are read, at any alignment.
    unsafe { _mm512_loadu_si512(line.as_ptr().cast()) }
}

/// A line of fewer bytes, then zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_rest(rest: &[u8]) -> __m512i {
    let mut line = [0; LINE_BYTES];
    line[..rest.len()].copy_from_slice(rest);
    load(&line)
}

#[inline]
fn load_block(block: &[u8; 16]) -> __m128i {
    // SAFETY: the array has the 16 bytes that are read, at any alignment.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

#[inline]
fn store(value: __m128i, block: &mut [u8; 16]) {
    // SAFETY: the array has the 16 bytes that are written, at any alignment.
    unsafe { _mm_storeu_si128(block.as_mut_ptr().cast(), value) }
}
