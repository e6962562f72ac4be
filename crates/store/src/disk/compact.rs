//! Compacting: what lives in segments that are largely dead, small or damaged is appended anew, and
//! their room is given back.
//!
//! Dead are chunks that were damaged, and those that another record has replaced. Nothing damaged
//! is left: of a segment with any damage all that is whole is moved, also where the oldest segment
//! has to go for it; pieces of recipes that are none become zeros; and a segment of others' files
//! is dropped, since the files can be added again. A segment's
//! recipes stay where they are, since others lead on from them: only its chunks go, and its index
//! is replaced by one that declares realms alone. That is one renaming, done when the copies are
//! safe; so a kill at any moment leaves each chunk at least once, and one that the index has lost
//! with a damaged copy is looked for. The head is sealed first, where it is to be compacted.

use std::{collections::BTreeSet, io};

use serde::Serialize;

use super::{DiskStore, OTHER_BYTES, SEGMENT_ROUNDING_BYTES, open::NEW};
use crate::{
    ChunkSource, DiskBytes, StoreError,
    format::error_at,
    history::RECIPES_AT,
    index::{ChunkAt, Entry},
    key::IndexKey,
    layout::{
        FileKind,
        index_file::{self, BLOCK_RECORDS, Header, RECORD_BYTES, Record, encode_trailer},
        recipe_file::Piece,
    },
};

/// What compacting did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompactReport {
    /// Segments whose chunks were moved.
    pub segments: u32,
    /// Chunks that were moved.
    pub moved_chunks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Bytes that the store is smaller by.
    pub freed_bytes: u64,
    /// Segments that were left as they are, for want of room to move them first.
    pub left_segments: u32,
    /// Damaged chunks that were dropped, those of files of others not counted.
    pub damaged_chunks: u64,
    /// Files of others that have to be added again: what was known of them was damaged.
    pub dropped_files: u64,
}

/// What the disk cannot read of a segment that is known to be damaged is given up; elsewhere, or by
/// another user, it may be read another time.
fn unless_damaged<T>(
    read: Result<Option<T>, StoreError>,
    is_damaged: bool,
) -> Result<Option<T>, StoreError> {
    match read {
        Err(error) if is_damaged && !error.is_forbidden() => Ok(None),
        read => read,
    }
}

/// What lives in a segment.
struct Living {
    chunks: Vec<ChunkAt>,
    bytes: u64,
    /// Bytes of chunks that the segment holds, dead ones included.
    held_bytes: u64,
    /// Chunks that cannot be read as they were written.
    damaged_chunks: u64,
    /// Whether anything of the segment is damaged.
    is_damaged: bool,
}

impl Living {
    fn is_largely_dead(&self) -> bool {
        self.held_bytes > 0 && self.bytes * 8 <= self.held_bytes * 7
    }
}

