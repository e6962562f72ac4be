//! Reading: a chunk by its record, a chain by its place.
//!
//! The recipe says what comes next, the index where it lies, the record what it must be. No byte
//! leaves that was not hashed and found to be that.

use std::{io, iter, sync::Arc};

use refrain_codec::chunk::hash::ChunkDigest;

use super::{GROWING, History, PieceId, RealmNumber, pack, sources::LoadedPiece, unpack};
use crate::{
    Chain, Place, StoreError, StoredChunk,
    index::{ChunkAt, Entry, RecipeAt},
    key::IndexKey,
    layout::{
        FileKind,
        index_file::{BLOCK_RECORDS, Record},
    },
};

/// Chunks that are gone and passed over in one call.
const SKIPPED_MAX: usize = 4096;

/// What a record says of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) at: ChunkAt,
    pub(crate) digest: ChunkDigest,
    pub(crate) bytes: u32,
    pub(crate) realm: RealmNumber,
    /// Where it begins.
    pub(crate) offset: u64,
}

/// What became of reading a chunk.
enum Fetched {
    Chunk(StoredChunk),
    Gone,
    NoRoom,
}

impl History {
    /// The record of a chunk; nothing if it is none, or gone with its segment.
    pub(crate) fn record(&self, at: ChunkAt) -> Result<Option<Found>, StoreError> {
        let record = self.any_record(at)?;
        let Some((
            Record::Chunk {
                digest,
                bytes,
                realm_slot,
            },
            offset,
        )) = record
        else {
            return Ok(None);
        };
        let realm = self.segment(at.segment).realm(realm_slot);
        Ok(realm.map(|realm| Found {
            at,
            digest,
            bytes,
            realm,
            offset,
        }))
    }

    /// A record, and where its chunk begins.
    fn any_record(&self, at: ChunkAt) -> Result<Option<(Record, u64)>, StoreError> {
        let block = match self.block(at.segment, at.record / BLOCK_RECORDS as u32) {
            Err(error) if is_missing(&error) => return Ok(None),
            block => block.map_err(self.error_at("read", FileKind::Index, at.segment))?,
        };
        let line = at.record as usize % BLOCK_RECORDS;
        let record = block.as_ref().and_then(|block| block.0.get(line));
        Ok(record.and_then(|&(record, start)| Some((record?, start))))
    }

    /// Whether a record is one, and its chunk is what it says.
    pub(crate) fn is_proved(&self, at: ChunkAt) -> Result<bool, StoreError> {
        if let Some((Record::Realm { .. }, _)) = self.any_record(at)? {
            return Ok(true);
        }
        Ok(match self.record(at)? {
            Some(found) => self.verified(&found)?.is_some(),
            None => false,
        })
    }

    /// By which key the index finds a chunk, and what it knows of it, if that is by this record.
    pub(crate) fn entry_of(&self, found: &Found) -> Option<(IndexKey, &Entry)> {
        let key = IndexKey::of_chunk(self.realms.realm(found.realm), &found.digest);
        let entry = self.index.find(key)?;
        (entry.at() == Some(found.at)).then_some((key, entry))
    }

    /// A record's chunk is not what it says: it is found no more.
    pub(crate) fn give_up(&mut self, at: ChunkAt) {
        self.note_damage(at.segment);
        if let Ok(Some(found)) = self.record(at)
            && let Some((key, _)) = self.entry_of(&found)
        {
            self.forget(key);
        }
    }

    /// The bytes of a chunk, if they are what they are said to be.
    pub(crate) fn verified(&self, found: &Found) -> Result<Option<Arc<[u8]>>, StoreError> {
        let mut bytes: Arc<[u8]> = iter::repeat_n(0, found.bytes as usize).collect();
        let buffer = Arc::get_mut(&mut bytes).expect("nobody else has it yet");
        let number = found.at.segment;
        if self.segment(number).files.is_some() {
            if !self.read_from_files(found, buffer)? {
                return Ok(None);
            }
        } else {
            let file = self.file(number, FileKind::Chunks);
            match file.and_then(|file| file.read_exact_at(buffer, found.offset)) {
                Err(error) if is_missing(&error) => return Ok(None),
                read => read.map_err(self.error_at("read", FileKind::Chunks, number))?,
            }
        }
        if self.hasher.digest(&bytes) == found.digest {
            return Ok(Some(bytes));
        }
        self.note_changed(found);
        Ok(None)
    }

