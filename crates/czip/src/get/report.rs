//! What a get did, and what it cost.

use std::{fmt::Display, io, ops::AddAssign, path::PathBuf};

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::{format::ChunkName, remote::RemoteError};

/// Requests, and bytes of their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Transfer {
    /// Bytes of bodies.
    pub bytes: u64,
    /// Requests that were sent, those that failed too.
    pub requests: u64,
}

impl AddAssign for Transfer {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.bytes += more.bytes;
    }
}

/// Chunks, and their plain bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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

/// Stored frames, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FrameCount {
    /// How many.
    pub frames: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

impl FrameCount {
    pub(super) fn add(&mut self, bytes: u32) {
        self.frames += 1;
        self.bytes += u64::from(bytes);
    }
}

/// Where frames of an archive came from that is kept as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoredReport {
    /// From an earlier get of the same file.
    pub from_earlier: FrameCount,
    /// From archives among the seeds.
    pub from_seeds: FrameCount,
    /// From the cache.
    pub from_cache: FrameCount,
    /// Made anew of chunks that were here.
    pub made: FrameCount,
    /// From the server.
    pub from_server: FrameCount,
}

impl StoredReport {
    pub(super) fn of(&mut self, origin: Origin) -> &mut FrameCount {
        match origin {
            Origin::Earlier => &mut self.from_earlier,
            Origin::Seeds => &mut self.from_seeds,
            Origin::Cache => &mut self.from_cache,
            Origin::Server => &mut self.from_server,
        }
    }
}

/// Where a stored frame comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Earlier,
    Seeds,
    Cache,
    Server,
}

/// Why a seed was of no use: it is no archive, and has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnusedSeed {
    /// The archive is locked.
    #[error(
        "the archive is encrypted and kept unchanged, so only other archives can have its stored frames"
    )]
    Sealed,
    /// The archive's group secret is not known.
    #[error(
        "the archive has a group secret, which is needed to find out its chunks; other archives can have its \
         stored frames without it"
    )]
    GroupSecret,
    /// The archive is to be the output, and nobody makes its frames anew.
    #[error(
        "the archive has profile small and is kept unchanged, so only other archives can have its stored frames"
    )]
    Frames,
    /// The archive does not say how it was cut.
    #[error("it is unknown how the archive was cut into chunks")]
    Cuts,
}

/// Why a server was asked for no more chunks by name.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerProblem {
    /// It cannot be reached, refuses, breaks off, or is too slow.
    #[error(transparent)]
    Remote(RemoteError),
    /// It sent something else.
    #[error("it sent wrong data for chunk {name}")]
    WrongBytes {
        /// Which chunk.
        name: ChunkName,
    },
    /// It sent, or was about to send, more than the chunk can have.
    #[error("its data for chunk {name} is too long")]
    TooLong {
        /// Which chunk.
        name: ChunkName,
    },
    /// Many chunks in a row were not there.
    #[error("it does not have chunks by name, or not these")]
    KnowsNone,
}

/// What a server that was asked for chunks by name did.
#[derive(Debug, Default, Serialize)]
pub struct NamedReport {
    /// Where it is.
    pub url: String,
    /// What it was asked, and sent: chunks, and of an edge also parts of the table.
    #[serde(flatten)]
    pub transfer: Transfer,
    /// Chunks that it sent and that were right. Serialized without their bytes.
    #[serde(serialize_with = "number")]
    pub chunks: ChunkCount,
    /// Chunks that it does not have.
    pub absent: u64,
    /// Why it was left, if it was. What it was still to be asked for came from elsewhere.
    #[serde(rename = "left", serialize_with = "as_text")]
    pub problem: Option<ServerProblem>,
}

fn number<S: Serializer>(count: &ChunkCount, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(count.chunks)
}

fn as_text<S: Serializer>(reason: &Option<impl Display>, to: S) -> Result<S::Ok, S::Error> {
    reason.as_ref().map(ToString::to_string).serialize(to)
}

