//! How far two ranges of bytes agree: what Max-Match grows its regions by.
//!
//! ```text
//! common_prefix(a, b) = the largest n with a[..n] == b[..n]
//! common_suffix(a, b) = the largest n with equal last n bytes
//! equal_bytes(a, b) = a bit for each of the first 64 bytes, set where a[i] == b[i]
//! ```
//!
//! Most regions are short, so that a version lives by what it does with the first and the last
//! few bytes: AVX-512 reads them with masks, the others step down from vectors to words.

use super::Backend;

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx2;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;
mod portable;

/// Most bytes that [`equal_bytes`] looks at.
pub(crate) const EQUAL_BYTES_MAX: usize = 64;

/// Length of the common prefix of `a` and `b`.
#[inline]
pub(crate) fn common_prefix(backend: Backend, a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    dispatch!(backend, common_prefix(a, b))
}

/// Length of the common suffix of `a` and `b`.
#[inline]
pub(crate) fn common_suffix(backend: Backend, a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[a.len() - len..], &b[b.len() - len..]);
    dispatch!(backend, common_suffix(a, b))
}

/// A bit for each byte of `a` that equals the one of `b`, the first byte's the lowest; none
/// beyond the shorter of them, nor beyond [`EQUAL_BYTES_MAX`].
#[inline]
pub(crate) fn equal_bytes(backend: Backend, a: &[u8], b: &[u8]) -> u64 {
    let len = a.len().min(b.len()).min(EQUAL_BYTES_MAX);
    let (a, b) = (&a[..len], &b[..len]);
    dispatch!(backend, equal_bytes(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::{collection::vec, prelude::*};

    /// Two ranges that agree for a while, differ, and agree again.
    fn ranges() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let flips = vec((0_usize..300, 1_u8..=255), 0..4);
        (vec(any::<u8>(), 0..300), flips, 0_usize..20, 0_usize..20).prop_map(
            |(a, flips, cut_a, cut_b)| {
                let mut b = a.clone();
                for (index, flip) in flips {
                    if let Some(byte) = b.get_mut(index) {
                        *byte ^= flip;
                    }
                }
                let keep =
                    |bytes: &[u8], cut: usize| bytes[..bytes.len().saturating_sub(cut)].to_vec();
                (keep(&a, cut_a), keep(&b, cut_b))
            },
        )
    }

    proptest! {
        #[test]
        fn all_backends_find_what_a_bytewise_search_finds((a, b) in ranges()) {
            let prefix = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
            let suffix = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
            let pairs = a.iter().zip(&b).take(64).enumerate();
            let equal = pairs.fold(0, |bits, (i, (x, y))| bits | u64::from(x == y) << i);
            for backend in Backend::available() {
                prop_assert_eq!(common_prefix(backend, &a, &b), prefix, "{:?}", backend);
                prop_assert_eq!(common_suffix(backend, &a, &b), suffix, "{:?}", backend);
                prop_assert_eq!(equal_bytes(backend, &a, &b), equal, "{:?}", backend);
            }
        }
    }
}
