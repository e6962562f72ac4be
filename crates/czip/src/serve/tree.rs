//! The folder that is served: its files by path, and nothing outside it.
//!
//! On Linux the kernel keeps a path within the folder, symbolic links included (`RESOLVE_BENEATH`);
//! elsewhere no symbolic link is followed. Nothing is checked first and opened later.

use std::{
    ffi::OsStr,
    fs::{File, Metadata},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use percent_encoding::percent_decode;
use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, openat},
    io::Errno,
};

/// The components of a path.
pub(super) type Components = Vec<Vec<u8>>;

/// A path that leads nowhere but down: of the folder's files, or of those in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SafePath {
    pub(super) components: Components,
    /// Whether it says to be a folder's.
    pub(super) has_slash: bool,
}

impl SafePath {
    /// The path of a request's target, if it is one. What is listed can be asked for: a path may be as long as
    /// the request's head has room for, and as deep.
    pub(super) fn parse(target: &str) -> Option<Self> {
        let target = target.strip_prefix('/')?;
        let (target, has_slash) = match target.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (target, target.is_empty()),
        };
        let mut components = Vec::new();
        for component in target.split('/').filter(|_| !target.is_empty()) {
            let component: Vec<u8> = percent_decode(component.as_bytes()).collect();
            let is_safe = !matches!(&component[..], b"" | b"." | b"..")
                && !component.iter().any(|byte| matches!(byte, 0 | b'/'));
            if !is_safe {
                return None;
            }
            components.push(component);
        }
        Some(Self {
            components,
            has_slash,
        })
    }
}

/// What a file is known by: if this is the same, so is the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether an open file that was this has not been written to, as far as its length and time tell. One
    /// that lost its name has not.
    pub(super) fn is_still(&self, file: &File) -> io::Result<bool> {
        let now = Self::of(&file.metadata()?);
        Ok((now.bytes, now.modified) == (self.bytes, self.modified))
    }

    pub(super) fn modified(&self) -> SystemTime {
        http_time(self.modified.0) + Duration::from_nanos(self.modified.1 as u64)
    }

    /// A validator: other bytes have another one, as far as the file's times tell.
    pub(super) fn digest(&self) -> blake3::Hash {
        let (seconds, nanoseconds) = self.modified;
        let mut hasher = blake3::Hasher::new();
        for number in [self.inode, self.bytes, seconds as u64, nanoseconds as u64] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.finalize()
    }
}

/// Seconds since 1970 as a time that HTTP can say: its dates end with the year 9999.
pub(super) fn http_time(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.clamp(0, 253_402_300_799) as u64)
}

#[derive(Debug)]
pub(super) enum Found {
    File(File, Identity),
    Folder(OwnedFd),
    Nothing,
}

/// A file or folder in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    /// None: a folder.
    pub(super) bytes: Option<u64>,
    pub(super) modified: Option<SystemTime>,
}

#[derive(Debug)]
pub(super) struct Tree {
    folder: OwnedFd,
}

impl Tree {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, folder, flags, Mode::empty())?;
        Ok(Self { folder })
    }

    /// Opens what the path leads to.
    pub(super) fn open(&self, components: &[Vec<u8>]) -> io::Result<Found> {
        if components.iter().any(|name| is_hidden(name)) {
            return Ok(Found::Nothing);
        }
        let opened = match open_beneath(&self.folder, components) {
            Ok(opened) => opened,
            Err(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::XDEV
                | Errno::LOOP
                | Errno::ACCESS
                | Errno::PERM
                | Errno::NAMETOOLONG
                | Errno::NXIO,
            ) => return Ok(Found::Nothing),
            Err(error) => return Err(error.into()),
        };
        let file = File::from(opened);
        let metadata = file.metadata()?;
        Ok(if metadata.is_dir() {
            Found::Folder(file.into())
        } else if metadata.is_file() {
            Found::File(file, Identity::of(&metadata))
        } else {
            Found::Nothing
        })
    }

    /// What is in a folder, by name; what is neither file nor folder is not.
    pub(super) fn list(&self, folder: &OwnedFd) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for found in Dir::read_from(folder)? {
            let found = found?;
            let name = found.file_name().to_bytes();
            if is_hidden(name) {
                continue;
            }
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            let Ok(stat) = rustix::fs::statat(folder, found.file_name(), flags) else {
                continue;
            };
            let bytes = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Some(stat.st_size as u64),
                FileType::Directory => None,
                _ => continue,
            };
            listed.push(Listed {
                name: name.to_vec(),
                bytes,
                modified: Some(http_time(stat.st_mtime)),
            });
        }
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(listed)
    }
}

fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".")
}

/// Not to wait for a FIFO's writer.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

#[cfg(target_os = "linux")]
fn open_beneath(folder: impl AsFd, components: &[Vec<u8>]) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    let path = match components.is_empty() {
        true => b".".to_vec(),
        false => components.join(&b'/'),
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(
        folder,
        OsStr::from_bytes(&path),
        OPEN,
        Mode::empty(),
        resolve,
    )
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(folder: impl AsFd, components: &[Vec<u8>]) -> rustix::io::Result<OwnedFd> {
    let mut folder = openat(folder, ".", OPEN, Mode::empty())?;
    for component in components {
        let flags = OPEN | OFlags::NOFOLLOW;
        folder = openat(&folder, OsStr::from_bytes(component), flags, Mode::empty())?;
    }
    Ok(folder)
}
