//! What parts of an archive's table hold, and how much of it.

use crate::limits;

/// Most chunks of a part.
pub const CHUNKS_MAX: usize = 1024;
/// Most frames of a part, where they are not as many as chunks.
pub const FRAMES_MAX: usize = 256;
/// Most runs of a reference part.
pub const RUNS_MAX: usize = 128;
/// Most restart points of a part.
pub const POINTS_MAX: usize = 256;

/// What a part holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// Names of chunks.
    Chunks,
    /// Stored frames.
    Frames,
    /// Lengths of chunks, and where they lie in frames.
    Lengths,
    /// Which chunks make up a stream.
    References,
    /// Keys of frames.
    Keys,
    /// Where the weave may be entered.
    WeaveIndex,
}

impl PartKind {
    /// Most items of a part.
    pub(crate) fn items_max(self) -> usize {
        match self {
            Self::Chunks | Self::Lengths | Self::Frames | Self::Keys => CHUNKS_MAX,
            Self::References => RUNS_MAX,
            Self::WeaveIndex => POINTS_MAX,
        }
    }
}

impl std::fmt::Display for PartKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Chunks => "chunk part",
            Self::Frames => "frame part",
            Self::Lengths => "length part",
            Self::References => "reference part",
            Self::Keys => "key part",
            Self::WeaveIndex => "weave index part",
        })
    }
}

// A full part of any kind fits what a part may have.
const _: () = assert!(FRAMES_MAX <= CHUNKS_MAX);
const _: () = assert!(CHUNKS_MAX * (3 * 10 + 12) <= limits::PART_BYTES_MAX);
const _: () = assert!(CHUNKS_MAX * (4 + 3 * 10) <= limits::PART_BYTES_MAX);
const _: () = assert!(POINTS_MAX * 5 * 10 <= limits::PART_BYTES_MAX);
