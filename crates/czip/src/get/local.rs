//! What of an archive is here already: kept beside the output until that is whole, so that a get goes
//! on where an earlier one ended.
//!
//! A folder `FILE.part` has
//!
//! | file | holds |
//! |---|---|
//! | `lock` | nothing; is locked by the get that is at work |
//! | `header` | the header of the archive, last of all written |
//! | `archive` | the archive, with holes where it was not fetched, or is in `chunks` |
//! | `chunks` | the plain bytes of its chunks, stream by stream in order of number, with holes |
//! | `whole` | the output, as it is put together |
//! | `archive.old`, `chunks.old` | the same of another archive that was at that address before |
//!
//! Nobody remembers what is a hole: a part or frame that has its digest is there, and so is a chunk that
//! has its name. So nothing that a crash or a power cut left is believed.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{
    GetError,
    keys::KeySource,
    part_folder::PartFolder,
    places::{Place, Places},
};
use crate::{
    archive::{Archive, CacheBytes, Chunk, FileSource, Source},
    format::{ChunkName, Stream, header::Header, root::Root},
};

/// No file system has larger blocks, but rare ones.
const BLOCK_BYTES: u64 = 64 << 10;

/// What an earlier get left of the archive with `header` may be used as it is; what it left of another is
/// put aside. True in the first case.
fn is_resumed(folder: &PartFolder, header: &Header) -> Result<bool, GetError> {
    let expected = header.to_bytes();
    // More is read than it should have, so that a longer file is another one.
    let mut was = Vec::with_capacity(expected.len() + 1);
    let is_same = folder.read("header").is_ok_and(|file| {
        let read = file.take(expected.len() as u64 + 1).read_to_end(&mut was);
        read.is_ok() && was == expected
    });
    if !is_same {
        folder.remove_file("header");
        for name in ["archive", "chunks"] {
            if folder.has(name) {
                folder.rename(name, &format!("{name}.old"))?;
            }
        }
    }
    Ok(is_same)
}

/// An archive with holes, and the plain bytes of its chunks, with holes too.
pub(super) struct Local {
    /// For messages.
    folder: PathBuf,
    archive: File,
    archive_bytes: u64,
    chunks: File,
    /// Where in `chunks` the streams begin.
    starts: OnceLock<[u64; 5]>,
    /// Whether all chunks are there.
    is_complete: AtomicBool,
    /// What was freed last: neighbours that were freed one after the other.
    freed: Mutex<Range<u64>>,
}

impl Local {
    /// Bytes of the archive, which came.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), GetError> {
        let written = self.archive.write_all_at(bytes, offset);
        written.map_err(|error| self.at("archive", error))
    }

    /// Gives the disk back what a range of the archive takes, whose chunks are all here: it need not be read
    /// again, and its bytes are not kept twice.
    pub(super) fn free(&self, range: Range<u64>) {
        let mut freed = self.freed.lock().unwrap_or_else(PoisonError::into_inner);
        let start = match freed.end == range.start {
            true => freed.start,
            false => range.start,
        };
        *freed = start..range.end;
        // Only whole blocks are given back: that which has the end of the one before, too.
        let from = start.max(range.start / BLOCK_BYTES * BLOCK_BYTES);
        give_back(&self.archive, from..range.end);
    }

    /// The bytes of chunks in `stream`, which begin at `at` of what is unique there.
    pub(super) fn write_chunk(
        &self,
        bytes: &[u8],
        stream: Stream,
        at: u64,
    ) -> Result<(), GetError> {
        let written = (self.chunks).write_all_at(bytes, self.start(stream) + at);
        written.map_err(|error| self.at("chunks", error))
    }

    /// Reads what [`write_chunk`](Self::write_chunk) wrote, or zeros.
    pub(super) fn read_chunk(&self, buffer: &mut [u8], stream: Stream, at: u64) -> io::Result<()> {
        let at = self.start(stream) + at;
        self.chunks.read_exact_at(buffer, at)
    }

    /// The archive is on the disk when it returns.
    pub(super) fn sync(&self) -> Result<(), GetError> {
        (self.archive.sync_all()).map_err(|error| self.at("archive", error))
    }

    fn at(&self, name: &str, error: io::Error) -> GetError {
        GetError::local(&self.folder.join(name), error)
    }

    /// From now on the plain content is made of the chunks.
    pub(super) fn complete(&self) {
        self.is_complete.store(true, Relaxed);
    }

    fn start(&self, stream: Stream) -> u64 {
        self.starts.get().expect("set when it was opened")[stream.index()]
    }

    fn set_starts(&self, root: &Root) -> u64 {
        let mut end = 0_u64;
        let starts = Stream::ALL.map(|stream| {
            let start = end;
            end = end.saturating_add(root.stream(stream).unique_bytes());
            start
        });
        self.starts.get_or_init(|| starts);
        end
    }
}

