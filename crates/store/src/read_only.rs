//! The store of another process, read while that one writes and evicts: also over a mapped folder,
//! since files are only opened and read.
//!
//! Nothing is locked and nothing is written. What the owner has not yet written is not seen; what
//! it evicts is gone at the next [`refresh`](ReadOnlyStore::refresh), or when it is to be read.
//! The end of a file may be half written: what does not hash to its digest is passed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
};

use crate::{
    ChunkSource, Chunking, DiskBytes, StoreError, StoreStat,
    folder::{Folder, RealFolder},
    format::{self, Format, segment_files},
    history::{History, Segment},
    index::Batch,
    layout::{
        FileKind,
        index_file::{self, position_of},
    },
};

/// Reads the store of another process.
pub struct ReadOnlyStore {
    pub(crate) history: History,
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
        let folder = RealFolder::new(path);
        format_of(&folder)?.check_chunking(&folder, chunking)
    }

    /// The same in a folder of any kind.
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn open_in(folder: Arc<dyn Folder>, chunking: Chunking) -> Result<Self, StoreError> {
        format_of(&*folder)?.check_chunking(&*folder, chunking)?;
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
        let chunking = format_of(&*folder)?.chunking;
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
        let files = segment_files(&*self.history.folder)?;
        let of_kind = |of| files.iter().filter(move |((_, kind), _)| *kind == of);
        let of_files: BTreeSet<u32> = of_kind(FileKind::Files).map(|(file, _)| file.0).collect();
        self.has_left_out = !self.reads_files && !of_files.is_empty();
        let there = of_kind(FileKind::Index).map(|((number, _), bytes)| (*number, *bytes));
        let mut there: BTreeMap<u32, u64> = there.collect();
        there.retain(|number, _| self.reads_files || !of_files.contains(number));

        let known = &self.history.segments;
        let mut of_log = known.keys().filter(|number| !of_files.contains(number));
        let youngest = of_log.next_back().copied();
        let gone = known.iter().filter(|(number, segment)| {
            let bytes = there.get(number);
            // After a crash the owner cuts off what may not be whole.
            bytes.is_none_or(|&bytes| position_of(segment.records) > bytes)
        });
        let gone: Vec<u32> = gone.map(|(&number, _)| number).collect();
        let has_gone = !gone.is_empty();
        gone.into_iter()
            .for_each(|number| self.history.drop_segment(number));

        // Those before the youngest that was known are written no more.
        let segments = &self.history.segments;
        let is_fresh = |number: &u32| !segments.contains_key(number) || Some(*number) == youngest;
        let fresh = there.into_keys().filter(is_fresh).collect();
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
        let history = &mut self.history;
        let loaded = begin(history, number).and_then(|()| {
            history.forget_cached(number);
            if has_files {
                history.load_files(number)?;
            }
            history.load_index(number, batch)
        });
        match loaded {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                history.drop_segment(number);
                Ok(false)
            }
            loaded => loaded.map(|_| true),
        }
    }
}

/// Begins with a segment, unless it is known.
fn begin(history: &mut History, number: u32) -> Result<(), StoreError> {
    if !history.segments.contains_key(&number) {
        let header = history.read_header(number)?;
        let segment = Segment::new(header.map_or(0, |header| header.created_s));
        history.segments.insert(number, segment);
    }
    Ok(())
}

fn format_of(folder: &dyn Folder) -> Result<Format, StoreError> {
    format::read(folder)?.ok_or_else(|| StoreError::NoStore {
        path: folder.path(),
    })
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
