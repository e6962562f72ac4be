//! Where an archive's bytes come from.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

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

    /// Fills `buffer` with plain bytes of the chunks of `stream`, in order of number and from `at` on,
    /// if it has them beside the archive. False if it has none: then they come out of frames.
    ///
    /// # Errors
    /// If it has them, and they cannot be read.
    fn read_unique_at(&self, buffer: &mut [u8], stream: Stream, at: u64) -> io::Result<bool> {
        let _ = (buffer, stream, at);
        Ok(false)
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn bytes(&self) -> io::Result<u64> {
        (**self).bytes()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buffer, offset)
    }

    fn read_unique_at(&self, buffer: &mut [u8], stream: Stream, at: u64) -> io::Result<bool> {
        (**self).read_unique_at(buffer, stream, at)
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn bytes(&self) -> io::Result<u64> {
        (**self).bytes()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buffer, offset)
    }

    fn read_unique_at(&self, buffer: &mut [u8], stream: Stream, at: u64) -> io::Result<bool> {
        (**self).read_unique_at(buffer, stream, at)
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
    /// If its length cannot be found out.
    pub fn new(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }
}

impl Source for FileSource {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

impl Source for Vec<u8> {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let begin = usize::try_from(offset).ok();
        let end = begin.and_then(|begin| begin.checked_add(buffer.len()));
        match (begin, end) {
            (Some(begin), Some(end)) if end <= self.len() => {
                buffer.copy_from_slice(&self[begin..end]);
                Ok(())
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
