//! The head: the youngest segment, the only one that is written.
//!
//! Writes go to known offsets. One that failed is done again at the same place, so a full disk
//! leaves nothing half done. The order is what makes a crash harmless: a chunk before its record,
//! a record (it may declare a realm) before the pieces that need it; and at a sync the same.

use super::{OpenRecipe, SEGMENT_ROUNDING_BYTES};
use crate::{
    DiskBytes, OpeningKey, StoreError,
    folder::FolderFile,
    format::{error_at, write_whole},
    history::{
        GROWING, GrowingPiece, History, PIECES_MAX, PieceId, PieceInfo, RECIPE_FILE_BYTES_MAX,
        RealmNumber, Segment, Tail,
    },
    index::{ChunkAt, NUMBER_END, RecipeAt},
    key::IndexKey,
    layout::{
        FileKind, REALMS_MAX,
        index_file::{
            self, BLOCK_RECORDS, Header, MARK_AT, RECORD_BYTES, Record, encode_trailer, position_of,
        },
        recipe_file::{self, ENTRIES_MAX, Piece, PieceAt},
    },
};

pub(super) struct Head {
    pub(super) number: u32,
    chunks: Box<dyn FolderFile>,
    index: Box<dyn FolderFile>,
    recipes: Box<dyn FolderFile>,
    /// Records of the last block that are in the file.
    written: usize,
    /// What the growing pieces will take.
    growing_bytes: u64,
    /// Records that a finished sync covers.
    synced: u32,
    /// Whether anything was written since.
    is_dirty: bool,
}

impl Head {
    /// Begins a segment. Its index comes last: without one it is none.
    pub(super) fn create(
        history: &mut History,
        number: u32,
        created_s: u64,
    ) -> Result<Self, StoreError> {
        let folder = &*history.folder;
        let create =
            |kind: FileKind, content: &[u8]| write_whole(folder, &kind.file_name(number), content);
        let header = Header {
            segment: number,
            created_s,
            mark: 0,
        };
        let chunks = create(FileKind::Chunks, &[])?;
        let recipes = create(FileKind::Recipes, &recipe_file::encode_header(number))?;
        let index = create(FileKind::Index, &header.encode())?;
        folder.sync().map_err(error_at(folder, "sync", ""))?;
        let segment = Segment::new(created_s);
        history.segments.insert(number, segment);
        history.tail = Some(Tail {
            segment: number,
            block: 0,
            records: Vec::with_capacity(BLOCK_RECORDS),
        });
        Ok(Self {
            number,
            chunks,
            index,
            recipes,
            written: 0,
            growing_bytes: 0,
            synced: 0,
            is_dirty: false,
        })
    }

    /// Goes on with a segment that was loaded and is whole, and of whose records those before
    /// `mark` are known to be synced.
    pub(super) fn resume(
        history: &mut History,
        number: u32,
        mark: u32,
    ) -> Result<Self, StoreError> {
        let folder = &*history.folder;
        let open = |kind: FileKind| {
            let name = kind.file_name(number);
            let file = folder.open_or_create(&name);
            file.map_err(error_at(folder, "open", &name))
        };
        let (chunks, index, recipes) = (
            open(FileKind::Chunks)?,
            open(FileKind::Index)?,
            open(FileKind::Recipes)?,
        );
        let records = history.segment(number).records;
        let block = records / BLOCK_RECORDS as u32;
        let first = block * BLOCK_RECORDS as u32;
        let mut bytes = vec![0; (records - first) as usize * RECORD_BYTES];
        let read = index.read_exact_at(&mut bytes, position_of(first));
        read.map_err(history.error_at("read", FileKind::Index, number))?;
        let records_of_tail: Vec<Record> = index_file::parse_records(&bytes).collect();
        let written = records_of_tail.len();
        history.tail = Some(Tail {
            segment: number,
            block,
            records: records_of_tail,
        });
        Ok(Self {
            number,
            chunks,
            index,
            recipes,
            written,
            growing_bytes: 0,
            synced: mark,
            is_dirty: true,
        })
    }

    /// Bytes of its files, when all that waits is written.
    pub(super) fn disk_bytes(&self, history: &History) -> DiskBytes {
        let segment = history.segment(self.number);
        DiskBytes {
            chunks: segment.chunk_bytes,
            index: index_file::bytes_of(segment.records),
            recipes: segment.recipe_bytes + self.growing_bytes,
            other: 0,
        }
    }

