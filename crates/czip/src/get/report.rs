//! What a get did, and what it cost.

use std::{io, ops::AddAssign, path::PathBuf, time::Duration};

/// Requests, and bytes of their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Requests that were sent, those that failed too.
    pub requests: u64,
    /// Bytes of bodies.
    pub bytes: u64,
}

impl AddAssign for Transfer {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.bytes += more.bytes;
    }
}

/// Chunks, and their plain bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCount {
    /// How many.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl ChunkCount {
    pub(super) fn add(&mut self, bytes: usize) {
        self.chunks += 1;
        self.bytes += bytes as u64;
    }
}

/// What a get did.
#[derive(Debug, Default)]
pub struct GetReport {
    /// Bytes of the output.
    pub output_bytes: u64,
    /// Bytes of the plain content: what a download of the plain file would have taken.
    pub plain_bytes: u64,
    /// Bytes of the archive: what a download of all of it would have taken.
    pub archive_bytes: u64,
    /// Header and root.
    pub header: Transfer,
    /// Parts of the table.
    pub table: Transfer,
    /// Frames.
    pub frames: Transfer,
    /// Chunks that an earlier get of the same file had brought.
    pub from_earlier: ChunkCount,
    /// Chunks that seeds had.
    pub from_seeds: ChunkCount,
    /// Chunks that the cache had.
    pub from_cache: ChunkCount,
    /// Chunks that the server sent.
    pub from_server: ChunkCount,
    /// How often the file changed on the server meanwhile, so that all began anew.
    pub changes: u32,
    /// How long it took.
    pub elapsed: Duration,
    /// Seeds that could not be read, or not whole, and why.
    pub unread_seeds: Vec<(PathBuf, io::Error)>,
    /// Why the cache does not have all that came.
    pub cache_failure: Option<io::Error>,
}

impl GetReport {
    /// All requests.
    #[must_use]
    pub fn transferred(&self) -> Transfer {
        let mut sum = self.header;
        sum += self.table;
        sum += self.frames;
        sum
    }
}
