//! The folder that is extracted to, and those below it: opened component by component, and no link is
//! followed, whatever others do there meanwhile.
//!
//! A folder of ours may be one that we may not write to or enter, as module caches have them. Such a one gets
//! what it lacks (`u+rwx`) while it is worked in, and its mode back at the end.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, fchmod, fstat, mkdirat, openat},
    io::Errno,
    process::geteuid,
};

use super::ExtractError;
use crate::{format::catalog::split_path, plain_file::FOLDER};

pub(super) struct Tree {
    target: PathBuf,
    root: OwnedFd,
    /// The folder below it that was last used.
    current: Option<(Vec<u8>, OwnedFd)>,
    /// A folder on each of the file systems that were met.
    devices: HashMap<u64, OwnedFd>,
    /// The modes, before, of own folders that could not be worked in.
    modes: BTreeMap<Vec<u8>, Mode>,
}

impl Tree {
    /// Opens `target`, to which links may lead: its user named it.
    pub(super) fn open(target: &Path) -> io::Result<Self> {
        let (root, mode) = open_for(CWD, target.as_os_str(), FOLDER, TO_WORK_IN)?;
        let devices = HashMap::from([(fstat(&root)?.st_dev, root.try_clone()?)]);
        Ok(Self {
            target: target.to_owned(),
            root,
            current: None,
            devices,
            modes: mode.into_iter().map(|mode| (Vec::new(), mode)).collect(),
        })
    }

    /// The folders that got `u+rwx`, and the modes that they had.
    pub(super) fn modes(&self) -> &BTreeMap<Vec<u8>, Mode> {
        &self.modes
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
            let wanted = match walked == path.len() {
                true => TO_WORK_IN,
                false => TO_PASS,
            };
            let component = OsStr::from_bytes(component);
            let next = open_for(from, component, FOLDER | OFlags::NOFOLLOW, wanted);
            let (next, mode) = next.map_err(|error| match error {
                Errno::NOTDIR | Errno::LOOP => ExtractError::NoFolder {
                    path: self.shown(&path[..walked]),
                },
                error => self.at(&path[..walked], error),
            })?;
            if let Some(mode) = mode {
                let before = self.modes.entry(path[..walked].to_owned());
                before.or_insert(mode);
            }
            opened = Some(next);
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
            let (parent, name) = split_path(path);
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

/// What one has to be permitted in a folder that lies on the way, and in one where names are made.
const TO_PASS: Access = Access::READ_OK.union(Access::EXEC_OK);
const TO_WORK_IN: Access = TO_PASS.union(Access::WRITE_OK);

/// Opens a folder. If it is ours, and does not permit what is wanted, it gets `u+rwx`, and the mode that it had
/// is given as well.
fn open_for(
    from: impl AsFd,
    name: &OsStr,
    flags: OFlags,
    wanted: Access,
) -> rustix::io::Result<(OwnedFd, Option<Mode>)> {
    let opened = match openat(&from, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => None,
        opened => Some(opened?),
    };
    if let Some(opened) = opened {
        if accessat(&opened, ".", wanted, AtFlags::EACCESS) != Err(Errno::ACCESS) {
            return Ok((opened, None));
        }
        let before = own_mode(&opened)?;
        // What fails here shows when something is to be made in it.
        let given = before.filter(|&mode| fchmod(&opened, mode | Mode::RWXU).is_ok());
        return Ok((opened, given));
    }
    // One that nobody may read can be found, but not be opened.
    let found = openat(&from, name, flags | OFlags::PATH, Mode::empty())?;
    let mode = own_mode(&found)?.ok_or(Errno::ACCESS)?;
    permit(&found, mode | Mode::RWXU)?;
    let opened = openat(&found, ".", flags, Mode::empty())?;
    Ok((opened, Some(mode)))
}

/// The mode of a folder, if it is ours.
fn own_mode(folder: &OwnedFd) -> rustix::io::Result<Option<Mode>> {
    let there = fstat(folder)?;
    let mode = Mode::from_raw_mode(there.st_mode & 0o7777);
    Ok((there.st_uid == geteuid().as_raw()).then_some(mode))
}

/// Sets the mode of what was found and not opened.
#[cfg(target_os = "linux")]
fn permit(found: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    use std::os::fd::AsRawFd;

    // The system sets none by such a descriptor, but follows its link to nothing else.
    rustix::fs::chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), mode)
}

/// Others than Linux have no such link.
#[cfg(not(target_os = "linux"))]
fn permit(_: &OwnedFd, _: Mode) -> rustix::io::Result<()> {
    Err(Errno::ACCESS)
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
