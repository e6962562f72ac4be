//! Writes a file from its beginning to its end, and leaves out long runs of zeros: they become holes,
//! which take no room.

use std::{fs::File, io, os::unix::fs::FileExt};

/// Runs of zeros from this on become holes.
const HOLE_BYTES: u64 = 64 << 10;

/// What a file system gives room in.
const BLOCK_BYTES: u64 = 4096;

static ZEROS: [u8; HOLE_BYTES as usize] = [0; HOLE_BYTES as usize];

pub(super) struct SparseFile {
    file: File,
    /// Where the next byte goes.
    position: u64,
    /// Zeros before it that are not written yet.
    zeros: u64,
}

impl SparseFile {
    /// Writes an empty file.
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            position: 0,
            zeros: 0,
        }
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let zeros = self.leading(bytes, true);
            self.zeros += zeros as u64;
            self.position += zeros as u64;
            bytes = &bytes[zeros..];
            let data = self.leading(bytes, false);
            if data > 0 {
                self.end_zeros()?;
                self.file.write_all_at(&bytes[..data], self.position)?;
                self.position += data as u64;
                bytes = &bytes[data..];
            }
        }
        Ok(())
    }

    /// How many bytes at the beginning of `bytes`, block by block, are zeros, or are not.
    fn leading(&self, bytes: &[u8], are_zeros: bool) -> usize {
        let mut end = 0;
        while end < bytes.len() {
            let at = self.position + end as u64;
            let left = (BLOCK_BYTES - at % BLOCK_BYTES) as usize;
            let block = &bytes[end..bytes.len().min(end + left)];
            if (*block == ZEROS[..block.len()]) != are_zeros {
                break;
            }
            end += block.len();
        }
        end
    }

    fn end_zeros(&mut self) -> io::Result<()> {
        if self.zeros < HOLE_BYTES {
            let zeros = &ZEROS[..self.zeros as usize];
            self.file.write_all_at(zeros, self.position - self.zeros)?;
        }
        self.zeros = 0;
        Ok(())
    }

    /// All is written.
    pub(super) fn finish(mut self) -> io::Result<File> {
        match self.zeros < HOLE_BYTES {
            true => self.end_zeros()?,
            false => self.file.set_len(self.position)?,
        }
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, io::Seek, os::unix::fs::MetadataExt};

    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Runs of zeros and of other bytes.
    fn contents() -> impl Strategy<Value = Vec<u8>> {
        let run = (
            any::<bool>(),
            prop_oneof![0..5000_usize, 60_000..140_000_usize],
        );
        vec(run, 0..6).prop_map(|runs| {
            let runs = runs.into_iter();
            runs.flat_map(|(is_zero, bytes)| vec![u8::from(!is_zero); bytes])
                .collect()
        })
    }

    fn written(content: &[u8], piece_bytes: usize) -> File {
        let mut sparse = SparseFile::new(tempfile::tempfile().expect("a file"));
        for piece in content.chunks(piece_bytes) {
            sparse.write(piece).expect("written");
        }
        sparse.finish().expect("written")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_written_in_any_pieces_is_read_back(
            content in contents(),
            piece_bytes in prop_oneof![1..9000_usize, 50_000..300_000_usize],
        ) {
            let mut file = written(&content, piece_bytes);
            let mut read = Vec::new();
            file.rewind().expect("a file");
            file.read_to_end(&mut read).expect("a file");
            prop_assert!(read == content);
        }
    }

    #[test]
    fn long_runs_of_zeros_take_no_room_and_short_ones_do() {
        let blocks = |content: &[u8]| {
            written(content, 1 << 20)
                .metadata()
                .expect("a file")
                .blocks()
        };
        let one = vec![1; 1 << 20];
        let hole = vec![0; 4 << 20];
        let around = [&one[..], &hole, &one].concat();
        assert!(
            blocks(&around) < (around.len() / 512) as u64,
            "a hole in the middle"
        );
        assert_eq!(blocks(&hole), 0);
        let short = vec![0; HOLE_BYTES as usize - 1];
        assert!(blocks(&short) >= (short.len() / 512) as u64);
    }
}
