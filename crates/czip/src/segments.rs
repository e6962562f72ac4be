//! Chunks by name in a folder that processes share: the segments that hold them.
//!
//! A *segment* is only ever appended to, by the one process that made it: so two do not disturb each
//! other. The oldest go first. `NAME.chunks` holds bytes, `NAME.index` an entry of 32 bytes for each
//! chunk: its name, its length and where it begins. NAME begins with the time, so that segments are in
//! order of age. Nothing is believed: whoever reads a chunk makes its name anew. A directory of another format
//! than this one, which is 1, has an empty file `format-N`: it is neither read nor written.
//!
//! Whoever may write to the folder may be somebody else. So no link in it is followed, nothing that is there is
//! written to, no pipe is waited for, and of an index no more is read than an honest one may have.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufReader, Read},
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::fs::{CWD, Mode, OFlags};

use crate::{
    format::{ChunkName, limits},
    plain_file::{open_plain, read_plain},
    records::Entry,
};

const CHUNKS: &str = "chunks";
const INDEX: &str = "index";
const LOCK: &str = "lock";
/// Begins the name of the file that says which format the directory has, if it is not this one.
const FORMAT: &str = "format-";

/// Entries that are written together.
const ENTRIES_WAITING_MAX: usize = 64;
/// So many segments, about, share the room.
const SEGMENTS: u64 = 16;
const SEGMENT_BYTES_MAX: u64 = 256 << 20;
/// Nothing that is kept is longer: a stored frame has most.
const BYTES_MAX: u32 = (limits::FRAME_BYTES_MAX + limits::STORED_FRAME_EXTRA_BYTES) as u32;

/// Makes the folder, if it is not there.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    // What somebody downloads is nobody else's business.
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(folder);
    made.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            io::Error::new(error.kind(), "it is a file, not a directory")
        }
        _ => error,
    })
}

