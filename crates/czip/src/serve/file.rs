//! A file that is served. What is read of an archive does not stay in the system's page cache: the
//! chunk cache has it, and memory is not spent twice.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc, sync::atomic::Ordering};

use super::counters::Counters;
use crate::archive::Source;

/// An archive's file.
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
