//! Files that are served: as they are, or archives for their content.
//!
//! What is read of an archive for its content does not stay in the system's page cache: the chunk cache
//! has it, and memory is not spent twice. Files that are sent as they are, archives too, are left to the
//! page cache; what it has is taken from there at once, and only what it has not is read by a thread, which
//! may wait for the disk.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use bytes::Bytes;

use super::{counters::Counters, tree::Identity};
use crate::archive::Source;

#[derive(Debug)]
pub(super) struct ArchiveFile {
    file: File,
    bytes: u64,
    counters: Arc<Counters>,
}

impl ArchiveFile {
    pub(super) fn new(file: File, bytes: u64, counters: Arc<Counters>) -> Self {
        #[cfg(target_os = "linux")]
        {
            // What is read is said; what the system reads ahead would be dropped unread.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        }
        Self {
            file,
            bytes,
            counters,
        }
    }
}

impl Source for ArchiveFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)?;
        let bytes = buffer.len() as u64;
        self.counters.disk_bytes.fetch_add(bytes, Ordering::Relaxed);
        drop_pages(&self.file, offset, bytes);
        Ok(())
    }
}

/// The page in which the bytes end stays: what follows them is read next, as a rule.
#[cfg(target_os = "linux")]
fn drop_pages(file: &File, offset: u64, bytes: u64) {
    const PAGE_BYTES: u64 = 4096;
    let begin = offset / PAGE_BYTES * PAGE_BYTES;
    let end = (offset + bytes) / PAGE_BYTES * PAGE_BYTES;
    if let Some(length) = std::num::NonZeroU64::new(end - begin) {
        // A system that does not take advice is slower, not wrong.
        let _ = rustix::fs::fadvise(file, begin, Some(length), rustix::fs::Advice::DontNeed);
    }
}

#[cfg(not(target_os = "linux"))]
fn drop_pages(_: &File, _: u64, _: u64) {}

/// A file that is sent as it is. Damage of an archive is sent too: who asks for the file may want to find it.
#[derive(Debug)]
pub(super) struct SentFile {
    pub(super) file: File,
    /// Which one it was when it was opened, if it is an archive: what is sent is all of that one. Other files,
    /// such as logs, may grow.
    pub(super) version: Option<Identity>,
}

impl SentFile {
    /// Reads what the page cache has at a place, at most as much as there is room for; nothing if that is
    /// not known.
    pub(super) fn read_from_page_cache(&self, room: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = read_from_page_cache(&self.file, room, offset);
        if read > 0 {
            self.check()?;
        }
        Ok(read)
    }

    pub(super) fn read_exact_at(&self, room: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.file.read_exact_at(room, offset);
        self.check()?;
        read
    }

    /// Called after a read: who writes to a file changes its time first.
    fn check(&self) -> io::Result<()> {
        match self.version {
            Some(version) if !version.is_still(&self.file)? => Err(io::Error::other(
                "it changed while it was sent (rename a new file to its name instead)",
            )),
            _ => Ok(()),
        }
    }
}

/// Reads what the page cache has at a place of a file, at most as much as there is room for; nothing if
/// that is not known.
#[cfg(target_os = "linux")]
fn read_from_page_cache(file: &File, buffer: &mut [u8], offset: u64) -> usize {
    use rustix::io::{ReadWriteFlags, preadv2};
    let mut room = [io::IoSliceMut::new(buffer)];
    // An error of the disk's is met again, and told, by who reads it there.
    preadv2(file, &mut room, offset, ReadWriteFlags::NOWAIT).unwrap_or(0)
}

/// Elsewhere nothing tells.
#[cfg(not(target_os = "linux"))]
fn read_from_page_cache(_: &File, _: &mut [u8], _: u64) -> usize {
    0
}

/// Read of a file at once.
pub(super) const PIECE_BYTES: usize = 128 << 10;
/// Buffers that wait to be used again.
const SPARE_MAX: usize = 128;

/// Buffers for pieces of files, used again and again: new memory costs as much as a read.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    spare: Mutex<Vec<Box<[u8]>>>,
}

impl Buffers {
    /// A buffer of [`PIECE_BYTES`], the one used last if there is one.
    pub(super) fn take(self: &Arc<Self>) -> Buffer {
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        Buffer {
            bytes: spare.unwrap_or_else(|| vec![0; PIECE_BYTES].into()),
            filled: 0,
            home: self.clone(),
        }
    }
}

/// A buffer, which goes back when nobody has what is in it any more.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    home: Arc<Buffers>,
}

impl Buffer {
    /// Room for so many bytes, at most [`PIECE_BYTES`].
    pub(super) fn room(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.bytes[..bytes]
    }

    /// The first ones, which were filled.
    pub(super) fn filled(mut self, bytes: usize) -> Bytes {
        self.filled = bytes;
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut spare = self
            .home
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_nobody_reads_it() {
        let buffers = Arc::new(Buffers::default());
        let mut buffer = buffers.take();
        buffer.room(5).copy_from_slice(b"first");
        let place = buffer.bytes.as_ptr();
        let piece = buffer.filled(5);
        let part = piece.slice(1..3);
        drop(piece);
        assert_ne!(buffers.take().bytes.as_ptr(), place);
        assert_eq!(part, b"ir"[..]);
        drop(part);
        assert_eq!(buffers.take().bytes.as_ptr(), place);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_was_just_written_is_in_the_page_cache_up_to_its_end() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), b"0123456789").expect("room");
        let file = file.reopen().expect("it is there");
        let mut buffer = [0; 8];
        let read = read_from_page_cache(&file, &mut buffer, 4);
        // A file system that cannot say reads nothing.
        assert!(read == 0 || (read == 6 && buffer.starts_with(b"456789")));
        assert_eq!(read_from_page_cache(&file, &mut buffer, 10), 0);
    }
}
