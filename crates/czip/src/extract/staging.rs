//! What is extracted, under temporary names until all of it is there. What never gets its name is
//! removed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs::{self, File},
    io,
    os::fd::AsFd,
    path::Path,
    slice,
};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat, futimens,
        linkat, openat, statat, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};

use super::{
    ExtractError,
    choice::{Chosen, Item, What},
    leftovers::{self, Record},
    names::{self, Given},
    sparse::SparseFile,
    tree::Tree,
};
use crate::format::catalog::split_path;

/// A folder of which the archive has only the path is as the user's folders are.
const USUAL_FOLDER: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

pub(super) struct Staging<'a> {
    items: &'a [Item],
    /// The folders that the archive has, of those that are wanted or have something in them that is.
    folders: BTreeMap<&'a [u8], Folder<'a>>,
    tree: Tree,
    /// Random: what all temporary names have in common.
    tag: u64,
    /// What removes them if this is killed; there while there may be any.
    record: Option<Record>,
    /// Items that are there under their temporary names.
    staged: Vec<usize>,
    /// How the first of them got their names.
    given: Vec<Given>,
    /// Where hard links could not be made: which item has the content of which file on which file system.
    copies: HashMap<(usize, u64), usize>,
    /// Folders that were made.
    made: Vec<Vec<u8>>,
    /// Items whose mode or time could not be set.
    unset: u64,
    is_target_new: bool,
    is_finished: bool,
}

/// A folder as the archive has it.
struct Folder<'a> {
    item: &'a Item,
    /// One that is not, and is there already, stays as it is.
    is_wanted: bool,
}

