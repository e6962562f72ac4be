//! The parts of an archive's table: each holds some items of one kind.
//!
//! What is cumulative (numbers of chunks and frames, offsets) begins in the part's row of the
//! [root](crate::root), so that a part is read by itself.

mod chunks;
mod frames;
mod points;
mod references;

pub use chunks::{ChunkPlace, LengthPart, encode_lengths, encode_names, ends_part, parse_names};
pub use frames::{StoredFrame, encode_frames, parse_frames};
pub use points::{encode_points, parse_points};
pub use references::{Run, encode_runs, parse_runs};

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

    /// For errors.
    pub fn what(self) -> &'static str {
        match self {
            Self::Chunks => "chunk part",
            Self::Frames => "frame part",
            Self::Lengths => "length part",
            Self::References => "reference part",
            Self::Keys => "key part",
            Self::WeaveIndex => "weave index part",
        }
    }
}

// A full part of any kind fits what a part may have.
const _: () = assert!(FRAMES_MAX <= CHUNKS_MAX);
const _: () = assert!(CHUNKS_MAX * (3 * 10 + 12) <= limits::PART_BYTES_MAX);
const _: () = assert!(CHUNKS_MAX * (4 + 3 * 10) <= limits::PART_BYTES_MAX);
const _: () = assert!(POINTS_MAX * 5 * 10 <= limits::PART_BYTES_MAX);

#[cfg(test)]
mod tests {
    use crate::{FormatError, put_varint};

    /// Numbers as parts have them.
    pub(super) fn numbers(numbers: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &number in numbers {
            put_varint(&mut bytes, number);
        }
        bytes
    }

    #[track_caller]
    pub(super) fn assert_refused<T: std::fmt::Debug>(parsed: Result<T, FormatError>, why: &str) {
        let error = parsed.expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    }
}
