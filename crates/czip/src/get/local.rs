//! What of an archive is here already: kept beside the output until that is whole, so that a get goes
//! on where an earlier one ended.
//!
//! A folder `FILE.part` has
//!
//! | file | holds |
//! |---|---|
//! | `lock` | nothing; is locked by the get that is at work |
//! | `header` | the header of the archive, last of all written |
//! | `archive` | the archive, with holes where it was not fetched |
//! | `chunks` | the plain bytes of its chunks, stream by stream in order of number, with holes |
//! | `whole` | the output, as it is put together |
//! | `archive.old`, `chunks.old` | the same of another archive that was at that address before |
//!
//! Nobody remembers what is a hole: a part or frame that has its digest is there, and so is a chunk that
//! has its name. So nothing that a crash or a power cut left is believed.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{
    GetError,
    keys::KeySource,
    places::{Place, Places},
};
use crate::{
    archive::{Archive, CacheBytes, Source},
    format::{ChunkName, Stream, header::Header, root::Root},
};

/// The folder in which a get keeps what it has.
pub(super) struct PartFolder {
    path: PathBuf,
    /// Locked while it is there.
    _lock: File,
}

impl PartFolder {
    /// The folder for what becomes `output`.
    pub(super) fn open(output: &Path) -> Result<Self, GetError> {
        let mut path = output.as_os_str().to_owned();
        path.push(".part");
        let path = PathBuf::from(path);
        let at = |error| GetError::Local {
            path: path.clone(),
            error,
        };
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(error)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true);
        let lock = lock.open(path.join("lock")).map_err(at)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(GetError::Busy { path }),
            Err(TryLockError::Error(error)) => return Err(at(error)),
        }
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file in it, and makes it if it is not there.
    pub(super) fn create(&self, name: &str) -> Result<File, GetError> {
        let path = self.file(name);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        options
            .open(&path)
            .map_err(|error| GetError::Local { path, error })
    }

    /// What an earlier get left of the archive with `header` may be used as it is; what it left of
    /// another is put aside. True in the first case.
    fn begin(&self, header: &Header) -> Result<bool, GetError> {
        let is_same = fs::read(self.file("header")).is_ok_and(|was| was == header.to_bytes());
        if !is_same {
            let _ = fs::remove_file(self.file("header"));
            for name in ["archive", "chunks"] {
                let (from, to) = (self.file(name), self.file(&format!("{name}.old")));
                if from.exists() {
                    fs::rename(&from, to).map_err(|error| GetError::Local { path: from, error })?;
                }
            }
        }
        Ok(is_same)
    }

    /// Removes it if nothing is kept in it.
    pub(super) fn remove_if_empty(&self) {
        let has_any = ["header", "archive", "archive.old"].map(|name| self.file(name).exists());
        if has_any == [false; 3] {
            let _ = self.remove();
        }
    }

    /// Removes it with all that is in it.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.path)
    }
}

/// An archive with holes, and the plain bytes of its chunks, with holes too.
pub(super) struct Local {
    archive: Kept,
    archive_bytes: u64,
    chunks: Kept,
    /// Where in `chunks` the streams begin.
    starts: OnceLock<[u64; 5]>,
    /// Whether all chunks are there.
    is_complete: AtomicBool,
}

/// A file of the folder, whose errors say which it is.
struct Kept {
    file: File,
    path: PathBuf,
}

impl Kept {
    fn open(folder: &PartFolder, name: &str) -> Result<Self, GetError> {
        Ok(Self {
            file: folder.create(name)?,
            path: folder.file(name),
        })
    }

    fn set_len(&self, bytes: u64) -> Result<(), GetError> {
        self.tried(self.file.set_len(bytes))
    }

    fn tried<T>(&self, result: io::Result<T>) -> Result<T, GetError> {
        result.map_err(|error| GetError::Local {
            path: self.path.clone(),
            error,
        })
    }
}

