//! What a store knows: its segments, and the index over them. The writer and the readers of other
//! processes' stores share it.
//!
//! Loading ([`load`]) fills it from the files of segments, and [`chain`] reads chunks and chains
//! by it. Here is what it is made of.

mod chain;
mod files;
mod load;
mod realms;
mod sources;

use files::Files;
pub(crate) use files::state_of;
pub(crate) use load::{PIECES_MAX, RECIPE_FILE_BYTES_MAX};
pub(crate) use realms::Realms;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, HashSet},
    io,
    sync::Arc,
};

use refrain_codec::chunk::hash::{ChunkDigest, ChunkHasher};

use crate::{
    Chain, DiskBytes, OpeningKey, Place, Realm, RealmStat, StoreError, StoreStat,
    folder::Folder,
    index::{ChunkAt, Entry, Index, RecipeAt},
    key::{IndexKey, KEY_BYTES},
    layout::{
        FileKind,
        index_file::{BLOCK_RECORDS, Record},
        recipe_file::{self, Piece},
    },
    names,
};
use sources::Sources;

/// Of a slot that no record declared.
const NO_REALM: u16 = u16::MAX;

/// Of a piece that is not yet in the file.
pub(crate) const GROWING: u32 = u32::MAX;

/// A piece of a recipe, by the number of its segment and its own in there.
pub(crate) type PieceId = (u32, u16);

/// A realm, by its number while the store is open.
pub(crate) type RealmNumber = u16;

/// History that can be read: one's own, or that of another process.
///
/// Calls block.
pub trait ChunkSource {
    /// What the two kinds have in common.
    #[doc(hidden)]
    fn history(&self) -> &History;

    /// The same, to change it.
    #[doc(hidden)]
    fn history_mut(&mut self) -> &mut History;

    /// The places behind a chunk, where it was seen last, the latest first: reading there gives what
    /// followed.
    fn places_after(&self, realm: Realm, digest: &ChunkDigest) -> Vec<Place> {
        let key = IndexKey::of_chunk(realm, digest);
        self.history().places(realm, key)
    }

    /// The beginnings of the latest flows of this kind, the latest first.
    fn openings(&self, realm: Realm, key: OpeningKey) -> Vec<Place> {
        let key = IndexKey::of_opening(realm, key);
        self.history().places(realm, key)
    }

    /// Reads onward from a place: up to `chunks_max` chunks of `bytes_max` bytes in all. Chunks
    /// that are gone are passed over; damaged ones too, and the store forgets them.
    ///
    /// # Errors
    /// If the disk fails. A stale place is none: the chain is empty.
    fn read(
        &mut self,
        place: Place,
        chunks_max: usize,
        bytes_max: usize,
    ) -> Result<Chain, StoreError> {
        self.history_mut().read(place, chunks_max, bytes_max)
    }

    /// Whether the realm has the chunk, by its full digest. A disk that fails has none.
    fn contains(&self, realm: Realm, digest: &ChunkDigest) -> bool {
        let key = IndexKey::of_chunk(realm, digest);
        let holds = self.history().holds(key, realm, digest);
        holds.unwrap_or(false)
    }

    /// Finds a chunk no more, until it is appended again or the store is opened again: chains
    /// pass over it. Of one that is unknown nothing is changed.
    fn forget(&mut self, realm: Realm, digest: &ChunkDigest) {
        let key = IndexKey::of_chunk(realm, digest);
        let history = self.history_mut();
        // Where the disk fails nobody knows whose the key is: it goes too.
        if history.holds(key, realm, digest).unwrap_or(true) {
            history.forget(key);
        }
    }

    /// Counters and sizes.
    fn stat(&self) -> StoreStat;
}

/// What a store knows.
pub struct History {
    pub(crate) folder: Arc<dyn Folder>,
    pub(crate) hasher: ChunkHasher,
    pub(crate) index: Index,
    pub(crate) segments: BTreeMap<u32, Segment>,
    pub(crate) realms: Realms,
    /// Entries of the index that are chunks; the others are openings.
    pub(crate) chunks: u64,
    pub(crate) damaged: u64,
    pub(crate) tail: Option<Tail>,
    /// Pieces that are not yet in a file.
    pub(crate) growing: HashMap<PieceId, GrowingPiece>,
    /// The last pieces of recipes that are still being written.
    pub(crate) open_ends: HashSet<PieceId>,
    sources: RefCell<Sources>,
}

