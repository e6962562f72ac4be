//! What is read from the disk again and again, kept for a while: open files, blocks of records,
//! pieces of recipes. Each kind has a fixed number of places; the one unused for longest goes.

use std::{fs::File, io, sync::Arc};

use super::{History, PieceId, RealmNumber};
use crate::{
    OpeningKey, StoreError,
    folder::{Folder, FolderFile},
    key::IndexKey,
    layout::{
        FileKind,
        index_file::{BLOCK_RECORDS, RECORD_BYTES, Record, position_of},
        recipe_file::{PIECE_BYTES_MAX, Piece},
    },
};

const FILES_OPEN_MAX: usize = 64;
const BLOCKS_MAX: usize = 32;
const PIECES_MAX: usize = 32;

pub(super) struct Sources {
    folder: Arc<dyn Folder>,
    files: Recent<(u32, FileKind), Arc<dyn FolderFile>>,
    blocks: Recent<(u32, u32), Arc<Block>>,
    pieces: Recent<PieceId, Arc<LoadedPiece>>,
    /// Files of others, by where a files file names them, each with where the part begins.
    pub(super) others: Recent<(u32, u32), (Arc<File>, u64)>,
}

/// Records of a block, each with where its chunk begins.
pub(super) struct Block(pub(super) Vec<(Option<Record>, u64)>);

/// A piece, and the realm that its segment knows by its slot.
pub(super) struct LoadedPiece {
    pub(super) realm: RealmNumber,
    pub(super) keys: Vec<IndexKey>,
}

impl Sources {
    pub(super) fn new(folder: Arc<dyn Folder>) -> Self {
        Self {
            folder,
            files: Recent::new(FILES_OPEN_MAX),
            blocks: Recent::new(BLOCKS_MAX),
            pieces: Recent::new(PIECES_MAX),
            others: Recent::new(FILES_OPEN_MAX),
        }
    }

    pub(super) fn forget_segment(&mut self, number: u32) {
        self.files.retain(|(segment, _)| *segment != number);
        self.blocks.retain(|(segment, _)| *segment != number);
        self.pieces.retain(|(segment, _)| *segment != number);
        self.others.retain(|(segment, _)| *segment != number);
    }

    pub(super) fn file(&mut self, segment: u32, kind: FileKind) -> io::Result<Arc<dyn FolderFile>> {
        let name = (segment, kind);
        if let Some(file) = self.files.find(name) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::from(self.folder.open(&kind.file_name(segment))?);
        self.files.insert(name, Arc::clone(&file));
        Ok(file)
    }
}

impl History {
    /// A block of records, with at least those that are there now.
    pub(super) fn block(&self, number: u32, block: u32) -> io::Result<Option<Arc<Block>>> {
        let Some(segment) = self.segments.get(&number) else {
            return Ok(None);
        };
        let first = block * BLOCK_RECORDS as u32;
        let count = segment.records.saturating_sub(first) as usize;
        let count = count.min(BLOCK_RECORDS);
        let start = segment.block_starts.get(block as usize).copied();
        let Some(start) = start.filter(|_| count > 0) else {
            return Ok(None);
        };
        let records = |records: &mut dyn Iterator<Item = Option<Record>>| {
            let mut at = start;
            let records = records.map(|record| {
                let start = at;
                at += record.map_or(0, |record| record.chunk_bytes());
                (record, start)
            });
            Arc::new(Block(records.collect()))
        };
        if let Some(tail) = &self.tail
            && (tail.segment, tail.block) == (number, block)
        {
            return Ok(Some(records(&mut tail.records.iter().copied().map(Some))));
        }
        let mut sources = self.sources.borrow_mut();
        if let Some(found) = sources.blocks.find((number, block))
            && found.0.len() >= count
        {
            return Ok(Some(Arc::clone(found)));
        }
        let mut bytes = [0; BLOCK_RECORDS * RECORD_BYTES];
        let bytes = &mut bytes[..count * RECORD_BYTES];
        let file = sources.file(number, FileKind::Index)?;
        file.read_exact_at(bytes, position_of(first))?;
        let (encoded, _) = bytes.as_chunks();
        let block_read = records(&mut encoded.iter().map(Record::parse));
        sources
            .blocks
            .insert((number, block), Arc::clone(&block_read));
        Ok(Some(block_read))
    }

    /// A piece that is in a file.
    pub(super) fn piece_in_file(
        &self,
        id: PieceId,
        offset: u32,
    ) -> io::Result<Option<Arc<LoadedPiece>>> {
        let mut sources = self.sources.borrow_mut();
        if let Some(piece) = sources.pieces.find(id) {
            return Ok(Some(Arc::clone(piece)));
        }
        let mut bytes = [0; PIECE_BYTES_MAX];
        let file = sources.file(id.0, FileKind::Recipes)?;
        let count = file.read_up_to(&mut bytes, offset.into())?;
        let piece = Piece::parse(id.0, &bytes[..count]).and_then(|piece| {
            Some(Arc::new(LoadedPiece {
                realm: self.segments.get(&id.0)?.realm(piece.realm_slot)?,
                keys: piece.keys,
            }))
        });
        if let Some(piece) = &piece {
            sources.pieces.insert(id, Arc::clone(piece));
        }
        Ok(piece)
    }

    /// The openings that pieces of a segment have.
    pub(crate) fn openings_of(
        &self,
        number: u32,
    ) -> Result<Vec<(RealmNumber, OpeningKey)>, StoreError> {
        let segment = self.segment(number);
        let file = self.file(number, FileKind::Recipes);
        let bytes = file.and_then(|file| file.read_onward(0, segment.recipe_bytes));
        let bytes = bytes.map_err(self.error_at("read", FileKind::Recipes, number))?;
        let openings = segment.pieces.iter().filter_map(|piece| {
            let piece = bytes.get(piece.offset as usize..)?;
            let piece = Piece::parse(number, piece)?;
            Some((segment.realm(piece.realm_slot)?, piece.opening?))
        });
        Ok(openings.collect())
    }

    pub(super) fn file(&self, segment: u32, kind: FileKind) -> io::Result<Arc<dyn FolderFile>> {
        self.sources.borrow_mut().file(segment, kind)
    }
}

/// The things used last.
pub(super) struct Recent<K, V> {
    /// The latest used last.
    items: Vec<(K, V)>,
    len_max: usize,
}

impl<K: PartialEq, V> Recent<K, V> {
    fn new(len_max: usize) -> Self {
        Self {
            items: Vec::with_capacity(len_max),
            len_max,
        }
    }

    pub(super) fn find(&mut self, key: K) -> Option<&V> {
        let at = self.items.iter().rposition(|(item, _)| *item == key)?;
        self.items[at..].rotate_left(1);
        self.items.last().map(|(_, value)| value)
    }

    fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.items.retain(|(item, _)| is_kept(item));
    }

    /// In place of what the key had.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.items.retain(|(item, _)| *item != key);
        if self.items.len() == self.len_max {
            self.items.remove(0);
        }
        self.items.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn the_one_unused_for_longest_goes() {
        let mut recent = Recent::new(2);
        recent.insert(1, "a");
        recent.insert(2, "b");
        assert_eq!(recent.find(1), Some(&"a"));
        recent.insert(3, "c");
        assert_eq!(recent.find(2), None);
        assert_eq!(recent.find(1), Some(&"a"));
        recent.insert(1, "d");
        assert_eq!(recent.find(3), Some(&"c"));
        assert_eq!(recent.find(1), Some(&"d"));
    }
}
