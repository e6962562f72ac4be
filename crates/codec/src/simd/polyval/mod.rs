//! POLYVAL (RFC 8452, section 3): a polynomial over GF(2^128), evaluated at a secret point.
//!
//! ```text
//! sum = 0
//! for each block of 16 bytes:
//!     sum = dot(sum ^ block, key)         dot(a, b) = a * b * x^-128 in the field
//! ```
//!
//! Horner's rule is a chain of multiplications that wait for each other. With the key's powers at
//! hand the blocks of a stretch are multiplied independently, and their sum is reduced once.
//!
//! The `polyval` crate, which all versions are held equal to, does so with eight blocks and
//! registers of one; AVX-512 multiplies four blocks at once, several times as fast.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod avx512;

use polyval::{Polyval, universal_hash::UniversalHash};

use super::Backend;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use super::InstructionSet;

/// Messages are hashed in whole lines, zeros behind their last byte.
pub(crate) const LINE_BYTES: usize = 64;

/// POLYVAL with one key.
pub(crate) struct KeyedPolyval {
    polyval: Polyval,
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    vectors: Option<avx512::KeyedPolyval>,
}

impl KeyedPolyval {
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_feature = "sse2")),
        expect(unused_variables, reason = "the crate finds its instructions itself")
    )]
    pub(crate) fn new(backend: Backend, key: &[u8; 16]) -> Self {
        Self {
            polyval: Polyval::new(key.into()),
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            vectors: match backend.instruction_set() {
                // SAFETY: the backend exists, so its instructions do.
                InstructionSet::Avx512 => Some(unsafe { avx512::KeyedPolyval::new(key) }),
                _ => None,
            },
        }
    }

    /// Of the block `first`, and of `message` in whole lines.
    pub(crate) fn hash(&self, first: [u8; 16], message: &[u8]) -> [u8; 16] {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        if let Some(vectors) = &self.vectors {
            // SAFETY: it was made for a backend that exists.
            return unsafe { vectors.hash(first, message) };
        }
        let mut polyval = self.polyval.clone();
        polyval.update(&[first.into()]);
        let (lines, rest) = message.as_chunks::<LINE_BYTES>();
        polyval.update_padded(lines.as_flattened());
        if !rest.is_empty() {
            let mut line = [0; LINE_BYTES];
            line[..rest.len()].copy_from_slice(rest);
            polyval.update_padded(&line);
        }
        polyval.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn bytes<const LEN: usize>(hex: &str) -> [u8; LEN] {
        core::array::from_fn(|at| {
            u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("two digits")
        })
    }

    /// RFC 8452, appendix A: a key, two blocks, and their hash. Zeros before a message change nothing.
    #[test]
    fn the_published_hash_is_found() {
        let key = bytes("25629347589242761d31f826ba4b757b");
        let [first, second]: [[u8; 16]; 2] = [
            bytes("4f4f95668c83dfb6401762bb2d01a262"),
            bytes("d1a24ddd2721d006bbe45f20d3c9f362"),
        ];
        let expected: [u8; 16] = bytes("f7a3b47b846119fae5b7866cf5e5b77e");
        let message = [[0; 16], [0; 16], first, second].concat();
        for backend in Backend::available() {
            let keyed = KeyedPolyval::new(backend, &key);
            assert_eq!(keyed.hash([0; 16], &message), expected, "{backend:?}");
        }
    }

    proptest! {
        #[test]
        fn all_backends_equal_the_crate(
            key: [u8; 16],
            first: [u8; 16],
            len in prop_oneof![0_usize..200, 900_usize..1200, 2000_usize..5000],
            factor: u32,
        ) {
            let message: Vec<u8> = (0..len as u32)
                .map(|index| (index.wrapping_mul(factor) >> 13) as u8)
                .collect();
            let mut padded = message.clone();
            padded.resize(len.next_multiple_of(LINE_BYTES), 0);
            let mut polyval = Polyval::new((&key).into());
            polyval.update(&[first.into()]);
            polyval.update_padded(&padded);
            let expected: [u8; 16] = polyval.finalize().into();
            for backend in Backend::available() {
                let keyed = KeyedPolyval::new(backend, &key);
                prop_assert_eq!(keyed.hash(first, &message), expected, "{:?}", backend);
            }
        }
    }
}