/// The segments in a folder, from the oldest on, and what each takes there.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(format) = name.and_then(|name| name.strip_prefix(FORMAT)) {
            let error = format!(
                "it is a cache of format {format:?}, but this version of refrain uses format 1 (name another \
                 directory, or remove it)"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, error));
        }
        let is_chunks = path
            .extension()
            .is_some_and(|extension| extension == CHUNKS);
        if let Some(bytes) = bytes_of(&path).filter(|_| is_chunks) {
            let taken = bytes + bytes_of(&path.with_extension(INDEX)).unwrap_or(0);
            found.push((path, taken));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The length of a file; none if something else is called so.
fn bytes_of(path: &Path) -> Option<u64> {
    let metadata = fs::symlink_metadata(path).ok()?;
    metadata.is_file().then_some(metadata.len())
}

/// What the index of a segment says, as far as it can be. One that was just removed says nothing.
pub(crate) fn entries(path: &Path) -> impl Iterator<Item = Entry> + use<> {
    let index = read_plain(&path.with_extension(INDEX)).ok();
    let chunk_bytes = bytes_of(path).unwrap_or(0);
    // A chunk has a byte or more.
    let entries_max = chunk_bytes.min(SEGMENT_BYTES_MAX);
    let index = index.map(|index| BufReader::new(index.take(entries_max * Entry::BYTES as u64)));
    let read = index.into_iter().flat_map(|mut index| {
        std::iter::from_fn(move || {
            let mut entry = [0; Entry::BYTES];
            index.read_exact(&mut entry).ok()?;
            Some(Entry::parse(&entry))
        })
    });
    // That a chunk lies beyond the end shows when it is read, and is counted as damage then.
    read.filter(|entry| (1..=BYTES_MAX).contains(&entry.bytes))
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
        (chunk.len() + Entry::BYTES) as u64
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
        if self.entries.len() >= ENTRIES_WAITING_MAX * Entry::BYTES {
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
    // It has nothing in it, whatever it is.
    let access = OFlags::WRONLY | OFlags::CREATE;
    let lock = open_plain(CWD, folder.join(LOCK), access, Mode::from_raw_mode(0o600))
        .map_err(|error| io::Error::new(error.kind(), format!("{LOCK}: {error}")))?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const BYTES_MAX: u64 = 1 << 20;

    fn chunk(number: u8) -> (ChunkName, Vec<u8>) {
        let chunk = vec![number; 1000];
        (ChunkName::of(&chunk), chunk)
    }

    /// A folder with a segment of a few chunks.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("cache");
        create_folder(&folder).expect("made");
        let mut writing = Writing::begin(&folder, BYTES_MAX).expect("room");
        for number in 0..5 {
            let (name, chunk) = chunk(number);
            writing.append(name, &chunk).expect("room");
        }
        writing.write_entries().expect("room");
        (scratch, writing.path)
    }

    /// What `call` gives, if it ends.
    fn soon<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(call()));
        let result = result.recv_timeout(std::time::Duration::from_secs(30));
        result.expect("it waits for nobody")
    }

    fn make_pipe(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.expect("mkfifo is there").success());
    }

    #[test]
    fn what_an_index_says_is_read() {
        let (_scratch, path) = folder();
        let names: Vec<ChunkName> = entries(&path).map(|entry| entry.name).collect();
        assert_eq!(
            names,
            (0..5).map(|number| chunk(number).0).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_leads_to_no_other_file() {
        let (scratch, path) = folder();
        let victim = scratch.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        let folder = path.parent().expect("it has one");
        fs::remove_file(folder.join(LOCK)).expect("there");
        symlink(&victim, folder.join(LOCK)).expect("made");
        let error = Writing::begin(folder, BYTES_MAX).err().expect("refused");
        assert!(
            error.to_string().contains("lock: it is a symbolic link"),
            "{error}"
        );
        assert_eq!(fs::read(&victim).expect("there"), b"precious");
        // Nor is a hard link's content lost.
        fs::remove_file(folder.join(LOCK)).expect("there");
        fs::hard_link(&victim, folder.join(LOCK)).expect("made");
        Writing::begin(folder, BYTES_MAX).expect("room");
        assert_eq!(fs::read(&victim).expect("there"), b"precious");
    }

    #[test]
    fn pipes_and_folders_are_not_waited_for() {
        for make in [make_pipe as fn(&Path), |path| {
            fs::create_dir(path).expect("made");
        }] {
            let (scratch, path) = folder();
            let folder = path.parent().expect("it has one").to_owned();
            for name in [LOCK, "0.chunks", "0.index"] {
                let _ = fs::remove_file(folder.join(name));
                make(&folder.join(name));
            }
            soon(move || {
                assert!(Writing::begin(&folder, BYTES_MAX).is_err());
                assert_eq!(list(&folder).expect("a folder").len(), 1);
                assert_eq!(entries(&folder.join("0.chunks")).count(), 0);
                assert!(read_plain(&folder.join("0.chunks")).is_err());
                drop(scratch);
            });
        }
    }

    #[test]
    fn a_folder_of_another_format_is_neither_read_nor_written() {
        let (_scratch, path) = folder();
        let folder = path.parent().expect("it has one");
        fs::write(folder.join("format-0"), "").expect("written");
        let error = list(folder).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("format \"0\""), "{error}");
        assert!(Writing::begin(folder, BYTES_MAX).is_err());
    }

    #[test]
    fn links_are_no_segments() {
        let (scratch, path) = folder();
        let folder = path.parent().expect("it has one");
        let elsewhere = scratch.path().join("elsewhere");
        fs::write(&elsewhere, vec![1; 100_000]).expect("written");
        symlink(&elsewhere, folder.join("0.chunks")).expect("made");
        symlink(&elsewhere, folder.join("0.index")).expect("made");
        assert_eq!(list(folder).expect("a folder").len(), 1);
        assert_eq!(entries(&folder.join("0.chunks")).count(), 0);
        assert!(read_plain(&folder.join("0.chunks")).is_err());
    }

    #[test]
    fn of_an_index_no_more_is_read_than_its_chunks_may_have() {
        let (_scratch, path) = folder();
        let index = path.with_extension(INDEX);
        let honest = fs::read(&index).expect("there");
        // Of any length: it is sparse.
        let file = File::options().write(true).open(&index).expect("there");
        file.set_len(8 << 30).expect("room");
        assert_eq!(entries(&path).count(), 5);
        // What cannot be is left out, whatever it is.
        for entry in [
            Entry {
                name: chunk(0).0,
                bytes: 0,
                at: 0,
            },
            Entry {
                name: chunk(0).0,
                bytes: u32::MAX,
                at: 0,
            },
        ] {
            let content = [&honest[..], &entry.to_bytes()].concat();
            fs::write(&index, content).expect("written");
            assert_eq!(entries(&path).count(), 5, "{entry:?}");
        }
        for bytes in 0..honest.len() {
            fs::write(&index, &honest[..bytes]).expect("written");
            assert_eq!(entries(&path).count(), bytes / Entry::BYTES);
        }
    }
}
