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

pub use crate::kind::{CHUNKS_MAX, FRAMES_MAX, POINTS_MAX, PartKind, RUNS_MAX};

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
