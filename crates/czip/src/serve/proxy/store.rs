//! Chunks on disk: a folder of [segments](crate::segments), which gets and other proxies may share.
//!
//! Unlike a get, a proxy lives long: places are kept in memory, some 48 bytes a chunk, and forgotten with
//! their segment; no segment stays open but the one that is written. A folder that is full or cannot be
//! written costs fetching, and is tried again after a while.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    format::ChunkName,
    get::CacheOptions,
    plain_file::read_plain,
    segments::{self, Entry, Writing},
    serve::counters::Counters,
};

/// Chunks whose places are known at most: memory, some 400 MB of it.
const CHUNKS_MAX: usize = 8 << 20;
/// A folder that could not be written is left alone for so long.
const FAILED_FOR: Duration = Duration::from_secs(30);

pub(super) struct Store {
    options: CacheOptions,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

struct State {
    places: HashMap<ChunkName, Place>,
    /// By number; later ones have larger numbers.
    segments: BTreeMap<u32, Arc<PathBuf>>,
    next: u32,
    writing: Option<Writing>,
    failed: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Place {
    of: u32,
    at: u32,
    bytes: u32,
}

impl Store {
    /// Opens the folder, which is made if it is not there. What is wrong with it is logged.
    pub(super) fn open(options: &CacheOptions, counters: Arc<Counters>) -> Self {
        let mut state = State {
            places: HashMap::new(),
            segments: BTreeMap::new(),
            next: 0,
            writing: None,
            failed: None,
        };
        let folder = &options.folder;
        match segments::create_folder(folder).and_then(|()| segments::list(folder)) {
            Ok(found) => state.load(found.into_iter().map(|(path, _)| path).collect()),
            Err(error) => state.fail(options, &error),
        }
        Self {
            options: options.clone(),
            counters,
            state: Mutex::new(state),
        }
    }

    /// Chunks in it, as it seems.
    pub(super) fn chunks(&self) -> u64 {
        self.lock().places.len() as u64
    }

    /// Whether it was written when that was last tried.
    pub(super) fn is_writable(&self) -> bool {
        self.lock().failed.is_none()
    }

    /// The bytes of a chunk, if they are there and right.
    pub(super) fn find(&self, name: ChunkName) -> Option<Bytes> {
        let (place, path) = {
            let state = self.lock();
            let place = *state.places.get(&name)?;
            (place, state.segments.get(&place.of)?.clone())
        };
        let mut chunk = vec![0; place.bytes as usize];
        let file = read_plain(&path);
        let read = file.and_then(|file| file.read_exact_at(&mut chunk, u64::from(place.at)));
        if read.is_ok() && ChunkName::of(&chunk) == name {
            let bytes = chunk.len() as u64;
            self.counters.disk_bytes.fetch_add(bytes, Relaxed);
            return Some(chunk.into());
        }
        // So that it is kept again when it has been fetched.
        self.lock().places.remove(&name);
        None
    }

