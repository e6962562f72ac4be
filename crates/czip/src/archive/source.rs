//! Where an archive's bytes come from.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt};

use crate::format::Stream;

/// Bytes that can be read anywhere, by several threads at once.
pub trait Source: Send + Sync {
    /// How many there are.
    ///
    /// # Errors
    /// If that cannot be found out.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` with those from `offset` on.
    ///
    /// # Errors
    /// If they cannot be read, or there are not so many.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills several buffers, each with the bytes from its offset on: together, if that is faster.
    ///
    /// # Errors
    /// As those of [`read_exact_at`](Self::read_exact_at).
    fn read_all_at(&self, wanted: &mut [(u64, Vec<u8>)]) -> io::Result<()> {
        (wanted.iter_mut()).try_for_each(|(offset, buffer)| self.read_exact_at(buffer, *offset))
    }

    /// Fills `buffer` with plain bytes of the chunks of `stream`, in order of number and from `at` on,
    /// if it has them beside the archive. False if it has none: then they come out of frames.
    ///
    /// # Errors
    /// If it has them, and they cannot be read.
    fn read_unique_at(&self, buffer: &mut [u8], stream: Stream, at: u64) -> io::Result<bool> {
        let _ = (buffer, stream, at);
        Ok(false)
    }

    /// What was read of `range` is damaged. Whether other bytes may come if it is read again: then what
    /// is kept of them is gone.
    fn forget(&self, range: Range<u64>) -> bool {
        let _ = range;
        false
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn bytes(&self) -> io::Result<u64> {
        (**self).bytes()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buffer, offset)
    }

    fn read_all_at(&self, wanted: &mut [(u64, Vec<u8>)]) -> io::Result<()> {
        (**self).read_all_at(wanted)
    }

    fn read_unique_at(&self, buffer: &mut [u8], stream: Stream, at: u64) -> io::Result<bool> {
        (**self).read_unique_at(buffer, stream, at)
    }

    fn forget(&self, range: Range<u64>) -> bool {
        (**self).forget(range)
    }
}

/// A file.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    bytes: u64,
}

impl FileSource {
    /// The bytes that it has now.
    ///
    /// # Errors
    /// If its length cannot be found out, or it is a directory.
    pub fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            let error = "it is a directory, not an archive";
            return Err(io::Error::new(io::ErrorKind::IsADirectory, error));
        }
        let bytes = metadata.len();
        Ok(Self { file, bytes })
    }
}

impl Source for FileSource {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.file.read_exact_at(buffer, offset);
        read.map_err(|error| match error.kind() {
            // Nothing is asked for that was not there.
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), "it is shorter than when it was opened")
            }
            _ => error,
        })
    }
}

impl Source for Vec<u8> {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let bytes = from.and_then(|from| from.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_off_under_a_reader_says_so() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1000).expect("ours");
        let source = FileSource::new(file.try_clone().expect("ours")).expect("a file");
        file.set_len(500).expect("ours");
        let error = source.read_exact_at(&mut [0; 10], 495).expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(
            error
                .to_string()
                .contains("shorter than when it was opened")
        );
    }
}