    fn fetch(
        &mut self,
        realm: RealmNumber,
        key: IndexKey,
        bytes_max: usize,
    ) -> Result<Fetched, StoreError> {
        let Some(at) = self.index.at(key) else {
            return Ok(Fetched::Gone);
        };
        let found = unless_unreadable(self.record(at))?;
        let name = self.realms.realm(realm);
        let found = found
            .filter(|found| found.realm == realm && IndexKey::of_chunk(name, &found.digest) == key);
        if let Some(found) = &found {
            if found.bytes as usize > bytes_max {
                return Ok(Fetched::NoRoom);
            }
            if let Some(bytes) = unless_unreadable(self.verified(found))? {
                let digest = found.digest;
                return Ok(Fetched::Chunk(StoredChunk { digest, bytes }));
            }
        }
        // A file of others that changed is counted as that.
        let segment = self.segments.get(&at.segment);
        if segment.is_some_and(|segment| segment.files.is_none()) {
            self.note_damage(at.segment);
        }
        self.forget(key);
        Ok(Fetched::Gone)
    }

    pub(crate) fn read(
        &mut self,
        place: Place,
        chunks_max: usize,
        bytes_max: usize,
    ) -> Result<Chain, StoreError> {
        let mut chain = Chain::default();
        let (mut at, realm, mut behind) = unpack(place);
        let Some(mut piece) = self.piece(at.id())? else {
            return Ok(chain);
        };
        let last = at.entry.checked_sub(1);
        let key_behind = last.map(|last| piece.keys.get(usize::from(last)));
        let is_behind = key_behind.is_none_or(|key| key.is_some_and(|key| key.number() == behind));
        if piece.realm != realm || !is_behind {
            return Ok(chain);
        }
        let mut bytes_left = bytes_max;
        let mut skipped = 0;
        loop {
            let Some(&key) = piece.keys.get(usize::from(at.entry)) else {
                let Some(next) = self.next_piece(at.id()) else {
                    let is_open = self.open_ends.contains(&at.id());
                    chain.next = is_open.then(|| pack(at, realm, behind));
                    return Ok(chain);
                };
                match unless_unreadable(self.piece(next))? {
                    Some(onward) if onward.realm == realm => piece = onward,
                    _ => return Ok(chain),
                }
                at = RecipeAt::of(next, 0);
                continue;
            };
            let is_full = chain.chunks.len() == chunks_max || skipped == SKIPPED_MAX;
            let fetched = match is_full {
                true => Fetched::NoRoom,
                false => self.fetch(realm, key, bytes_left)?,
            };
            match fetched {
                Fetched::Chunk(chunk) => {
                    bytes_left -= chunk.bytes.len();
                    chain.chunks.push(chunk);
                }
                Fetched::Gone => skipped += 1,
                Fetched::NoRoom => {
                    chain.next = Some(pack(at, realm, behind));
                    return Ok(chain);
                }
            }
            at.entry += 1;
            behind = key.number();
        }
    }

    fn next_piece(&self, id: PieceId) -> Option<PieceId> {
        let pieces = &self.segments.get(&id.0)?.pieces;
        pieces.get(usize::from(id.1))?.next(id)
    }

    /// A piece, wherever it is; nothing if it is gone or damaged.
    fn piece(&self, id: PieceId) -> Result<Option<Arc<LoadedPiece>>, StoreError> {
        let segment = self.segments.get(&id.0);
        let info = segment.and_then(|segment| segment.pieces.get(usize::from(id.1)));
        let Some(info) = info else {
            return Ok(None);
        };
        if info.offset == GROWING {
            let growing = self.growing.get(&id);
            return Ok(growing.map(|growing| {
                Arc::new(LoadedPiece {
                    realm: growing.realm,
                    keys: growing.piece.keys.clone(),
                })
            }));
        }
        match self.piece_in_file(id, info.offset) {
            Err(error) if is_missing(&error) => Ok(None),
            piece => piece.map_err(self.error_at("read", FileKind::Recipes, id.0)),
        }
    }
}

/// What the disk cannot read is as good as damaged: it is to be learnt anew.
fn unless_unreadable<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(error) if error.is_unreadable() => Ok(None),
        read => read,
    }
}

/// Whether an error says that a file, or a part of it, is not there: it was evicted, or lost.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
    )
}
