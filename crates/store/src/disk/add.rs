//! Files of others as history: `refrain store add`.
//!
//! A folder enters; what it holds is cut and hashed, and only digests, lengths and the files'
//! states are kept. Each file is a recipe. What was added before and is as it was is passed over;
//! what changed or went is replaced: its segment is written anew without it. A damaged segment goes
//! whole, and the files in it that are met are added again: no eviction takes these segments.
//!
//! A file that changes while it is read has another state than was noted, so nothing is ever taken
//! from it, and the next call adds it again.

mod builder;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use refrain_codec::{
    chunk::{hash::ChunkDigest, stream::StreamChunks},
    marker::PackMask,
};

use super::{DiskStore, evict::now_s};
use crate::{
    Realm, StoreError,
    history::state_of,
    index::ChunkAt,
    layout::files_file::{FilePart, FileState},
    private,
};
use builder::Builder;

/// How much of a file is read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Files that are told by name when they could not be added; the rest is counted.
const TOLD_MAX: usize = 100;

/// How far adding files has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddProgress {
    /// Files that are done.
    pub files: u64,
    /// Files that there are to add.
    pub files_total: u64,
    /// Bytes that are done.
    pub bytes: u64,
    /// Bytes that there are to read.
    pub bytes_total: u64,
}

/// What became of a folder's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AddReport {
    /// Files that were read and are history now.
    pub added_files: u64,
    /// Their bytes.
    pub added_bytes: u64,
    /// Their chunks.
    pub added_chunks: u64,
    /// Files that were added before and are as they were.
    pub unchanged_files: u64,
    /// Files that were added before and changed or went since.
    pub dropped_files: u64,
    /// Files whose metadata was in damaged segments, which were removed. Those in this folder were
    /// added again; others have to be.
    pub damaged_files: u64,
    /// Files without a byte: there is nothing to know of them.
    pub empty_files: u64,
    /// Symbolic links, which are not followed.
    pub symlinks: u64,
    /// Pipes, sockets and devices.
    pub special_files: u64,
    /// Chunk stores and private keys that were passed over.
    pub private: u64,
    /// The first of them, by path, and what they are.
    pub told_private: Vec<(PathBuf, &'static str)>,
    /// Files and folders that could not be read.
    pub unreadable: u64,
    /// Files that changed while they were read.
    pub changed_while_read: u64,
    /// The first of those that were unreadable or changed, by path, and why.
    pub told: Vec<(PathBuf, String)>,
}

impl AddReport {
    fn tell(&mut self, path: &Path, why: &dyn ToString) {
        if self.told.len() < TOLD_MAX {
            self.told.push((path.to_owned(), why.to_string()));
        }
    }

    fn pass_over(&mut self, path: &Path, what: &'static str) {
        self.private += 1;
        if self.told_private.len() < TOLD_MAX {
            self.told_private.push((path.to_owned(), what));
        }
    }
}

/// How a file begins; as nothing if it cannot be read, which is told when it is.
fn head(file: &File) -> Vec<u8> {
    let mut head = vec![0; private::HEAD_BYTES];
    let count = file.read_at(&mut head, 0).unwrap_or(0);
    head.truncate(count);
    head
}

/// A file that was added before.
struct Known {
    state: FileState,
    part_bytes: u64,
    /// In how many segments its parts are, and which.
    segments: BTreeSet<u32>,
}

