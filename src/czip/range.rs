//! Ranges as people write them: `1GiB-1GiB+64KiB`, `100-200`, `4096-`.

use std::{ops::Range, str::FromStr};

use refrain_gateway::units::{ByteSize, UnitError};
use thiserror::Error;

/// A range of bytes: the first one, and the one behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteRange {
    start: u64,
    end: Option<u64>,
}

/// Why a text is no range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum RangeError {
    /// It has no `-`.
    #[error("must be a range, such as 1GiB-1GiB+64KiB, 100-200 or 4096-")]
    NoRange,
    /// Nothing is in front of its `-`.
    #[error("the start is missing (0{text} begins at the first byte)")]
    NoStart { text: String },
    /// One of its ends is no sum of sizes.
    #[error("{text:?}: {error}")]
    Size { text: String, error: UnitError },
    /// It ends before it begins.
    #[error("the end, {end}, is before the start, {start}")]
    Backward { start: u64, end: u64 },
}

impl ByteRange {
    /// What it is of `bytes` bytes: an open end is theirs.
    pub(super) fn of(self, bytes: u64) -> Range<u64> {
        self.start..self.end.unwrap_or(bytes.max(self.start))
    }
}

impl FromStr for ByteRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let (start, end) = text.split_once('-').ok_or(RangeError::NoRange)?;
        if start.trim().is_empty() {
            let text = text.trim().to_owned();
            return Err(RangeError::NoStart { text });
        }
        let start = sum(start)?;
        let end = match end.trim() {
            "" => None,
            end => Some(sum(end)?),
        };
        match end {
            Some(end) if end < start => Err(RangeError::Backward { start, end }),
            end => Ok(Self { start, end }),
        }
    }
}

/// Sizes with `+` between them.
fn sum(text: &str) -> Result<u64, RangeError> {
    let wrong = |error| RangeError::Size {
        text: text.to_owned(),
        error,
    };
    text.split('+').try_fold(0_u64, |sum, size| {
        let ByteSize(size) = size.parse().map_err(wrong)?;
        sum.checked_add(size).ok_or(wrong(UnitError::TooLarge))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_sums_of_sizes_and_the_last_byte_is_left_out() {
        for (text, range) in [
            ("1G-1G+64K", 1_000_000_000..1_000_064_000),
            ("1GiB - 1GiB + 64KiB", 1 << 30..(1 << 30) + (64 << 10)),
            ("100-200", 100..200),
            ("7-7", 7..7),
            ("5-", 5..10),
            ("20-", 20..20),
        ] {
            let parsed: ByteRange = text.parse().expect(text);
            assert_eq!(parsed.of(10), range, "{text}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "5",
            "-5",
            "a-b",
            "5-4",
            "1-2-3",
            "1++2-3",
            "18446744073709551615+1-",
        ] {
            assert!(text.parse::<ByteRange>().is_err(), "{text}");
        }
    }
}