    /// Whether a chunk fits, at worst with a realm of its own, in a piece of its own.
    pub(super) fn fits(&self, history: &History, bytes: usize, segment_bytes: u64) -> bool {
        let segment = history.segment(self.number);
        let records = segment.records + 2;
        let recipes =
            segment.recipe_bytes + self.growing_bytes + Piece::bytes_of(true, true, 1) as u64;
        let total = segment.chunk_bytes + bytes as u64 + index_file::bytes_of(records) + recipes;
        total + SEGMENT_ROUNDING_BYTES <= segment_bytes
            && recipes <= RECIPE_FILE_BYTES_MAX.min(segment_bytes / 8)
            && segment.pieces.len() < PIECES_MAX
            && records < NUMBER_END
            && segment.slots() < REALMS_MAX
    }

    /// The slot of a realm in this segment.
    pub(super) fn declare(
        &mut self,
        history: &mut History,
        realm: RealmNumber,
    ) -> Result<u8, StoreError> {
        let segment = history.segment(self.number);
        if let Some(slot) = segment.slot_of(realm) {
            return Ok(slot);
        }
        let slot = u8::try_from(segment.slots()).ok();
        let slot = slot.filter(|&slot| usize::from(slot) < REALMS_MAX);
        let slot = slot.ok_or(StoreError::TooManyRealms)?;
        let realm = history.realms.realm(realm);
        self.push_record(history, Record::Realm { realm, slot })?;
        Ok(slot)
    }

    /// Writes the bytes of a chunk where the next record will look for them.
    pub(super) fn write_chunk(
        &mut self,
        history: &History,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let at = history.segment(self.number).chunk_bytes;
        self.is_dirty = true;
        let written = self.chunks.write_all_at(bytes, at);
        written.map_err(history.error_at("write", FileKind::Chunks, self.number))
    }

    pub(super) fn push_record(
        &mut self,
        history: &mut History,
        record: Record,
    ) -> Result<ChunkAt, StoreError> {
        if self.tail(history).records.len() == BLOCK_RECORDS {
            self.flush_index(history)?;
        }
        self.is_dirty = true;
        self.tail(history).records.push(record);
        let History {
            segments, realms, ..
        } = history;
        let segment = segments.get_mut(&self.number).expect("a head is there");
        let at = ChunkAt {
            segment: self.number,
            record: segment.push(&record, realms),
        };
        if let Record::Chunk { realm_slot, .. } = record {
            segment.count_chunk(realm_slot);
        }
        if self.tail(history).records.len() == BLOCK_RECORDS {
            // If that fails, the next record finds out.
            let _ = self.flush_index(history);
        }
        Ok(at)
    }

