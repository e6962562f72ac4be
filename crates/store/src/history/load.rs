//! Loading what the files of a segment say, from the start or from where they had ended before.
//!
//! Records that a trailer covers are as they were written. Those of the last block of a segment
//! that is still written have none yet, and that of a damaged block does not fit: they are taken
//! all the same, and proved when their chunks are read; what no sync covers, the owner of the
//! store proves when it opens it. Bounds: some blocks or the recipes of a segment
//! are read at a time, and recipes beyond their limit are left out.
//!
//! What is for the index is gathered in a [`Batch`], which its owner puts in at the end; here that
//! is done when it is full.

use std::{collections::HashSet, io};

use super::{BLOCK_RECORDS, History, PieceInfo, RealmNumber};
use crate::{
    OpeningKey, StoreError,
    folder::FolderFile,
    index::{Batch, ChunkAt, NUMBER_END, Put, RecipeAt},
    key::IndexKey,
    layout::{
        FileKind,
        index_file::{
            BLOCK_BYTES, HEADER_BYTES, Header, RECORD_BYTES, Record, TRAILER_BYTES, parse_records,
            parse_trailer, position_of,
        },
        recipe_file::Piece,
    },
};

/// No segment has recipes beyond.
pub(crate) const RECIPE_FILE_BYTES_MAX: u64 = 16 << 20;

/// Pieces of a segment have 16-bit numbers.
pub(crate) const PIECES_MAX: usize = 1 << 16;

/// No chunks lie beyond: a sum with a length never overflows.
const CHUNK_FILE_BYTES_MAX: u64 = 1 << 48;

/// Blocks that are read at once.
const BLOCKS_AT_ONCE: usize = 64;

/// Offsets at which a whole piece is looked for behind damaged ones, in a file.
const RESYNC_OFFSETS_MAX: usize = 64 << 10;

/// What the index file of a segment had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadedIndex {
    /// Whether its last block has a trailer although it is not full.
    pub(crate) is_sealed: bool,
    /// Whether bytes are left that are no records.
    pub(crate) has_rest: bool,
}

/// What the recipe file of a segment had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadedRecipes {
    /// Whether bytes are left that are no piece.
    pub(crate) has_rest: bool,
    /// Whether a piece is of a realm that no record declares.
    pub(crate) has_undeclared: bool,
}

impl History {
    /// What the index file of a segment begins with; nothing if that is damaged.
    pub(crate) fn read_header(&self, number: u32) -> Result<Option<Header>, StoreError> {
        let file = self.folder.open(&FileKind::Index.file_name(number));
        let bytes = file.and_then(|file| file.read_onward(0, HEADER_BYTES as u64));
        let bytes = bytes.map_err(self.error_at("read", FileKind::Index, number))?;
        let header = Header::parse(&bytes);
        Ok(header.filter(|header| header.segment == number))
    }

    /// Loads the records that a segment has more than before.
    pub(crate) fn load_index(
        &mut self,
        number: u32,
        batch: &mut Batch,
    ) -> Result<LoadedIndex, StoreError> {
        let file = self.file(number, FileKind::Index);
        let loaded = file.and_then(|file| self.load_blocks(number, &*file, batch));
        loaded.map_err(self.error_at("read", FileKind::Index, number))
    }

    fn load_blocks(
        &mut self,
        number: u32,
        file: &dyn FolderFile,
        batch: &mut Batch,
    ) -> io::Result<LoadedIndex> {
        let mut loaded = LoadedIndex::default();
        let mut block = self.segment(number).records / BLOCK_RECORDS as u32;
        let mut bytes = vec![0; BLOCKS_AT_ONCE * BLOCK_BYTES];
        loop {
            let at = position_of(block * BLOCK_RECORDS as u32);
            let count = file.read_up_to(&mut bytes, at)?;
            for part in bytes[..count].chunks(BLOCK_BYTES) {
                if (block + 1) * BLOCK_RECORDS as u32 >= NUMBER_END {
                    loaded.has_rest = true;
                    return Ok(loaded);
                }
                self.load_block(number, block, part, &mut loaded, batch);
                if part.len() < BLOCK_BYTES {
                    return Ok(loaded);
                }
                block += 1;
            }
            self.put_if_full(batch);
            if count < bytes.len() {
                return Ok(loaded);
            }
        }
    }

    fn load_block(
        &mut self,
        number: u32,
        block: u32,
        bytes: &[u8],
        loaded: &mut LoadedIndex,
        batch: &mut Batch,
    ) {
        let first = block * BLOCK_RECORDS as u32;
        let covered = bytes.len().checked_sub(TRAILER_BYTES);
        let covered = covered.filter(|covered| covered.is_multiple_of(RECORD_BYTES));
        let whole = covered.and_then(|covered| {
            let (records, trailer) = bytes.split_at(covered);
            let end = parse_trailer(number, block, records, trailer)?;
            let records: Vec<Record> = parse_records(records).collect();
            let start = end.checked_sub(records.iter().map(Record::chunk_bytes).sum())?;
            (end <= CHUNK_FILE_BYTES_MAX).then_some((records, start))
        });
        if let Some((records, start)) = whole {
            self.take_block(number, block, start, &records, batch);
            loaded.is_sealed = bytes.len() < BLOCK_BYTES;
            return;
        }
        // Whatever a record says, its chunk has to hash to it. Lengths that are wrong lead astray
        // up to the next trailer.
        let segment = self.segment(number);
        let start = segment.block_starts.get(block as usize).copied();
        let start = start.unwrap_or(segment.chunk_bytes);
        let is_full = bytes.len() == BLOCK_BYTES;
        let encoded = &bytes[..bytes.len().min(BLOCK_RECORDS * RECORD_BYTES)];
        let records: Vec<Record> = parse_records(encoded).collect();
        self.take_block(number, block, start, &records, batch);
        if is_full {
            self.note_damage(number);
            self.segment_mut(number).records = first + BLOCK_RECORDS as u32;
        } else {
            loaded.has_rest = records.len() * RECORD_BYTES < bytes.len();
        }
    }