/// What is known of a segment, its records left to the disk: 8 bytes for 64 of them, 8 a piece.
#[derive(Default)]
pub(crate) struct Segment {
    /// Seconds since 1970.
    pub(crate) created_s: u64,
    /// By slot.
    realms: Vec<RealmNumber>,
    /// Records of chunks, by slot of their realm.
    chunks_by_slot: Vec<u32>,
    /// Where in the chunk file each block begins.
    block_starts: Vec<u64>,
    pub(crate) records: u32,
    /// Where the chunks end.
    pub(crate) chunk_bytes: u64,
    pub(crate) pieces: Vec<PieceInfo>,
    /// Where the recipes end.
    pub(crate) recipe_bytes: u64,
    pub(crate) recipe_entries: u64,
    /// Where its chunks are, if not in a file of their own.
    pub(crate) files: Option<Files>,
    /// Whether anything of it was found damaged.
    pub(crate) is_damaged: bool,
}

impl Segment {
    pub(crate) fn new(created_s: u64) -> Self {
        Self {
            created_s,
            recipe_bytes: recipe_file::HEADER_BYTES as u64,
            ..Self::default()
        }
    }

    pub(crate) fn realm(&self, slot: u8) -> Option<RealmNumber> {
        let number = self.realms.get(usize::from(slot)).copied();
        number.filter(|&number| number != NO_REALM)
    }

    /// The slot of a realm, if it was declared.
    pub(crate) fn slot_of(&self, number: RealmNumber) -> Option<u8> {
        let slot = self.realms.iter().position(|&realm| realm == number)?;
        u8::try_from(slot).ok()
    }

    /// How many slots were declared, or passed over.
    pub(crate) fn slots(&self) -> usize {
        self.realms.len()
    }

    fn declare(&mut self, slot: u8, number: RealmNumber) {
        let slot = usize::from(slot);
        if self.realms.len() <= slot {
            self.realms.resize(slot + 1, NO_REALM);
            self.chunks_by_slot.resize(slot + 1, 0);
        }
        self.realms[slot] = number;
    }

    /// What comes next begins a block.
    fn begin_block(&mut self) {
        let block = self.records as usize / BLOCK_RECORDS;
        self.block_starts.truncate(block);
        self.block_starts.push(self.chunk_bytes);
    }

    /// Takes the next record, and gives its number: what it adds to the index is the caller's.
    pub(crate) fn push(&mut self, record: &Record, realms: &mut Realms) -> u32 {
        if (self.records as usize).is_multiple_of(BLOCK_RECORDS) {
            self.begin_block();
        }
        if let Record::Realm { realm, slot } = *record {
            self.declare(slot, realms.number_or_new(realm).unwrap_or(NO_REALM));
        }
        self.chunk_bytes += record.chunk_bytes();
        self.records += 1;
        self.records - 1
    }

    /// It has one more chunk of the realm with this slot, if that was declared.
    pub(crate) fn count_chunk(&mut self, slot: u8) {
        if let Some(chunks) = self.chunks_by_slot.get_mut(usize::from(slot)) {
            *chunks += 1;
        }
    }

    /// Gives back what was kept for growing.
    pub(crate) fn shrink(&mut self) {
        self.block_starts.shrink_to_fit();
        self.pieces.shrink_to_fit();
    }

    fn memory_bytes(&self) -> usize {
        self.realms.capacity() * 2
            + self.chunks_by_slot.capacity() * 4
            + self.block_starts.capacity() * 8
            + self.pieces.capacity() * size_of::<PieceInfo>()
            + self.files.as_ref().map_or(0, Files::memory_bytes)
    }
}

/// Where a piece lies, and which one continues it.
#[derive(Clone, Copy)]
pub(crate) struct PieceInfo {
    /// In the recipe file, or [`GROWING`].
    pub(crate) offset: u32,
    /// Segments onward in the upper half, the number in there in the lower; 0 is none, since a
    /// piece is continued by a later one.
    next: u32,
}

impl PieceInfo {
    pub(crate) fn at(offset: u32) -> Self {
        Self { offset, next: 0 }
    }

    fn next(self, (segment, _): PieceId) -> Option<PieceId> {
        let piece = (self.next & 0xffff) as u16;
        (self.next != 0).then(|| (segment + (self.next >> 16), piece))
    }
}

