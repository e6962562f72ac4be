//! Absolute positions in a link's cache log.

use core::ops::{Add, Range};

/// An absolute position, in plain bytes, in the log of one direction of a link.
///
/// Positions start at 0 and only grow: two blocks never share one, and the byte
/// at position *x* lies at offset *x mod capacity* of the circular log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(pub u64);

impl LogPosition {
    /// The position `bytes` before this one, or 0 where there are fewer.
    #[must_use]
    pub fn back(self, bytes: u64) -> Self {
        Self(self.0.saturating_sub(bytes))
    }

    /// How many bytes lie between `earlier` and this position; 0 if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for LogPosition {
    type Output = Self;

    fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// Half-open range of log positions.
pub type LogRange = Range<LogPosition>;
