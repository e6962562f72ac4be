//! Reference parts: which chunks make up a stream.

use crate::{FormatError, Input, Portion, Violation, kind::PartKind, put_varint};

/// Which chunks follow each other in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Chunks that occur first here.
    New {
        /// How many.
        count: u64,
    },
    /// Chunks that occurred before, in order of number.
    Copy {
        /// How many.
        count: u64,
        /// The first is this much + 1 before the next new one.
        distance: u64,
    },
    /// One chunk again and again.
    Repeat {
        /// How often.
        count: u64,
        /// It is this much + 1 before the next new one.
        distance: u64,
    },
}

impl Run {
    /// References in it.
    #[must_use]
    pub fn count(self) -> u64 {
        match self {
            Self::New { count } | Self::Copy { count, .. } | Self::Repeat { count, .. } => count,
        }
    }
}

/// Runs as a reference part.
pub fn encode_runs(runs: &[Run]) -> Vec<u8> {
    let mut out = Vec::new();
    for run in runs {
        let (kind, distance) = match *run {
            Run::New { .. } => (0, None),
            Run::Copy { distance, .. } => (1, Some(distance)),
            Run::Repeat { distance, .. } => (2, Some(distance)),
        };
        put_varint(&mut out, (run.count() - 1) << 2 | kind);
        if let Some(distance) = distance {
            put_varint(&mut out, distance);
        }
    }
    out
}

/// A reference part of `count` runs, where the next new chunk is `next` and there are `chunks` in all.
pub fn parse_runs(
    bytes: &[u8],
    count: usize,
    mut next: u64,
    chunks: u64,
) -> Result<Vec<Run>, FormatError> {
    const NO_SUCH_CHUNK: FormatError = FormatError::Invalid(Violation::NoSuchChunk);
    let mut input = Input::new(Portion::Part(PartKind::References), bytes);
    let mut runs = Vec::with_capacity(count);
    for _ in 0..count {
        let value = input.varint()?;
        let count = (value >> 2) + 1;
        let kind = value & 3;
        let distance = match kind {
            0 => 0,
            _ => input.varint()?,
        };
        let is_there = distance < next;
        runs.push(match kind {
            0 => {
                next = next
                    .checked_add(count)
                    .filter(|&next| next <= chunks)
                    .ok_or(NO_SUCH_CHUNK)?;
                Run::New { count }
            }
            1 if is_there && count <= distance + 1 => Run::Copy { count, distance },
            2 if is_there => Run::Repeat { count, distance },
            1 | 2 => return Err(NO_SUCH_CHUNK),
            _ => {
                return Err(FormatError::Invalid(Violation::RunKind));
            }
        });
    }
    input.finish()?;
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::tests::{assert_refused, numbers};

    #[test]
    fn runs_that_cannot_be_are_refused() {
        // Of six chunks the next new one is 3.
        let parse = |count: usize, part: &[u64]| parse_runs(&numbers(part), count, 3, 6);
        let runs = parse(3, &[2 << 2, 3 << 2 | 1, 5, 9 << 2 | 2, 0]).expect("three runs");
        let (new, copy, repeat) = (
            Run::New { count: 3 },
            Run::Copy {
                count: 4,
                distance: 5,
            },
            Run::Repeat {
                count: 10,
                distance: 0,
            },
        );
        assert_eq!(runs, [new, copy, repeat]);
        for (part, why) in [
            (&[3 << 2][..], "does not exist"),
            (&[u64::MAX >> 2 << 2], "does not exist"),
            (&[1, 3], "does not exist"),
            (&[1 << 2 | 1, 0], "does not exist"),
            (&[2, 3], "does not exist"),
            (&[3, 0], "unknown kind"),
        ] {
            assert_refused(parse(1, part), why);
        }
    }
}
