//! With words; a compiler makes vector compares of the steps.

const STEP: usize = 32;

pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (steps_a, rest_a) = a.as_chunks::<STEP>();
    let (steps_b, rest_b) = b.as_chunks::<STEP>();
    for (index, (x, y)) in steps_a.iter().zip(steps_b).enumerate() {
        if x != y {
            return index * STEP + prefix_by_words(x, y);
        }
    }
    steps_a.len() * STEP + prefix_by_words(rest_a, rest_b)
}

pub(super) fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let (rest_a, steps_a) = a.as_rchunks::<STEP>();
    let (rest_b, steps_b) = b.as_rchunks::<STEP>();
    for (index, (x, y)) in steps_a.iter().rev().zip(steps_b.iter().rev()).enumerate() {
        if x != y {
            return index * STEP + suffix_by_words(x, y);
        }
    }
    steps_a.len() * STEP + suffix_by_words(rest_a, rest_b)
}

pub(super) fn equal_bytes(a: &[u8], b: &[u8]) -> u64 {
    let (words_a, rest_a) = a.as_chunks::<8>();
    let (words_b, rest_b) = b.as_chunks::<8>();
    let words = words_a.iter().zip(words_b).enumerate();
    let bits = words.fold(0, |bits, (index, (&x, &y))| {
        bits | zero_bytes(u64::from_le_bytes(x) ^ u64::from_le_bytes(y)) << (8 * index)
    });
    let rest = rest_a.iter().zip(rest_b).zip(8 * words_a.len()..);
    rest.fold(bits, |bits, ((x, y), index)| {
        bits | u64::from(x == y) << index
    })
}

/// A bit for each byte of `word` that is 0, in the lowest eight.
fn zero_bytes(word: u64) -> u64 {
    const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The top bit of each byte: whether any of its bits is set.
    let set = (((word & LOW_BITS) + LOW_BITS) | word) & !LOW_BITS;
    let zero = !set & !LOW_BITS;
    // The product brings the eight top bits together.
    (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

fn prefix_by_words(a: &[u8], b: &[u8]) -> usize {
    let (words_a, rest_a) = a.as_chunks::<8>();
    let (words_b, rest_b) = b.as_chunks::<8>();
    for (index, (&x, &y)) in words_a.iter().zip(words_b).enumerate() {
        let difference = u64::from_le_bytes(x) ^ u64::from_le_bytes(y);
        if difference != 0 {
            return index * 8 + difference.trailing_zeros() as usize / 8;
        }
    }
    let equal = rest_a.iter().zip(rest_b).take_while(|(x, y)| x == y);
    words_a.len() * 8 + equal.count()
}

fn suffix_by_words(a: &[u8], b: &[u8]) -> usize {
    let (rest_a, words_a) = a.as_rchunks::<8>();
    let (rest_b, words_b) = b.as_rchunks::<8>();
    for (index, (&x, &y)) in words_a.iter().rev().zip(words_b.iter().rev()).enumerate() {
        let difference = u64::from_le_bytes(x) ^ u64::from_le_bytes(y);
        if difference != 0 {
            return index * 8 + difference.leading_zeros() as usize / 8;
        }
    }
    let equal = rest_a.iter().rev().zip(rest_b.iter().rev());
    words_a.len() * 8 + equal.take_while(|(x, y)| x == y).count()
}