impl Local {
    /// Bytes of the archive, which came.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), GetError> {
        let archive = &self.archive;
        archive.tried(archive.file.write_all_at(bytes, offset))
    }

    /// The bytes of chunks in `stream`, which begin at `at` of what is unique there.
    pub(super) fn write_chunk(
        &self,
        bytes: &[u8],
        stream: Stream,
        at: u64,
    ) -> Result<(), GetError> {
        let chunks = &self.chunks;
        chunks.tried(chunks.file.write_all_at(bytes, self.start(stream) + at))
    }

    /// Reads what [`write_chunk`](Self::write_chunk) wrote, or zeros.
    pub(super) fn read_chunk(&self, buffer: &mut [u8], stream: Stream, at: u64) -> io::Result<()> {
        let at = self.start(stream) + at;
        self.chunks.file.read_exact_at(buffer, at)
    }

    /// The archive is on the disk when it returns.
    pub(super) fn sync(&self) -> Result<(), GetError> {
        self.archive.tried(self.archive.file.sync_all())
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

impl Source for Local {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.archive_bytes)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.archive.file.read_exact_at(buffer, offset)
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
    let is_resumed = folder.begin(header)?;
    let archive_bytes = header.archive_bytes;
    let local = Local {
        archive: Kept::open(folder, "archive")?,
        archive_bytes,
        chunks: Kept::open(folder, "chunks")?,
        starts: OnceLock::new(),
        is_complete: AtomicBool::new(false),
    };
    local.archive.set_len(archive_bytes)?;
    for (offset, bytes) in pieces {
        local.write(bytes, *offset)?;
    }
    let mut archive = Archive::open(local, CacheBytes::default())?;
    if let (true, Some(keys)) = (archive.is_locked(), keys) {
        keys.unlock(&mut archive)?;
    }
    let chunks_bytes = archive.source().set_starts(archive.root());
    archive.source().chunks.set_len(chunks_bytes)?;
    let path = folder.file("header");
    fs::write(&path, header.to_bytes()).map_err(|error| GetError::Local { path, error })?;
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
        let opened = File::open(folder.file("archive.old"));
        let (Ok(archive), Ok(chunks)) = (opened, File::open(folder.file("chunks.old"))) else {
            return Ok(None);
        };
        let Ok(chunks_bytes) = chunks.metadata().map(|metadata| metadata.len()) else {
            return Ok(None);
        };
        let source = crate::archive::FileSource::new(archive)?;
        let Ok(archive) = Archive::open(source, CacheBytes::default()) else {
            return Ok(None);
        };
        let mut places = Stream::ALL.map(|_| Places::new(index.0 / 5, index.1));
        let mut start = 0_u64;
        for stream in Stream::ALL {
            let lists = archive.root().stream(stream);
            for (row, length_row) in lists.lengths.rows().iter().enumerate() {
                let names = archive.chunk_names(stream, row);
                let (Ok(names), Ok(chunks)) = (names, archive.chunk_places(stream, row)) else {
                    continue;
                };
                let mut at = start.saturating_add(length_row.before[1]);
                for (name, (bytes, _)) in names.into_iter().zip(chunks) {
                    let end = at.saturating_add(bytes.into());
                    if end <= chunks_bytes {
                        places[stream.index()].add(name, Place { at, bytes, of: 0 })?;
                    }
                    at = end;
                }
            }
            start = start.saturating_add(lists.unique_bytes());
        }
        Ok(Some(Self { chunks, places }))
    }

    /// The chunk called `name`, if it is there.
    pub(super) fn find(
        &mut self,
        stream: Stream,
        name: ChunkName,
    ) -> Result<Option<Vec<u8>>, GetError> {
        let Some((_, place)) = self.places[stream.index()].find(name)? else {
            return Ok(None);
        };
        let mut chunk = vec![0; place.bytes as usize];
        let is_read = self.chunks.read_exact_at(&mut chunk, place.at).is_ok();
        Ok((is_read && ChunkName::of(&chunk) == name).then_some(chunk))
    }
}
