//! The files of a store, byte by byte, as `docs/store-format.md` says: no file is read or written
//! here, only bytes are.
//!
//! A segment has three files, named by its number: `0000002a.chunks` (the bytes of chunks, one
//! after the other), `0000002a.index` (their digests and lengths) and `0000002a.recipes`. Where
//! its chunks are in files of others, `0000002a.files` says in which, in place of the first.
//!
//! Numbers are little-endian. What does not parse is no record, never an error: a store that was
//! damaged has less in it.

pub(crate) mod files_file;
pub(crate) mod index_file;
pub(crate) mod recipe_file;

use refrain_codec::chunk::stream::ChunkBounds;

use crate::index::NUMBER_END;

/// The version that this program reads and writes, of all files. The first had longer records and
/// keys.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// The longest chunk: its length, less one, has 16 bits.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 16;

// What may be configured may be stored.
const _: () = assert!(ChunkBounds::LIMIT <= CHUNK_BYTES_MAX);

/// Realms that a segment tells apart: their slots are below this.
pub(crate) const REALMS_MAX: usize = 255;

/// What a file of a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FileKind {
    Chunks,
    Index,
    Recipes,
    Files,
}

impl FileKind {
    /// In the order in which they go.
    pub(crate) const ALL: [Self; 4] = [Self::Index, Self::Chunks, Self::Recipes, Self::Files];

    fn extension(self) -> &'static str {
        match self {
            Self::Chunks => "chunks",
            Self::Index => "index",
            Self::Recipes => "recipes",
            Self::Files => "files",
        }
    }

    /// The name of such a file.
    pub(crate) fn file_name(self, segment: u32) -> String {
        format!("{segment:08x}.{}", self.extension())
    }

    /// The segment and kind of a file, if it is one of a segment.
    pub(crate) fn parse(name: &str) -> Option<(u32, Self)> {
        let (number, extension) = name.split_once('.')?;
        let kind = Self::ALL
            .into_iter()
            .find(|kind| kind.extension() == extension)?;
        let segment = u32::from_str_radix(number, 16).ok()?;
        let is_exact = kind.file_name(segment) == name;
        (is_exact && (1..NUMBER_END).contains(&segment)).then_some((segment, kind))
    }
}

/// Takes the first `N` bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (&first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_read_back() {
        for kind in FileKind::ALL {
            assert_eq!(FileKind::parse(&kind.file_name(0x2a)), Some((0x2a, kind)));
        }
        for name in [
            "2a.chunks",
            "0000002A.chunks",
            "+000002a.chunks",
            "00000000.index",
            "00ffffff.index",
            "0000002a.index.new",
            "0000002a",
            "format",
        ] {
            assert_eq!(FileKind::parse(name), None, "{name}");
        }
    }
}
