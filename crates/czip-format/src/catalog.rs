//! The catalog: which files, folders and links an archive holds, and which of the plain content's
//! bytes are whose.
//!
//! Paths come from whoever made the archive: none leads out of the folder that it is extracted to,
//! and none lies below a path that is no folder. What extracts must still not follow links on disk.

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use hashbrown::HashTable;
use thiserror::Error;

use crate::{FormatError, Input, Portion, Violation, limits, put_varint, put_zigzag};

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file, and how many bytes it has.
    File {
        /// Its length.
        bytes: u64,
    },
    /// A folder.
    Folder,
    /// A symbolic link, and what it says.
    SymbolicLink {
        /// Where it leads.
        target: Vec<u8>,
    },
    /// Another name of a file before it.
    HardLink {
        /// That file's path.
        target: Vec<u8>,
    },
}

/// An entry of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path, with `/` between components; empty for standard input.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u16,
    /// When it was modified, in seconds since 1970.
    pub mtime_s: i64,
    /// And in nanoseconds.
    pub mtime_ns: u32,
}

/// Why a path has no bytes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoContent {
    /// Nothing is called so.
    #[error("not found in the archive (`list` shows its content)")]
    Missing,
    /// It is a folder.
    #[error("it is a directory")]
    Folder,
    /// It is a symbolic link.
    #[error("it is a symbolic link (its target may be in the archive)")]
    SymbolicLink,
}

/// The bytes of the plain content that are those of the file at `path`, of a whole catalog. `./` in front of
/// it is nothing.
///
/// # Errors
/// If there is no such file.
pub fn content_of(entries: &[Entry], path: &[u8]) -> Result<Range<u64>, NoContent> {
    let path = asked_path(path);
    let mut position = 0;
    for (at, entry) in entries.iter().enumerate() {
        let start = position;
        if let EntryKind::File { bytes } = entry.kind {
            position += bytes;
        }
        if entry.path != path {
            continue;
        }
        return match &entry.kind {
            EntryKind::File { .. } => Ok(start..position),
            // Its file is before it.
            EntryKind::HardLink { target } => content_of(&entries[..at], target),
            EntryKind::Folder => Err(NoContent::Folder),
            EntryKind::SymbolicLink { .. } => Err(NoContent::SymbolicLink),
        };
    }
    Err(NoContent::Missing)
}

/// What somebody asks for, as a catalog has it: without `./` in front and `/` at its end.
pub fn asked_path(path: &[u8]) -> &[u8] {
    let mut path = path;
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    while let Some(rest) = path.strip_suffix(b"/") {
        path = rest;
    }
    path
}

/// The folder that a path lies in, which is empty at the top, and its name there.
pub fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Whether a path is one that an archive may hold.
pub fn is_valid_path(path: &[u8]) -> bool {
    path.len() <= limits::PATH_BYTES_MAX
        && !path.contains(&0)
        && path
            .split(|&byte| byte == b'/')
            .all(|part| !matches!(part, b"" | b"." | b".."))
}

impl Entry {
    /// Appends its record.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut record = Vec::with_capacity(self.path.len() + 32);
        let (kind, number, target): (_, _, &[u8]) = match &self.kind {
            EntryKind::File { bytes } => (0, Some(*bytes), &[]),
            EntryKind::Folder => (1, None, &[]),
            EntryKind::SymbolicLink { target } => (2, Some(target.len() as u64), target),
            EntryKind::HardLink { target } => (3, Some(target.len() as u64), target),
        };
        record.push(kind);
        put_varint(&mut record, self.path.len() as u64);
        record.extend_from_slice(&self.path);
        put_varint(&mut record, self.mode.into());
        put_zigzag(&mut record, 0, self.mtime_s.cast_unsigned());
        put_varint(&mut record, self.mtime_ns.into());
        if let Some(number) = number {
            put_varint(&mut record, number);
        }
        record.extend_from_slice(target);
        put_varint(out, record.len() as u64);
        out.extend_from_slice(&record);
    }

    fn parse(record: &[u8]) -> Result<Self, FormatError> {
        let mut input = Input::new(Portion::Catalog, record);
        let kind = input.byte()?;
        let path = bounded(&mut input)?.to_vec();
        let mode = input.varint()?;
        FormatError::check_limit("a file mode", mode, 0o7777)?;
        let mtime_s = input.zigzag()?;
        let mtime_ns = input.varint()?;
        FormatError::check_limit("the number of nanoseconds", mtime_ns, 999_999_999)?;
        let kind = match kind {
            0 => EntryKind::File {
                bytes: input.varint()?,
            },
            1 => EntryKind::Folder,
            2 => {
                let target = bounded(&mut input)?.to_vec();
                if target.is_empty() || target.contains(&0) {
                    return Err(FormatError::Invalid(Violation::LinkTarget));
                }
                EntryKind::SymbolicLink { target }
            }
            3 => EntryKind::HardLink {
                target: bounded(&mut input)?.to_vec(),
            },
            _ => return Err(FormatError::Invalid(Violation::EntryKind)),
        };
        input.finish()?;
        Ok(Self {
            path,
            kind,
            mode: mode as u16,
            mtime_s,
            mtime_ns: mtime_ns as u32,
        })
    }
}

