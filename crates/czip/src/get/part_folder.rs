//! `FILE.part`, the folder in which a get keeps what it has until `FILE` is whole.
//!
//! It lies where others may write, such as `/tmp`, under a name that anyone can guess. So it is made for
//! its owner only, is used only if nobody else can write to it, is held open, and nothing in it is reached
//! but through that handle, without following links.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, TryLockError},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, fstat, fsync, mkdirat, openat, renameat, statat,
        unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use super::GetError;
use crate::plain_file::{FOLDER, open_plain};

/// The files that may be in it.
const FILES: [&str; 7] = [
    "header",
    "archive",
    "chunks",
    "whole",
    "archive.old",
    "chunks.old",
    "lock",
];

/// What anyone may do with a new file; the user's mask takes from that. Who may enter the folder decides
/// until the file is moved.
const NEW_FILE: Mode = Mode::from_raw_mode(0o666);

/// Modes by which others can write.
const WRITABLE_BY_OTHERS: Mode = Mode::WGRP.union(Mode::WOTH);

/// The folder in which a get keeps what it has.
pub(super) struct PartFolder {
    path: PathBuf,
    folder: OwnedFd,
    /// Where it and the output lie.
    parent: OwnedFd,
    name: OsString,
    output: OsString,
    /// Locked while it is there.
    lock: File,
}

/// What a get that did not finish left beside its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The folder that has it.
    pub path: PathBuf,
    /// What that takes on the disk.
    pub bytes: u64,
}

/// What an earlier get left of `output`. `None` if there is nothing, or nothing that a get would use.
#[must_use]
pub fn partial(output: &Path) -> Option<Partial> {
    let output = super::target::target(output).ok()?;
    let path = part_path(&output);
    let (parent, name) = place(&path).ok()?;
    let folder = hold(&path, &parent, name).ok()?;
    let bytes = FILES.iter().map(|name| {
        let there = statat(&folder, *name, AtFlags::SYMLINK_NOFOLLOW);
        there.map_or(0, |there| there.st_blocks as u64 * 512)
    });
    let bytes = bytes.sum();
    Some(Partial { path, bytes })
}

impl PartFolder {
    /// The folder for what becomes `output`.
    pub(super) fn open(output: &Path) -> Result<Self, GetError> {
        let path = part_path(output);
        let at = |error| GetError::local(&path, error);
        let (parent, name) = place(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => GetError::NoFolder {
                path: output.to_owned(),
            },
            _ => at(error),
        })?;
        match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(at(error.into())),
        }
        let folder = hold(&path, &parent, name)?;
        let lock = open_plain(&folder, "lock", OFlags::RDWR | OFlags::CREATE, NEW_FILE);
        let lock = lock.map_err(|error| GetError::local(&path.join("lock"), error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(GetError::Busy { path }),
            Err(TryLockError::Error(error)) => return Err(at(error)),
        }
        let (name, output) = (name.to_owned(), output.file_name().unwrap_or_default());
        let part = Self {
            output: output.to_owned(),
            path,
            folder,
            parent,
            name,
            lock,
        };
        // A get that was killed may have left some of it, which is put together from the beginning.
        part.remove_file("whole");
        Ok(part)
    }

    /// What messages call a file in it.
    pub(super) fn shown(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file in it to read and write, and makes it if it is not there.
    pub(super) fn create(&self, name: &str) -> Result<File, GetError> {
        let opened = open_plain(&self.folder, name, OFlags::RDWR | OFlags::CREATE, NEW_FILE);
        opened.map_err(|error| self.at(name, error))
    }

    /// Makes a file in it, in the place of what has that name.
    pub(super) fn create_new(&self, name: &str) -> Result<File, GetError> {
        self.remove_file(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let made = open_plain(&self.folder, name, flags, NEW_FILE);
        made.map_err(|error| self.at(name, error))
    }

    /// Opens a file in it to read.
    pub(super) fn read(&self, name: &str) -> io::Result<File> {
        open_plain(&self.folder, name, OFlags::RDONLY, Mode::empty())
    }

    /// Whether something in it has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Gives a file in it another name in it.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), GetError> {
        let renamed = renameat(&self.folder, from, &self.folder, to);
        renamed.map_err(|error| self.at(from, error))
    }

    /// What fails at a file in it.
    pub(super) fn at(&self, name: &str, error: impl Into<io::Error>) -> GetError {
        GetError::local(&self.shown(name), error)
    }

    pub(super) fn remove_file(&self, name: &str) {
        // What is not there or cannot be removed shows where it is needed.
        let _ = unlinkat(&self.folder, name, AtFlags::empty());
    }

    /// Makes a file in it the output, so that after a power cut the output is there as well.
    pub(super) fn finish(&self, name: &str) -> Result<(), GetError> {
        let moved = renameat(&self.folder, name, &self.parent, &self.output);
        let moved = moved.and_then(|()| fsync(&self.parent));
        moved.map_err(|error| GetError::local(&self.path.with_file_name(&self.output), error))
    }

    /// Removes it if nothing is kept in it.
    pub(super) fn remove_if_empty(&self) {
        if !["header", "archive", "archive.old"]
            .iter()
            .any(|name| self.has(name))
        {
            self.remove();
        }
    }

    /// Removes it with what gets put there. If something else is in it, it stays with that.
    pub(super) fn remove(&self) {
        FILES.iter().for_each(|name| self.remove_file(name));
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

impl Drop for PartFolder {
    /// Closing would not be enough: a process that another thread just forks has a copy of the
    /// descriptor until it executes its program, and with it the lock.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

fn part_path(output: &Path) -> PathBuf {
    let mut path = output.as_os_str().to_owned();
    path.push(".part");
    path.into()
}

/// The folder that `path` is in, which its user named: links may lead there. And its name.
fn place(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = openat(CWD, parent.unwrap_or(Path::new(".")), FOLDER, Mode::empty())?;
    Ok((parent, name))
}

/// Opens the folder called `name`, if nobody else can put anything into it.
fn hold(path: &Path, parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, GetError> {
    let refused = |why| GetError::UnsafePart {
        path: path.to_owned(),
        why,
    };
    let folder = match openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(folder) => folder,
        Err(error) => {
            let there = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
            return Err(
                match there.map(|there| FileType::from_raw_mode(there.st_mode)) {
                    Ok(FileType::Symlink) => refused("it is a symbolic link"),
                    Ok(FileType::Directory) | Err(_) => GetError::local(path, error),
                    Ok(_) => refused("it is not a directory"),
                },
            );
        }
    };
    let there = fstat(&folder).map_err(|error| GetError::local(path, error))?;
    if there.st_uid != geteuid().as_raw() {
        return Err(refused("another user owns it"));
    }
    if Mode::from_raw_mode(there.st_mode).intersects(WRITABLE_BY_OTHERS) {
        return Err(refused("other users can write to it"));
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_a_forked_process_has_a_copy_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = folder.path().join("output");
        let part = PartFolder::open(&output).expect("opened");
        let _copy = part.lock.try_clone().expect("copied");
        let busy = PartFolder::open(&output);
        assert!(matches!(busy, Err(GetError::Busy { .. })));
        drop(part);
        PartFolder::open(&output).expect("opened again");
    }
}
