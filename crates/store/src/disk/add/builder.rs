//! A segment of files of others, as it is put together: all of it in memory, which is bounded, and
//! then written at once. Its index gets its name last; without it the segment is none.

use std::path::Path;

use refrain_codec::chunk::hash::ChunkDigest;

use crate::{
    DiskBytes, Realm, StoreError,
    format::{NEW, error_at, replace, write_whole},
    history::{History, Segment},
    index::Batch,
    key::IndexKey,
    layout::{
        FileKind,
        files_file::{self, FilePart, FileState},
        index_file::{BLOCK_RECORDS, Header, RECORD_BYTES, Record, encode_trailer},
        recipe_file::{self, ENTRIES_MAX, Piece, PieceAt},
    },
};

/// At these, the next segment begins: about 20 MB of memory.
const RECORDS_MAX: u32 = 500_000;
const PIECES_MAX: u32 = 60_000;

pub(super) struct Builder {
    realm: Realm,
    built: Option<Built>,
    /// The file that is being added.
    file: Option<OpenFile>,
}

struct OpenFile {
    /// What the segment has of it; without bytes where it has nothing yet.
    part: FilePart,
    previous: Option<PieceAt>,
    keys: Vec<IndexKey>,
}

/// A segment, as its files will be.
#[derive(Default)]
pub(super) struct Built {
    pub(super) number: u32,
    records: u32,
    pieces: u32,
    /// Where the next chunk begins, all files one after the other.
    end: u64,
    /// Of the block that is being filled.
    block: Vec<u8>,
    index: Vec<u8>,
    recipes: Vec<u8>,
    files: Vec<u8>,
}

impl Builder {
    pub(super) fn new(realm: Realm) -> Self {
        Self {
            realm,
            built: None,
            file: None,
        }
    }

    pub(super) fn is_begun(&self) -> bool {
        self.built.is_some()
    }

    pub(super) fn is_full(&self) -> bool {
        let built = self.built.as_ref();
        built.is_some_and(|built| built.records >= RECORDS_MAX || built.pieces >= PIECES_MAX)
    }

    /// Begins a segment, whose only realm has the slot 0.
    pub(super) fn begin(&mut self, number: u32) {
        let realm = self.realm;
        let mut built = Built {
            number,
            recipes: recipe_file::encode_header(number).to_vec(),
            files: files_file::encode_header(number, realm).to_vec(),
            ..Built::default()
        };
        built.push(&Record::Realm { realm, slot: 0 });
        self.built = Some(built);
    }

    /// Begins a file, or what follows `offset` in it.
    pub(super) fn begin_file(&mut self, path: &Path, state: FileState, offset: u64) {
        self.file = Some(OpenFile {
            part: FilePart {
                first_record: 0,
                start: 0,
                offset,
                part_bytes: 0,
                state,
                path: path.to_owned(),
            },
            previous: None,
            keys: Vec::new(),
        });
    }

    pub(super) fn push_chunk(&mut self, digest: &ChunkDigest, bytes: u32) {
        let built = self.built.as_mut().expect("it was begun");
        let file = self.file.as_mut().expect("a file was begun");
        if file.part.part_bytes == 0 {
            (file.part.first_record, file.part.start) = (built.records, built.end);
        }
        let record = Record::Chunk {
            digest: *digest,
            bytes,
            realm_slot: 0,
        };
        built.push(&record);
        file.part.part_bytes += u64::from(bytes);
        file.keys.push(IndexKey::of_chunk(self.realm, digest));
        if file.keys.len() == ENTRIES_MAX {
            built.push_piece(file);
        }
    }

    pub(super) fn end_file(&mut self) {
        self.end_part();
        self.file = None;
    }

    /// Ends what the segment has of the file.
    fn end_part(&mut self) {
        let (Some(built), Some(file)) = (&mut self.built, &mut self.file) else {
            return;
        };
        if !file.keys.is_empty() {
            built.push_piece(file);
        }
        let part = &mut file.part;
        if part.part_bytes > 0 {
            // A path that is longer than systems take was not opened either.
            let encoded = part.encode(built.number).unwrap_or_default();
            built.files.extend(encoded);
            part.offset += part.part_bytes;
            part.part_bytes = 0;
        }
    }

    /// The segment, if there is anything in it; another one may be begun then.
    pub(super) fn finish(&mut self, now_s: u64) -> Option<Built> {
        self.end_part();
        let mut built = self.built.take()?;
        if !built.block.is_empty() {
            built.end_block();
        }
        let header = Header {
            segment: built.number,
            created_s: now_s,
            mark: built.records,
        };
        built.index.splice(..0, header.encode());
        Some(built)
    }
}

impl Built {
    fn push(&mut self, record: &Record) {
        self.records += 1;
        self.end += record.chunk_bytes();
        self.block.extend(record.encode());
        if self.block.len() == BLOCK_RECORDS * RECORD_BYTES {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        let block = (self.records - 1) / BLOCK_RECORDS as u32;
        let trailer = encode_trailer(self.number, block, &self.block, self.end);
        self.index.append(&mut self.block);
        self.index.extend(trailer);
    }

    fn push_piece(&mut self, file: &mut OpenFile) {
        let piece = Piece {
            realm_slot: 0,
            opening: None,
            previous: file.previous,
            keys: std::mem::take(&mut file.keys),
        };
        file.previous = Some(PieceAt {
            segment: self.number,
            offset: self.recipes.len() as u32,
        });
        self.recipes.extend(piece.encode(self.number));
        self.pieces += 1;
    }

    pub(super) fn disk_bytes(&self) -> DiskBytes {
        DiskBytes {
            chunks: 0,
            index: self.index.len() as u64,
            recipes: self.recipes.len() as u64,
            other: self.files.len() as u64,
        }
    }

    /// Writes the files, and takes what they hold into the history.
    pub(super) fn write(self, history: &mut History) -> Result<(), StoreError> {
        let folder = &*history.folder;
        write_whole(
            folder,
            &FileKind::Recipes.file_name(self.number),
            &self.recipes,
        )?;
        write_whole(folder, &FileKind::Files.file_name(self.number), &self.files)?;
        // These have their names first, also on a disk that keeps no order.
        folder.sync().map_err(error_at(folder, "sync", ""))?;
        let index = FileKind::Index.file_name(self.number);
        let named = replace(folder, &index, &self.index);
        if named.is_err() {
            let _ = folder.remove(&format!("{index}{NEW}"));
        }
        named?;
        let segment = Segment::new(super::now_s());
        history.segments.insert(self.number, segment);
        let mut batch = Batch::new();
        history.load_files(self.number)?;
        history.load_index(self.number, &mut batch)?;
        history.load_recipes(self.number, &mut batch)?;
        history.put(&mut batch);
        Ok(())
    }
}