pub(crate) struct GrowingPiece {
    pub(crate) realm: RealmNumber,
    pub(crate) piece: Piece,
}

/// The records of the block that is being filled.
pub(crate) struct Tail {
    pub(crate) segment: u32,
    pub(crate) block: u32,
    pub(crate) records: Vec<Record>,
}

impl History {
    pub(crate) fn new(folder: Arc<dyn Folder>, hasher: ChunkHasher) -> Self {
        Self {
            sources: RefCell::new(Sources::new(Arc::clone(&folder))),
            folder,
            hasher,
            index: Index::new(),
            segments: BTreeMap::new(),
            realms: Realms::default(),
            chunks: 0,
            damaged: 0,
            tail: None,
            growing: HashMap::new(),
            open_ends: HashSet::new(),
        }
    }

    fn places(&self, realm: Realm, key: IndexKey) -> Vec<Place> {
        let number = self.realms.number(realm);
        let Some((number, entry)) = number.zip(self.index.find(key)) else {
            return Vec::new();
        };
        let places = entry.places().filter(|&at| self.is_live(at));
        let key = key.number();
        places.map(|at| pack(at, number, key)).collect()
    }

    /// Whether the piece is still there.
    pub(crate) fn is_live(&self, at: RecipeAt) -> bool {
        let segment = self.segments.get(&at.segment);
        segment.is_some_and(|segment| usize::from(at.piece) < segment.pieces.len())
    }

    /// Whether the chunk is there, by its full digest.
    pub(crate) fn holds(
        &self,
        key: IndexKey,
        realm: Realm,
        digest: &ChunkDigest,
    ) -> Result<bool, StoreError> {
        let number = self.realms.number(realm);
        let Some((number, at)) = number.zip(self.index.at(key)) else {
            return Ok(false);
        };
        let found = self.record(at)?;
        let found = found.filter(|found| !self.is_in_changed_file(found));
        Ok(found.is_some_and(|found| found.realm == number && found.digest == *digest))
    }

    /// The index now finds a chunk by this record.
    pub(crate) fn index_chunk(&mut self, key: IndexKey, at: ChunkAt) {
        let entry = self.index.find_or_insert(key);
        if entry.at().is_none() {
            self.chunks += 1;
        }
        entry.set_at(at);
    }

    /// The index finds a chunk no more.
    pub(crate) fn forget(&mut self, key: IndexKey) {
        if self.index.at(key).is_some() {
            self.index.remove(key);
            self.chunks -= 1;
        }
    }

    pub(crate) fn segment(&self, number: u32) -> &Segment {
        &self.segments[&number]
    }

    pub(crate) fn segment_mut(&mut self, number: u32) -> &mut Segment {
        let segment = self.segments.get_mut(&number);
        segment.expect("a segment that is in use is there")
    }