impl DiskStore {
    /// Gives back the room of dead chunks, drops what opening and [`verify`](Self::verify) found
    /// damaged, and joins small segments; `progress` learns how many segments of how many were
    /// looked at.
    ///
    /// # Errors
    /// If the disk fails or has too little room, or this user may not read all files. Nothing is
    /// lost by it.
    pub fn compact(
        &mut self,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<CompactReport, StoreError> {
        self.keeps_all = true;
        let report = self.compact_segments(progress)?;
        self.keeps_all = false;
        Ok(report)
    }

    fn compact_segments(
        &mut self,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<CompactReport, StoreError> {
        let mut report = CompactReport::default();
        let before = self.stat().disk.total();
        report.dropped_files = self.drop_damaged_files()?;
        let held_bytes = self.head.disk_bytes(&self.history).chunks;
        let living = self.living(self.head.number, held_bytes)?;
        if living.is_damaged || living.is_largely_dead() {
            match !living.is_damaged && self.exceeds_bound(held_bytes + living.bytes) {
                true => report.left_segments += 1,
                false => self.with_room_for(&living, Self::roll)?,
            }
        }
        let numbers: Vec<u32> = self.sealed.segments.keys().copied().collect();
        let total = numbers.len() as u32;
        for (done, number) in numbers.into_iter().enumerate() {
            progress(done as u32, total);
            let Some(held_bytes) = self.sealed.segments.get(&number).map(|disk| disk.chunks) else {
                continue;
            };
            let living = self.living(number, held_bytes)?;
            let is_small = held_bytes > 0 && held_bytes < self.segment_bytes / 2;
            if !(living.is_damaged || living.is_largely_dead() || is_small) {
                continue;
            }
            // Joining segments is worth no error.
            let is_optional = !living.is_damaged && !living.is_largely_dead();
            if !living.is_damaged && self.exceeds_bound(living.bytes)
                || is_optional && self.lacks_room(&living)
            {
                report.left_segments += 1;
                continue;
            }
            self.with_room_for(&living, |store| {
                store.move_segment(number, &living, &mut report)
            })?;
            report.segments += 1;
            report.damaged_chunks += living.damaged_chunks;
        }
        progress(total, total);
        self.history.sweep();
        report.freed_bytes = before.saturating_sub(self.stat().disk.total());
        Ok(report)
    }

    /// Whether the store might have to evict for so many bytes more.
    fn exceeds_bound(&self, bytes: u64) -> bool {
        let written = self.sealed.bytes + self.of_files.bytes + OTHER_BYTES;
        written + bytes + self.segment_bytes * 5 / 2 > self.config.size_bytes
    }

    /// What the copies of a segment's chunks take at most, with the files of segments that are
    /// begun for them and the index that replaces its own.
    fn needed_bytes(&self, living: &Living) -> u64 {
        let segments = living.bytes / self.segment_bytes + 3;
        living.bytes
            + index_file::bytes_of(living.chunks.len() as u32)
            + segments * SEGMENT_ROUNDING_BYTES
    }

    fn lacks_room(&self, living: &Living) -> bool {
        let free_bytes = self.history.folder.free_bytes();
        free_bytes.is_some_and(|free_bytes| free_bytes < self.needed_bytes(living))
    }

    /// Does what copies a segment's chunks, if the disk has room for it.
    fn with_room_for(
        &mut self,
        living: &Living,
        copy: impl FnOnce(&mut Self) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let done = match self.lacks_room(living) {
            true => None,
            false => Some(copy(self)),
        };
        match done {
            // Others may have filled it meanwhile.
            Some(done) if !done.as_ref().is_err_and(StoreError::is_full_disk) => done,
            _ => Err(StoreError::NoRoomToCompact {
                path: self.history.folder.path(),
                needed_bytes: self.needed_bytes(living),
                free_bytes: self.history.folder.free_bytes().unwrap_or(0),
            }),
        }
    }

    /// Copies what lives in a segment to the head, and then gives back the segment's room.
    fn move_segment(
        &mut self,
        number: u32,
        living: &Living,
        report: &mut CompactReport,
    ) -> Result<(), StoreError> {
        for &at in &living.chunks {
            let Some(found) = self.history.record(at)? else {
                continue;
            };
            let realm = self.history.realms.realm(found.realm);
            let key = IndexKey::of_chunk(realm, &found.digest);
            let content = self.history.verified(at, &found);
            let Some(content) = unless_damaged(content, living.is_damaged)? else {
                self.history.forget(key);
                report.damaged_chunks += 1;
                continue;
            };
            if !self
                .head
                .fits(&self.history, content.len(), self.segment_bytes)
            {
                self.roll()?;
            }
            self.store(found.realm, key, &found.digest, &content)?;
            report.moved_chunks += 1;
            report.moved_bytes += content.len() as u64;
        }
        self.head.sync(&mut self.history)?;
        // It may have been the oldest, and have gone to make room.
        if self.sealed.segments.contains_key(&number) {
            if living.is_damaged {
                self.wipe_recipes(number)?;
            }
            self.empty(number)?;
        }
        Ok(())
    }

    /// The chunks of a segment that the index finds there, or nowhere since another copy of them is
    /// damaged.
    fn living(&self, segment: u32, held_bytes: u64) -> Result<Living, StoreError> {
        let mut living = Living {
            chunks: Vec::new(),
            bytes: 0,
            held_bytes,
            damaged_chunks: 0,
            is_damaged: self.history.segment(segment).is_damaged,
        };
        for record in 0..self.history.segment(segment).records {
            let at = ChunkAt { segment, record };
            let Some(found) = unless_damaged(self.history.record(at), living.is_damaged)? else {
                continue;
            };
            let realm = self.history.realms.realm(found.realm);
            let key = IndexKey::of_chunk(realm, &found.digest);
            let is_living = match self.history.index.find(key).and_then(Entry::at) {
                Some(found_at) => found_at == at,
                None => {
                    let content = self.history.verified(at, &found);
                    let is_whole = unless_damaged(content, living.is_damaged)?.is_some();
                    living.damaged_chunks += u64::from(!is_whole);
                    living.is_damaged |= !is_whole;
                    is_whole
                }
            };
            if is_living {
                living.chunks.push(at);
                living.bytes += u64::from(found.bytes);
            }
        }
        Ok(living)
    }

    /// Drops the segments of others' files that are damaged; says how many files they had.
    fn drop_damaged_files(&mut self) -> Result<u64, StoreError> {
        let numbers = self.of_files.segments.keys().copied();
        let damaged: BTreeSet<u32> = numbers
            .filter(|&number| self.history.segment(number).is_damaged)
            .collect();
        let files = damaged.iter().filter_map(|&number| {
            let files = self.history.segment(number).files.as_ref()?;
            Some(files.len() as u64)
        });
        let files = files.sum();
        self.drop_files(damaged)?;
        Ok(files)
    }

    /// Overwrites what is no piece in a segment's recipes. Those that are stay where they are, since
    /// others lead on from them.
    fn wipe_recipes(&mut self, number: u32) -> Result<(), StoreError> {
        let folder = &*self.history.folder;
        let name = FileKind::Recipes.file_name(number);
        let end = self.history.segment(number).recipe_bytes;
        let file = folder.open_or_create(&name);
        let wiped = file.and_then(|file| {
            let mut bytes = vec![0; (end - RECIPES_AT) as usize];
            let count = file.read_up_to(&mut bytes, RECIPES_AT)?;
            bytes.truncate(count);
            let mut at = 0;
            while at < count {
                match Piece::parse(number, &bytes[at..]) {
                    Some(piece) => at += piece.encoded_bytes(),
                    None => {
                        bytes[at] = 0;
                        at += 1;
                    }
                }
            }
            file.write_all_at(&bytes, RECIPES_AT)?;
            if file.bytes()? > end {
                file.set_bytes(end)?;
            }
            file.sync()
        });
        wiped.map_err(error_at(folder, "write", &name))
    }

    /// Leaves a segment its realms and recipes.
    fn empty(&mut self, number: u32) -> Result<(), StoreError> {
        let realms: Vec<Record> = self.history.declared(number);
        let header = Header {
            segment: number,
            created_s: self.history.segment(number).created_s,
            mark: realms.len() as u32,
        };
        let mut index = header.encode().to_vec();
        let encoded: Vec<u8> = realms.iter().flat_map(Record::encode).collect();
        for (block, records) in encoded.chunks(BLOCK_RECORDS * RECORD_BYTES).enumerate() {
            index.extend(records);
            index.extend(encode_trailer(number, block as u32, records, 0));
        }
        let folder = &*self.history.folder;
        let name = FileKind::Index.file_name(number);
        let new = format!("{name}{NEW}");
        let file = folder.open_or_create(&new);
        file.and_then(|file| {
            file.set_bytes(0)?;
            file.write_all_at(&index, 0)?;
            file.sync()
        })
        .map_err(error_at(folder, "write", &new))?;
        folder
            .rename(&new, &name)
            .and_then(|()| folder.sync())
            .map_err(error_at(folder, "replace", &name))?;
        let chunks = FileKind::Chunks.file_name(number);
        match folder.remove(&chunks) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error_at(folder, "remove", &chunks)(error));
            }
            _ => {}
        }
        self.history.forget_cached(number);
        self.history.empty_segment(number, &realms);
        self.history.segment_mut(number).is_damaged = false;
        let recipes = self.history.segment(number).recipe_bytes;
        let disk = DiskBytes {
            index: index.len() as u64,
            recipes,
            ..DiskBytes::default()
        };
        self.sealed.insert(number, disk);
        Ok(())
    }
}
