//! Records of one length, by number: in memory up to a bound, then in a temporary file.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::format::ChunkName;

/// Records in memory before they go to the file.
const IN_MEMORY_MAX: usize = 1 << 16;

/// Records of `N` bytes.
pub(crate) struct Records<const N: usize> {
    folder: PathBuf,
    /// Those from `written` on.
    recent: Vec<[u8; N]>,
    written: u64,
    file: Option<File>,
}

impl<const N: usize> Records<N> {
    /// None yet; those that memory is too small for go to a file in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            recent: Vec::new(),
            written: 0,
            file: None,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.written + self.recent.len() as u64
    }

    pub(crate) fn push(&mut self, record: [u8; N]) -> io::Result<()> {
        if self.recent.len() == IN_MEMORY_MAX {
            let file = match &self.file {
                Some(file) => file,
                None => self.file.insert(tempfile::tempfile_in(&self.folder)?),
            };
            file.write_all_at(self.recent.as_flattened(), self.written * N as u64)?;
            self.written += self.recent.len() as u64;
            self.recent.clear();
        }
        self.recent.push(record);
        Ok(())
    }

    /// # Panics
    /// If there is no such record.
    pub(crate) fn set(&mut self, number: u64, record: [u8; N]) -> io::Result<()> {
        match (number.checked_sub(self.written), &self.file) {
            (Some(recent), _) => self.recent[recent as usize] = record,
            (None, Some(file)) => file.write_all_at(&record, number * N as u64)?,
            (None, None) => unreachable!("records were written to a file"),
        }
        Ok(())
    }

    /// # Panics
    /// If there is no such record.
    pub(crate) fn get(&self, number: u64) -> io::Result<[u8; N]> {
        match (number.checked_sub(self.written), &self.file) {
            (Some(recent), _) => Ok(self.recent[recent as usize]),
            (None, Some(file)) => {
                let mut record = [0; N];
                file.read_exact_at(&mut record, number * N as u64)?;
                Ok(record)
            }
            (None, None) => unreachable!("records were written to a file"),
        }
    }

    /// # Panics
    /// If there are no such records.
    pub(crate) fn read(&self, numbers: Range<u64>) -> io::Result<Vec<[u8; N]>> {
        let mut records = vec![[0; N]; (numbers.end - numbers.start) as usize];
        let from_file = numbers.end.min(self.written).saturating_sub(numbers.start) as usize;
        let (first, rest) = records.split_at_mut(from_file);
        if let (false, Some(file)) = (first.is_empty(), &self.file) {
            file.read_exact_at(first.as_flattened_mut(), numbers.start * N as u64)?;
        }
        let recent = |number: u64| number.saturating_sub(self.written) as usize;
        rest.copy_from_slice(&self.recent[recent(numbers.start)..recent(numbers.end)]);
        Ok(records)
    }
}

/// Where a chunk is: in the segment of a cache, or in the archive that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: ChunkName,
    pub(crate) bytes: u32,
    pub(crate) at: u64,
}

impl Entry {
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut entry = [0; Self::BYTES];
        entry[..20].copy_from_slice(&self.name.0);
        entry[20..24].copy_from_slice(&self.bytes.to_le_bytes());
        entry[24..].copy_from_slice(&self.at.to_le_bytes());
        entry
    }

    pub(crate) fn parse(entry: &[u8; Self::BYTES]) -> Self {
        let (name, numbers) = entry.split_first_chunk().expect("20 of 32 bytes");
        let (bytes, at) = numbers.split_first_chunk().expect("4 of 12 bytes");
        Self {
            name: ChunkName(*name),
            bytes: u32::from_le_bytes(*bytes),
            at: u64::from_le_bytes(*at.first_chunk().expect("8 bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_from_memory_and_file_as_they_were_set_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut records = Records::new(folder.path());
        let count = 2 * IN_MEMORY_MAX as u64 + 100;
        for number in 0..count {
            records.push(number.to_le_bytes()).expect("room");
        }
        for number in (0..count).step_by(3) {
            records.set(number, (!number).to_le_bytes()).expect("room");
        }
        let expected = |number: u64| match number % 3 {
            0 => (!number).to_le_bytes(),
            _ => number.to_le_bytes(),
        };
        let edge = 2 * IN_MEMORY_MAX as u64;
        for numbers in [0..10, edge - 5..edge + 5, count - 1..count, 3..3] {
            let all: Vec<_> = numbers.clone().map(expected).collect();
            assert_eq!(records.read(numbers.clone()).expect("readable"), all);
            for number in numbers {
                assert_eq!(records.get(number).expect("readable"), expected(number));
            }
        }
        assert_eq!(records.len(), count);
    }
}
