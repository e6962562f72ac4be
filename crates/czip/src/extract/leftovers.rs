//! What an extraction leaves that is killed: temporary files in many folders, which the next one into
//! the same target removes.
//!
//! While an extraction is at work, the target has a *record*, a file `.refrain-TAG` that it holds locked:
//! a line that says what it is, and the folders in which its temporary files `.refrain-TAG-N` may be, each
//! path with a zero byte behind it. The system gives up the lock when the process ends, so a record that nobody has locked is of one
//! that was killed. Records may be forged: nothing is removed by them but files of such names, and no
//! link is followed on the way.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, unlinkat},
    io::Errno,
};

use super::tree::Tree;
use crate::format::catalog::is_valid_path;

const PREFIX: &[u8] = b".refrain-";

/// What a record begins with: a file that is called so and does not is somebody else's.
pub(super) const RECORD_BEGINS: &[u8] = b"temporary files of refrain czip extract are in:\n";

/// Digits of a tag.
const TAG_DIGITS: usize = 16;

/// Of records that are longer, the first so many bytes are heeded.
const RECORD_BYTES_MAX: u64 = 256 << 20;

/// The name of a temporary file.
pub(super) fn temporary_name(tag: u64, index: usize) -> String {
    format!("{}-{index}", record_name(tag))
}

fn record_name(tag: u64) -> String {
    format!(".refrain-{tag:016x}")
}

/// The record of an extraction that is at work.
pub(super) struct Record {
    name: String,
    /// Locked while it is open.
    _file: File,
}

impl Record {
    /// Writes the record of temporary files in `folders`.
    pub(super) fn new<'a>(
        tree: &Tree,
        tag: u64,
        folders: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<Self> {
        let name = record_name(tag);
        let mut file = loop {
            let file = create_locked(tree, &name)?;
            // Until it was locked, another extraction may have taken it to be left, and removed it.
            if file.metadata()?.nlink() > 0 {
                break file;
            }
        };
        let mut before = None;
        let mut content = RECORD_BEGINS.to_vec();
        for folder in folders {
            if before != Some(folder) {
                content.extend_from_slice(folder);
                content.push(0);
                before = Some(folder);
            }
        }
        let written = file.write_all(&content).and_then(|()| file.sync_data());
        let record = Self { name, _file: file };
        match written {
            Ok(()) => Ok(record),
            Err(error) => {
                record.remove(tree);
                Err(error)
            }
        }
    }

    /// No temporary file is left.
    pub(super) fn remove(&self, tree: &Tree) {
        let _ = unlinkat(tree.root(), &self.name, AtFlags::empty());
    }
}

fn create_locked(tree: &Tree, name: &str) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(tree.root(), name, flags, Mode::RUSR | Mode::WUSR)?;
    let file = File::from(file);
    // On a file system without locks nothing is ever taken to be left.
    let _ = file.lock();
    Ok(file)
}

/// Removes what extractions into `tree` left that were killed. What cannot be removed stays.
pub(super) fn remove(tree: &mut Tree) {
    let tags = names_in(tree.root(), |name| {
        tag_of(name).filter(|tag| name.len() == PREFIX.len() + tag.len())
    });
    for tag in tags.unwrap_or_default() {
        // As long as it is open nobody else removes the same.
        if let Ok(Some((record, folders))) = left_record(tree, &tag) {
            for folder in folders.split(|&byte| byte == 0) {
                remove_in(tree, folder, &tag);
            }
            let _ = unlinkat(tree.root(), [PREFIX, &tag].concat(), AtFlags::empty());
            drop(record);
        }
    }
}

/// The record of an extraction that is at work no more, and what it says.
fn left_record(tree: &Tree, tag: &[u8]) -> io::Result<Option<(File, Vec<u8>)>> {
    // Who forges one as a pipe is not waited for.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(tree.root(), [PREFIX, tag].concat(), flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let file = File::from(file);
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let mut content = Vec::new();
    (&file).take(RECORD_BYTES_MAX).read_to_end(&mut content)?;
    let folders = match content.strip_prefix(RECORD_BEGINS) {
        Some(folders) => folders.to_vec(),
        // It was killed before it had written any temporary file.
        None if RECORD_BEGINS.starts_with(&content) => Vec::new(),
        None => return Ok(None),
    };
    Ok(Some((file, folders)))
}

/// Removes the temporary files with `tag` from a folder.
fn remove_in(tree: &mut Tree, folder: &[u8], tag: &[u8]) {
    if !folder.is_empty() && !is_valid_path(folder) {
        return;
    }
    let Ok(folder) = tree.folder(folder) else {
        return;
    };
    let left = names_in(folder, |name| {
        let number = name.get(PREFIX.len() + TAG_DIGITS + 1..)?;
        let is_ours = tag_of(name) == Some(tag)
            && name[PREFIX.len() + TAG_DIGITS] == b'-'
            && !number.is_empty()
            && number.iter().all(u8::is_ascii_digit);
        is_ours.then_some(name)
    });
    for name in left.unwrap_or_default() {
        let _ = unlinkat(folder, name, AtFlags::empty());
    }
}

/// The tag that a name of a record or a temporary file has.
fn tag_of(name: &[u8]) -> Option<&[u8]> {
    let tag = name.strip_prefix(PREFIX)?.get(..TAG_DIGITS)?;
    tag.iter().all(u8::is_ascii_hexdigit).then_some(tag)
}

/// What `wanted` makes of the names in a folder.
fn names_in(
    folder: impl AsFd,
    wanted: impl Fn(&[u8]) -> Option<&[u8]>,
) -> Result<Vec<Vec<u8>>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        found.extend(wanted(entry?.file_name().to_bytes()).map(<[u8]>::to_vec));
    }
    Ok(found)
}
