//! The chunk store on disk: an append-only log of segments, of which the oldest go when the bound
//! is reached.
//!
//! Chunks enter and are written at once, their records in small groups behind them, recipes when
//! a piece is full or at a sync. So whatever is cut off is an end of a file, and what the end of
//! one file names that another lost is noticed: a record whose chunk does not hash to its digest
//! is dropped, an entry of a recipe without a chunk is passed over.
//!
//! | what | file |
//! |---|---|
//! | opening, and mending what a crash left | [`open`] |
//! | writing the youngest segment | [`head`] |
//! | keeping within the bound | [`evict`] |
//! | what a lower bound will cost | [`lowered`] |
//! | files of others as history | [`add`] |

mod add;
mod evict;
mod head;
mod lock;
mod lowered;
mod open;
mod room;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use refrain_codec::chunk::hash::ChunkDigest;

use crate::{
    Appended, ChunkSource, Chunking, DiskBytes, OpeningKey, Realm, RecipeId, StoreError, StoreStat,
    folder::{self, Folder, RealFolder},
    format::{self, sizes},
    history::{History, PieceId, RealmNumber},
    index::RecipeAt,
    key::IndexKey,
    layout::{CHUNK_BYTES_MAX, index_file::Record},
    names,
};
pub use add::{AddProgress, AddReport};
use head::Head;
use lock::Lock;
pub use lowered::Lowered;
pub use room::Room;

/// What of the bound is for the format, the lock and the folder itself.
const OTHER_BYTES: u64 = 32 << 10;

/// Files take whole pages on disk.
const PAGE_BYTES: u64 = 4096;

/// A segment has three files.
const SEGMENT_ROUNDING_BYTES: u64 = 3 * PAGE_BYTES;

/// More segments than this are not kept: their files would be too many.
const SEGMENTS_MAX: usize = 1024;

/// How a store is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The bound on disk: all files of the store together, whole pages counted.
    pub size_bytes: u64,
    /// How chunks are cut and named.
    pub chunking: Chunking,
    /// Bytes of a segment, with all that belongs to it; by default a 64th of the bound, 4 to
    /// 256 MiB.
    pub segment_bytes: Option<u64>,
}

impl StoreConfig {
    /// A store of this size, all else as it is by default.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            chunking: Chunking::default(),
            segment_bytes: None,
        }
    }

    /// That of the store at `path`, as it was opened last; nothing if there is none.
    ///
    /// # Errors
    /// If it is of another version, or the disk fails.
    pub fn of(path: &Path) -> Result<Option<Self>, StoreError> {
        let format = format::read(&RealFolder::new(path))?;
        Ok(format.map(|format| Self {
            chunking: format.chunking,
            ..Self::new(format.size_bytes)
        }))
    }

    fn chunk_bytes_max(&self) -> usize {
        let bytes_max = self.chunking.bounds.bytes_max();
        usize::try_from(bytes_max).map_or(CHUNK_BYTES_MAX, |bytes| bytes.min(CHUNK_BYTES_MAX))
    }

    /// A segment has room for two chunks at least, and the bound for four segments. On a disk with
    /// less room than the bound, segments are as short as for a bound of that: when it is full one
    /// of many gives way.
    fn checked_segment_bytes(&self, room_bytes: u64) -> Result<u64, StoreError> {
        let whole_bytes = self.size_bytes.min(room_bytes);
        let wanted = self
            .segment_bytes
            .unwrap_or_else(|| (whole_bytes / 64).clamp(4 << 20, 256 << 20));
        let least = 2 * self.chunk_bytes_max() as u64 + SEGMENT_ROUNDING_BYTES + OTHER_BYTES;
        let segment_bytes = wanted.clamp(least, (1 << 30).max(least));
        match self.size_bytes < 4 * segment_bytes {
            true => Err(StoreError::TooSmall {
                size_bytes: self.size_bytes,
                needed_bytes: 4 * segment_bytes,
            }),
            false => Ok(segment_bytes),
        }
    }
}

/// A chunk store on disk, of which this process is the owner.
pub struct DiskStore {
    /// Before the lock, so that it is let go last.
    history: History,
    config: StoreConfig,
    segment_bytes: u64,
    head: Head,
    /// All segments but the head.
    sealed: Sealed,
    /// Segments whose chunks are in files of others: no eviction takes them.
    of_files: Sealed,
    recipes: HashMap<u64, OpenRecipe>,
    next_recipe: u64,
    /// What is counted while it is open, and nothing else.
    counted: StoreStat,
    /// Whether the disk stayed full after history had gone for it: no more goes, then.
    gave_way_in_vain: bool,
    lock: Option<Lock>,
}

/// A recipe that is being written.
struct OpenRecipe {
    realm: Realm,
    opening: Option<OpeningKey>,
    /// The piece that was begun last.
    last: Option<PieceId>,
}

/// Lengths of the files of segments that are written no more.
#[derive(Default)]
struct Sealed {
    segments: BTreeMap<u32, DiskBytes>,
    /// What they take on disk, in whole pages.
    bytes: u64,
}

