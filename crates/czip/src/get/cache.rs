//! Chunks of earlier downloads, of any archive: by name, in a folder that all gets share, within a
//! bound (CZIP, section 4.2: the client's CBN cache).
//!
//! Chunk parts of tables are kept as chunks are: the digest of one is made as a chunk's name is. So are
//! stored frames, by their shorter digests: those of archives that are kept as they are, and those of
//! encrypted ones, of which nothing plain is here.
//!
//! The folder has *segments*, which are only ever appended to, each by the one get that made it: so two
//! gets do not disturb each other. The oldest go first. `NAME.chunks` holds bytes, `NAME.index` an entry
//! of 32 bytes for each chunk: its name, its length and where it begins. NAME begins with the time, so
//! that segments are in order of age. Nothing is believed: a chunk is read and its name made anew, and
//! whatever is wrong with the folder costs a download and no more.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{
    GetError,
    places::{Place, Places},
    stored::short_name,
};
use crate::format::{ChunkName, digest, limits};

const CHUNKS: &str = "chunks";
const INDEX: &str = "index";

const ENTRY_BYTES: usize = 32;
/// Entries that are written together.
const ENTRIES_WAITING_MAX: usize = 64;
/// So many segments, about, share the room.
const SEGMENTS: u64 = 16;
const SEGMENT_BYTES_MAX: u64 = 256 << 20;
/// Nothing that is kept is longer: a stored frame has most.
const BYTES_MAX: u32 = (limits::FRAME_BYTES_MAX + limits::STORED_FRAME_EXTRA_BYTES) as u32;

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
    writing: Option<Writing>,
    /// Why nothing is kept any more.
    failed: Option<io::Error>,
}

struct Segment {
    path: PathBuf,
    /// None if it cannot be opened.
    chunks: Option<File>,
    is_opened: bool,
}

/// The segment that this get appends to.
struct Writing {
    number: u32,
    chunks: File,
    bytes: u64,
    index: File,
    index_bytes: u64,
    entries: Vec<u8>,
}

impl Cache {
    /// Opens the cache; names that `index_bytes` are too few for go to files in `temporary`.
    pub(super) fn open(
        options: &CacheOptions,
        (index_bytes, temporary): (usize, &Path),
    ) -> Result<Self, GetError> {
        let folder = &options.folder;
        let at = |error| GetError::Local {
            path: folder.clone(),
            error,
        };
        // What somebody downloads is nobody else's business.
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(at)?;
        let mut cache = Self {
            options: options.clone(),
            segments: Vec::new(),
            places: Places::new(index_bytes, temporary),
            writing: None,
            failed: None,
        };
        for (path, _) in segments(folder).map_err(at)? {
            cache.load(path)?;
        }
        Ok(cache)
    }

