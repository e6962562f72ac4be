//! Chunks by name in a folder that processes share: the segments that hold them.
//!
//! A *segment* is only ever appended to, by the one process that made it: so two do not disturb each
//! other. The oldest go first. `NAME.chunks` holds bytes, `NAME.index` an entry of 32 bytes for each
//! chunk: its name, its length and where it begins. NAME begins with the time, so that segments are in
//! order of age. Nothing is believed: whoever reads a chunk makes its name anew.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::format::{ChunkName, limits};

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

/// Where a chunk is in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: ChunkName,
    pub(crate) bytes: u32,
    pub(crate) at: u64,
}

impl Entry {
    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        entry[..20].copy_from_slice(&self.name.0);
        entry[20..24].copy_from_slice(&self.bytes.to_le_bytes());
        entry[24..].copy_from_slice(&self.at.to_le_bytes());
        entry
    }

    fn parse(entry: &[u8; ENTRY_BYTES]) -> Self {
        let (name, numbers) = entry.split_first_chunk().expect("20 of 32 bytes");
        let (bytes, at) = numbers.split_first_chunk().expect("4 of 12 bytes");
        Self {
            name: ChunkName(*name),
            bytes: u32::from_le_bytes(*bytes),
            at: u64::from_le_bytes(*at.first_chunk().expect("8 bytes")),
        }
    }
}

/// Makes the folder, if it is not there.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    // What somebody downloads is nobody else's business.
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(folder);
    made.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            io::Error::new(error.kind(), "it is a file, where a folder should be")
        }
        _ => error,
    })
}

/// The segments in a folder, from the oldest on, and what each takes there.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
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

/// What the index of a segment says, as far as it can be. One that was just removed says nothing.
pub(crate) fn entries(path: &Path) -> Vec<Entry> {
    let bytes = fs::read(path.with_extension(INDEX)).unwrap_or_default();
    let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
    entries
        .iter()
        .map(Entry::parse)
        .filter(|entry| (1..=BYTES_MAX).contains(&entry.bytes))
        .collect()
}

/// The segment that a process appends to.
pub(crate) struct Writing {
    pub(crate) path: PathBuf,
    pub(crate) chunks: File,
    bytes: u64,
    bytes_max: u64,
    index: File,
    index_bytes: u64,
    entries: Vec<u8>,
}

impl Writing {
    /// What a segment may take in a folder that may take `bytes_max`.
    pub(crate) fn bytes_max(bytes_max: u64) -> u64 {
        (bytes_max / SEGMENTS).min(SEGMENT_BYTES_MAX)
    }

    /// What a chunk takes.
    pub(crate) fn taken_by(chunk: &[u8]) -> u64 {
        (chunk.len() + ENTRY_BYTES) as u64
    }

    /// Begins a segment in a folder that may take `bytes_max`; the oldest make room.
    pub(crate) fn begin(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        let room = Self::bytes_max(bytes_max);
        make_room(folder, bytes_max.saturating_sub(room))?;
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
        Ok(Self {
            path,
            chunks,
            bytes: 0,
            bytes_max: room,
            index,
            index_bytes: 0,
            entries: Vec::new(),
        })
    }

    /// Whether a chunk still fits.
    pub(crate) fn fits(&self, chunk: &[u8]) -> bool {
        let taken = self.bytes + self.index_bytes + self.entries.len() as u64;
        taken + Self::taken_by(chunk) <= self.bytes_max
    }

    /// Appends a chunk, and says where it is.
    pub(crate) fn append(&mut self, name: ChunkName, chunk: &[u8]) -> io::Result<Entry> {
        let entry = Entry {
            name,
            bytes: chunk.len() as u32,
            at: self.bytes,
        };
        self.chunks.write_all_at(chunk, entry.at)?;
        self.bytes += chunk.len() as u64;
        self.entries.extend_from_slice(&entry.to_bytes());
        if self.entries.len() >= ENTRIES_WAITING_MAX * ENTRY_BYTES {
            self.write_entries()?;
        }
        Ok(entry)
    }

    /// Writes what waits.
    pub(crate) fn write_entries(&mut self) -> io::Result<()> {
        self.index.write_all_at(&self.entries, self.index_bytes)?;
        self.index_bytes += self.entries.len() as u64;
        self.entries.clear();
        Ok(())
    }
}

/// Removes the oldest segments until those that are left take at most `bytes_max`.
fn make_room(folder: &Path, bytes_max: u64) -> io::Result<()> {
    // Two that do so at once would each remove what one of them has to.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let segments = list(folder)?;
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
