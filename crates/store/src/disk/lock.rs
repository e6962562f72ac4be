//! One owner at a time: the file `lock`, locked while a store is open. It holds the number of the
//! process that has it, for who finds it locked.

use std::{
    fs::{self, DirBuilder, File, Metadata, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, access},
    io::Errno,
};

use crate::{StoreError, folder};

pub(super) const LOCK_FILE: &str = "lock";

/// Held until it is dropped.
pub(super) struct Lock(File);

impl Lock {
    /// Takes the lock of the store at `path`; makes the folder if there is none.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let error = |doing, path: PathBuf| {
            move |source| StoreError::Io {
                doing,
                path,
                source,
            }
        };
        create_folder(path).map_err(error("create", path.to_owned()))?;
        let lock = path.join(LOCK_FILE);
        // Whoever has it keeps its number in it.
        let mut file =
            folder::open_or_create(path, LOCK_FILE).map_err(error("open", lock.clone()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path, &mut file)),
            Err(TryLockError::Error(source)) => return Err(error("lock", lock)(source)),
        }
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{}", std::process::id()))
            .map_err(error("write", lock))?;
        Ok(Self(file))
    }

    /// Says whether another process has the lock of the store at `path`, and takes nothing.
    pub(super) fn look(path: &Path) -> Result<(), StoreError> {
        let Ok(mut file) = folder::open_to_read(path, LOCK_FILE) else {
            return Ok(());
        };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Err(in_use(path, &mut file)),
            _ => {
                // As in `drop` below.
                let _ = file.unlock();
                Ok(())
            }
        }
    }

    /// Whether the folder at `path` has this very lock.
    pub(super) fn is_in(&self, path: &Path) -> bool {
        let name = |file: Metadata| (file.dev(), file.ino());
        let there = fs::symlink_metadata(path.join(LOCK_FILE)).ok().map(name);
        there.is_some() && there == self.0.metadata().ok().map(name)
    }
}

impl Drop for Lock {
    /// Closing would not be enough: a process that another thread just forks has a copy of the
    /// descriptor until it executes its program, and with it the lock.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Who has the lock says so in its file.
fn in_use(path: &Path, file: &mut File) -> StoreError {
    let mut text = String::new();
    let read = file.take(32).read_to_string(&mut text);
    StoreError::InUse {
        path: path.to_owned(),
        owner: read.ok().and_then(|_| text.trim().parse().ok()),
    }
}

/// Says whether the folder at `path` can be made, or written if it is there; does neither.
pub(super) fn check_writable(path: &Path) -> Result<(), StoreError> {
    let error = |doing, source| StoreError::Io {
        doing,
        path: path.to_owned(),
        source,
    };
    let there = folder::nearest(path);
    let doing = match there == path {
        true => "write to",
        false => "create",
    };
    if !there.is_dir() {
        return Err(error(doing, Errno::NOTDIR.into()));
    }
    let folder = access(there, Access::WRITE_OK | Access::EXEC_OK);
    folder.map_err(|source| error(doing, source.into()))?;
    let lock = path.join(LOCK_FILE);
    if lock.exists() {
        let lock = access(&lock, Access::READ_OK | Access::WRITE_OK);
        lock.map_err(|source| error("write the lock in", source.into()))?;
    }
    Ok(())
}

/// Makes a folder that its owner alone may read. One that is there stays as it is.
fn create_folder(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(_) if path.is_dir() => Ok(()),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_a_forked_process_has_a_copy_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let lock = Lock::take(&path).expect("taken");
        let _copy = lock.0.try_clone().expect("copied");
        assert!(matches!(Lock::look(&path), Err(StoreError::InUse { .. })));
        drop(lock);
        Lock::look(&path).expect("free");
        drop(Lock::take(&path).expect("taken again"));
    }

    #[test]
    fn what_cannot_be_made_or_written_is_found_without_an_attempt() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "in the way").expect("written");
        let [read_only, there, new] =
            ["read-only", "there", "a/new/one"].map(|name| folder.path().join(name));
        fs::create_dir(&there).expect("made");
        fs::create_dir(&read_only).expect("made");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o500);
        fs::set_permissions(&read_only, mode).expect("changed");
        // Root may write there all the same.
        for (path, doing) in [
            (file.join("store"), "create"),
            (file, "write to"),
            (read_only.join("store"), "create"),
            (read_only, "write to"),
            (new, ""),
            (there, ""),
        ] {
            let checked = check_writable(&path);
            assert!(!path.join(LOCK_FILE).exists(), "nothing is made");
            let taken = Lock::take(&path);
            assert_eq!(checked.is_ok(), taken.is_ok(), "{path:?}: {checked:?}");
            if let Err(error) = checked {
                assert!(
                    error.to_string().contains(&format!("cannot {doing} ")),
                    "{error}"
                );
            }
        }
    }
}