impl Sealed {
    /// The segments of the log in a folder, and those whose chunks are in files of others.
    fn of(folder: &dyn Folder) -> Result<[Self; 2], StoreError> {
        let [mut log, mut of_files] = [Self::default(), Self::default()];
        for (number, size) in sizes(folder)? {
            match size.other {
                0 => log.insert(number, size),
                _ => of_files.insert(number, size),
            }
        }
        Ok([log, of_files])
    }

    fn insert(&mut self, number: u32, disk: DiskBytes) {
        self.remove(number);
        self.bytes += disk.total() + SEGMENT_ROUNDING_BYTES;
        self.segments.insert(number, disk);
    }

    /// Gives the length of its files, if it is there.
    fn remove(&mut self, number: u32) -> u64 {
        let Some(disk) = self.segments.remove(&number) else {
            return 0;
        };
        self.bytes -= disk.total() + SEGMENT_ROUNDING_BYTES;
        disk.total()
    }
}

impl DiskStore {
    /// Opens the store in the folder at `path`, or makes one there.
    ///
    /// # Errors
    /// If another process has it open, it is of another version or its chunks are cut otherwise,
    /// the folder holds something else, the bound is too small, or the disk fails.
    pub fn open(path: &Path, config: StoreConfig) -> Result<Self, StoreError> {
        // First: a folder of something else is left as it is.
        Self::check(path, config)?;
        let lock = Lock::take(path)?;
        Self::open_folder(Arc::new(RealFolder::new(path)), config, Some(lock))
    }

    /// Says what [`open`](Self::open) would refuse of the store at `path`, and changes nothing.
    /// Whether another process has it open is [`check_free`](Self::check_free)'s.
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn check(path: &Path, config: StoreConfig) -> Result<(), StoreError> {
        config.checked_segment_bytes(u64::MAX)?;
        let there = folder::nearest(path);
        if !there.is_dir() {
            let path = there.to_owned();
            return Err(StoreError::NotADirectory { path });
        }
        match path.exists() {
            true => open::check_format(&RealFolder::new(path), &config).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Says whether the folder at `path` could be made, or written if it is there, by this user, and
    /// changes nothing.
    ///
    /// # Errors
    /// If not.
    pub fn check_writable(path: &Path) -> Result<(), StoreError> {
        lock::check_writable(path)
    }

    /// Says what [`open`](Self::open) would take from the store at `path` since its bound is lower than
    /// it was, and changes nothing.
    ///
    /// # Errors
    /// If the bound is too small, the store is of another version, or the disk fails.
    pub fn lowered(path: &Path, config: StoreConfig) -> Result<Option<Lowered>, StoreError> {
        Lowered::of(&RealFolder::new(path), &config)
    }

    /// Says whether another process has the store at `path` open, and changes nothing.
    ///
    /// # Errors
    /// [`StoreError::InUse`] alone: where nobody can tell, nobody has it.
    pub fn check_free(path: &Path) -> Result<(), StoreError> {
        Lock::look(path)
    }

    /// Says whether the folder is still the one that was opened.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if it was removed or replaced meanwhile.
    pub fn check_there(&self) -> Result<(), StoreError> {
        let path = self.history.folder.path();
        match &self.lock {
            Some(lock) if !lock.is_in(&path) => Err(StoreError::Gone { path }),
            _ => Ok(()),
        }
    }

    /// The same as [`open`](Self::open) in a folder of any kind, to which nobody else may write.
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn open_in(folder: Arc<dyn Folder>, config: StoreConfig) -> Result<Self, StoreError> {
        Self::open_folder(folder, config, None)
    }

    /// Begins the recipe of a flow.
    ///
    /// It has to be ended once, or it takes a little memory for good.
    pub fn begin(&mut self, realm: Realm, opening: Option<OpeningKey>) -> RecipeId {
        let number = self.next_recipe;
        self.next_recipe += 1;
        let recipe = OpenRecipe {
            realm,
            opening,
            last: None,
        };
        self.recipes.insert(number, recipe);
        RecipeId(number)
    }

    /// The next chunk of the flow. It is stored once a realm; a place behind it is remembered
    /// either way, so who wants the places up to now asks before.
    ///
    /// `digest` is that of `bytes`, as the caller has computed it: the store checks it when it
    /// reads, not when it writes.
    ///
    /// # Errors
    /// If the chunk is empty or too long, the recipe is unknown, or the disk fails. The chunk is
    /// then not in the recipe, what was there is unharmed, and the next call tries again.
    pub fn append(
        &mut self,
        recipe: RecipeId,
        digest: &ChunkDigest,
        bytes: &[u8],
    ) -> Result<Appended, StoreError> {
        let appended = self.giving_way(|store| store.try_append(recipe, digest, bytes));
        if matches!(appended, Ok(Appended::Stored)) {
            self.gave_way_in_vain = false;
        }
        appended
    }

    /// Ends a recipe. To end one that is unknown does nothing.
    ///
    /// # Errors
    /// If the disk fails: the recipe has ended all the same, and [`sync`](Self::sync) tries to
    /// write its end again.
    pub fn end(&mut self, recipe: RecipeId) -> Result<(), StoreError> {
        let ended = self.recipes.remove(&recipe.0);
        let Some(last) = ended.and_then(|recipe| recipe.last) else {
            return Ok(());
        };
        self.history.open_ends.remove(&last);
        self.giving_way(|store| store.head.flush_piece(&mut store.history, last))
    }

    /// Makes all that was appended up to now survive a power cut. To be called every few seconds
    /// while chunks come.
    ///
    /// # Errors
    /// If the disk fails; the next call tries again.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.giving_way(|store| store.head.sync(&mut store.history))
    }

    /// Ends all that is being written and makes it survive a power cut. Dropping a store does
    /// the same, and tells nobody if that fails.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.settle()
    }