    /// Takes the entries of a segment.
    fn load(&mut self, path: PathBuf) -> Result<(), GetError> {
        let of = self.segments.len() as u32;
        // One that another get has just removed holds nothing.
        if let Ok(entries) = fs::read(path.with_extension(INDEX)) {
            let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
            for entry in entries {
                let (name, place) = parse(entry, of);
                if (1..=BYTES_MAX).contains(&place.bytes) {
                    self.places.put(name, place)?;
                }
            }
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
        let is_read = file.is_some_and(|file| file.read_exact_at(&mut chunk, place.at).is_ok());
        if is_read && [ChunkName::of(&chunk), short_name(digest(&chunk))].contains(&name) {
            return Ok(Some(chunk));
        }
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

    /// Writes what waits, and says why something could not be kept.
    pub(super) fn finish(mut self) -> Option<io::Error> {
        let written = match &mut self.writing {
            Some(writing) => writing.write_entries(),
            None => Ok(()),
        };
        self.failed.take().or(written.err())
    }

    fn append(&mut self, name: ChunkName, chunk: &[u8]) -> io::Result<Option<Place>> {
        let segment_bytes_max = (self.options.bytes_max / SEGMENTS).min(SEGMENT_BYTES_MAX);
        let bytes = (chunk.len() + ENTRY_BYTES) as u64;
        if bytes > segment_bytes_max {
            return Ok(None);
        }
        let is_full = |writing: &Writing| {
            writing.bytes + writing.index_bytes + writing.entries.len() as u64 + bytes
                > segment_bytes_max
        };
        let mut writing = match self.writing.take() {
            Some(mut full) if is_full(&full) => {
                full.write_entries()?;
                self.begin(segment_bytes_max)?
            }
            Some(writing) => writing,
            None => self.begin(segment_bytes_max)?,
        };
        let place = Place {
            at: writing.bytes,
            bytes: chunk.len() as u32,
            of: writing.number,
        };
        writing.chunks.write_all_at(chunk, place.at)?;
        writing.bytes += chunk.len() as u64;
        writing.entries.extend_from_slice(&entry(name, place));
        if writing.entries.len() >= ENTRIES_WAITING_MAX * ENTRY_BYTES {
            writing.write_entries()?;
        }
        self.writing = Some(writing);
        Ok(Some(place))
    }

    /// Begins a segment, for which others make room.
    fn begin(&mut self, room: u64) -> io::Result<Writing> {
        let folder = &self.options.folder;
        make_room(folder, self.options.bytes_max.saturating_sub(room))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanoseconds = now.map_or(0, |now| now.as_nanos() as u64);
        let chunks = tempfile::Builder::new()
            .prefix(&format!("{nanoseconds:016x}-"))
            .suffix(&format!(".{CHUNKS}"))
            .tempfile_in(folder)?;
        let (chunks, path) = chunks.keep().map_err(|error| error.error)?;
        let mut options = OpenOptions::new();
        let index = options.write(true).create_new(true);
        let index = index.open(path.with_extension(INDEX))?;
        let number = self.segments.len() as u32;
        self.segments.push(Segment {
            path,
            chunks: Some(chunks.try_clone()?),
            is_opened: true,
        });
        Ok(Writing {
            number,
            chunks,
            bytes: 0,
            index,
            index_bytes: 0,
            entries: Vec::new(),
        })
    }
}

impl Segment {
    fn file(&mut self) -> Option<&File> {
        if !self.is_opened {
            self.is_opened = true;
            self.chunks = File::open(&self.path).ok();
        }
        self.chunks.as_ref()
    }
}

impl Writing {
    fn write_entries(&mut self) -> io::Result<()> {
        self.index.write_all_at(&self.entries, self.index_bytes)?;
        self.index_bytes += self.entries.len() as u64;
        self.entries.clear();
        Ok(())
    }
}

fn entry(name: ChunkName, place: Place) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..20].copy_from_slice(&name.0);
    entry[20..24].copy_from_slice(&place.bytes.to_le_bytes());
    entry[24..].copy_from_slice(&place.at.to_le_bytes());
    entry
}

fn parse(entry: &[u8; ENTRY_BYTES], of: u32) -> (ChunkName, Place) {
    let (name, numbers) = entry.split_first_chunk().expect("20 of 32 bytes");
    let (bytes, at) = numbers.split_first_chunk().expect("4 of 12 bytes");
    let place = Place {
        at: u64::from_le_bytes(*at.first_chunk().expect("8 bytes")),
        bytes: u32::from_le_bytes(*bytes),
        of,
    };
    (ChunkName(*name), place)
}

/// The segments in a folder, from the oldest on, and what each takes there.
fn segments(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == CHUNKS)
        {
            let bytes = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
            let taken = bytes(&path) + bytes(&path.with_extension(INDEX));
            found.push((path, taken));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes the oldest segments until those that are left take at most `bytes_max`.
fn make_room(folder: &Path, bytes_max: u64) -> io::Result<()> {
    // Two that do so at once would each remove what one of them has to.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let segments = segments(folder)?;
    let mut taken: u64 = segments.iter().map(|(_, bytes)| bytes).sum();
    for (path, bytes) in segments {
        if taken <= bytes_max {
            break;
        }
        // Who reads it still has it open.
        fs::remove_file(&path)?;
        let _ = fs::remove_file(path.with_extension(INDEX));
        taken -= bytes;
    }
    Ok(())
}