impl<'a> Staging<'a> {
    pub(super) fn new(target: &Path, chosen: &'a Chosen) -> Result<Self, ExtractError> {
        let items = &chosen.items[..];
        let wanted = items.iter().map(|item| (item, true));
        let parents = chosen.parents.iter().map(|item| (item, false));
        let folders = (wanted.chain(parents))
            .filter(|(item, _)| matches!(item.what, What::Folder))
            .map(|(item, is_wanted)| (&item.path[..], Folder { item, is_wanted }))
            .collect();
        let at = |error| ExtractError::At {
            path: target.to_owned(),
            error,
        };
        let tag = getrandom::u64().map_err(|error| at(io::Error::other(error)))?;
        let is_target_new = fs::symlink_metadata(target).is_err();
        fs::create_dir_all(target).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ExtractError::TargetNoFolder {
                path: target.to_owned(),
            },
            _ => at(error),
        })?;
        let mut staging = Self {
            items,
            folders,
            tree: Tree::open(target).map_err(at)?,
            tag,
            record: None,
            staged: Vec::new(),
            given: Vec::new(),
            copies: HashMap::new(),
            made: Vec::new(),
            unset: 0,
            is_target_new,
            is_finished: false,
        };
        leftovers::remove(&mut staging.tree);
        let mut places = (items.iter())
            .filter(|item| !matches!(item.what, What::Folder))
            .map(|item| item.place().0)
            .peekable();
        if places.peek().is_some() {
            let record = Record::new(&staging.tree, tag, places);
            staging.record = Some(record.map_err(at)?);
        }
        Ok(staging)
    }

    fn temporary_name(&self, index: usize) -> String {
        leftovers::temporary_name(self.tag, index)
    }

    fn remove_record(&mut self) {
        if let Some(record) = self.record.take() {
            record.remove(&self.tree);
        }
    }

    fn at(&self, index: usize, error: impl Into<io::Error>) -> ExtractError {
        self.tree.at(&self.items[index].path, error)
    }

    /// Makes an item's folders, and sees that it can get its name.
    pub(super) fn prepare(&mut self, index: usize) -> Result<(), ExtractError> {
        let item = &self.items[index];
        let (made, folders) = (&mut self.made, &self.folders);
        let mode_of = |path: &[u8]| {
            let folder = folders.get(path);
            folder.map_or(USUAL_FOLDER, |folder| mode_meanwhile(folder.item))
        };
        if matches!(item.what, What::Folder) {
            return self.tree.make(&item.path, &mode_of, made);
        }
        let (folder, name) = item.place();
        self.tree.make(folder, &mode_of, made)?;
        let there = statat(self.tree.folder(folder)?, name, AtFlags::SYMLINK_NOFOLLOW);
        match there {
            Ok(there) if FileType::from_raw_mode(there.st_mode) == FileType::Directory => {
                Err(ExtractError::Folder {
                    path: self.tree.shown(&item.path),
                })
            }
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.at(index, error)),
        }
    }

    /// Writes files whose bytes follow each other.
    pub(super) fn write<'b>(
        &'b mut self,
        files: &'b [usize],
        of: Option<usize>,
    ) -> FileWriter<'a, 'b> {
        FileWriter {
            staging: self,
            files: files.iter(),
            of,
            whole: 0,
            current: None,
        }
    }

    /// Removes what a file has so far, if anything, which is the last one that was made.
    pub(super) fn give_up(&mut self, index: usize) -> Result<(), ExtractError> {
        if self.staged.pop_if(|last| *last == index).is_none() {
            return Ok(());
        }
        self.remove_temporary(index)
    }

    fn create(&mut self, index: usize) -> Result<File, ExtractError> {
        let (folder, _) = self.items[index].place();
        let name = self.temporary_name(index);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = self.tree.folder(folder)?;
        let made = openat(folder, name, flags, Mode::RUSR | Mode::WUSR);
        let made = made.map_err(|error| self.at(index, error))?;
        self.staged.push(index);
        Ok(File::from(made))
    }

    /// Makes an item that is a link. Gives the file whose content it is to be a copy of, if the file system
    /// refuses a hard link.
    pub(super) fn link(&mut self, index: usize) -> Result<Option<usize>, ExtractError> {
        let item = &self.items[index];
        match &item.what {
            What::Folder | What::File { .. } => Ok(None),
            What::HardLink { of } => {
                let is_made = self.hard_link(index, *of)?;
                Ok((!is_made).then_some(*of))
            }
            What::SymbolicLink { target } => {
                let name = self.temporary_name(index);
                let folder = self.tree.folder(item.place().0)?;
                let made = symlinkat(&target[..], folder, &name).and_then(|()| {
                    let times = times(item);
                    let set = utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW);
                    self.unset += u64::from(!is_set(set)?);
                    Ok(())
                });
                self.staged.push(index);
                made.map_err(|error| self.at(index, error))?;
                Ok(None)
            }
        }
    }

    /// Makes an item another name of the file `of`, or of a copy of it. Gives whether that can be done.
    fn hard_link(&mut self, index: usize, of: usize) -> Result<bool, ExtractError> {
        let (folder, _) = self.items[index].place();
        let stat = fstat(self.tree.folder(folder)?).map_err(|error| self.at(index, error))?;
        let copy = self.copies.get(&(of, stat.st_dev)).copied();
        for first in copy.into_iter().chain([of]) {
            let (temporary, name) = (self.temporary_name(first), self.temporary_name(index));
            let there = self.tree.folder(self.items[first].place().0)?;
            let there = there.try_clone_to_owned();
            let there = there.map_err(|error| self.at(index, error))?;
            let folder = self.tree.folder(folder)?;
            match linkat(there, temporary, folder, name, AtFlags::empty()) {
                Ok(()) => {
                    self.staged.push(index);
                    return Ok(true);
                }
                Err(error) if is_no_link(error) => {}
                Err(error) => return Err(self.at(index, error)),
            }
        }
        self.copies.insert((of, stat.st_dev), index);
        Ok(false)
    }

    /// Gives all their names, and folders their modes and times. Gives how many have not the mode or time
    /// that they should have.
    pub(super) fn finish(mut self) -> Result<u64, ExtractError> {
        self.tree.sync()?;
        if let Err(error) = self.give_names() {
            return Err(match self.take_names_back() {
                0 => error,
                stay => ExtractError::Partly {
                    error: Box::new(error),
                    stay,
                },
            });
        }
        self.is_finished = true;
        let removed = self.remove_replaced();
        // With it the next extraction removes what could not be.
        if removed.is_ok() {
            self.remove_record();
        }
        let folders = self.finish_folders(true);
        let synced = self.tree.sync();
        match removed.and(folders).and(synced) {
            Ok(()) => Ok(self.unset),
            Err(error) => Err(ExtractError::Behind {
                error: Box::new(error),
            }),
        }
    }

    fn give_names(&mut self) -> Result<(), ExtractError> {
        for at in 0..self.staged.len() {
            let index = self.staged[at];
            let (folder, name) = self.items[index].place();
            let temporary = self.temporary_name(index);
            let given = names::give(self.tree.folder(folder)?, &temporary, name);
            self.given
                .push(given.map_err(|error| self.at(index, error))?);
        }
        Ok(())
    }

    /// What had names has them again. Gives how many could not be taken back.
    fn take_names_back(&mut self) -> u64 {
        let mut stay = 0;
        while let Some(given) = self.given.pop() {
            let index = self.staged[self.given.len()];
            let (folder, name) = self.items[index].place();
            let temporary = self.temporary_name(index);
            let taken = (self.tree.folder(folder).ok())
                .map(|folder| names::take_back(folder, &temporary, name, given));
            stay += u64::from(taken != Some(Ok(())));
        }
        stay
    }

    /// Removes what was exchanged. One that fails keeps none of the others.
    fn remove_replaced(&mut self) -> Result<(), ExtractError> {
        let mut result = Ok(());
        for at in 0..self.given.len() {
            if self.given[at] == Given::Exchanged {
                result = result.and(self.remove_temporary(self.staged[at]));
            }
        }
        result
    }

    fn remove_temporary(&mut self, index: usize) -> Result<(), ExtractError> {
        let name = self.temporary_name(index);
        let folder = self.tree.folder(self.items[index].place().0)?;
        let removed = unlinkat(folder, name, AtFlags::empty());
        removed.map_err(|error| self.at(index, error))
    }

    /// Gives folders their modes and times: those that were made, and if `with_wanted` is set those that
    /// were wanted, too. Others that could not be worked in get their modes back. One that fails keeps none of
    /// the others from theirs.
    fn finish_folders(&mut self, with_wanted: bool) -> Result<(), ExtractError> {
        let made: HashSet<&[u8]> = self.made.iter().map(|path| &path[..]).collect();
        let modes = self.tree.modes().clone();
        let mut paths: BTreeSet<&[u8]> = self.folders.keys().copied().collect();
        paths.extend(modes.keys().map(|path| &path[..]));
        let mut result = Ok(());
        // Behind what is in them: a folder may be one that nobody may enter.
        for path in paths.into_iter().rev() {
            let folder = self.folders.get(path);
            let folder =
                folder.filter(|folder| made.contains(path) || with_wanted && folder.is_wanted);
            let before = modes.get(path);
            if folder.is_none() && before.is_none() {
                continue;
            }
            let set = match (self.tree.folder(path), folder, before) {
                (Err(error), ..) => Err(error),
                (Ok(opened), Some(folder), _) => set_mode_and_times(opened, folder.item)
                    .map_err(|error| self.tree.at(path, error)),
                (Ok(opened), None, before) => before
                    .map_or(Ok(()), |&mode| fchmod(opened, mode))
                    .map(|()| true)
                    .map_err(|error| self.tree.at(path, error)),
            };
            self.unset += u64::from(matches!(set, Ok(false)));
            result = result.and(set.map(|_| ()));
        }
        result
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        // What cannot be removed stays; why all this is given up is told already.
        for at in 0..self.staged.len() {
            let _ = self.remove_temporary(self.staged[at]);
        }
        self.remove_record();
        let made = std::mem::take(&mut self.made);
        for path in made.into_iter().rev() {
            let (folder, name) = split_path(&path);
            let removed = (self.tree.folder(folder).ok())
                .map(|folder| unlinkat(folder, name, AtFlags::REMOVEDIR));
            // With what has its name already a folder stays.
            if removed != Some(Ok(())) {
                self.made.push(path);
            }
        }
        let _ = self.finish_folders(false);
        if self.is_target_new {
            self.tree.remove();
        }
    }
}

