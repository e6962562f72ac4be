//! Bytes that are written once, one after the other, and read back later: in memory up to a bound,
//! then in a temporary file.

use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use tempfile::SpooledTempFile;

/// Bytes in memory before all go to the file.
const BYTES_IN_MEMORY_MAX: usize = 16 << 20;

pub(super) struct Spool {
    file: SpooledTempFile,
    bytes: u64,
}

impl Spool {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            file: tempfile::spooled_tempfile_in(BYTES_IN_MEMORY_MAX, folder),
            bytes: 0,
        }
    }

    /// Appends bytes, and says where they begin.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let at = self.bytes;
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(at)
    }

    /// Reads back; nothing is appended after it.
    pub(super) fn read(&mut self, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(&mut buffer)?;
        Ok(buffer)
    }
}
