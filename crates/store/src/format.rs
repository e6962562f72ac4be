//! The file `format`: that a folder is a store, of which version, how its chunks are cut, and what
//! its bound on disk was when it was opened last.
//!
//! ```text
//! refrain chunk store
//! version = 2
//! hasher = blake3
//! mask_bits = 13
//! chunk_bytes_min = 2048
//! chunk_bytes_max = 32768
//! size_bytes = 100000000000
//! ```

use std::{collections::BTreeMap, io};

use refrain_codec::chunk::stream::ChunkBounds;

use crate::{
    Chunking, DiskBytes, StoreError,
    folder::{Folder, FolderFile},
    layout::{FORMAT_VERSION, FileKind},
};

/// The file's name.
pub(crate) const FORMAT_FILE: &str = "format";

/// What a file's name ends with until the file is whole.
pub(crate) const NEW: &str = ".new";

/// Its first line.
pub(crate) const TITLE: &str = "refrain chunk store";

/// A file that is longer is none of ours.
const FORMAT_BYTES_MAX: u64 = 4096;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) chunking: Chunking,
    pub(crate) size_bytes: u64,
}

impl Format {
    /// Refuses other chunks than are asked for.
    pub(crate) fn check_chunking(
        &self,
        folder: &dyn Folder,
        asked: Chunking,
    ) -> Result<(), StoreError> {
        match self.chunking == asked {
            true => Ok(()),
            false => Err(StoreError::OtherChunking {
                path: folder.path(),
                stored: self.chunking,
                asked,
            }),
        }
    }

    fn to_text(self) -> String {
        let Self {
            chunking,
            size_bytes,
        } = self;
        format!(
            "{TITLE}\nversion = {FORMAT_VERSION}\nhasher = {}\nmask_bits = {}\n\
             chunk_bytes_min = {}\nchunk_bytes_max = {}\nsize_bytes = {size_bytes}\n",
            chunking.hasher,
            chunking.mask_bits,
            chunking.bounds.bytes_min(),
            chunking.bounds.bytes_max()
        )
    }
}

/// Writes the file.
pub(crate) fn write(folder: &dyn Folder, format: Format) -> Result<(), StoreError> {
    replace(folder, FORMAT_FILE, format.to_text().as_bytes())
}