/// Writes files one after the other.
pub(super) struct FileWriter<'a, 'b> {
    staging: &'b mut Staging<'a>,
    files: slice::Iter<'b, usize>,
    /// The file whose content and times they get, if not their own.
    of: Option<usize>,
    /// Files that have all their bytes.
    whole: usize,
    /// The file that is being written, and how many bytes it still gets.
    current: Option<(usize, SparseFile, u64)>,
}

impl<'a> FileWriter<'a, '_> {
    /// The next bytes of all files together.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), ExtractError> {
        while !bytes.is_empty() {
            let (index, mut file, left) = match self.current.take() {
                Some(current) => current,
                None => self.next()?.expect("no more comes than files have"),
            };
            let count = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let written = file.write(&bytes[..count]);
            written.map_err(|error| self.staging.at(index, error))?;
            bytes = &bytes[count..];
            match left - count as u64 {
                0 => self.close(index, file)?,
                left => self.current = Some((index, file, left)),
            }
        }
        Ok(())
    }

    /// The next file that gets bytes; those that get none are done at once.
    fn next(&mut self) -> Result<Option<(usize, SparseFile, u64)>, ExtractError> {
        while let Some(&index) = self.files.next() {
            let file = SparseFile::new(self.staging.create(index)?);
            match self.item(index).bytes() {
                0 => self.close(index, file)?,
                bytes => return Ok(Some((index, file, bytes))),
            }
        }
        Ok(None)
    }

    fn item(&self, index: usize) -> &'a Item {
        &self.staging.items[self.of.unwrap_or(index)]
    }

    /// A file has all its bytes: it gets its mode and time.
    fn close(&mut self, index: usize, file: SparseFile) -> Result<(), ExtractError> {
        let item = self.item(index);
        let closed = file
            .finish()
            .and_then(|file| Ok(set_mode_and_times(&file, item)?));
        let is_set = closed.map_err(|error| self.staging.at(index, error))?;
        self.staging.unset += u64::from(!is_set);
        self.whole += 1;
        Ok(())
    }

    /// How many files have all their bytes.
    pub(super) fn whole(&self) -> usize {
        self.whole
    }

    /// All bytes came.
    pub(super) fn finish(&mut self) -> Result<(), ExtractError> {
        let next = self.next()?;
        assert!(
            next.is_none() && self.current.is_none(),
            "files have all their bytes"
        );
        Ok(())
    }
}

