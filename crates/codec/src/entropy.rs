//! A cheap test whether compressing a block can pay.
//!
//! It counts how often two bytes of a sample are equal (the collision probability, or
//! Rényi entropy of order 2): 1/256 for bytes of full entropy, about 1/15 for English.
//! A sum of squares needs no logarithm, and a few thousand bytes are enough.

/// Blocks shorter than this are not worth a verdict.
const SAMPLE_BYTES_MIN: usize = 1024;

/// The sample: so many pieces of so many bytes, spread over the block.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 512;

/// Whether `block` looks like bytes of full entropy: encrypted, compressed, media.
/// `None` for blocks too short to tell.
#[must_use]
pub fn is_full_entropy(block: &[u8]) -> Option<bool> {
    if block.len() < SAMPLE_BYTES_MIN {
        return None;
    }
    let mut counts = [0u32; 256];
    let mut sampled = 0u64;
    let stride = (block.len() / PIECES).max(1);
    for piece in block.chunks(stride).take(PIECES) {
        let piece = &piece[..piece.len().min(PIECE_BYTES)];
        sampled += piece.len() as u64;
        for &byte in piece {
            counts[usize::from(byte)] += 1;
        }
    }
    // Pairs of equal bytes, against what 256 equally likely values would give.
    let equal_pairs: u64 = counts
        .iter()
        .map(|&n| u64::from(n) * u64::from(n).saturating_sub(1))
        .sum();
    let expected = sampled * (sampled - 1) / 256;
    Some(equal_pairs * 8 < expected * 9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    #[test]
    fn noise_is_told_from_text() {
        assert_eq!(is_full_entropy(&noise(64 << 10)), Some(true));
        assert_eq!(is_full_entropy(&noise(1024)), Some(true));
        let text = "the verse that comes back; ".repeat(200);
        assert_eq!(is_full_entropy(text.as_bytes()), Some(false));
        let hexadecimal: Vec<u8> = noise(4096)
            .iter()
            .map(|b| b"0123456789abcdef"[usize::from(b & 15)])
            .collect();
        assert_eq!(is_full_entropy(&hexadecimal), Some(false));
        assert_eq!(is_full_entropy(&[0; 100]), None);
    }

    #[test]
    fn compressed_text_has_full_entropy() {
        let words: Vec<u8> = noise(200_000).iter().map(|b| b'a' + b % 23).collect();
        let compressed = zstd::bulk::compress(&words, 3).expect("compresses");
        assert_eq!(is_full_entropy(&compressed), Some(true));
    }
}
