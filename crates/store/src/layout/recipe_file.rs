//! The recipe file of a segment: a header, then pieces of recipes, one after the other.
//!
//! A piece holds up to 128 chunks of one flow, by their keys. The first piece of a flow says what
//! it looked like at its opening; a later one says where the one before it lies, in this segment
//! or an older one.

use super::{FORMAT_VERSION, take};
use crate::{
    OpeningKey,
    key::{IndexKey, KEY_BYTES, check},
};

pub(crate) const HEADER_BYTES: usize = 16;

/// Entries of a piece.
pub(crate) const ENTRIES_MAX: usize = 128;

/// What a piece takes beside its entries: checksum, count, realm, flags.
const PIECE_HEADER_BYTES: usize = 7;

/// The most that a piece takes.
pub(crate) const PIECE_BYTES_MAX: usize = PIECE_HEADER_BYTES + 16 + ENTRIES_MAX * KEY_BYTES;

const MAGIC: [u8; 8] = *b"rfnrecip";

const HAS_OPENING: u8 = 1;
const HAS_PREVIOUS: u8 = 2;

/// What a recipe file begins with.
pub(crate) fn encode_header(segment: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[12..].copy_from_slice(&segment.to_le_bytes());
    bytes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PieceAt {
    pub(crate) segment: u32,
    /// In the segment's recipe file.
    pub(crate) offset: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) realm_slot: u8,
    pub(crate) opening: Option<OpeningKey>,
    pub(crate) previous: Option<PieceAt>,
    /// 1 to [`ENTRIES_MAX`]
    pub(crate) keys: Vec<IndexKey>,
}

impl Piece {
    /// Bytes that a piece takes.
    pub(crate) fn bytes_of(has_opening: bool, has_previous: bool, entries: usize) -> usize {
        let optional = if has_opening { 8 } else { 0 } + if has_previous { 8 } else { 0 };
        PIECE_HEADER_BYTES + optional + entries * KEY_BYTES
    }

    pub(crate) fn encoded_bytes(&self) -> usize {
        Self::bytes_of(
            self.opening.is_some(),
            self.previous.is_some(),
            self.keys.len(),
        )
    }

    pub(crate) fn encode(&self, segment: u32) -> Vec<u8> {
        debug_assert!((1..=ENTRIES_MAX).contains(&self.keys.len()));
        let mut bytes = Vec::with_capacity(self.encoded_bytes());
        bytes.extend([0; 4]);
        bytes.push(self.keys.len() as u8);
        bytes.push(self.realm_slot);
        bytes.push(0);
        if let Some(OpeningKey(key)) = self.opening {
            bytes[6] |= HAS_OPENING;
            bytes.extend(key.to_le_bytes());
        }
        if let Some(previous) = self.previous {
            bytes[6] |= HAS_PREVIOUS;
            bytes.extend(previous.segment.to_le_bytes());
            bytes.extend(previous.offset.to_le_bytes());
        }
        bytes.extend(self.keys.iter().flat_map(|key| key.0));
        let check = check(&[&segment.to_le_bytes(), &bytes[4..]]);
        bytes[..4].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The piece that `bytes` begin with, if it is whole.
    pub(crate) fn parse(segment: u32, bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let found = u32::from_le_bytes(take(&mut rest)?);
        let [count, realm_slot, flags]: [u8; 3] = take(&mut rest)?;
        if !(1..=ENTRIES_MAX).contains(&usize::from(count)) || flags > HAS_OPENING + HAS_PREVIOUS {
            return None;
        }
        let mut opening = None;
        if flags & HAS_OPENING != 0 {
            opening = Some(OpeningKey(u64::from_le_bytes(take(&mut rest)?)));
        }
        let mut previous = None;
        if flags & HAS_PREVIOUS != 0 {
            previous = Some(PieceAt {
                segment: u32::from_le_bytes(take(&mut rest)?),
                offset: u32::from_le_bytes(take(&mut rest)?),
            });
        }
        let keys = rest.get(..usize::from(count) * KEY_BYTES)?;
        let end = bytes.len() - rest.len() + keys.len();
        if check(&[&segment.to_le_bytes(), &bytes[4..end]]) != found {
            return None;
        }
        let (keys, _) = keys.as_chunks();
        Some(Self {
            realm_slot,
            opening,
            previous,
            keys: keys.iter().map(|&key| IndexKey(key)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece() -> impl Strategy<Value = Piece> {
        (
            any::<u8>(),
            any::<Option<u64>>(),
            any::<Option<(u32, u32)>>(),
            prop::collection::vec(any::<[u8; KEY_BYTES]>(), 1..=ENTRIES_MAX),
        )
            .prop_map(|(realm_slot, opening, previous, keys)| Piece {
                realm_slot,
                opening: opening.map(OpeningKey),
                previous: previous.map(|(segment, offset)| PieceAt { segment, offset }),
                keys: keys.into_iter().map(IndexKey).collect(),
            })
    }

    proptest! {
        #[test]
        fn pieces_are_read_back_and_no_flipped_bit_passes(
            piece in piece(), segment: u32, bit: prop::sample::Index,
        ) {
            let mut bytes = piece.encode(segment);
            prop_assert_eq!(bytes.len(), piece.encoded_bytes());
            prop_assert!(bytes.len() <= PIECE_BYTES_MAX);
            prop_assert_eq!(Piece::parse(segment, &bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(Piece::parse(segment ^ 1, &bytes), None);
            bytes.extend([1; 3]);
            prop_assert_eq!(Piece::parse(segment, &bytes), Some(piece.clone()));
            let bit = bit.index(piece.encoded_bytes() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Piece::parse(segment, &bytes), None);
        }

        #[test]
        fn any_bytes_are_a_piece_or_none(segment: u32, bytes: Vec<u8>) {
            if let Some(piece) = Piece::parse(segment, &bytes) {
                prop_assert_eq!(&piece.encode(segment), &bytes[..piece.encoded_bytes()]);
            }
        }
    }
}
