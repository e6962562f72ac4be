//! The archive byte by byte, as `docs/czip-format.md` says (CZIP, section 3): no file is read or
//! written here, only bytes are.
//!
//! ```text
//! out   files ─▶ container ─▶ chunker ─▶ method ─▶ frames ─▶ part ─▶ root ─▶ header
//!                (a Weaver)   names      stored    stored    table   its directory
//! in    header ─▶ root ─▶ part ─▶ frames ─▶ method ─▶ chunks ─▶ weave ─▶ files
//!                                                            └▶ catalog
//! ```
//!
//! | room | what it has |
//! |---|---|
//! | [`container`] | files and the members of tar, cpio, zip and ar taken apart into [streams](Stream) |
//! | [`chunker`] | a stream cut into chunks, which [`ChunkName`]s name |
//! | [`method`] | frames of chunks compressed, and parts of the table |
//! | [`part`] | the table, piece by piece: names, lengths, frames, references, restart points |
//! | [`root`] | where all parts are, and how they are checked |
//! | [`seal`] | encrypted bytes that nobody can change |
//! | [`header`] | the first 256 bytes, and the last |
//! | [`catalog`] | the stream of files, folders and links |
//! | [`weave`] | streams put together again |
//! | [`limits`] | every bound |
//!
//! What is in an archive that is not encrypted, without the digests of its root and parts:
//!
//! ```
//! use refrain_czip_format::{
//!     Stream, catalog::CatalogReader, digest, header::{Header, Profile}, limits::PART_BYTES_MAX,
//!     method::{decompress, unpack_part}, part::parse_frames, root::Root,
//! };
//!
//! let archive = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../czip/testdata/tree.czip"))?;
//! let header = Header::parse_first(archive.first_chunk().expect("a header"))?;
//! let (is_shared, place) = (header.profile == Profile::Shared, &header.root);
//! let (root, rest) = archive[place.offset as usize..].split_at(place.stored_bytes as usize);
//! let private = &rest[..place.private_stored_bytes as usize];
//! let mut root = Root::parse_public(&unpack_part(root, place.plain_bytes as usize)?, is_shared, false)?;
//! root.parse_private(&unpack_part(private, place.private_plain_bytes as usize)?, false)?;
//! root.check_header(&header)?;
//!
//! // Each chunk of a small catalog is there once: its frames are the stream.
//! let mut catalog = CatalogReader::default();
//! for row in root.stream(Stream::Catalog).frames.rows() {
//!     let place = &row.place;
//!     let part = &archive[place.offset as usize..][..place.stored_bytes as usize];
//!     let part = unpack_part(part, place.plain_bytes as usize)?;
//!     let (count, first, offset) = (place.items as usize, row.before[0], row.before[1]);
//!     for frame in parse_frames(&part, count, first, offset, !is_shared, PART_BYTES_MAX as u64)? {
//!         let stored = &archive[frame.range().start as usize..frame.range().end as usize];
//!         assert_eq!(digest(stored), frame.digest);
//!         catalog.feed(&decompress(stored, None, header.frame_bytes_max as usize)?)?;
//!     }
//! }
//! for entry in catalog.finish(root.summary.plain_bytes)? {
//!     println!("{:o} {}", entry.mode, String::from_utf8_lossy(&entry.path));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What parses takes a peer's bytes: lengths are held against [`limits`] before anything is
//! allocated, and nothing here panics.
#![forbid(unsafe_code)]

#[macro_use]
mod named;

pub mod catalog;
pub mod chunker;
pub mod container;
mod error;
pub mod header;
mod input;
mod kind;
pub mod limits;
pub mod method;
pub mod part;
pub mod root;
pub mod seal;
pub mod weave;

pub use error::{FormatError, Portion, Violation};
pub(crate) use input::{Input, put_varint, put_zigzag};

use std::fmt;

named! {
    /// One of the strings of bytes that an archive stores.
    Stream {
        /// What is in files, and in the members of containers.
        Content: "content",
        /// How content, fields and times make up the plain content.
        Weave: "weave",
        /// What containers say of their members and seldom changes.
        Fields: "fields",
        /// What containers say of their members and often changes.
        Times: "times",
        /// The files.
        Catalog: "catalog",
    }
}

impl Stream {
    /// Its number in the format.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
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
