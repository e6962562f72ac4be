//! Anchors of a stream a byte at a time, as one program of the field after another finds them: what
//! fast kernels are measured against.
//!
//! - [`RollingModp`]: a Rabin fingerprint that rolls along by two tables (Broder, *Some applications
//!   of Rabin's fingerprinting method*; HARENS, section III.A): one for the byte that enters, one for
//!   the byte that leaves.
//! - [`RollingPack`]: PACK's rolling value (Proc. 8), whose oldest byte leaves by itself.

use alloc::vec::Vec;

use crate::{
    marker::{
        AnchorDistance, FindAnchors, RabinTables, backup::Rank, backup::rank, pack::WINDOW_BYTES,
        sparse,
    },
    simd::Backend,
};

/// The anchors of [`ModpAnchorFinder`](crate::marker::ModpAnchorFinder), with the same ends.
#[derive(Clone, Debug)]
pub struct RollingModp {
    distance: AnchorDistance,
    tables: RabinTables,
    /// Up to 47 bytes.
    tail: Vec<u8>,
    fed_bytes: u64,
}

impl RollingModp {
    /// A finder at the start of a stream.
    #[must_use]
    pub fn new(distance: AnchorDistance) -> Self {
        Self {
            distance,
            tables: RabinTables::new(),
            tail: Vec::new(),
            fed_bytes: 0,
        }
    }
}

impl FindAnchors for RollingModp {
    fn feed(&mut self, piece: &[u8], anchors: &mut Vec<u64>) {
        let RabinTables { entering, leaving } = &self.tables;
        let last_bits = self.distance.bytes() as u64 - 1;
        let start = self.fed_bytes - self.tail.len() as u64;
        let bytes = [&self.tail[..], piece].concat();
        let mut fingerprint = 0_u64;
        for (index, &byte) in bytes.iter().enumerate() {
            let highest = (fingerprint >> 56) as u8 ^ byte.reverse_bits();
            fingerprint = fingerprint << 8 ^ entering[usize::from(highest)];
            if index >= WINDOW_BYTES {
                fingerprint ^= leaving[usize::from(bytes[index - WINDOW_BYTES])];
            }
            if index + 1 >= WINDOW_BYTES && fingerprint & last_bits == last_bits {
                anchors.push(start + (index + 1 - WINDOW_BYTES) as u64);
            }
        }
        keep_tail(bytes, &mut self.tail);
        self.fed_bytes += piece.len() as u64;
    }

    fn fed_bytes(&self) -> u64 {
        self.fed_bytes
    }

    fn reset(&mut self) {
        self.tail.clear();
        self.fed_bytes = 0;
    }

    fn backend(&self) -> Backend {
        Backend::PORTABLE
    }
}

/// The anchors of [`SparseAnchorFinder`](crate::marker::SparseAnchorFinder).
#[derive(Clone, Debug)]
pub struct RollingPack {
    mask: u64,
    rank_min: Rank,
    /// Up to 47 bytes.
    tail: Vec<u8>,
    fed_bytes: u64,
}

impl RollingPack {
    /// A finder at the start of a stream.
    #[must_use]
    pub fn new(distance: AnchorDistance) -> Self {
        let (mask, rank_min) = sparse::parts(distance);
        Self {
            mask: mask.bits(),
            rank_min,
            tail: Vec::new(),
            fed_bytes: 0,
        }
    }
}

impl FindAnchors for RollingPack {
    fn feed(&mut self, piece: &[u8], anchors: &mut Vec<u64>) {
        let start = self.fed_bytes - self.tail.len() as u64;
        let bytes = [&self.tail[..], piece].concat();
        let mut value = 0_u64;
        for (index, &byte) in bytes.iter().enumerate() {
            value = value << 1 ^ u64::from(byte);
            if index + 1 < WINDOW_BYTES || value & self.mask != self.mask {
                continue;
            }
            let first = index + 1 - WINDOW_BYTES;
            let window = bytes[first..].first_chunk().expect("a whole window");
            if rank(window) >= self.rank_min {
                anchors.push(start + first as u64);
            }
        }
        keep_tail(bytes, &mut self.tail);
        self.fed_bytes += piece.len() as u64;
    }

    fn fed_bytes(&self) -> u64 {
        self.fed_bytes
    }

    fn reset(&mut self) {
        self.tail.clear();
        self.fed_bytes = 0;
    }

    fn backend(&self) -> Backend {
        Backend::PORTABLE
    }
}

/// The last bytes, of which windows begin that end in the next piece.
fn keep_tail(mut bytes: Vec<u8>, tail: &mut Vec<u8>) {
    bytes.drain(..bytes.len().saturating_sub(WINDOW_BYTES - 1));
    *tail = bytes;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        marker::pack::streams,
        reference::{markers::modp_anchors, pack::sparse_anchors},
    };
    use proptest::prelude::*;

    fn find(finder: &mut impl FindAnchors, pieces: &[&[u8]]) -> Vec<u64> {
        finder.feed(b"of another stream", &mut Vec::new());
        finder.reset();
        let mut anchors = Vec::new();
        for piece in pieces {
            finder.feed(piece, &mut anchors);
        }
        anchors
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn anchors_are_those_of_the_definition(
            stream in streams::stream(),
            cuts in streams::cuts(),
            bits in 6_u32..=16,
        ) {
            let distance = AnchorDistance::new(1 << bits).expect("valid");
            let pieces = streams::split(&stream, &cuts);
            let anchors = find(&mut RollingModp::new(distance), &pieces);
            prop_assert_eq!(anchors, modp_anchors(&stream, distance));
            let anchors = find(&mut RollingPack::new(distance), &pieces);
            prop_assert_eq!(anchors, sparse_anchors(&stream, distance));
        }
    }
}
