//! Chunks of earlier downloads, of any archive: by name, in a folder that all gets share, within a
//! bound (CZIP, section 4.2: the client's CBN cache).
//!
//! Chunk parts of tables are kept as chunks are: the digest of one is made as a chunk's name is. So are
//! stored frames, by their shorter digests: those of archives that are kept as they are, and those of
//! encrypted ones, of which nothing plain is here.
//!
//! The folder has [segments](crate::segments). Nothing is believed: a chunk is read and its name made
//! anew, and whatever is wrong with the folder costs a download and no more.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{
    GetError,
    places::{Place, Places},
};
use crate::{
    format::{ChunkName, digest},
    plain_file::read_plain,
    segments::{self, Entry, Writing},
};

/// Ends the names of bytes of which only a digest of 12 bytes is known.
const SHORT: [u8; 8] = *b"\0\0\0short";

/// What bytes are kept by that have this digest.
pub(super) fn short_name(digest: [u8; 12]) -> ChunkName {
    let mut name = [0; ChunkName::BYTES];
    name[..12].copy_from_slice(&digest);
    name[12..].copy_from_slice(&SHORT);
    ChunkName(name)
}

/// A cache, and how large it may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Its folder, which is made if it is not there.
    pub folder: PathBuf,
    /// The bound on disk.
    pub bytes_max: u64,
}

impl CacheOptions {
    /// The bound by default: 10 GiB.
    pub const BYTES_MAX: u64 = 10 << 30;
}

/// An open cache.
pub(super) struct Cache {
    options: CacheOptions,
    /// By number, as places name them.
    segments: Vec<Segment>,
    places: Places,
    /// The segment that this get appends to: the last one.
    writing: Option<Writing>,
    /// Chunks that were there and wrong.
    damaged: u64,
    /// Why nothing is kept any more.
    failed: Option<io::Error>,
}

struct Segment {
    path: PathBuf,
    /// None if it cannot be opened.
    chunks: Option<File>,
    is_opened: bool,
}

impl Cache {
    /// Opens the cache; names that `index_bytes` are too few for are forgotten. Places go to files in `temporary`.
    pub(super) fn open(
        options: &CacheOptions,
        (index_bytes, temporary): (usize, &Path),
    ) -> Result<Self, GetError> {
        let folder = &options.folder;
        let at = |error| GetError::Local {
            path: folder.clone(),
            error,
        };
        segments::create_folder(folder).map_err(at)?;
        let mut cache = Self {
            options: options.clone(),
            segments: Vec::new(),
            places: Places::new(index_bytes, temporary),
            writing: None,
            damaged: 0,
            failed: None,
        };
        for (path, _) in segments::list(folder).map_err(at)? {
            cache.load(path)?;
        }
        Ok(cache)
    }

    /// Takes the entries of a segment.
    fn load(&mut self, path: PathBuf) -> Result<(), GetError> {
        let of = self.segments.len() as u32;
        for Entry { name, bytes, at } in segments::entries(&path) {
            self.places.put(name, Place { at, bytes, of })?;
        }
        self.segments.push(Segment {
            path,
            chunks: None,
            is_opened: false,
        });
        Ok(())
    }

    /// How long a chunk is, if it is there as it seems.
    pub(super) fn chunk_bytes(&mut self, name: ChunkName) -> Result<Option<u32>, GetError> {
        let found = self.places.find(name)?;
        Ok(found
            .map(|(_, place)| place.bytes)
            .filter(|&bytes| bytes > 0))
    }

    /// The bytes of a chunk, if they are there and right.
    pub(super) fn find(&mut self, name: ChunkName) -> Result<Option<Vec<u8>>, GetError> {
        let found = self.places.find(name)?;
        let Some((_, place)) = found.filter(|(_, place)| place.bytes > 0) else {
            return Ok(None);
        };
        let mut chunk = vec![0; place.bytes as usize];
        let file = self.segments[place.of as usize].file();
        let is_there = file.is_some();
        let is_read = file.is_some_and(|file| file.read_exact_at(&mut chunk, place.at).is_ok());
        if is_read && [ChunkName::of(&chunk), short_name(digest(&chunk))].contains(&name) {
            return Ok(Some(chunk));
        }
        // A segment that is gone made room for others.
        self.damaged += u64::from(is_there);
        // So that it is kept again when it has been fetched.
        self.places.put(name, Place { bytes: 0, ..place })?;
        Ok(None)
    }

    /// Keeps a chunk, if there is room on the disk.
    pub(super) fn add(&mut self, name: ChunkName, chunk: &[u8]) -> Result<(), GetError> {
        if self.failed.is_some() || self.chunk_bytes(name)?.is_some() {
            return Ok(());
        }
        match self.append(name, chunk) {
            Ok(Some(place)) => self.places.put(name, place),
            Ok(None) => Ok(()),
            Err(error) => {
                self.writing = None;
                self.failed = Some(error);
                Ok(())
            }
        }
    }

    /// Chunks, parts of tables and frames that were wanted, there and wrong: each once.
    pub(super) fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Writes what waits, and says why something could not be kept.
    pub(super) fn finish(mut self) -> Option<io::Error> {
        let written = match &mut self.writing {
            Some(writing) => writing.write_entries(),
            None => Ok(()),
        };
        self.failed.take().or(written.err())
    }

    fn append(&mut self, name: ChunkName, chunk: &[u8]) -> io::Result<Option<Place>> {
        let bytes_max = self.options.bytes_max;
        if Writing::taken_by(chunk) > Writing::bytes_max(bytes_max) {
            return Ok(None);
        }
        let mut writing = match self.writing.take() {
            Some(writing) if writing.fits(chunk) => writing,
            full => {
                if let Some(mut full) = full {
                    full.write_entries()?;
                }
                let writing = Writing::begin(&self.options.folder, bytes_max)?;
                self.segments.push(Segment {
                    path: writing.path.clone(),
                    chunks: Some(writing.chunks.try_clone()?),
                    is_opened: true,
                });
                writing
            }
        };
        let Entry { bytes, at, .. } = writing.append(name, chunk)?;
        self.writing = Some(writing);
        let of = self.segments.len() as u32 - 1;
        Ok(Some(Place { at, bytes, of }))
    }
}

impl Segment {
    fn file(&mut self) -> Option<&File> {
        if !self.is_opened {
            self.is_opened = true;
            self.chunks = read_plain(&self.path).ok();
        }
        self.chunks.as_ref()
    }
}
