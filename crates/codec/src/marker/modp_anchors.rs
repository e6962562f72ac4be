//! MODP for streams: windows of 48 bytes whose Rabin fingerprint takes a certain value modulo the
//! distance (CZIP, section 3; LBFS).
//!
//! A stream enters in pieces of any size, the increasing offsets of its anchors leave, each that of
//! its window's first byte, as with [PACK's](super::pack). The fingerprint and the test are those
//! of [`Modp`](super::MarkerAlgorithm::Modp), at any distance: the lowest log2 of it bits are all set.
//!
//! - Deviation from [`Modp`](super::MarkerAlgorithm::Modp): of neighbours that pass all are anchors. Runs of one
//!   byte, but for zeros, which have none, are all anchors or none; bounds of chunks decide there.
//!
//! The kernels test the lowest nine bits. Each further bit is a parity, of the bits of the window
//! that have it in their remainder, and is computed for the one window in 512 that has come so far;
//! half of them fail at the first one.

use alloc::vec::Vec;

use super::{FindAnchors, piece::Tail};
use crate::{
    sampling::{AnchorDistance, POLYNOMIAL, SamplingPeriod, WINDOW_BYTES, WindowBytes},
    simd::{Backend, modp::Kernel},
};

/// Positions tested before their anchors are written: few enough for the stack.
const STRETCH: usize = 4096;

/// A window as the processor loads it.
type Words = [u64; WINDOW_BYTES / 8];

/// Finds MODP anchors of a stream that comes in pieces.
///
/// ```
/// use refrain_codec::marker::{AnchorDistance, FindAnchors, ModpAnchorFinder};
///
/// let stream: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(i) >> 11) as u8).collect();
/// let distance = AnchorDistance::new(4096).expect("a power of two");
/// let mut whole = Vec::new();
/// ModpAnchorFinder::new(distance).feed(&stream, &mut whole);
///
/// let mut finder = ModpAnchorFinder::new(distance);
/// let mut anchors = Vec::new();
/// for piece in stream.chunks(1460) {
///     finder.feed(piece, &mut anchors);
/// }
/// assert!(!anchors.is_empty());
/// assert_eq!(anchors, whole);
/// ```
#[derive(Clone, Debug)]
pub struct ModpAnchorFinder {
    backend: Backend,
    kernel: Kernel,
    /// What the kernels test.
    period: SamplingPeriod,
    /// Of each further bit of the fingerprint, the bits of a window whose sum it is.
    further: Vec<Words>,
    tail: Tail,
    fed_bytes: u64,
}

impl ModpAnchorFinder {
    /// A finder at the start of a stream, on the machine's best kernels.
    #[must_use]
    pub fn new(distance: AnchorDistance) -> Self {
        let period = distance.bytes().min(SamplingPeriod::MAX.bytes());
        let tested = period.ilog2();
        Self {
            backend: Backend::best(),
            kernel: Kernel::new(WindowBytes::new(WINDOW_BYTES).expect("12 to 64")),
            period: SamplingPeriod::new(period).expect("a power of two from 64 to 512"),
            further: (tested..distance.bytes().ilog2()).map(summands).collect(),
            tail: Tail::EMPTY,
            fed_bytes: 0,
        }
    }

    /// The same finder on the kernels of `backend`.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Appends the anchors of a stream in which `bytes` lie at `start` whose windows lie in them.
    fn search(&self, bytes: &[u8], start: u64, anchors: &mut Vec<u64>) {
        let count = (bytes.len() + 1).saturating_sub(WINDOW_BYTES);
        let mut bitmap = [0; STRETCH / 64];
        for from in (0..count).step_by(STRETCH) {
            let positions = STRETCH.min(count - from);
            let bitmap = &mut bitmap[..positions.div_ceil(64)];
            let stretch = &bytes[from..];
            self.kernel
                .test(self.backend, stretch, positions, self.period, bitmap);
            for (word, at) in bitmap.iter().zip((from..).step_by(64)) {
                let mut passes = *word;
                while passes != 0 {
                    let at = at + passes.trailing_zeros() as usize;
                    passes &= passes - 1;
                    if self.further_bits_are_set(&bytes[at..]) {
                        anchors.push(start + at as u64);
                    }
                }
            }
        }
    }

    /// Of the window that `bytes` begin with.
    #[inline]
    fn further_bits_are_set(&self, bytes: &[u8]) -> bool {
        let words = bytes.as_chunks().0;
        self.further.iter().all(|summands| {
            let summands = words.iter().zip(summands);
            let sum = summands.fold(0, |sum, (&word, of)| sum ^ u64::from_le_bytes(word) & of);
            sum.count_ones() % 2 == 1
        })
    }
}

impl FindAnchors for ModpAnchorFinder {
    fn feed(&mut self, piece: &[u8], anchors: &mut Vec<u64>) {
        let start = self.fed_bytes;
        let crossing = self.tail.and(start, piece).crossing();
        self.search(crossing.bytes(), crossing.start, anchors);
        self.search(piece, start, anchors);
        self.fed_bytes = start + piece.len() as u64;
        self.tail.push(piece);
    }

    fn fed_bytes(&self) -> u64 {
        self.fed_bytes
    }

    fn reset(&mut self) {
        self.tail = Tail::EMPTY;
        self.fed_bytes = 0;
    }
}

