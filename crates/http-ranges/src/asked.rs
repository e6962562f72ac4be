//! What a request asks for.

use std::{fmt, ops::Range};

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// These bytes. The file has them.
    Bytes(Range<u64>),
    /// So many bytes, at least one, or all if the file has fewer.
    First(u64),
    /// The file.
    All,
}

impl fmt::Display for Asked {
    /// As the value of a `Range` header.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(range) => write!(f, "bytes={}-{}", range.start, range.end - 1),
            Self::First(bytes) => write!(f, "bytes=0-{}", bytes - 1),
            Self::All => write!(f, "the whole file"),
        }
    }
}