fn bounded<'a>(input: &mut Input<'a>) -> Result<&'a [u8], FormatError> {
    let length = input.varint()?;
    FormatError::check_limit("a path", length, limits::PATH_BYTES_MAX as u64)?;
    input.bytes(length as usize)
}

/// Reads records from the catalog's stream, which comes in pieces, and checks that they fit
/// together.
#[derive(Debug, Default)]
pub struct CatalogReader {
    pending: Vec<u8>,
    entries: Vec<Entry>,
    /// Which entry a path is; keyed, so that nobody can make paths that collide.
    by_path: HashTable<usize>,
    keyed: RandomState,
    plain_bytes: u64,
}

impl CatalogReader {
    /// The next bytes of the stream.
    ///
    /// # Errors
    /// If they are no catalog.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        self.pending.extend_from_slice(bytes);
        let mut taken = 0;
        loop {
            let rest = &self.pending[taken..];
            let mut input = Input::new(Portion::Catalog, rest);
            let length = match input.varint() {
                Ok(length) => length,
                Err(FormatError::Truncated { .. }) => break,
                Err(error) => return Err(error),
            };
            let limit = limits::RECORD_BYTES_MAX as u64;
            FormatError::check_limit("a record of the catalog", length, limit)?;
            let Ok(record) = input.bytes(length as usize) else {
                break;
            };
            let entry = Entry::parse(record)?;
            taken = self.pending.len() - input.len();
            self.add(entry)?;
        }
        self.pending.drain(..taken);
        Ok(())
    }

    fn add(&mut self, entry: Entry) -> Result<(), FormatError> {
        let is_alone = self.entries.is_empty();
        if !(is_valid_path(&entry.path) || entry.path.is_empty() && is_alone) {
            return Err(FormatError::Invalid(Violation::Path));
        }
        match &entry.kind {
            EntryKind::File { bytes } => {
                self.plain_bytes = self
                    .plain_bytes
                    .checked_add(*bytes)
                    .ok_or(FormatError::Invalid(Violation::FileLengths))?;
            }
            EntryKind::HardLink { target } => {
                if !matches!(self.kind_of(target), Some(EntryKind::File { .. })) {
                    return Err(FormatError::Invalid(Violation::HardLinkTarget));
                }
            }
            EntryKind::Folder | EntryKind::SymbolicLink { .. } => {}
        }
        // So that folder has one before it as well, and none need be looked for but that.
        let (folder, _) = split_path(&entry.path);
        if !folder.is_empty() && self.kind_of(folder) != Some(&EntryKind::Folder) {
            return Err(FormatError::Invalid(Violation::PathInNoFolder));
        }
        if self.kind_of(&entry.path).is_some() {
            return Err(FormatError::Invalid(Violation::PathTwice));
        }
        let (entries, keyed) = (&self.entries, &self.keyed);
        let hash_of = |path: &[u8]| keyed.hash_one(path);
        self.by_path
            .insert_unique(hash_of(&entry.path), entries.len(), |&at| {
                hash_of(&entries[at].path)
            });
        self.entries.push(entry);
        Ok(())
    }

    /// What is at a path, by now.
    fn kind_of(&self, path: &[u8]) -> Option<&EntryKind> {
        let hash = self.keyed.hash_one(path);
        let found = self
            .by_path
            .find(hash, |&at| self.entries[at].path == path)?;
        Some(&self.entries[*found].kind)
    }

    /// The stream ended: its entries, which have `plain_bytes` together.
    ///
    /// # Errors
    /// If the last record is cut off, or the files have other lengths together.
    pub fn finish(self, plain_bytes: u64) -> Result<Vec<Entry>, FormatError> {
        let has_file_of_no_name = self.entries.len() > 1 && self.entries[0].path.is_empty();
        if !self.pending.is_empty() || has_file_of_no_name {
            return Err(FormatError::Truncated(Portion::Catalog));
        }
        match self.plain_bytes == plain_bytes {
            true => Ok(self.entries),
            false => Err(FormatError::Invalid(Violation::FilesAndContent)),
        }
    }
}
