//! A directory that keeps chunks by name, for all that reads archives on servers: downloads, extractions,
//! mounts and proxies may share it, within a bound (CZIP, section 4.2: the client's CBN cache).
//!
//! Chunk parts of tables are kept as chunks are: the digest of one is made as a chunk's name is. So are
//! stored frames, by their shorter digests: those of archives that are kept as they are, and those of
//! encrypted ones, of which nothing plain is kept.
//!
//! The directory has segments (`segments`). Nothing is believed: a chunk is read and its name made
//! anew, and whatever is wrong with the directory costs a download and no more. One that is full or cannot be
//! written is tried again after a while.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{
    format::{ChunkName, digest},
    plain_file::read_plain,
    records::Entry,
    segments::{self, Writing},
};

/// Ends the names of bytes of which only a digest of 12 bytes is known.
const SHORT: [u8; 8] = *b"\0\0\0short";
/// Memory for names of chunks, if nothing else is said.
const INDEX_BYTES: usize = 384 << 20;
/// Memory for a chunk whose place is known.
const BYTES_PER_CHUNK: usize = 48;
/// A directory that could not be written is left alone for so long.
const FAILED_FOR: Duration = Duration::from_secs(30);

/// What bytes are kept by that have this digest.
pub(crate) fn short_name(digest: [u8; 12]) -> ChunkName {
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

/// Called with the directory and the reason when it cannot be read or written any more.
pub type CacheFailed = fn(&Path, &io::Error);

/// An open cache. Threads may share it.
pub struct Cache {
    options: CacheOptions,
    /// Of how many chunks the place is known at most.
    chunks_max: usize,
    failed: CacheFailed,
    state: Mutex<State>,
    damaged: AtomicU64,
    read_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    places: HashMap<ChunkName, Place>,
    /// By number; later ones have larger numbers.
    segments: BTreeMap<u32, Arc<PathBuf>>,
    next: u32,
    /// The segment that was read last.
    open: Option<(u32, Arc<File>)>,
    writing: Option<Writing>,
    /// When it failed, if the last attempt did.
    failed_at: Option<Instant>,
    /// Why it failed first.
    failure: Option<io::Error>,
}

#[derive(Clone, Copy)]
struct Place {
    of: u32,
    at: u32,
    bytes: u32,
}

impl Cache {
    /// Opens the directory, which is made if it is not there. One of another format is reported to `failed`, and
    /// not used; so is later whatever keeps chunks from being kept.
    ///
    /// # Errors
    /// If it cannot be made or read.
    pub fn open(options: &CacheOptions, failed: CacheFailed) -> io::Result<Self> {
        Self::open_within(options, INDEX_BYTES, failed)
    }

    /// The same, with so much memory for names. Chunks that it is too small for are not found.
    pub(crate) fn open_within(
        options: &CacheOptions,
        index_bytes: usize,
        failed: CacheFailed,
    ) -> io::Result<Self> {
        let cache = Self::new(options, index_bytes, failed);
        let mut state = cache.lock();
        match cache.load(&mut state) {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
            Err(error) => cache.fail(&mut state, error),
            Ok(()) => {}
        }
        drop(state);
        Ok(cache)
    }

    /// The same. One that cannot be made or read now is tried again.
    pub(crate) fn open_or_retry(options: &CacheOptions, failed: CacheFailed) -> Self {
        let cache = Self::new(options, INDEX_BYTES, failed);
        let mut state = cache.lock();
        if let Err(error) = cache.load(&mut state) {
            cache.fail(&mut state, error);
        }
        drop(state);
        cache
    }

    fn new(options: &CacheOptions, index_bytes: usize, failed: CacheFailed) -> Self {
        Self {
            options: options.clone(),
            chunks_max: (index_bytes / BYTES_PER_CHUNK).max(1),
            failed,
            state: Mutex::default(),
            damaged: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        }
    }

    /// Takes the places in all segments, from the newest on: if there are too many, the oldest are not known.
    fn load(&self, state: &mut State) -> io::Result<()> {
        segments::create_folder(&self.options.folder)?;
        let found = segments::list(&self.options.folder)?;
        state.next = found.len() as u32;
        for (of, (path, _)) in (0..state.next).zip(found).rev() {
            let room = self.chunks_max - state.places.len();
            for entry in segments::entries(&path).take(room) {
                if let Some(place) = place(of, entry) {
                    state.places.entry(entry.name).or_insert(place);
                }
            }
            state.segments.insert(of, Arc::new(path));
        }
        Ok(())
    }

    /// How long a chunk is, if it is there as it seems.
    pub(crate) fn chunk_bytes(&self, name: ChunkName) -> Option<u32> {
        self.lock().places.get(&name).map(|place| place.bytes)
    }

    /// The bytes of a chunk, if they are there and right.
    pub(crate) fn find(&self, name: ChunkName) -> Option<Vec<u8>> {
        let (place, file) = {
            let mut state = self.lock();
            let place = *state.places.get(&name)?;
            (place, state.segment(place.of))
        };
        let mut chunk = vec![0; place.bytes as usize];
        let read = (file.as_ref()).map(|file| file.read_exact_at(&mut chunk, place.at.into()));
        let has_name = || ChunkName::of(&chunk) == name || short_name(digest(&chunk)) == name;
        if matches!(read, Some(Ok(()))) && has_name() {
            self.read_bytes.fetch_add(chunk.len() as u64, Relaxed);
            return Some(chunk);
        }
        // A segment that is gone made room for others.
        self.damaged.fetch_add(file.is_some().into(), Relaxed);
        // So that it is kept again when it has been fetched.
        self.lock().places.remove(&name);
        None
    }

    /// Keeps what is called `name`, if there is room on the disk.
    pub(crate) fn add(&self, name: ChunkName, chunk: &[u8]) {
        self.write(|state| self.append(state, name, chunk));
    }

    /// Writes what waits: a process that is killed has it again afterwards.
    pub(crate) fn flush(&self) {
        self.write(|state| match &mut state.writing {
            Some(writing) => writing.write_entries(),
            None => Ok(()),
        });
    }

    fn write(&self, write: impl FnOnce(&mut State) -> io::Result<()>) {
        let mut state = self.lock();
        let is_left_alone = |failed: Instant| failed.elapsed() < FAILED_FOR;
        if !state.failed_at.is_some_and(is_left_alone)
            && let Err(error) = write(&mut state)
        {
            self.fail(&mut state, error);
        }
    }

    fn append(&self, state: &mut State, name: ChunkName, chunk: &[u8]) -> io::Result<()> {
        let is_too_long = Writing::taken_by(chunk) > Writing::bytes_max(self.options.bytes_max);
        if is_too_long || chunk.is_empty() || state.places.contains_key(&name) {
            return Ok(());
        }
        let mut writing = match state.writing.take() {
            Some(writing) if writing.fits(chunk) => writing,
            full => {
                if let Some(mut full) = full {
                    full.write_entries()?;
                }
                self.begin(state)?
            }
        };
        let entry = writing.append(name, chunk)?;
        state.writing = Some(writing);
        state.failed_at = None;
        let place = place(state.next - 1, entry);
        state.places.extend(place.map(|place| (name, place)));
        Ok(())
    }

    /// Begins a segment. Those that made room for it, here or elsewhere, are forgotten.
    fn begin(&self, state: &mut State) -> io::Result<Writing> {
        let folder = &self.options.folder;
        segments::create_folder(folder)?;
        let writing = Writing::begin(folder, self.options.bytes_max)?;
        let here = segments::list(folder)?.into_iter().map(|(path, _)| path);
        let here: HashSet<PathBuf> = here.collect();
        state.segments.retain(|_, path| here.contains(&**path));
        loop {
            let segments = &state.segments;
            (state.places).retain(|_, place| segments.contains_key(&place.of));
            if state.places.len() < self.chunks_max || state.segments.pop_first().is_none() {
                break;
            }
        }
        let path = Arc::new(writing.path.clone());
        state.segments.insert(state.next, path);
        state.next += 1;
        Ok(writing)
    }

    fn fail(&self, state: &mut State, error: io::Error) {
        state.writing = None;
        if state.failed_at.is_none() {
            (self.failed)(&self.options.folder, &error);
        }
        state.failed_at = Some(Instant::now());
        state.failure.get_or_insert(error);
    }

    /// Why it does not have all that it was to keep: the first reason, once.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.lock().failure.take()
    }

    /// Chunks, parts of tables and frames that were wanted, there and wrong: each once.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged.load(Relaxed)
    }

    /// Bytes that were read of it, and right.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Relaxed)
    }

    /// Chunks in it, as it seems.
    pub(crate) fn chunks(&self) -> u64 {
        self.lock().places.len() as u64
    }

    /// Whether it was written when that was last tried.
    pub(crate) fn is_writable(&self) -> bool {
        self.lock().failed_at.is_none()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The file of a segment, if it can be opened.
    fn segment(&mut self, of: u32) -> Option<Arc<File>> {
        match &self.open {
            Some((open, file)) if *open == of => Some(file.clone()),
            _ => {
                let file = Arc::new(read_plain(self.segments.get(&of)?).ok()?);
                self.open = Some((of, file.clone()));
                Some(file)
            }
        }
    }
}