    /// Takes the records of a block that a segment has not yet.
    fn take_block(
        &mut self,
        number: u32,
        block: u32,
        start: u64,
        records: &[Record],
        batch: &mut Batch,
    ) {
        let Self {
            segments, realms, ..
        } = self;
        let segment = segments.get_mut(&number).expect("it is being loaded");
        let first = block * BLOCK_RECORDS as u32;
        let known = segment.records.saturating_sub(first) as usize;
        segment.records = first;
        segment.chunk_bytes = start;
        // Also where none of its records is one.
        segment.begin_block();
        for (line, record) in records.iter().enumerate() {
            let at = ChunkAt {
                segment: number,
                record: segment.push(record, realms),
            };
            if let Record::Chunk {
                digest, realm_slot, ..
            } = record
                && line >= known
                && let Some(realm) = segment.realm(*realm_slot)
            {
                let key = IndexKey::of_chunk(realms.realm(realm), digest);
                batch.push(key, Put::Chunk(at.to_bytes()));
                segment.count_chunk(*realm_slot);
            }
        }
    }

    /// Loads the pieces that a segment has more than before.
    pub(crate) fn load_recipes(
        &mut self,
        number: u32,
        batch: &mut Batch,
    ) -> Result<LoadedRecipes, StoreError> {
        let from = self.segment(number).recipe_bytes;
        let file = self.file(number, FileKind::Recipes);
        let rest = file
            .and_then(|file| file.read_onward(from, RECIPE_FILE_BYTES_MAX.saturating_sub(from)));
        match rest {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LoadedRecipes::default()),
            rest => {
                let rest = rest.map_err(self.error_at("read", FileKind::Recipes, number))?;
                Ok(self.take_pieces(number, &rest, batch))
            }
        }
    }

    fn take_pieces(&mut self, number: u32, bytes: &[u8], batch: &mut Batch) -> LoadedRecipes {
        let from = self.segment(number).recipe_bytes;
        let mut at = 0;
        let mut tries_left = RESYNC_OFFSETS_MAX;
        let mut is_torn = false;
        let mut has_undeclared = false;
        while at < bytes.len() && tries_left > 0 {
            let Some(piece) = Piece::parse(number, &bytes[at..]) else {
                if bytes[at] != 0 {
                    tries_left -= 1;
                    is_torn = true;
                }
                at += 1;
                continue;
            };
            // Zeros are no damage: earlier versions wrote them over damaged pieces.
            if std::mem::take(&mut is_torn) {
                self.note_damage(number);
            }
            let offset = from + at as u64;
            at += piece.encoded_bytes();
            match self.segment(number).realm(piece.realm_slot) {
                Some(realm) if self.segment(number).pieces.len() < PIECES_MAX => {
                    self.take_piece(number, offset as u32, realm, &piece, batch);
                    self.put_if_full(batch);
                }
                Some(_) => {}
                None => has_undeclared = true,
            }
            self.segment_mut(number).recipe_bytes = from + at as u64;
        }
        LoadedRecipes {
            has_rest: self.segment(number).recipe_bytes < from + bytes.len() as u64,
            has_undeclared,
        }
    }

    fn take_piece(
        &mut self,
        number: u32,
        offset: u32,
        realm: RealmNumber,
        piece: &Piece,
        batch: &mut Batch,
    ) {
        let segment = self.segment_mut(number);
        let id = (number, segment.pieces.len() as u16);
        segment.pieces.push(PieceInfo::at(offset));
        segment.recipe_entries += piece.keys.len() as u64;
        if let Some(previous) = piece.previous
            && let Some(segment) = self.segments.get(&previous.segment)
        {
            let pieces = &segment.pieces;
            if let Ok(found) = pieces.binary_search_by_key(&previous.offset, |piece| piece.offset) {
                self.link((previous.segment, found as u16), id);
            }
        }
        let mut at = RecipeAt::of(id, 0);
        for key in piece.opening.into_iter().flat_map(OpeningKey::all) {
            let key = IndexKey::of_opening(self.realms.realm(realm), key);
            batch.push(key, Put::Opening(at.to_bytes()));
        }
        for &key in &piece.keys {
            at.entry += 1;
            batch.push(key, Put::Place(at.to_bytes()));
        }
    }

    /// Puts what was loaded into the index. Of two records of one chunk the later counts; but what
    /// is in a segment's own file before what is in a file of others, which may be gone.
    pub(crate) fn put(&mut self, batch: &mut Batch) {
        let segments = self.segments.iter();
        let own = segments.filter(|(_, segment)| segment.files.is_none());
        let own: HashSet<u32> = own.map(|(&number, _)| number).collect();
        let moves =
            |from: ChunkAt, to: ChunkAt| !own.contains(&from.segment) || own.contains(&to.segment);
        self.chunks += self.index.put(batch, moves);
    }

    fn put_if_full(&mut self, batch: &mut Batch) {
        if batch.is_full() {
            self.put(batch);
        }
    }
}
