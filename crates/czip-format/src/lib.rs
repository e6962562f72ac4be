//! The archive byte by byte, as `docs/czip-format.md` says (CZIP, section 3): no file is read or
//! written here, only bytes are.
//!
//! What parses takes a peer's bytes: lengths are held against [`limits`] before anything is
//! allocated, and nothing here panics.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod chunker;
pub mod container;
mod error;
pub mod header;
mod input;
pub mod limits;
pub mod method;
pub mod part;
pub mod root;
pub mod weave;

pub use error::FormatError;
pub(crate) use input::{Input, put_varint, put_zigzag};

use std::fmt;

/// One of the strings of bytes that an archive stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// What is in files, and in the members of containers.
    Content,
    /// How content, fields and times make up the plain content.
    Weave,
    /// What containers say of their members and seldom changes.
    Fields,
    /// What containers say of their members and often changes.
    Times,
    /// The files.
    Catalog,
}

impl Stream {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Content,
        Self::Weave,
        Self::Fields,
        Self::Times,
        Self::Catalog,
    ];

    /// Its number in the format.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Content => "content",
            Self::Weave => "weave",
            Self::Fields => "fields",
            Self::Times => "times",
            Self::Catalog => "catalog",
        })
    }
}

/// What a chunk is known by everywhere: 160 bits of its plain bytes' hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkName(pub [u8; ChunkName::BYTES]);

impl ChunkName {
    /// Its length.
    pub const BYTES: usize = 20;

    /// The name of `chunk` in archives that are not encrypted.
    #[must_use]
    pub fn of(chunk: &[u8]) -> Self {
        Self(digest(chunk))
    }
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkName({self})")
    }
}

/// The first `N` bytes of the BLAKE3 of `bytes`.
pub fn digest<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut digest = [0; N];
    blake3::Hasher::new()
        .update(bytes)
        .finalize_xof()
        .fill(&mut digest);
    digest
}