/// The mode of a folder that is being filled: to others never more open than it is to be.
fn mode_meanwhile(folder: &Item) -> Mode {
    Mode::RWXU | Mode::from_raw_mode(folder.mode.into())
}

/// Whether both could be set.
fn set_mode_and_times(of: impl AsFd, item: &Item) -> rustix::io::Result<bool> {
    let has_mode = is_set(fchmod(&of, Mode::from_raw_mode(item.mode.into())))?;
    Ok(is_set(futimens(&of, &times(item)))? && has_mode)
}

/// Whether the system refuses a hard link where a file could be: the file is on another file system, or has as
/// many names as it may have, or the file system has no hard links. These answer in many ways.
fn is_no_link(error: Errno) -> bool {
    [
        Errno::XDEV,
        Errno::MLINK,
        Errno::PERM,
        Errno::ACCESS,
        Errno::NOTSUP,
        Errno::OPNOTSUPP,
        Errno::NOSYS,
    ]
    .contains(&error)
}

/// Some file systems have no modes, and folders that were there may be somebody else's.
fn is_set(result: rustix::io::Result<()>) -> rustix::io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::PERM) => Ok(false),
        Err(error) => Err(error),
    }
}

fn times(item: &Item) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: item.mtime_s,
            tv_nsec: item.mtime_ns.into(),
        },
    }
}
