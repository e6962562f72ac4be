//! What is known of each chunk until the table is written: its name, its length, and where it lies.

use crate::format::{ChunkName, part::ChunkPlace};

/// A chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: ChunkName,
    pub(super) bytes: u32,
    pub(super) place: ChunkPlace,
}

impl Row {
    /// Name, length, number of the frame (5 bytes), offset in it (3).
    pub(super) const BYTES: usize = 32;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let place = self.place.frame << 24 | u64::from(self.place.offset);
        let mut bytes = [0; Self::BYTES];
        bytes[..20].copy_from_slice(&self.name.0);
        bytes[20..24].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[24..].copy_from_slice(&place.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (name, rest) = bytes.split_first_chunk().expect("20 of 32 bytes");
        let (length, rest) = rest.split_first_chunk().expect("4 of 12 bytes");
        let place = u64::from_le_bytes(*rest.first_chunk().expect("8 bytes"));
        Self {
            name: ChunkName(*name),
            bytes: u32::from_le_bytes(*length),
            place: ChunkPlace {
                frame: place >> 24,
                offset: place as u32 & 0xff_ffff,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        for (frame, offset) in [(0, 0), (1, 0xff_ffff), ((1 << 40) - 1, 7)] {
            let row = Row {
                name: ChunkName::of(b"a chunk"),
                bytes: u32::MAX,
                place: ChunkPlace { frame, offset },
            };
            assert_eq!(Row::from_bytes(row.to_bytes()), row);
        }
    }
}
