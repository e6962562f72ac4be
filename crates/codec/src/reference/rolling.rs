//! Anchors of a stream a byte at a time, as one program of the field after another finds them: what
//! fast kernels are measured against.
//!
//! - [`RollingFinder::modp`]: a Rabin fingerprint that rolls along by two tables (Broder, *Some
//!   applications of Rabin's fingerprinting method*; HARENS, section III.A): one for the byte that
//!   enters, one for the byte that leaves.
//! - [`RollingFinder::pack`]: PACK's rolling value (Proc. 8), whose oldest byte leaves by itself.

use alloc::{boxed::Box, vec::Vec};

use crate::marker::{
    AnchorDistance, FindAnchors, RabinTables,
    backup::{Rank, rank},
    pack::WINDOW_BYTES,
    sparse,
};

/// Finds the anchors of a stream, a byte at a time.
#[derive(Clone, Debug)]
pub struct RollingFinder {
    test: Test,
    /// Up to 47 bytes.
    tail: Vec<u8>,
    fed_bytes: u64,
}

#[derive(Clone, Debug)]
enum Test {
    Modp {
        tables: Box<RabinTables>,
        last_bits: u64,
    },
    Pack {
        mask: u64,
        rank_min: Rank,
    },
}

impl RollingFinder {
    /// Finds the anchors of [`ModpAnchorFinder`](crate::marker::ModpAnchorFinder).
    #[must_use]
    pub fn modp(distance: AnchorDistance) -> Self {
        Self::by(Test::Modp {
            tables: Box::default(),
            last_bits: distance.bytes() as u64 - 1,
        })
    }

    /// Finds the anchors of [`AnchorFinder::sparse`](crate::marker::AnchorFinder::sparse).
    #[must_use]
    pub fn pack(distance: AnchorDistance) -> Self {
        let (mask, rank_min) = sparse::parts(distance);
        let mask = mask.bits();
        Self::by(Test::Pack { mask, rank_min })
    }

    fn by(test: Test) -> Self {
        Self {
            test,
            tail: Vec::new(),
            fed_bytes: 0,
        }
    }
}

impl FindAnchors for RollingFinder {
    fn feed(&mut self, piece: &[u8], anchors: &mut Vec<u64>) {
        let start = self.fed_bytes - self.tail.len() as u64;
        let mut bytes = [&self.tail[..], piece].concat();
        let add = |first: usize| anchors.push(start + first as u64);
        match &self.test {
            Test::Modp { tables, last_bits } => modp(&bytes, tables, *last_bits, add),
            Test::Pack { mask, rank_min } => pack(&bytes, *mask, *rank_min, add),
        }
        // Of what is kept, windows begin that end in the next piece.
        bytes.drain(..bytes.len().saturating_sub(WINDOW_BYTES - 1));
        self.tail = bytes;
        self.fed_bytes += piece.len() as u64;
    }

    fn fed_bytes(&self) -> u64 {
        self.fed_bytes
    }

    fn reset(&mut self) {
        self.tail.clear();
        self.fed_bytes = 0;
    }
}

fn modp(bytes: &[u8], tables: &RabinTables, last_bits: u64, mut add: impl FnMut(usize)) {
    let RabinTables { entering, leaving } = tables;
    let mut fingerprint = 0_u64;
    for (index, &byte) in bytes.iter().enumerate() {
        let highest = (fingerprint >> 56) as u8 ^ byte.reverse_bits();
        fingerprint = fingerprint << 8 ^ entering[usize::from(highest)];
        if index >= WINDOW_BYTES {
            fingerprint ^= leaving[usize::from(bytes[index - WINDOW_BYTES])];
        }
        if index + 1 >= WINDOW_BYTES && fingerprint & last_bits == last_bits {
            add(index + 1 - WINDOW_BYTES);
        }
    }
}

fn pack(bytes: &[u8], mask: u64, rank_min: Rank, mut add: impl FnMut(usize)) {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().enumerate() {
        value = value << 1 ^ u64::from(byte);
        if index + 1 < WINDOW_BYTES || value & mask != mask {
            continue;
        }
        let first = index + 1 - WINDOW_BYTES;
        let window = bytes[first..].first_chunk().expect("a whole window");
        if rank(window) >= rank_min {
            add(first);
        }
    }
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
            let anchors = find(&mut RollingFinder::modp(distance), &pieces);
            prop_assert_eq!(anchors, modp_anchors(&stream, distance));
            let anchors = find(&mut RollingFinder::pack(distance), &pieces);
            prop_assert_eq!(anchors, sparse_anchors(&stream, distance));
        }
    }
}
