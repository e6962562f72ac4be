//! What is known of each chunk until the table is written: its name, its length, and where it lies.

use crate::{
    format::{ChunkName, part::ChunkPlace},
    records::Entry,
};

/// A chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: ChunkName,
    pub(super) bytes: u32,
    pub(super) place: ChunkPlace,
}

impl Row {
    /// Its place is the number of the frame (5 bytes) and the offset in it (3).
    pub(super) fn to_bytes(self) -> [u8; Entry::BYTES] {
        let Self { name, bytes, place } = self;
        let at = place.frame << 24 | u64::from(place.offset);
        Entry { name, bytes, at }.to_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; Entry::BYTES]) -> Self {
        let Entry { name, bytes, at } = Entry::parse(&bytes);
        let place = ChunkPlace {
            frame: at >> 24,
            offset: at as u32 & 0xff_ffff,
        };
        Self { name, bytes, place }
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
