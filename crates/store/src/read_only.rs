//! The store of another process, read while that one writes and evicts: also over a mapped folder,
//! since files are only opened and read.
//!
//! Nothing is locked and nothing is written. What the owner has not yet written is not seen; what
//! it evicts is gone at the next [`refresh`](ReadOnlyStore::refresh), or when it is to be read.
//! The end of a file may be half written: what does not hash to its digest is passed over.

use std::{collections::BTreeSet, io, path::Path, sync::Arc};

use crate::{
    ChunkSource, Chunking, DiskBytes, StoreError, StoreStat,
    folder::{Folder, RealFolder},
    format::{self, error_at},
    history::{History, RECIPES_AT, Segment},
    index::Batch,
    layout::{
        FileKind,
        index_file::{self, Header, position_of},
    },
    verify::{self, VerifyProgress, VerifyReport},
};

/// Reads the store of another process.
pub struct ReadOnlyStore {
    history: History,
    /// Whether files of others that are history are read too: not from another machine, where
    /// their paths may name other files.
    reads_files: bool,
    /// Whether segments of such files were left out.
    has_left_out: bool,
}

impl ReadOnlyStore {
    /// Opens the store in the folder at `path`, whose chunks are to be cut like this.
    ///
    /// # Errors
    /// If there is none, it is of another version, its chunks are cut otherwise, or the disk
    /// fails.
    pub fn open(path: &Path, chunking: Chunking) -> Result<Self, StoreError> {
        Self::open_in(Arc::new(RealFolder::new(path)), chunking)
    }

    /// Says what [`open`](Self::open) would refuse at once of the store at `path`.
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn check(path: &Path, chunking: Chunking) -> Result<(), StoreError> {
        check_chunking(&RealFolder::new(path), chunking)
    }

    /// The same in a folder of any kind.
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn open_in(folder: Arc<dyn Folder>, chunking: Chunking) -> Result<Self, StoreError> {
        check_chunking(&*folder, chunking)?;
        Self::open_as(folder, chunking, false)
    }

    /// Opens a store of this machine, however its chunks are cut, to look at it or to verify it;
    /// whether or not another process has it open. Files of others that are history of it are
    /// read too.
    ///
    /// # Errors
    /// If there is none, it is of another version, or the disk fails.
    pub fn inspect(path: &Path) -> Result<Self, StoreError> {
        let folder = Arc::new(RealFolder::new(path));
        let chunking = chunking_of(&*folder)?;
        Self::open_as(folder, chunking, true)
    }

    fn open_as(
        folder: Arc<dyn Folder>,
        chunking: Chunking,
        reads_files: bool,
    ) -> Result<Self, StoreError> {
        let mut store = Self {
            history: History::new(folder, chunking.hasher),
            reads_files,
            has_left_out: false,
        };
        store.refresh()?;
        Ok(store)
    }

    /// Reads and checks all that there is; `progress` learns how far it is. What the disk cannot
    /// read is damaged.
    pub fn verify(&mut self, progress: &mut dyn FnMut(&VerifyProgress)) -> VerifyReport {
        verify::verify(&self.history, progress)
    }

    /// Whether all that the store holds are files that were added to it, which are not read from here:
    /// it has nothing to tell.
    #[must_use]
    pub fn holds_only_files(&self) -> bool {
        self.has_left_out && self.history.chunks == 0
    }

