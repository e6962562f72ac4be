//! Compacting: what lives in segments that are largely dead, or small, is appended anew, and their
//! room is given back.
//!
//! Dead are chunks that were damaged, and those that another record has replaced. A segment's
//! recipes stay where they are, since others lead on from them: only its chunks go, and its index
//! is replaced by one that declares realms alone. That is one renaming, done when the copies are
//! safe; so a kill at any moment leaves each chunk at least once.

use std::io;

use serde::Serialize;

use super::{DiskStore, OTHER_BYTES, open::NEW};
use crate::{
    ChunkSource, DiskBytes, StoreError,
    format::error_at,
    index::{ChunkAt, Entry},
    key::IndexKey,
    layout::{
        FileKind,
        index_file::{BLOCK_RECORDS, Header, RECORD_BYTES, Record, encode_trailer},
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
}

/// What lives in a segment.
struct Living {
    chunks: Vec<ChunkAt>,
    bytes: u64,
}

impl DiskStore {
    /// Gives back the room of dead chunks, and joins small segments; `progress` learns how many
    /// segments of how many were looked at.
    ///
    /// # Errors
    /// If the disk fails. Nothing is lost by it.
    pub fn compact(
        &mut self,
        progress: &mut dyn FnMut(u32, u32),
    ) -> Result<CompactReport, StoreError> {
        let mut report = CompactReport::default();
        let before = self.stat().disk.total();
        let numbers: Vec<u32> = self.sealed.segments.keys().copied().collect();
        let total = numbers.len() as u32;
        for (done, number) in numbers.into_iter().enumerate() {
            progress(done as u32, total);
            let held = self
                .sealed
                .segments
                .get(&number)
                .map_or(0, |disk| disk.chunks);
            let living = self.living(number)?;
            let is_largely_dead = living.bytes * 8 <= held * 7;
            let is_small = held < self.segment_bytes / 2;
            if held == 0 || !(is_largely_dead || is_small) {
                continue;
            }
            let needed = self.sealed.bytes + self.of_files.bytes + OTHER_BYTES;
            if needed + living.bytes + self.segment_bytes * 5 / 2 > self.config.size_bytes {
                report.left_segments += 1;
                continue;
            }
            for at in living.chunks {
                let Some(found) = self.history.record(at)? else {
                    continue;
                };
                let Some(content) = self.history.verified(at, &found)? else {
                    continue;
                };
                if !self
                    .head
                    .fits(&self.history, content.len(), self.segment_bytes)
                {
                    self.roll()?;
                }
                let realm = self.history.realms.realm(found.realm);
                let key = IndexKey::of_chunk(realm, &found.digest);
                self.store(found.realm, key, &found.digest, &content)?;
                report.moved_chunks += 1;
                report.moved_bytes += content.len() as u64;
            }
            self.head.sync(&mut self.history)?;
            self.empty(number)?;
            report.segments += 1;
        }
        progress(total, total);
        self.history.sweep();
        report.freed_bytes = before.saturating_sub(self.stat().disk.total());
        Ok(report)
    }

    /// The chunks of a segment that the index finds there.
    fn living(&self, segment: u32) -> Result<Living, StoreError> {
        let mut living = Living {
            chunks: Vec::new(),
            bytes: 0,
        };
        for record in 0..self.history.segment(segment).records {
            let at = ChunkAt { segment, record };
            let Some(found) = self.history.record(at)? else {
                continue;
            };
            let realm = self.history.realms.realm(found.realm);
            let key = IndexKey::of_chunk(realm, &found.digest);
            if self.history.index.find(key).and_then(Entry::at) == Some(at) {
                living.chunks.push(at);
                living.bytes += u64::from(found.bytes);
            }
        }
        Ok(living)
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