/// By which a Rabin fingerprint rolls along a stream, a byte at a time (Broder, *Some applications of
/// Rabin's fingerprinting method*): for whoever finds these anchors elsewhere.
///
/// ```
/// use refrain_codec::marker::RabinTables;
///
/// let RabinTables { entering, leaving } = RabinTables::new();
/// let fingerprint = |bytes: &[u8]| {
///     let mut fingerprint = 0_u64;
///     for (index, byte) in bytes.iter().enumerate() {
///         let highest = (fingerprint >> 56) as u8 ^ byte.reverse_bits();
///         fingerprint = fingerprint << 8 ^ entering[usize::from(highest)];
///         if index >= 48 {
///             fingerprint ^= leaving[usize::from(bytes[index - 48])];
///         }
///     }
///     fingerprint
/// };
/// let stream: Vec<u8> = (0..100_u8).map(|n| n.wrapping_mul(n)).collect();
/// assert_eq!(fingerprint(&stream), fingerprint(&stream[52..]));
/// ```
#[derive(Clone, Debug)]
pub struct RabinTables {
    /// What is added for a byte that enters, by the fingerprint's highest byte plus that byte with
    /// its bits reversed.
    pub entering: [u64; 256],
    /// What is added for the byte that leaves, 48 bytes later.
    pub leaving: [u64; 256],
}

impl RabinTables {
    /// Makes them.
    #[must_use]
    pub fn new() -> Self {
        let mut tables = Self {
            entering: [0; 256],
            leaving: [0; 256],
        };
        for byte in 0..=255_u8 {
            let mut remainder = u64::from(byte.reverse_bits());
            for shift in 1..=64 + 8 * WINDOW_BYTES {
                let carry = if remainder >> 63 == 1 { POLYNOMIAL } else { 0 };
                remainder = remainder << 1 ^ carry;
                if shift == 64 {
                    tables.entering[usize::from(byte.reverse_bits())] = remainder;
                }
            }
            tables.leaving[usize::from(byte)] = remainder;
        }
        tables
    }
}

impl Default for RabinTables {
    fn default() -> Self {
        Self::new()
    }
}

/// The bits of a window in whose remainders `bit` is set: the fingerprint is linear.
fn summands(bit: u32) -> Words {
    let mut words = [0; WINDOW_BYTES / 8];
    // x^64 is what becomes of the window's last bit, x times as much of each before.
    let mut remainder = POLYNOMIAL;
    for index in (0..8 * WINDOW_BYTES).rev() {
        words[index / 64] |= (remainder >> bit & 1) << (index % 64);
        let carry = if remainder >> 63 == 1 { POLYNOMIAL } else { 0 };
        remainder = remainder << 1 ^ carry;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{marker::pack::streams, reference::markers::modp_anchors};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn anchors_equal_the_reference_however_the_stream_is_split(
            stream in streams::stream(),
            cuts in streams::cuts(),
            bits in 6_u32..=20,
        ) {
            let distance = AnchorDistance::new(1 << bits).expect("valid");
            let expected = modp_anchors(&stream, distance);
            for backend in Backend::available() {
                let mut finder = ModpAnchorFinder::new(distance).with_backend(backend);
                // The second time, it must have forgotten the first.
                for _ in 0..2 {
                    let mut anchors = Vec::new();
                    for piece in streams::split(&stream, &cuts) {
                        finder.feed(piece, &mut anchors);
                    }
                    prop_assert_eq!(&anchors, &expected, "{:?}", backend);
                    prop_assert_eq!(finder.fed_bytes(), stream.len() as u64);
                    finder.reset();
                }
            }
        }
    }

    #[test]
    fn each_doubling_of_the_distance_keeps_half_of_the_anchors() {
        let stream = streams::random(3, 64 << 20);
        let mut before: Option<Vec<u64>> = None;
        for bits in 6..=18 {
            let distance = AnchorDistance::new(1 << bits).expect("valid");
            let mut anchors = Vec::new();
            ModpAnchorFinder::new(distance).feed(&stream, &mut anchors);
            let expected = stream.len() >> bits;
            assert!(anchors.len().abs_diff(expected) < expected / 4, "{bits}");
            if let Some(before) = &before {
                let is_known = |anchor| before.binary_search(anchor).is_ok();
                assert!(anchors.iter().all(is_known));
            }
            before = Some(anchors);
        }
    }

    #[test]
    fn the_longest_distance_is_that_of_the_fingerprint() {
        let distance = AnchorDistance::MAX;
        let stream = streams::random(7, 16 << 20);
        let mut anchors = Vec::new();
        ModpAnchorFinder::new(distance).feed(&stream, &mut anchors);
        assert!((8..32).contains(&anchors.len()), "{}", anchors.len());
        for anchor in anchors {
            let window = &stream[anchor as usize..][..WINDOW_BYTES];
            let last_bits = (distance.bytes() - 1) as u64;
            let fingerprint = crate::reference::markers::rabin_fingerprint(window);
            assert_eq!(fingerprint & last_bits, last_bits);
        }
    }

    #[test]
    fn zeros_have_no_anchor() {
        let mut anchors = Vec::new();
        ModpAnchorFinder::new(AnchorDistance::MIN).feed(&[0; 100_000], &mut anchors);
        assert_eq!(anchors, []);
    }
}