    /// Keeps chunks, which have these names.
    pub(super) fn add(&self, chunks: &[(ChunkName, Bytes)]) {
        let mut state = self.lock();
        let is_left_alone = |failed: Instant| failed.elapsed() < FAILED_FOR;
        if state.failed.is_some_and(is_left_alone) {
            return;
        }
        match state.add(&self.options, chunks) {
            Ok(()) => state.failed = None,
            Err(error) => state.fail(&self.options, &error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the places in these segments, which are in order of age.
    fn load(&mut self, paths: Vec<PathBuf>) {
        self.next = paths.len() as u32;
        for (of, path) in (0..).zip(paths).collect::<Vec<_>>().into_iter().rev() {
            if self.places.len() >= CHUNKS_MAX {
                // The oldest are not known, and go when room is made.
                break;
            }
            let entries = segments::entries(&path);
            self.segments.insert(of, Arc::new(path));
            for entry in entries.take(CHUNKS_MAX - self.places.len()) {
                if let Some(place) = place(of, entry) {
                    self.places.entry(entry.name).or_insert(place);
                }
            }
        }
    }

    fn add(&mut self, options: &CacheOptions, chunks: &[(ChunkName, Bytes)]) -> io::Result<()> {
        for (name, chunk) in chunks {
            let is_too_long = Writing::taken_by(chunk) > Writing::bytes_max(options.bytes_max);
            if is_too_long || chunk.is_empty() || self.places.contains_key(name) {
                continue;
            }
            let mut writing = match self.writing.take() {
                Some(writing) if writing.fits(chunk) => writing,
                full => {
                    if let Some(mut full) = full {
                        full.write_entries()?;
                    }
                    self.begin(options)?
                }
            };
            let entry = writing.append(*name, chunk)?;
            self.writing = Some(writing);
            if let Some(place) = place(self.next - 1, entry) {
                self.places.insert(*name, place);
            }
        }
        // Who is killed has it again afterwards.
        match &mut self.writing {
            Some(writing) => writing.write_entries(),
            None => Ok(()),
        }
    }

    fn begin(&mut self, options: &CacheOptions) -> io::Result<Writing> {
        segments::create_folder(&options.folder)?;
        let writing = Writing::begin(&options.folder, options.bytes_max)?;
        // Those that made room, here or elsewhere, are gone.
        let here = segments::list(&options.folder)?;
        let here: std::collections::HashSet<PathBuf> =
            here.into_iter().map(|(path, _)| path).collect();
        self.segments.retain(|_, path| here.contains(&**path));
        if self.places.len() >= CHUNKS_MAX {
            self.segments.pop_first();
        }
        let segments = &self.segments;
        self.places
            .retain(|_, place| segments.contains_key(&place.of));
        self.segments
            .insert(self.next, Arc::new(writing.path.clone()));
        self.next += 1;
        Ok(writing)
    }

    fn fail(&mut self, options: &CacheOptions, error: &io::Error) {
        self.writing = None;
        if self.failed.is_none() {
            let folder = options.folder.display();
            tracing::warn!(%folder, %error, "chunks cannot be kept; they are fetched each time");
        }
        self.failed = Some(Instant::now());
    }
}

fn place(of: u32, entry: Entry) -> Option<Place> {
    Some(Place {
        of,
        at: u32::try_from(entry.at).ok()?,
        bytes: entry.bytes,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn chunk(number: u32) -> (ChunkName, Bytes) {
        let bytes = Bytes::from(number.to_le_bytes().repeat(2000));
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
        let store = Store::open(&options, Arc::default());
        store.add(&chunks);
        // As if it was killed: nothing is written when it goes.
        std::mem::forget(store);
        let store = Store::open(&options, Arc::default());
        for (name, bytes) in &chunks {
            assert_eq!(store.find(*name).as_ref(), Some(bytes));
        }
        assert_eq!(store.find(chunk(100).0), None);
    }

    #[test]
    fn it_stays_within_its_bound_and_forgets_the_oldest() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(&folder, 1 << 20);
        let store = Store::open(&options, Arc::default());
        for number in 0..1000 {
            store.add(&[chunk(number)]);
        }
        let taken: u64 = segments::list(&options.folder)
            .expect("a folder")
            .iter()
            .map(|(_, bytes)| bytes)
            .sum();
        assert!(taken <= options.bytes_max, "{taken}");
        assert!(taken >= options.bytes_max * 3 / 4, "{taken}");
        assert_eq!(store.find(chunk(0).0), None);
        assert!(store.find(chunk(999).0).is_some());
        let known = store.chunks();
        assert!(known * 8000 <= taken, "{known} in {taken}");
    }

    #[test]
    fn damage_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(&folder, 1 << 30);
        let store = Store::open(&options, Arc::default());
        let (name, bytes) = chunk(1);
        store.add(&[(name, bytes.clone())]);
        let (path, _) = segments::list(&options.folder).expect("a folder").remove(0);
        let mut content = fs::read(&path).expect("a segment");
        content[77] ^= 1;
        fs::write(&path, content).expect("written");
        assert_eq!(store.find(name), None);
        store.add(&[(name, bytes.clone())]);
        assert_eq!(store.find(name), Some(bytes));
    }

    #[test]
    fn without_a_folder_nothing_is_kept_and_nothing_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options(&folder, 1 << 30);
        fs::write(&options.folder, b"a file").expect("written");
        let store = Store::open(&options, Arc::default());
        store.add(&[chunk(1)]);
        assert_eq!(store.find(chunk(1).0), None);
        assert!(!store.is_writable());
    }
}