/// Why no chunks were asked for by name, although that was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotByName {
    /// Chunks of profile `small` have no frames of their own.
    #[error(
        "the archive has profile small, but only chunks of profile shared are available by name"
    )]
    Profile,
    /// Chunks of an encrypted archive are sealed, and checked by what the table says of their frames.
    #[error("the archive is encrypted, and its chunks are checked by their position in it")]
    Encrypted,
    /// Its frames are wanted as they are stored.
    #[error("the archive is kept unchanged, but chunks by name may be stored differently")]
    Archive,
}

/// What a get did.
#[derive(Debug, Default, Serialize)]
pub struct GetReport {
    /// Bytes of the output.
    pub output_bytes: u64,
    /// Bytes of the plain content: what a download of the plain file would have taken. `None` of an
    /// archive that was not unlocked.
    pub plain_bytes: Option<u64>,
    /// Files, folders and links in the archive. `None` of one that was not unlocked.
    pub entries: Option<u64>,
    /// Bytes of the archive: what a download of all of it would have taken.
    pub archive_bytes: u64,
    /// Header and root.
    pub header: Transfer,
    /// Parts of the table, from the archive's server.
    pub table: Transfer,
    /// Frames.
    pub frames: Transfer,
    /// Chunks of an earlier download of the same file, or of this one before the file changed.
    pub from_earlier: ChunkCount,
    /// Chunks that seeds had.
    pub from_seeds: ChunkCount,
    /// Chunks that the cache had.
    pub from_cache: ChunkCount,
    /// Chunks that came by name, from edges or the server.
    pub by_name: ChunkCount,
    /// Chunks that the server sent in ranges of the archive.
    pub from_server: ChunkCount,
    /// Frames of an archive that is kept as it is.
    #[serde(skip)]
    pub stored: StoredReport,
    /// What servers did that were asked for chunks by name.
    #[serde(rename = "edges")]
    pub named: Vec<NamedReport>,
    /// Why they were not, although that was wanted.
    #[serde(serialize_with = "as_text")]
    pub not_by_name: Option<NotByName>,
    /// How often the file changed on the server meanwhile, so that all began anew.
    pub changes: u32,
    /// How often what came was damaged, and asked for again.
    pub damaged: u32,
    /// Whether the server sends ranges. If not, the archive came from its beginning on.
    #[serde(rename = "ranges")]
    pub has_ranges: bool,
    /// How long it took.
    pub seconds: f64,
    /// Seeds that could not be read, or not whole, and why.
    #[serde(skip)]
    pub unread_seeds: Vec<(PathBuf, io::Error)>,
    /// Seeds that could not be of use, and why.
    #[serde(skip)]
    pub unused_seeds: Vec<(PathBuf, UnusedSeed)>,
    /// Chunks that the cache had damaged, parts of tables and stored frames among them: they came from
    /// elsewhere, and are kept anew.
    pub cache_damaged: u64,
    /// Why the cache does not have all that came.
    #[serde(skip)]
    pub cache_failure: Option<io::Error>,
}

impl GetReport {
    /// Requests and transfers add up over all attempts. Chunks are counted again, since the next attempt
    /// finds those of this one.
    pub(super) fn begin_anew(&mut self) {
        *self = Self {
            header: self.header,
            table: self.table,
            frames: self.frames,
            changes: self.changes,
            damaged: self.damaged,
            has_ranges: self.has_ranges,
            cache_damaged: self.cache_damaged,
            ..Self::default()
        };
    }

    pub(super) fn chunks_from(&mut self, origin: Origin) -> &mut ChunkCount {
        match origin {
            Origin::Earlier => &mut self.from_earlier,
            Origin::Seeds => &mut self.from_seeds,
            Origin::Cache => &mut self.from_cache,
            Origin::Server => &mut self.from_server,
        }
    }

    /// All requests.
    #[must_use]
    pub fn transferred(&self) -> Transfer {
        let mut sum = self.header;
        sum += self.table;
        sum += self.frames;
        self.named.iter().for_each(|server| sum += server.transfer);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_seeds_has_single_blanks() {
        use UnusedSeed::{Cuts, Frames, GroupSecret, Sealed};
        for reason in [Sealed, GroupSecret, Frames, Cuts] {
            assert!(!reason.to_string().contains("  "), "{reason}");
        }
    }
}
