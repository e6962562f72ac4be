//! Whether the disk has room for what a store may become.

use std::{io, path::Path};

use crate::{
    StoreError,
    folder::{self, Folder, RealFolder},
    format::list,
};

/// What there is on the disk of a store, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What is free for this user.
    pub free_bytes: u64,
    /// What the store's folder takes already.
    pub used_bytes: u64,
}

impl Room {
    /// That of the store at `path`, which may be yet to make.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            free_bytes: folder::free_bytes(path)?,
            used_bytes: used_bytes(&RealFolder::new(path)).unwrap_or(0),
        })
    }

    /// Whether a store of `size_bytes` finds no room, as it is now.
    #[must_use]
    pub fn lacks(&self, size_bytes: u64) -> bool {
        self.free_bytes.saturating_add(self.used_bytes) < size_bytes
    }
}

/// What the disk has for the store in `folder`: what is free, and what the store takes already; no
/// end of it where nobody tells.
pub(super) fn room_bytes(folder: &dyn Folder) -> Result<u64, StoreError> {
    let Some(free_bytes) = folder.free_bytes() else {
        return Ok(u64::MAX);
    };
    Ok(free_bytes.saturating_add(used_bytes(folder)?))
}

fn used_bytes(folder: &dyn Folder) -> Result<u64, StoreError> {
    Ok(list(folder)?.iter().map(|(_, bytes)| bytes).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_a_store_has_already_it_needs_no_room_for() {
        let room = Room {
            free_bytes: 100,
            used_bytes: 20,
        };
        assert!(room.lacks(121) && !room.lacks(120) && !room.lacks(0));
    }

    #[test]
    fn a_disk_tells_also_of_folders_that_are_yet_to_make() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), [0; 1000]).expect("written");
        let room = Room::of(folder.path()).expect("it tells");
        assert_eq!(room.used_bytes, 1000);
        assert!(room.free_bytes > 0 && room.lacks(u64::MAX));
        for path in [folder.path().join("new/store"), "nowhere/store".into()] {
            assert_eq!(Room::of(&path).expect("it tells").used_bytes, 0);
        }
    }
}
