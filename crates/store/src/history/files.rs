//! Chunks that lie in files of others: only their digests and lengths are the store's.
//!
//! A file that changed is noticed before it is read, by what the system says of it; or, at the
//! latest, by the digest. Nothing is taken from it any more then.

use std::{
    cell::Cell,
    fs::{File, Metadata},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    sync::Arc,
};

use super::{History, chain::Found};
use crate::{
    Realm, StoreError,
    layout::{
        FileKind,
        files_file::{self, FilePart, FileState, PART_BYTES_MAX},
    },
};

/// A files file that is longer is left out from there on.
const FILES_FILE_BYTES_MAX: u64 = 256 << 20;

/// Where the chunks of a segment are, when they are in files of others.
pub(crate) struct Files {
    /// By their first records, which increase.
    parts: Vec<PartAt>,
}

struct PartAt {
    first_record: u32,
    /// In the files file.
    at: u32,
    start: u64,
    part_bytes: u64,
    has_changed: Cell<bool>,
}

impl Files {
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn changed(&self) -> u64 {
        self.parts
            .iter()
            .filter(|part| part.has_changed.get())
            .count() as u64
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<PartAt>()
    }
}

/// What the system says of a file.
pub(crate) fn state_of(metadata: &Metadata) -> FileState {
    FileState {
        bytes: metadata.len(),
        modified_s: metadata.mtime(),
        modified_ns: metadata.mtime_nsec() as u32,
        inode: metadata.ino(),
        device: metadata.dev(),
    }
}

impl History {
    /// Loads in which files the chunks of a segment are.
    pub(crate) fn load_files(&mut self, number: u32) -> Result<(), StoreError> {
        let mut files = Files { parts: Vec::new() };
        let is_whole = self.for_each_part(number, |_, at, part| {
            let last = files.parts.last().map(|last| last.first_record);
            if last.is_none_or(|last| last < part.first_record) {
                files.parts.push(PartAt {
                    first_record: part.first_record,
                    at,
                    start: part.start,
                    part_bytes: part.part_bytes,
                    has_changed: Cell::new(false),
                });
            }
        })?;
        self.segment_mut(number).files = Some(files);
        if !is_whole {
            self.note_damage(number);
        }
        Ok(())
    }

    /// Walks through the parts of files that a segment has, up to what is damaged; says whether
    /// nothing is.
    pub(crate) fn for_each_part(
        &self,
        number: u32,
        mut with: impl FnMut(Realm, u32, FilePart),
    ) -> Result<bool, StoreError> {
        let file = self.file(number, FileKind::Files);
        let bytes = file.and_then(|file| file.read_onward(0, FILES_FILE_BYTES_MAX));
        let bytes = bytes.map_err(self.error_at("read", FileKind::Files, number))?;
        let Some(realm) = files_file::parse_header(number, &bytes) else {
            return Ok(false);
        };
        let mut at = files_file::HEADER_BYTES;
        while let Some((part, len)) = FilePart::parse(number, &bytes[at..]) {
            with(realm, at as u32, part);
            at += len;
        }
        Ok(at == bytes.len())
    }

    /// Fills a buffer from the file in which a chunk lies; says whether the file is as it was.
    pub(super) fn read_from_files(
        &self,
        found: &Found,
        buffer: &mut [u8],
    ) -> Result<bool, StoreError> {
        let part = self.part_of(found);
        let Some(part) = part.filter(|part| !part.has_changed.get()) else {
            return Ok(false);
        };
        let source = self.open_part(found.at.segment, part.at)?;
        let read = source.and_then(|(file, offset)| {
            let offset = offset.checked_add(found.offset.checked_sub(part.start)?)?;
            file.read_exact_at(buffer, offset).ok()
        });
        part.has_changed.set(read.is_none());
        Ok(read.is_some())
    }

    /// The file of a chunk is not what it was.
    pub(super) fn note_changed(&self, found: &Found) {
        if let Some(part) = self.part_of(found) {
            part.has_changed.set(true);
        }
    }

    /// Whether the chunk is in a file that was found to be not what it was.
    pub(crate) fn is_in_changed_file(&self, found: &Found) -> bool {
        let part = self.part_of(found);
        part.is_some_and(|part| part.has_changed.get())
    }

    /// The part in which a chunk lies; nothing where what was known of it is damaged.
    fn part_of(&self, found: &Found) -> Option<&PartAt> {
        let parts = &self.segments.get(&found.at.segment)?.files.as_ref()?.parts;
        let after = parts.partition_point(|part| part.first_record <= found.at.record);
        let part = parts.get(after.checked_sub(1)?)?;
        (found.offset.checked_sub(part.start)? < part.part_bytes).then_some(part)
    }

    /// The file, and where in it the part begins; nothing if it is not as it was.
    fn open_part(&self, segment: u32, at: u32) -> Result<Option<(Arc<File>, u64)>, StoreError> {
        let mut sources = self.sources.borrow_mut();
        if let Some((file, offset)) = sources.others.find((segment, at)) {
            return Ok(Some((Arc::clone(file), *offset)));
        }
        let mut bytes = [0; PART_BYTES_MAX];
        let file = sources.file(segment, FileKind::Files);
        let count = file.and_then(|file| file.read_up_to(&mut bytes, at.into()));
        let count = count.map_err(self.error_at("read", FileKind::Files, segment))?;
        let Some((part, _)) = FilePart::parse(segment, &bytes[..count]) else {
            return Ok(None);
        };
        let Ok(file) = open_unchanged(&part.path, &part.state) else {
            return Ok(None);
        };
        let file = Arc::new(file);
        sources
            .others
            .insert((segment, at), (Arc::clone(&file), part.offset));
        Ok(Some((file, part.offset)))
    }
}

/// Opens a file that the system says the same of.
fn open_unchanged(path: &PathBuf, state: &FileState) -> io::Result<File> {
    // A pipe in its place would be waited for.
    if state_of(&std::fs::symlink_metadata(path)?) != *state {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let file = File::open(path)?;
    match state_of(&file.metadata()?) == *state {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}
