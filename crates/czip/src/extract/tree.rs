//! The folder that is extracted to, and those below it: opened component by component, and no link is
//! followed, whatever others do there meanwhile.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, fstat, mkdirat, openat},
    io::Errno,
};

use super::ExtractError;
use crate::plain_file::FOLDER;

pub(super) struct Tree {
    target: PathBuf,
    root: OwnedFd,
    /// The folder below it that was last used.
    current: Option<(Vec<u8>, OwnedFd)>,
    /// A folder on each of the file systems that were met.
    devices: HashMap<u64, OwnedFd>,
}

impl Tree {
    /// Opens `target`, to which links may lead: its user named it.
    pub(super) fn open(target: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(target, FOLDER, Mode::empty())?;
        let devices = HashMap::from([(fstat(&root)?.st_dev, root.try_clone()?)]);
        Ok(Self {
            target: target.to_owned(),
            root,
            current: None,
            devices,
        })
    }

    /// The target itself.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// What messages call `path`.
    pub(super) fn shown(&self, path: &[u8]) -> PathBuf {
        self.target.join(OsStr::from_bytes(path))
    }

    /// What went wrong at `path`.
    pub(super) fn at(&self, path: &[u8], error: impl Into<io::Error>) -> ExtractError {
        ExtractError::At {
            path: self.shown(path),
            error: error.into(),
        }
    }

    /// The folder at `path`, which is there.
    pub(super) fn folder(&mut self, path: &[u8]) -> Result<BorrowedFd<'_>, ExtractError> {
        if path.is_empty() {
            return Ok(self.root.as_fd());
        }
        if self.current.as_ref().is_none_or(|(at, _)| at != path) {
            let opened = self.walk(path)?;
            self.current = Some((path.to_owned(), opened));
        }
        let (_, opened) = self.current.as_ref().expect("it was just opened");
        Ok(opened.as_fd())
    }

    fn walk(&mut self, path: &[u8]) -> Result<OwnedFd, ExtractError> {
        // Often the next one lies in the last one.
        let (mut walked, mut opened) = match self.current.take() {
            Some((at, folder)) if path.starts_with(&at) && path.get(at.len()) == Some(&b'/') => {
                (at.len() + 1, Some(folder))
            }
            _ => (0, None),
        };
        for component in path[walked..].split(|&byte| byte == b'/') {
            let from = opened.as_ref().unwrap_or(&self.root);
            walked += component.len();
            let next = openat(from, component, FOLDER | OFlags::NOFOLLOW, Mode::empty());
            opened = Some(next.map_err(|error| match error {
                Errno::NOTDIR | Errno::LOOP => ExtractError::NoFolder {
                    path: self.shown(&path[..walked]),
                },
                error => self.at(&path[..walked], error),
            })?);
            walked += 1;
        }
        let opened = opened.expect("a path has a component");
        let device = fstat(&opened).map_err(|error| self.at(path, error))?.st_dev;
        if !self.devices.contains_key(&device) {
            let held = opened.try_clone().map_err(|error| self.at(path, error))?;
            self.devices.insert(device, held);
        }
        Ok(opened)
    }

    /// Makes the folder at `path`, and those that it is in, where they are missing, each with the mode
    /// that `mode_of` says of its path. What was made is appended to `made`.
    pub(super) fn make(
        &mut self,
        path: &[u8],
        mode_of: &dyn Fn(&[u8]) -> Mode,
        made: &mut Vec<Vec<u8>>,
    ) -> Result<(), ExtractError> {
        if !self.is_missing(path)? {
            return Ok(());
        }
        let ends = (1..=path.len()).filter(|&end| path.get(end).is_none_or(|&byte| byte == b'/'));
        for end in ends {
            let path = &path[..end];
            if !self.is_missing(path)? {
                continue;
            }
            let slash = path.iter().rposition(|&byte| byte == b'/');
            let (parent, name) = match slash {
                Some(slash) => (&path[..slash], &path[slash + 1..]),
                None => (&b""[..], path),
            };
            match mkdirat(self.folder(parent)?, name, mode_of(path)) {
                Ok(()) => made.push(path.to_owned()),
                // Somebody else did meanwhile, such as another extraction; what it is shows when it is opened.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(self.at(path, error)),
            }
        }
        Ok(())
    }

    fn is_missing(&mut self, path: &[u8]) -> Result<bool, ExtractError> {
        match self.folder(path) {
            Ok(_) => Ok(false),
            Err(ExtractError::At { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until all that was written is on disk.
    pub(super) fn sync(&self) -> Result<(), ExtractError> {
        for folder in self.devices.values() {
            sync_file_system(folder).map_err(|error| self.at(b"", error))?;
        }
        Ok(())
    }

    /// Removes the target itself, if nothing is in it.
    pub(super) fn remove(&self) {
        let _ = fs::remove_dir(&self.target);
    }
}

#[cfg(target_os = "linux")]
fn sync_file_system(folder: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::syncfs(folder)?)
}

/// Others than Linux cannot be asked for one file system.
#[cfg(not(target_os = "linux"))]
fn sync_file_system(_: &OwnedFd) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}
