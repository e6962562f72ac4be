//! Fingerprints: weak hashes of the windows that begin at markers (EndRE, section 5.1).
//!
//! A fingerprint is a lookup hint, never proof: Max-Match compares bytes before it
//! believes that two windows are equal (section 5.2.2), so it only has to be cheap and
//! well spread. It stays at the sender; no format depends on its value.
//!
//! Deviation: the paper takes Jenkins' hash. Here 16 bytes at a time are folded by one
//! wide multiplication, in the manner of wyhash; steps do not wait for each other.
//!
//! Built with `--cfg refrain_weak_hashes`, three bits are left, and nearly every two
//! windows collide: tests that must hold then show that nothing trusts a fingerprint.

/// A weak hash of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Fingerprint(pub u64);

/// The fingerprint of `window`.
///
/// # Panics
/// If the window is not 12 to 64 bytes long.
#[inline]
#[must_use]
pub(crate) fn fingerprint(window: &[u8]) -> Fingerprint {
    let folded = match window.as_chunks::<16>() {
        // The default, and all that most links ever take.
        ([first, second], []) => fold(first, KEYS[0]) ^ fold(second, KEYS[1]),
        _ => fold_any(window),
    };
    Fingerprint(if cfg!(refrain_weak_hashes) {
        folded & 7
    } else {
        folded
    })
}

fn fold_any(window: &[u8]) -> u64 {
    assert!(
        (12..=64).contains(&window.len()),
        "a window of {} bytes",
        window.len()
    );
    let Some(last) = window.last_chunk::<16>() else {
        let mut piece = [0; 16];
        piece[..8].copy_from_slice(&window[..8]);
        piece[8..].copy_from_slice(&window[window.len() - 8..]);
        return fold(&piece, TAIL_KEY);
    };
    // The last piece takes in what is left over, and some bytes for a second time.
    let (whole, _) = window.as_chunks::<16>();
    whole
        .iter()
        .zip(KEYS)
        .fold(fold(last, TAIL_KEY), |folded, (piece, key)| {
            folded ^ fold(piece, key)
        })
}

/// Arbitrary well-mixed numbers: the initial states of SHA-512, and then of SHA-384.
const KEYS: [(u64, u64); 4] = [
    (0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b),
    (0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1),
    (0x510e_527f_ade6_82d1, 0x9b05_688c_2b3e_6c1f),
    (0x1f83_d9ab_fb41_bd6b, 0x5be0_cd19_137e_2179),
];
const TAIL_KEY: (u64, u64) = (0xcbbb_9d5d_c105_9ed8, 0x629a_292a_367c_d507);

#[inline]
fn fold(piece: &[u8; 16], key: (u64, u64)) -> u64 {
    let words = u128::from_le_bytes(*piece);
    wide_fold(words as u64 ^ key.0, (words >> 64) as u64 ^ key.1)
}

/// Both halves of the product, into one.
#[inline]
fn wide_fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(all(test, not(refrain_weak_hashes)))]
mod tests {
    extern crate std;

    use super::*;
    use std::{collections::HashSet, vec::Vec};

    /// `count` different windows that have little between them: counters.
    fn fingerprints(window_bytes: usize, count: u32) -> impl Iterator<Item = u64> {
        (0..count).map(move |count| {
            let mut window = std::vec![0; window_bytes];
            let at = count as usize % (window_bytes - 3);
            window[at..at + 4].copy_from_slice(&(count + 1).to_be_bytes());
            fingerprint(&window).0
        })
    }

    #[test]
    fn equal_windows_agree_and_every_bit_counts() {
        for window_bytes in 12..=64 {
            let window: Vec<u8> = (1..=window_bytes).map(|byte| byte * 3).collect();
            let original = fingerprint(&window);
            assert_eq!(fingerprint(&window.clone()), original);
            for bit in 0..usize::from(window_bytes) * 8 {
                let mut changed = window.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let flipped = (fingerprint(&changed).0 ^ original.0).count_ones();
                assert!(
                    (8..=56).contains(&flipped),
                    "bit {bit} of {window_bytes} bytes"
                );
            }
        }
    }

    #[test]
    fn low_and_high_bits_spread() {
        const COUNT: u32 = 1 << 14;
        // Random values leave (1 - 1/e) of the slots taken, 10,357 on average, give or take 100.
        let expected = 10_000..10_700;
        for window_bytes in [12, 15, 16, 17, 31, 32, 33, 48, 63, 64] {
            for shift in [0, 50] {
                let slots: HashSet<u64> = fingerprints(window_bytes, COUNT)
                    .map(|fingerprint| fingerprint >> shift & u64::from(COUNT - 1))
                    .collect();
                let taken = slots.len();
                assert!(
                    expected.contains(&taken),
                    "{taken} at {window_bytes} and {shift}"
                );
            }
        }
    }
}