/// Reads the file; nothing if there is none.
pub(crate) fn read(folder: &dyn Folder) -> Result<Option<Format>, StoreError> {
    let Some(bytes) = content(folder, FORMAT_FILE, FORMAT_BYTES_MAX)? else {
        return Ok(None);
    };
    parse(&bytes).map(Some).map_err(|wrong| match wrong {
        Wrong::Version(found) => StoreError::OtherVersion {
            path: folder.path(),
            found,
        },
        Wrong::Content(what) => StoreError::DamagedFormat {
            path: folder.path().join(FORMAT_FILE),
            what,
        },
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    Version(u32),
    Content(&'static str),
}

fn parse(bytes: &[u8]) -> Result<Format, Wrong> {
    let text = str::from_utf8(bytes).map_err(|_| Wrong::Content("it is not text"))?;
    let text = text
        .strip_suffix('\n')
        .ok_or(Wrong::Content("it is truncated"))?;
    let mut lines = text.split('\n');
    if lines.next() != Some(TITLE) {
        return Err(Wrong::Content("its first line is unknown"));
    }
    let mut value = |key: &str| {
        let line = lines.next()?.strip_prefix(key)?;
        line.strip_prefix(" = ")
    };
    let version = value("version").and_then(|version| version.parse().ok());
    match version.ok_or(Wrong::Content("its version is invalid"))? {
        FORMAT_VERSION => {}
        other => return Err(Wrong::Version(other)),
    }
    let hasher = value("hasher").and_then(|name| name.parse().ok());
    let mask_bits = value("mask_bits").and_then(|bits| bits.parse().ok());
    let bytes_min = value("chunk_bytes_min").and_then(|bytes| bytes.parse().ok());
    let bytes_max = value("chunk_bytes_max").and_then(|bytes| bytes.parse().ok());
    let bounds = bytes_min.zip(bytes_max);
    let bounds = bounds.and_then(|(min, max)| ChunkBounds::new(min, max).ok());
    let size_bytes = value("size_bytes").and_then(|bytes| bytes.parse().ok());
    match (hasher, mask_bits, bounds, size_bytes, lines.next()) {
        (Some(hasher), Some(mask_bits), Some(bounds), Some(size_bytes), None) => Ok(Format {
            chunking: Chunking {
                mask_bits,
                bounds,
                hasher,
            },
            size_bytes,
        }),
        _ => Err(Wrong::Content("a line is invalid")),
    }
}

/// The files of the folder, and their bytes.
pub(crate) fn list(folder: &dyn Folder) -> Result<Vec<(String, u64)>, StoreError> {
    folder.list().map_err(error_at(folder, "list", ""))
}

/// The files of segments, and their bytes.
pub(crate) fn segment_files(
    folder: &dyn Folder,
) -> Result<BTreeMap<(u32, FileKind), u64>, StoreError> {
    let files = list(folder)?.into_iter();
    let of_segments = files.filter_map(|(name, bytes)| Some((FileKind::parse(&name)?, bytes)));
    Ok(of_segments.collect())
}

/// What the segments that have an index take: others were being begun or evicted.
pub(crate) fn sizes(folder: &dyn Folder) -> Result<BTreeMap<u32, DiskBytes>, StoreError> {
    let mut sizes: BTreeMap<u32, DiskBytes> = BTreeMap::new();
    let files = segment_files(folder)?;
    let has_index = |number| files.contains_key(&(number, FileKind::Index));
    for (&(number, kind), &bytes) in files.iter().filter(|(file, _)| has_index(file.0)) {
        let size = sizes.entry(number).or_default();
        match kind {
            FileKind::Chunks => size.chunks = bytes,
            FileKind::Index => size.index = bytes,
            FileKind::Recipes => size.recipes = bytes,
            FileKind::Files => size.other = bytes,
        }
    }
    Ok(sizes)
}

/// What a file has, but for what is beyond `bytes_max`; nothing if there is none.
pub(crate) fn content(
    folder: &dyn Folder,
    name: &str,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, StoreError> {
    let file = folder.open(name);
    match file.and_then(|file| file.read_onward(0, bytes_max)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        content => content.map(Some).map_err(error_at(folder, "read", name)),
    }
}

/// Gives a file this content alone, and syncs it.
pub(crate) fn write_whole(
    folder: &dyn Folder,
    name: &str,
    content: &[u8],
) -> Result<Box<dyn FolderFile>, StoreError> {
    let file = folder.open_or_create(name);
    let file = file.map_err(error_at(folder, "create", name))?;
    file.set_bytes(0)
        .and_then(|()| file.write_all_at(content, 0))
        .and_then(|()| file.sync())
        .map_err(error_at(folder, "write", name))?;
    Ok(file)
}

/// The same so that it is there whole or as it was.
pub(crate) fn replace(folder: &dyn Folder, name: &str, content: &[u8]) -> Result<(), StoreError> {
    let new = format!("{name}{NEW}");
    write_whole(folder, &new, content)?;
    folder
        .rename(&new, name)
        .and_then(|()| folder.sync())
        .map_err(error_at(folder, "create", name))
}

/// Removes a file, if it is there.
pub(crate) fn remove(folder: &dyn Folder, name: &str) -> Result<(), StoreError> {
    match folder.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(error_at(folder, "remove", name)),
    }
}

/// What an error of the disk at a file of the folder is to the caller.
pub(crate) fn error_at(
    folder: &dyn Folder,
    doing: &'static str,
    name: &str,
) -> impl FnOnce(io::Error) -> StoreError {
    move |source| match source.kind() {
        io::ErrorKind::NotADirectory => StoreError::NotADirectory {
            path: folder.path(),
        },
        _ => StoreError::Io {
            doing,
            path: folder.path().join(name),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::RealFolder;
    use refrain_codec::chunk::hash::ChunkHasher;

    fn format() -> Format {
        Format {
            chunking: Chunking {
                mask_bits: 7,
                bounds: ChunkBounds::new(64, 700).expect("valid"),
                hasher: ChunkHasher::Sha1,
            },
            size_bytes: 1 << 40,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = RealFolder::new(scratch.path());
        assert_eq!(read(&folder).expect("nothing is no error"), None);
        let by_default = Format {
            chunking: Chunking::default(),
            size_bytes: 0,
        };
        for format in [by_default, format()] {
            write(&folder, format).expect("it is written");
            assert_eq!(read(&folder).expect("whole"), Some(format));
        }
    }

    #[test]
    fn a_file_that_is_cut_or_changed_is_refused() {
        let text = format().to_text();
        for len in 0..text.len() {
            assert!(parse(&text.as_bytes()[..len]).is_err(), "{len}");
        }
        for (from, to) in [("sha1", "md5"), ("64", "701"), ("64", "-1"), ("7", "x")] {
            assert!(matches!(
                parse(text.replacen(from, to, 1).as_bytes()),
                Err(Wrong::Content(_))
            ));
        }
        let later = text.replace("version = 2", "version = 3\nnew = 1");
        assert_eq!(parse(later.as_bytes()), Err(Wrong::Version(3)));
        let older = text.replace("version = 2", "version = 1");
        assert_eq!(parse(older.as_bytes()), Err(Wrong::Version(1)));
    }
}