    fn tail<'a>(&self, history: &'a mut History) -> &'a mut Tail {
        history.tail.as_mut().expect("a head has a tail")
    }

    /// Writes the records that wait, and the trailer of a block that is full.
    pub(super) fn flush_index(&mut self, history: &mut History) -> Result<(), StoreError> {
        self.write_tail(history, false)
    }

    /// The same, and where the segment is sealed the trailer of its last block, too. That may be done
    /// again.
    fn write_tail(&mut self, history: &mut History, is_sealed: bool) -> Result<(), StoreError> {
        let end = history.segment(self.number).chunk_bytes;
        let error = history.error_at("write", FileKind::Index, self.number);
        let (number, written) = (self.number, self.written);
        let tail = self.tail(history);
        let is_full = tail.records.len() == BLOCK_RECORDS;
        let has_trailer = is_full || is_sealed && !tail.records.is_empty();
        if written == tail.records.len() && !has_trailer {
            return Ok(());
        }
        let mut bytes: Vec<u8> = tail.records.iter().flat_map(Record::encode).collect();
        if has_trailer {
            bytes.extend(encode_trailer(number, tail.block, &bytes, end));
        }
        let first = tail.block * BLOCK_RECORDS as u32 + written as u32;
        let waiting = &bytes[written * RECORD_BYTES..];
        self.index
            .write_all_at(waiting, position_of(first))
            .map_err(error)?;
        let tail = self.tail(history);
        self.written = tail.records.len();
        if is_full {
            tail.block += 1;
            tail.records.clear();
            self.written = 0;
        }
        Ok(())
    }

    /// Begins a piece of a recipe in this realm: its first, or the one that continues its last.
    pub(super) fn begin_piece(
        &mut self,
        history: &mut History,
        recipe: &mut OpenRecipe,
        realm: RealmNumber,
    ) -> Result<PieceId, StoreError> {
        let realm_slot = self.declare(history, realm)?;
        let segment = history.segment_mut(self.number);
        let id = (self.number, segment.pieces.len() as u16);
        segment.pieces.push(PieceInfo::at(GROWING));
        history.open_ends.insert(id);
        let last = recipe.last.replace(id);
        let previous = last.and_then(|(segment, piece)| {
            let segment_of_it = history.segments.get(&segment)?;
            let offset = segment_of_it.pieces.get(usize::from(piece))?.offset;
            (offset != GROWING).then_some(PieceAt { segment, offset })
        });
        let opening = recipe.opening.filter(|_| last.is_none());
        if let Some(last) = last {
            history.open_ends.remove(&last);
            history.link(last, id);
        }
        for key in opening.into_iter().flat_map(OpeningKey::all) {
            let key = IndexKey::of_opening(recipe.realm, key);
            let entry = history.index.find_or_insert(key);
            entry.push_place(RecipeAt::of(id, 0));
        }
        let piece = Piece {
            realm_slot,
            opening,
            previous,
            keys: Vec::new(),
        };
        self.growing_bytes += piece.encoded_bytes() as u64;
        history.growing.insert(id, GrowingPiece { realm, piece });
        Ok(id)
    }

    /// Whether a piece is still growing, and not full.
    pub(super) fn takes_more(&self, history: &History, id: PieceId) -> bool {
        let growing = history.growing.get(&id);
        growing.is_some_and(|growing| growing.piece.keys.len() < ENTRIES_MAX)
    }

    /// Adds a chunk to a piece that takes more, and says how many it has then.
    pub(super) fn push_entry(&mut self, history: &mut History, id: PieceId, key: IndexKey) -> u8 {
        let growing = history.growing.get_mut(&id).expect("it takes more");
        growing.piece.keys.push(key);
        let entries = growing.piece.keys.len();
        self.growing_bytes += key.0.len() as u64;
        self.is_dirty = true;
        history.segment_mut(self.number).recipe_entries += 1;
        entries as u8
    }

    /// Writes a piece, if it is still growing: it grows no more.
    pub(super) fn flush_piece(
        &mut self,
        history: &mut History,
        id: PieceId,
    ) -> Result<(), StoreError> {
        let Some(growing) = history.growing.get(&id) else {
            return Ok(());
        };
        let taken = growing.piece.encoded_bytes() as u64;
        // One stays empty where its first chunk could not be stored.
        if !growing.piece.keys.is_empty() {
            let encoded = growing.piece.encode(id.0);
            self.flush_index(history)?;
            let at = history.segment(id.0).recipe_bytes;
            self.recipes
                .write_all_at(&encoded, at)
                .map_err(history.error_at("write", FileKind::Recipes, id.0))?;
            self.is_dirty = true;
            let segment = history.segment_mut(id.0);
            segment.pieces[usize::from(id.1)].offset = at as u32;
            segment.recipe_bytes += taken;
        }
        self.growing_bytes -= taken;
        history.growing.remove(&id);
        Ok(())
    }

    fn flush(&mut self, history: &mut History) -> Result<(), StoreError> {
        let mut growing: Vec<PieceId> = history.growing.keys().copied().collect();
        // In the order in which they began: what is read back later is the latest.
        growing.sort_unstable();
        for id in growing {
            self.flush_piece(history, id)?;
        }
        self.flush_index(history)
    }

    /// Makes all survive a power cut.
    pub(super) fn sync(&mut self, history: &mut History) -> Result<(), StoreError> {
        if !self.is_dirty {
            return Ok(());
        }
        self.flush(history)?;
        let error = |kind| history.error_at("sync", kind, self.number);
        self.chunks.sync().map_err(error(FileKind::Chunks))?;
        self.write_mark(history)?;
        self.index.sync().map_err(error(FileKind::Index))?;
        self.recipes.sync().map_err(error(FileKind::Recipes))?;
        self.synced = history.segment(self.number).records;
        self.is_dirty = false;
        Ok(())
    }

    /// Writes which records an earlier sync made safe: only these need no proof at the next
    /// opening, since what this sync writes may reach the disk in any order.
    pub(super) fn write_mark(&self, history: &History) -> Result<(), StoreError> {
        let header = Header {
            segment: self.number,
            created_s: 0,
            mark: self.synced,
        };
        let written = self.index.write_all_at(&header.encode_mark(), MARK_AT);
        written.map_err(history.error_at("write", FileKind::Index, self.number))
    }

    /// Ends the segment: its last block gets a trailer. It may be sealed again if that failed.
    pub(super) fn seal(&mut self, history: &mut History) -> Result<(), StoreError> {
        self.flush(history)?;
        self.write_tail(history, true)?;
        self.is_dirty = true;
        self.sync(history)
    }
}