fn place(of: u32, Entry { bytes, at, .. }: Entry) -> Option<Place> {
    let at = u32::try_from(at).ok()?;
    Some(Place { of, at, bytes })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(options: &CacheOptions) -> Cache {
        Cache::open_or_retry(options, |_, _| ())
    }

    fn chunk(number: u32) -> (ChunkName, Vec<u8>) {
        let bytes = number.to_le_bytes().repeat(2000);
        (ChunkName::of(&bytes), bytes)
    }

    fn options(folder: &tempfile::TempDir, bytes_max: u64) -> CacheOptions {
        CacheOptions {
            folder: folder.path().join("cache"),
            bytes_max,
        }
    }

    #[test]
    fn what_was_kept_is_there_after_a_start_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(&folder, 1 << 30);
        let chunks: Vec<_> = (0..100).map(chunk).collect();
        let cache = open(&options);
        for (name, bytes) in &chunks {
            cache.add(*name, bytes);
        }
        cache.flush();
        // As if it was killed: nothing is written when it goes.
        std::mem::forget(cache);
        let cache = open(&options);
        for (name, bytes) in &chunks {
            assert_eq!(cache.find(*name).as_ref(), Some(bytes));
        }
        assert_eq!(cache.find(chunk(100).0), None);
    }

    #[test]
    fn it_stays_within_its_bound_and_forgets_the_oldest() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(&folder, 1 << 20);
        let cache = open(&options);
        for number in 0..1000 {
            let (name, bytes) = chunk(number);
            cache.add(name, &bytes);
        }
        let taken: u64 = segments::list(&options.folder)
            .expect("a folder")
            .iter()
            .map(|(_, bytes)| bytes)
            .sum();
        assert!(taken <= options.bytes_max, "{taken}");
        assert!(taken >= options.bytes_max * 3 / 4, "{taken}");
        assert_eq!(cache.find(chunk(0).0), None);
        assert!(cache.find(chunk(999).0).is_some());
        let known = cache.chunks();
        assert!(known * 8000 <= taken, "{known} in {taken}");
    }

    #[test]
    fn of_more_chunks_than_memory_has_room_for_the_newest_are_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(&folder, 1 << 20);
        let cache = open(&options);
        let chunks: Vec<_> = (0..100).map(chunk).collect();
        for (name, bytes) in &chunks {
            cache.add(*name, bytes);
        }
        cache.flush();
        let cache = Cache::open_within(&options, 20 * BYTES_PER_CHUNK, |_, _| ());
        let cache = cache.expect("a folder");
        assert_eq!(cache.chunks(), 20);
        assert!(cache.find(chunks[99].0).is_some());
        for (name, bytes) in &chunks {
            cache.add(*name, bytes);
            assert!(cache.find(*name).is_none_or(|found| found == *bytes));
        }
        // What a segment has is on top.
        assert!(cache.chunks() <= 40, "{}", cache.chunks());
    }

    #[test]
    fn a_folder_of_another_format_is_reported_and_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(&folder, 1 << 20);
        let cache = open(&options);
        let (name, bytes) = chunk(1);
        cache.add(name, &bytes);
        cache.flush();
        fs::write(options.folder.join("format-0"), "").expect("written");
        let files = || fs::read_dir(&options.folder).expect("a folder").count();
        let before = files();
        let cache = open(&options);
        assert_eq!(cache.find(name), None);
        let (other, bytes) = chunk(2);
        cache.add(other, &bytes);
        assert_eq!(cache.find(other), None);
        assert!(!cache.is_writable());
        let failure = cache.take_failure().expect("reported");
        assert_eq!(failure.kind(), io::ErrorKind::Unsupported);
        assert_eq!(files(), before);
    }

    #[test]
    fn damage_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(&folder, 1 << 30);
        let cache = open(&options);
        let (name, bytes) = chunk(1);
        cache.add(name, &bytes);
        let (path, _) = segments::list(&options.folder).expect("a folder").remove(0);
        let mut content = fs::read(&path).expect("a segment");
        content[77] ^= 1;
        fs::write(&path, content).expect("written");
        assert_eq!(cache.find(name), None);
        cache.add(name, &bytes);
        assert_eq!(cache.find(name), Some(bytes));
    }

    #[test]
    fn without_a_folder_nothing_is_kept_and_nothing_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(&folder, 1 << 30);
        fs::write(&options.folder, b"a file").expect("written");
        let cache = open(&options);
        let (name, bytes) = chunk(1);
        cache.add(name, &bytes);
        assert_eq!(cache.find(name), None);
        assert!(!cache.is_writable());
    }
}