/// Makes a hole of a range of a file, where the file system can.
#[cfg(target_os = "linux")]
fn give_back(file: &File, range: Range<u64>) {
    use rustix::fs::{FallocateFlags, fallocate};
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // Elsewhere it stays until all of it is here.
    let _ = fallocate(file, flags, range.start, range.end - range.start);
}

#[cfg(not(target_os = "linux"))]
fn give_back(_: &File, _: Range<u64>) {}

impl Source for Local {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.archive_bytes)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.archive.read_exact_at(buffer, offset)
    }

    fn read_unique_at(&self, buffer: &mut [u8], stream: Stream, at: u64) -> io::Result<bool> {
        if !self.is_complete.load(Relaxed) {
            return Ok(false);
        }
        self.read_chunk(buffer, stream, at).map(|()| true)
    }
}

/// An archive that is here in part, and whether an earlier get left something of it.
pub(super) struct Begun {
    pub(super) archive: Archive<Local>,
    pub(super) is_resumed: bool,
    pub(super) old: Option<OldChunks>,
}

/// Opens the archive with `header` in `folder`, and unlocks it if it is encrypted and there are `keys`;
/// `pieces` have at least what that takes, with their offsets.
pub(super) fn begin(
    folder: &PartFolder,
    header: &Header,
    pieces: &[(u64, Vec<u8>)],
    keys: Option<&KeySource>,
    index: (usize, &Path),
) -> Result<Begun, GetError> {
    let is_resumed = is_resumed(folder, header)?;
    let archive_bytes = header.archive_bytes;
    let local = Local {
        folder: folder.shown(""),
        archive: folder.create("archive")?,
        archive_bytes,
        chunks: folder.create("chunks")?,
        starts: OnceLock::new(),
        is_complete: AtomicBool::new(false),
        freed: Mutex::default(),
    };
    let resized = local.archive.set_len(archive_bytes);
    resized.map_err(|error| folder.at("archive", error))?;
    for (offset, bytes) in pieces {
        local.write(bytes, *offset)?;
    }
    let mut archive = Archive::open(local, CacheBytes::default())?;
    if let (true, Some(keys)) = (archive.is_locked(), keys) {
        keys.unlock(&mut archive)?;
    }
    let chunks_bytes = archive.source().set_starts(archive.root());
    let resized = archive.source().chunks.set_len(chunks_bytes);
    resized.map_err(|error| folder.at("chunks", error))?;
    let kept = folder.create_new("header")?;
    let kept = kept.write_all_at(&header.to_bytes(), 0);
    kept.map_err(|error| folder.at("header", error))?;
    Ok(Begun {
        archive,
        is_resumed,
        old: OldChunks::open(folder, index)?,
    })
}

/// Chunks that an earlier get brought, of what the address had then.
pub(super) struct OldChunks {
    chunks: File,
    places: [Places; 5],
}

impl OldChunks {
    fn open(folder: &PartFolder, index: (usize, &Path)) -> Result<Option<Self>, GetError> {
        let kept = (folder.read("archive.old"), folder.read("chunks.old"));
        let (Ok(archive), Ok(chunks)) = kept else {
            return Ok(None);
        };
        let Ok(chunks_bytes) = chunks.metadata().map(|metadata| metadata.len()) else {
            return Ok(None);
        };
        let source = FileSource::new(archive)?;
        let Ok(archive) = Archive::open(source, CacheBytes::default()) else {
            return Ok(None);
        };
        let mut places = Stream::ALL.map(|_| Places::new(index.0 / 5, index.1));
        let mut start = 0_u64;
        for stream in Stream::ALL {
            let lists = archive.root().stream(stream);
            for row in 0..lists.lengths.rows().len() {
                for chunk in archive.row_chunks(stream, row).unwrap_or_default() {
                    let (at, bytes) = (start.saturating_add(chunk.at), chunk.bytes);
                    if at.saturating_add(bytes.into()) <= chunks_bytes {
                        places[stream.index()].add(chunk.name, Place { at, bytes, of: 0 })?;
                    }
                }
            }
            start = start.saturating_add(lists.unique_bytes());
        }
        Ok(Some(Self { chunks, places }))
    }

    /// The bytes of a chunk, if they are there.
    pub(super) fn find(&mut self, chunk: &Chunk) -> Result<Option<Vec<u8>>, GetError> {
        let found = self.places[chunk.stream.index()].find(chunk.name)?;
        let Some((_, place)) = found.filter(|(_, place)| place.bytes == chunk.bytes) else {
            return Ok(None);
        };
        let mut plain = vec![0; place.bytes as usize];
        let is_read = self.chunks.read_exact_at(&mut plain, place.at).is_ok();
        Ok((is_read && ChunkName::of(&plain) == chunk.name).then_some(plain))
    }
}
