//! What is known of each chunk until the table is written: its name, its length, and where it lies.
//!
//! Rows are few bytes each, but a terabyte has tens of millions: past a bound they are in a
//! temporary file, where those are changed whose frame is made late.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt, path::Path};

use crate::format::{ChunkName, part::ChunkPlace};

/// Rows in memory before they go to the file.
const ROWS_IN_MEMORY_MAX: usize = 1 << 17;

/// A row in the file: name, length, number of the frame (5 bytes), offset in it (3).
const ROW_BYTES: usize = 32;
const PLACE_AT: usize = 24;

/// A chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: ChunkName,
    pub(super) bytes: u32,
    pub(super) place: ChunkPlace,
}

fn place_bytes(place: ChunkPlace) -> [u8; 8] {
    (place.frame << 24 | u64::from(place.offset)).to_le_bytes()
}

impl Row {
    fn to_bytes(self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        bytes[..20].copy_from_slice(&self.name.0);
        bytes[20..PLACE_AT].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[PLACE_AT..].copy_from_slice(&place_bytes(self.place));
        bytes
    }

    fn from_bytes(bytes: &[u8; ROW_BYTES]) -> Self {
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

/// The rows of a stream, by number.
pub(super) struct Rows {
    /// Those from `written` on.
    recent: Vec<Row>,
    written: u64,
    file: Option<File>,
}

impl Rows {
    pub(super) fn new() -> Self {
        Self {
            recent: Vec::new(),
            written: 0,
            file: None,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.written + self.recent.len() as u64
    }

    /// Adds a chunk, whose place is not known yet; `folder` is where the file goes.
    pub(super) fn push(&mut self, name: ChunkName, bytes: u32, folder: &Path) -> io::Result<()> {
        if self.recent.len() == ROWS_IN_MEMORY_MAX {
            self.spill(folder)?;
        }
        self.recent.push(Row {
            name,
            bytes,
            place: ChunkPlace::default(),
        });
        Ok(())
    }

    fn spill(&mut self, folder: &Path) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(tempfile::tempfile_in(folder)?),
        };
        let bytes: Vec<u8> = self.recent.iter().flat_map(|row| row.to_bytes()).collect();
        file.write_all_at(&bytes, self.written * ROW_BYTES as u64)?;
        self.written += self.recent.len() as u64;
        self.recent.clear();
        Ok(())
    }

    /// Says where a chunk lies.
    pub(super) fn set_place(&mut self, number: u64, place: ChunkPlace) -> io::Result<()> {
        match (number.checked_sub(self.written), &self.file) {
            (Some(recent), _) => self.recent[recent as usize].place = place,
            (None, Some(file)) => {
                let at = number * ROW_BYTES as u64 + PLACE_AT as u64;
                file.write_all_at(&place_bytes(place), at)?;
            }
            (None, None) => unreachable!("rows were written to a file"),
        }
        Ok(())
    }

    /// The rows of `numbers`.
    pub(super) fn read(&self, numbers: Range<u64>) -> io::Result<Vec<Row>> {
        let mut rows = Vec::with_capacity((numbers.end - numbers.start) as usize);
        let from_file = numbers.start..numbers.end.min(self.written);
        if let (false, Some(file)) = (from_file.is_empty(), &self.file) {
            let count = (from_file.end - from_file.start) as usize;
            let mut bytes = vec![0; count * ROW_BYTES];
            file.read_exact_at(&mut bytes, from_file.start * ROW_BYTES as u64)?;
            let (bytes, _) = bytes.as_chunks();
            rows.extend(bytes.iter().map(Row::from_bytes));
        }
        let recent = |number: u64| number.saturating_sub(self.written) as usize;
        rows.extend_from_slice(&self.recent[recent(numbers.start)..recent(numbers.end)]);
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_back_from_memory_and_file_with_the_places_they_were_given_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut rows = Rows::new();
        let count = 2 * ROWS_IN_MEMORY_MAX as u64 + 100;
        let name = |number: u64| ChunkName::of(&number.to_le_bytes());
        let place = |number: u64| ChunkPlace {
            frame: number << 8,
            offset: number as u32 & 0xff_ffff,
        };
        for number in 0..count {
            let bytes = number as u32 + 1;
            rows.push(name(number), bytes, folder.path()).expect("room");
        }
        for number in (0..count).rev() {
            rows.set_place(number, place(number)).expect("room");
        }
        let edge = 2 * ROWS_IN_MEMORY_MAX as u64;
        for numbers in [0..10, edge - 5..edge + 5, count - 1..count, 3..3] {
            let expected: Vec<Row> = numbers
                .clone()
                .map(|number| Row {
                    name: name(number),
                    bytes: number as u32 + 1,
                    place: place(number),
                })
                .collect();
            assert_eq!(rows.read(numbers).expect("readable"), expected);
        }
        assert_eq!(rows.len(), count);
    }
}