    /// Looks for what the owner has written or evicted since.
    ///
    /// # Errors
    /// If the disk fails; what was known is known still.
    pub fn refresh(&mut self) -> Result<(), StoreError> {
        let folder = Arc::clone(&self.history.folder);
        let files = folder.list().map_err(error_at(&*folder, "list", ""))?;
        let of_files = files.iter().filter_map(|(name, _)| FileKind::parse(name));
        let of_files: BTreeSet<u32> = of_files
            .filter(|&(_, kind)| kind == FileKind::Files)
            .map(|(number, _)| number)
            .collect();
        let files = files.iter().filter_map(|(name, bytes)| {
            let (number, kind) = FileKind::parse(name)?;
            (kind == FileKind::Index).then_some((number, *bytes))
        });
        let mut files: Vec<(u32, u64)> = files.collect();
        files.retain(|(number, _)| self.reads_files || !of_files.contains(number));
        self.has_left_out = !self.reads_files && !of_files.is_empty();
        let there: BTreeSet<u32> = files.iter().map(|&(number, _)| number).collect();

        let known: Vec<u32> = self.history.segments.keys().copied().collect();
        let youngest = known
            .iter()
            .rfind(|number| !of_files.contains(number))
            .copied();
        let mut gone: Vec<u32> = known.into_iter().filter(|n| !there.contains(n)).collect();
        for &(number, bytes) in &files {
            let segment = self.history.segments.get(&number);
            // After a crash the owner cuts off what may not be whole.
            if segment.is_some_and(|segment| position_of(segment.records) > bytes) {
                gone.push(number);
            }
        }
        let has_gone = !gone.is_empty();
        gone.into_iter()
            .for_each(|number| self.history.drop_segment(number));

        // Those before the youngest that was known are written no more.
        let segments = &self.history.segments;
        let is_fresh = |number: &u32| !segments.contains_key(number) || Some(*number) == youngest;
        let fresh: Vec<u32> = there.into_iter().filter(is_fresh).collect();
        let mut batch = Batch::new();
        let loaded = self.load(fresh, &of_files, &mut batch);
        // Also of what was loaded before an error: it is not loaded again.
        self.history.put(&mut batch);
        if has_gone {
            self.history.sweep();
        }
        loaded
    }

    /// Loads what segments have more.
    fn load(
        &mut self,
        numbers: Vec<u32>,
        of_files: &BTreeSet<u32>,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let mut there = Vec::with_capacity(numbers.len());
        for number in numbers {
            let has_files = of_files.contains(&number);
            if self.load_index(number, has_files, batch)? {
                there.push(number);
            }
        }
        let written = there.iter().rfind(|number| !of_files.contains(number));
        for number in &there {
            let loaded = self.history.load_recipes(*number, batch)?;
            // The owner may be in the midst of writing the youngest.
            if loaded.has_rest && Some(number) != written {
                self.history.note_damage(*number);
            }
        }
        Ok(())
    }

    /// Loads the records that a segment has more; says whether it is there.
    fn load_index(
        &mut self,
        number: u32,
        has_files: bool,
        batch: &mut Batch,
    ) -> Result<bool, StoreError> {
        if !self.history.segments.contains_key(&number) {
            let mut bytes = [0; index_file::HEADER_BYTES];
            let file = self.history.folder.open(&FileKind::Index.file_name(number));
            let read = file.and_then(|file| file.read_up_to(&mut bytes, 0));
            let count = match read {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                read => read.map_err(self.history.error_at("read", FileKind::Index, number))?,
            };
            let header = Header::parse(&bytes[..count]);
            let created_s = header.map_or(0, |header| header.created_s);
            let segment = Segment::new(created_s, RECIPES_AT);
            self.history.segments.insert(number, segment);
        }
        self.history.forget_cached(number);
        let files = match has_files {
            true => self.history.load_files(number),
            false => Ok(()),
        };
        match files.and_then(|()| self.history.load_index(number, batch)) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                self.history.drop_segment(number);
                Ok(false)
            }
            loaded => loaded.map(|_| true),
        }
    }
}

fn check_chunking(folder: &dyn Folder, asked: Chunking) -> Result<(), StoreError> {
    let stored = chunking_of(folder)?;
    match stored == asked {
        true => Ok(()),
        false => Err(StoreError::OtherChunking {
            path: folder.path(),
            stored,
            asked,
        }),
    }
}

fn chunking_of(folder: &dyn Folder) -> Result<Chunking, StoreError> {
    let format = format::read(folder)?.ok_or_else(|| StoreError::NoStore {
        path: folder.path(),
    })?;
    Ok(format.chunking)
}

impl ChunkSource for ReadOnlyStore {
    fn history(&self) -> &History {
        &self.history
    }

    fn history_mut(&mut self) -> &mut History {
        &mut self.history
    }

    fn stat(&self) -> StoreStat {
        let mut disk = DiskBytes::default();
        for segment in self.history.segments.values() {
            if segment.files.is_none() {
                disk.chunks += segment.chunk_bytes;
            }
            disk.index += index_file::bytes_of(segment.records);
            disk.recipes += segment.recipe_bytes;
        }
        let format = format::read(&*self.history.folder);
        let size_bytes = format.ok().flatten().map_or(0, |format| format.size_bytes);
        StoreStat {
            disk_bytes_max: size_bytes,
            ..self.history.stat(disk, StoreStat::default())
        }
    }
}