impl DiskStore {
    /// Makes the files in a folder, and in those below, history of a realm. What is already
    /// history and is as it was costs a look at each. Chunk stores and private keys are passed over, unless
    /// `takes_private`: a prediction tells the other end what is here.
    ///
    /// # Errors
    /// If the folder cannot be read, the files' metadata takes half of the bound, or the disk
    /// fails. What was added up to then is.
    pub fn add_files(
        &mut self,
        dir: &Path,
        realm: Realm,
        takes_private: bool,
        progress: &mut dyn FnMut(&AddProgress),
    ) -> Result<AddReport, StoreError> {
        let mut report = AddReport::default();
        let root = dir.canonicalize().map_err(|source| StoreError::Io {
            doing: "open",
            path: dir.to_owned(),
            source,
        })?;
        let store = self.history.folder.path().canonicalize().ok();
        let found = walk::files(&root, store.as_deref(), takes_private, &mut report)?;
        let damaged = self.damaged_files(&mut report);
        let mut known = self.known_files(realm, &damaged)?;
        let mut fresh = Vec::new();
        let mut dropped = BTreeSet::new();
        for (path, state) in found {
            match known.get(&path) {
                Some(file) if file.state == state && file.part_bytes == state.bytes => {
                    report.unchanged_files += 1;
                    known.remove(&path);
                    continue;
                }
                Some(_) => {
                    dropped.insert(path.clone());
                }
                None => {}
            }
            fresh.push((path, state));
        }
        // Those that are known, lie below the folder, and were not found there.
        let gone = known.keys().filter(|path| path.starts_with(&root));
        let gone = gone.filter(|path| match path.symlink_metadata() {
            Ok(metadata) => !metadata.is_file(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        });
        dropped.extend(gone.cloned());
        report.dropped_files = dropped.len() as u64;
        let stale = known.iter().filter(|(path, _)| dropped.contains(*path));
        let stale: BTreeSet<u32> = stale
            .flat_map(|(_, file)| &file.segments)
            .copied()
            .collect();

        let mut so_far = AddProgress {
            files_total: fresh.len() as u64,
            bytes_total: fresh.iter().map(|(_, state)| state.bytes).sum(),
            ..AddProgress::default()
        };
        progress(&so_far);
        let mut builder = Builder::new(realm);
        for (path, state) in fresh {
            let mut read_on = |bytes| {
                so_far.bytes += bytes;
                progress(&so_far);
            };
            self.add_file(
                &mut builder,
                &path,
                state,
                takes_private,
                &mut report,
                &mut read_on,
            )?;
            so_far.files += 1;
            progress(&so_far);
        }
        for &segment in &stale {
            self.carry_over(&mut builder, segment, &dropped)?;
        }
        self.finish_files(&mut builder)?;
        self.drop_files(&stale | &damaged)?;
        self.history.sweep();
        Ok(report)
    }

    /// The damaged segments of others' files.
    fn damaged_files(&self, report: &mut AddReport) -> BTreeSet<u32> {
        let mut damaged = BTreeSet::new();
        for &number in self.of_files.segments.keys() {
            let segment = self.history.segment(number);
            if segment.is_damaged {
                damaged.insert(number);
                report.damaged_files +=
                    segment.files.as_ref().map_or(0, |files| files.len() as u64);
            }
        }
        damaged
    }

    /// Removes segments of others' files. The index still finds what they had.
    fn drop_files(&mut self, numbers: BTreeSet<u32>) -> Result<(), StoreError> {
        let highest = self.history.segments.keys().next_back();
        if highest.is_some_and(|highest| numbers.contains(highest)) {
            // Numbers are not used again.
            self.roll()?;
        }
        for number in numbers {
            self.remove_files(number)?;
            self.of_files.remove(number);
            self.history.drop_segment(number);
        }
        Ok(())
    }

    /// The files that are history of a realm, damaged segments aside.
    fn known_files(
        &self,
        realm: Realm,
        damaged: &BTreeSet<u32>,
    ) -> Result<BTreeMap<PathBuf, Known>, StoreError> {
        let mut known: BTreeMap<PathBuf, Known> = BTreeMap::new();
        let numbers = self.of_files.segments.keys();
        for &number in numbers.filter(|number| !damaged.contains(number)) {
            self.history.for_each_part(number, |of, _, part| {
                if of != realm {
                    return;
                }
                let file = known.entry(part.path).or_insert_with(|| Known {
                    state: part.state,
                    part_bytes: 0,
                    segments: BTreeSet::new(),
                });
                file.part_bytes += part.part_bytes;
                file.segments.insert(number);
            })?;
        }
        Ok(known)
    }

    fn add_file(
        &mut self,
        builder: &mut Builder,
        path: &Path,
        state: FileState,
        takes_private: bool,
        report: &mut AddReport,
        read_on: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        if state.bytes == 0 {
            report.empty_files += 1;
            return Ok(());
        }
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) => {
                report.unreadable += 1;
                report.tell(path, &error);
                return Ok(());
            }
        };
        if !takes_private && private::begins_like_a_key(&head(&file), state.bytes) {
            report.pass_over(path, private::KEY);
            return Ok(());
        }
        let chunking = self.config.chunking;
        let mask = PackMask::with_bits(chunking.mask_bits).unwrap_or_default();
        let mut cutter = StreamChunks::new(mask, chunking.bounds);
        let mut unnamed: Vec<u8> = Vec::new();
        let mut ranges = Vec::new();
        let mut added_chunks = 0;
        builder.begin_file(path, state, 0);
        // One that grows would have no end.
        let mut content = (&file).take(state.bytes);
        loop {
            let known = unnamed.len();
            let mut piece = content.by_ref().take(PIECE_BYTES);
            if let Err(error) = piece.read_to_end(&mut unnamed) {
                // What was noted of it lacks the rest, so it is no whole file, and the next
                // call reads it again.
                report.unreadable += 1;
                report.tell(path, &error);
                builder.end_file();
                return Ok(());
            }
            let piece = &unnamed[known..];
            let count = piece.len() as u64;
            match count {
                0 => cutter.finish(&mut ranges),
                _ => cutter.feed(piece, &mut ranges),
            }
            let mut start = 0;
            for range in ranges.drain(..) {
                let end = start + (range.end - range.start) as usize;
                let chunk = &unnamed[start..end];
                self.add_chunk(builder, &chunking.hasher.digest(chunk), chunk.len() as u32)?;
                added_chunks += 1;
                start = end;
            }
            unnamed.drain(..start);
            read_on(count);
            if count == 0 {
                break;
            }
        }
        builder.end_file();
        let is_as_it_was = file.metadata().is_ok_and(|now| state_of(&now) == state);
        if is_as_it_was {
            report.added_files += 1;
            report.added_bytes += state.bytes;
            report.added_chunks += added_chunks;
        } else {
            report.changed_while_read += 1;
            report.tell(path, &"it changed while it was read");
        }
        Ok(())
    }

    fn add_chunk(
        &mut self,
        builder: &mut Builder,
        digest: &ChunkDigest,
        bytes: u32,
    ) -> Result<(), StoreError> {
        if builder.is_full() {
            self.finish_files(builder)?;
        }
        if !builder.is_begun() {
            builder.begin(self.next_number()?);
        }
        builder.push_chunk(digest, bytes);
        Ok(())
    }

    /// Takes the files of a segment that are as they were into another.
    fn carry_over(
        &mut self,
        builder: &mut Builder,
        segment: u32,
        dropped: &BTreeSet<PathBuf>,
    ) -> Result<(), StoreError> {
        let mut parts: Vec<FilePart> = Vec::new();
        self.history
            .for_each_part(segment, |_, _, part| parts.push(part))?;
        let mut ends: Vec<u32> = parts.iter().skip(1).map(|part| part.first_record).collect();
        ends.push(self.history.segment(segment).records);
        for (part, end) in parts.iter().zip(ends) {
            if dropped.contains(&part.path) {
                continue;
            }
            builder.begin_file(&part.path, part.state, part.offset);
            for record in part.first_record..end {
                if let Some(found) = self.history.record(ChunkAt { segment, record })? {
                    self.add_chunk(builder, &found.digest, found.bytes)?;
                }
            }
            builder.end_file();
        }
        Ok(())
    }

    /// Writes what a builder holds, and takes it into the index.
    fn finish_files(&mut self, builder: &mut Builder) -> Result<(), StoreError> {
        let Some(built) = builder.finish(now_s()) else {
            return Ok(());
        };
        let number = built.number;
        self.of_files.insert(number, built.disk_bytes());
        let size_bytes = self.config.size_bytes;
        let made = match self.of_files.bytes > size_bytes / 2 {
            true => Err(StoreError::TooManyFiles { size_bytes }),
            false => self.make_room(),
        };
        let written = made.and_then(|()| match self.has_room() {
            true => built.write(&mut self.history),
            false => Err(StoreError::TooManyFiles { size_bytes }),
        });
        if written.is_err() {
            self.of_files.remove(number);
            self.history.drop_segment(number);
            // On a full disk its room is needed; what cannot be removed goes at the next opening.
            let _ = self.remove_files(number);
        }
        written
    }
}
