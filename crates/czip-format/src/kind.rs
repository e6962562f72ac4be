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

named! {
    /// What a part holds.
    PartKind {
        /// Names of chunks.
        Chunks: "chunk part",
        /// Stored frames.
        Frames: "frame part",
        /// Lengths of chunks, and where they lie in frames.
        Lengths: "length part",
        /// Which chunks make up a stream.
        References: "reference part",
        /// Keys of frames.
        Keys: "key part",
        /// Where the weave may be entered.
        WeaveIndex: "weave index part",
    }
}

impl PartKind {
    /// Those that each stream has.
    pub const OF_STREAMS: [Self; 5] = {
        let [of_streams @ .., Self::WeaveIndex] = Self::ALL else {
            panic!("the weave index is last")
        };
        of_streams
    };

    /// Most items of a part.
    pub(crate) fn items_max(self) -> usize {
        match self {
            Self::Chunks | Self::Lengths | Self::Frames | Self::Keys => CHUNKS_MAX,
            Self::References => RUNS_MAX,
            Self::WeaveIndex => POINTS_MAX,
        }
    }
}

// A full part of any kind fits what a part may have.
const _: () = assert!(FRAMES_MAX <= CHUNKS_MAX);
const _: () = assert!(CHUNKS_MAX * (3 * 10 + 12) <= limits::PART_BYTES_MAX);
const _: () = assert!(CHUNKS_MAX * (4 + 3 * 10) <= limits::PART_BYTES_MAX);
const _: () = assert!(POINTS_MAX * 5 * 10 <= limits::PART_BYTES_MAX);