    /// Something of a segment was found damaged.
    pub(crate) fn note_damage(&mut self, number: u32) {
        self.damaged += 1;
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.is_damaged = true;
        }
    }

    /// The piece `to` continues the piece `from`. Links lead onward only, so none goes in a ring.
    pub(crate) fn link(&mut self, from: PieceId, to: PieceId) {
        let onward = to.0.checked_sub(from.0).and_then(|n| u16::try_from(n).ok());
        if let Some(onward) = onward
            && from < to
            && let Some(segment) = self.segments.get_mut(&from.0)
            && let Some(piece) = segment.pieces.get_mut(usize::from(from.1))
        {
            piece.next = u32::from(onward) << 16 | u32::from(to.1);
        }
    }

    /// The index no longer has an opening, unless another segment knows it too.
    pub(crate) fn forget_opening(&mut self, realm: RealmNumber, key: OpeningKey) {
        for key in key.all() {
            let key = IndexKey::of_opening(self.realms.realm(realm), key);
            let is_known = |entry: &Entry| entry.places().any(|at| self.is_live(at));
            let entry = self.index.find(key);
            if entry.is_some_and(|entry| entry.at().is_none() && !is_known(entry)) {
                self.index.remove(key);
            }
        }
    }

    /// Removes from the index all that segments had which are gone.
    pub(crate) fn sweep(&mut self) {
        let segments = &self.segments;
        let is_live = |at: RecipeAt| {
            let segment = segments.get(&at.segment);
            segment.is_some_and(|segment| usize::from(at.piece) < segment.pieces.len())
        };
        let mut chunks = 0;
        self.index.retain(|entry| match entry.at() {
            Some(at) => {
                let is_there = segments.contains_key(&at.segment);
                chunks += u64::from(is_there);
                is_there
            }
            None => entry.places().any(is_live),
        });
        self.chunks = chunks;
    }

    /// Forgets a segment whose files are gone. What the index still has of it is not found.
    pub(crate) fn drop_segment(&mut self, number: u32) {
        self.segments.remove(&number);
        self.forget_cached(number);
    }

    /// What the caches hold of a segment is no longer so.
    pub(crate) fn forget_cached(&mut self, number: u32) {
        self.sources.get_mut().forget_segment(number);
    }

    /// What there is to tell; `counted` is what only a writer knows.
    pub(crate) fn stat(&self, disk: DiskBytes, counted: StoreStat) -> StoreStat {
        let segments = &self.segments;
        let names = names::read(&*self.folder).unwrap_or_default();
        let created_s = |segment: Option<&Segment>| segment.map(|segment| segment.created_s);
        let entries = segments.values().map(|segment| segment.recipe_entries);
        let files = || {
            segments
                .values()
                .filter_map(|segment| segment.files.as_ref())
        };
        StoreStat {
            chunks: self.chunks,
            chunk_bytes: disk.chunks,
            openings: self.index.len() as u64 - self.chunks,
            recipe_entries: entries.sum(),
            disk,
            metadata_share: disk.index as f64 / disk.chunks.max(1) as f64,
            segments: segments
                .values()
                .filter(|segment| segment.files.is_none())
                .count() as u32,
            files: files().map(|files| files.len() as u64).sum(),
            changed_files: files().map(Files::changed).sum(),
            realms: self
                .realms
                .iter()
                .zip(self.chunks_by_realm())
                .map(|(realm, chunks)| RealmStat {
                    realm: realm.to_string(),
                    name: names.get(&realm).cloned(),
                    chunks,
                })
                .collect(),
            oldest_s: created_s(segments.values().next()),
            youngest_s: created_s(segments.values().next_back()),
            damaged: self.damaged,
            memory_bytes: self.memory_bytes() as u64,
            ..counted
        }
    }

    /// Records of chunks, by the numbers of their realms: some may be dead, and no realm has more that
    /// live than there are.
    fn chunks_by_realm(&self) -> Vec<u64> {
        let mut sums = vec![0; self.realms.len()];
        for segment in self.segments.values() {
            for (&realm, &chunks) in segment.realms.iter().zip(&segment.chunks_by_slot) {
                if let Some(sum) = sums.get_mut(usize::from(realm)) {
                    *sum += u64::from(chunks);
                }
            }
        }
        sums.into_iter().map(|sum| sum.min(self.chunks)).collect()
    }

    /// Bytes of memory, but for caches of a fixed size.
    pub(crate) fn memory_bytes(&self) -> usize {
        let segments = self.segments.values();
        let of_segments: usize = segments
            .map(|segment| size_of::<Segment>() + segment.memory_bytes())
            .sum();
        let growing = self.growing.values();
        let of_growing: usize = growing
            .map(|piece| {
                piece.piece.keys.capacity() * KEY_BYTES + size_of::<(PieceId, GrowingPiece)>()
            })
            .sum();
        self.index.memory_bytes() + of_segments + of_growing
    }

    /// What an error of the disk at a file of a segment is to the caller.
    pub(crate) fn error_at(
        &self,
        doing: &'static str,
        kind: FileKind,
        segment: u32,
    ) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let folder = Arc::clone(&self.folder);
        move |source| StoreError::Io {
            doing,
            path: folder.path().join(kind.file_name(segment)),
            source,
        }
    }
}

/// A place carries the number of the key of the chunk that it is behind, and the realm: what it reads from has
/// to have both.
pub(crate) fn pack(at: RecipeAt, realm: RealmNumber, key: u64) -> Place {
    let high = u64::from(at.segment)
        | u64::from(at.piece) << 24
        | u64::from(at.entry) << 40
        | u64::from(realm) << 48;
    Place([high, key])
}

pub(crate) fn unpack(Place([high, key]): Place) -> (RecipeAt, RealmNumber, u64) {
    let at = RecipeAt {
        segment: high as u32 & 0xff_ffff,
        piece: (high >> 24) as u16,
        entry: (high >> 40) as u8,
    };
    (at, (high >> 48) as u16, key)
}