    /// Remembers what a realm is called, for those who look at the store. No more than a few
    /// hundred names are.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn name_realm(&mut self, name: &str) -> Result<(), StoreError> {
        names::add(&*self.history.folder, name)
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        self.sync()?;
        self.head.write_mark(&self.history)
    }

    /// Puts a chunk into the log, whether or not it is there already.
    fn store(
        &mut self,
        realm: RealmNumber,
        key: IndexKey,
        digest: &ChunkDigest,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let realm_slot = self.head.declare(&mut self.history, realm)?;
        self.head.write_chunk(&self.history, bytes)?;
        let record = Record::Chunk {
            digest: *digest,
            bytes: bytes.len() as u32,
            realm_slot,
        };
        let at = self.head.push_record(&mut self.history, record)?;
        self.history.index_chunk(key, at);
        Ok(())
    }

    /// Does what may find the disk full, since others have filled it. Then the oldest goes for the
    /// new, once.
    fn giving_way<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let is_full = |done: &Result<T, StoreError>| {
            let error = done.as_ref().err();
            error.is_some_and(StoreError::is_full_disk)
        };
        let mut done = attempt(self);
        if is_full(&done) && !self.gave_way_in_vain && self.give_way()? {
            done = attempt(self);
            self.gave_way_in_vain = is_full(&done);
        }
        done
    }

    /// Appends to a recipe. If that failed it can be tried again.
    fn try_append(
        &mut self,
        recipe: RecipeId,
        digest: &ChunkDigest,
        bytes: &[u8],
    ) -> Result<Appended, StoreError> {
        let open = self.recipes.get(&recipe.0);
        let realm = open.ok_or(StoreError::UnknownRecipe)?.realm;
        let bytes_max = self.config.chunk_bytes_max();
        if !(1..=bytes_max).contains(&bytes.len()) {
            return Err(StoreError::ChunkLength {
                bytes: bytes.len(),
                bytes_max,
            });
        }
        let number = self.history.realms.number_or_new(realm);
        let number = number.ok_or(StoreError::TooManyRealms)?;
        self.make_room()?;
        if !self
            .head
            .fits(&self.history, bytes.len(), self.segment_bytes)
        {
            self.roll()?;
        }
        // The room came first: it may have cost this very chunk.
        let key = IndexKey::of_chunk(realm, digest);
        // Where the disk cannot tell, it is stored anew.
        let is_known = self.history.holds(key, realm, digest).unwrap_or(false);
        let open = self.recipes.get_mut(&recipe.0);
        let open = open.expect("it was just there");
        let grows = |last: &PieceId| self.head.takes_more(&self.history, *last);
        let piece = match open.last.filter(grows) {
            Some(piece) => piece,
            None => {
                if let Some(last) = open.last {
                    self.head.flush_piece(&mut self.history, last)?;
                }
                self.head.begin_piece(&mut self.history, open, number)?
            }
        };
        if !is_known {
            self.store(number, key, digest, bytes)?;
            self.counted.stored_bytes += bytes.len() as u64;
        }
        let entry = self.head.push_entry(&mut self.history, piece, key);
        let indexed = self.history.index.find_or_insert(key);
        indexed.push_place(RecipeAt::of(piece, entry));
        self.counted.received_chunks += 1;
        self.counted.received_bytes += bytes.len() as u64;
        Ok(match is_known {
            true => Appended::Known,
            false => Appended::Stored,
        })
    }
}

impl ChunkSource for DiskStore {
    fn history(&self) -> &History {
        &self.history
    }

    fn history_mut(&mut self) -> &mut History {
        &mut self.history
    }

    fn stat(&self) -> StoreStat {
        let mut disk = DiskBytes {
            other: OTHER_BYTES,
            ..DiskBytes::default()
        };
        let head = self.head.disk_bytes(&self.history);
        for segment in self
            .sealed
            .segments
            .values()
            .chain(self.of_files.segments.values())
            .chain([&head])
        {
            disk.chunks += segment.chunks;
            disk.index += segment.index;
            disk.recipes += segment.recipes;
            disk.other += segment.other;
        }
        StoreStat {
            disk_bytes_max: self.config.size_bytes,
            ..self.history.stat(disk, self.counted.clone())
        }
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        let _ = self.settle();
    }
}
