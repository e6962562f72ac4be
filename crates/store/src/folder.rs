//! A folder of plain files: what a store needs of a disk.
//!
//! It is all that lies between a store and its disk, so another one stands in where a disk has to
//! fail. Files are read and written at offsets, never mapped, so that a folder may be one of
//! another machine.

mod real;

pub(crate) use real::{RealFolder, free_bytes, nearest, open_or_create, open_to_read};

use std::{fmt::Debug, io, path::PathBuf};

/// A folder whose files have names without slashes.
pub trait Folder: Debug + Send + Sync {
    /// Its path, for messages.
    fn path(&self) -> PathBuf;

    /// The names and lengths of the files in it.
    ///
    /// # Errors
    /// As the disk fails.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Opens a file to read it.
    ///
    /// # Errors
    /// As the disk fails; not found, for one.
    fn open(&self, name: &str) -> io::Result<Box<dyn FolderFile>>;

    /// Opens a file to read and write it, and makes it if there is none.
    ///
    /// # Errors
    /// As the disk fails.
    fn open_or_create(&self, name: &str) -> io::Result<Box<dyn FolderFile>>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the disk fails.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, in place of the file that had it.
    ///
    /// # Errors
    /// As the disk fails.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes what files there are, and what they are called, survive a power cut.
    ///
    /// # Errors
    /// As the disk fails.
    fn sync(&self) -> io::Result<()>;

    /// The room on its disk that is free for this user, if that is known.
    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// An open file of a folder.
pub trait FolderFile: Send + Sync {
    /// Reads up to a buffer's length; fewer at the end, or when the system likes.
    ///
    /// # Errors
    /// As the disk fails.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes up to all of the bytes.
    ///
    /// # Errors
    /// As the disk fails.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Its length.
    ///
    /// # Errors
    /// As the disk fails.
    fn bytes(&self) -> io::Result<u64>;

    /// Cuts it, or extends it by zeros.
    ///
    /// # Errors
    /// As the disk fails.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;

    /// Makes what was written survive a power cut.
    ///
    /// # Errors
    /// As the disk fails.
    fn sync(&self) -> io::Result<()>;

    /// Fills the buffer.
    ///
    /// # Errors
    /// As the disk fails, or if the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_up_to(buffer, offset)? == buffer.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Fills the buffer up to the file's end, and says how far.
    ///
    /// # Errors
    /// As the disk fails.
    fn read_up_to(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Writes all of the bytes.
    ///
    /// # Errors
    /// As the disk fails: some may have been written then.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match self.write_at(&bytes[written..], offset + written as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl dyn FolderFile {
    /// What it has from `offset` on, but for what is beyond `bytes_max`.
    pub(crate) fn read_onward(&self, offset: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes()?.saturating_sub(offset).min(bytes_max) as usize];
        let count = self.read_up_to(&mut bytes, offset)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}
