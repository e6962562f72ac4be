//! The file `realms`: what realms are called, a line each, for those who look at a store. A store
//! works without it.

use std::{collections::BTreeMap, io};

use crate::{Realm, StoreError, folder::Folder, format::error_at};

pub(crate) const NAMES_FILE: &str = "realms";
const NAMES_FILE_NEW: &str = "realms.new";

/// The file is no longer, and of a longer one no more is read.
const NAMES_BYTES_MAX: usize = 16 << 10;

/// The names that the file has.
pub(crate) fn read(folder: &dyn Folder) -> Result<BTreeMap<Realm, String>, StoreError> {
    let mut bytes = vec![0; NAMES_BYTES_MAX];
    let count = match folder.open(NAMES_FILE) {
        Ok(file) => file.read_up_to(&mut bytes, 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    };
    let count = count.map_err(error_at(folder, "read", NAMES_FILE))?;
    let text = String::from_utf8_lossy(&bytes[..count]);
    // The realm follows from the name, so a line that is damaged names nothing that is there.
    let names = text
        .lines()
        .map(|name| (Realm::named(name), name.to_owned()));
    Ok(names.collect())
}

/// Adds a name, if it can be one and there is room.
pub(crate) fn add(folder: &dyn Folder, name: &str) -> Result<(), StoreError> {
    let mut names = read(folder)?;
    if !Realm::is_name(name) || names.insert(Realm::named(name), name.to_owned()).is_some() {
        return Ok(());
    }
    let mut text = String::new();
    for name in names.values() {
        text.push_str(name);
        text.push('\n');
    }
    if text.len() > NAMES_BYTES_MAX {
        return Ok(());
    }
    let file = folder.open_or_create(NAMES_FILE_NEW);
    file.and_then(|file| {
        file.set_bytes(0)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync()
    })
    .map_err(error_at(folder, "write", NAMES_FILE_NEW))?;
    folder
        .rename(NAMES_FILE_NEW, NAMES_FILE)
        .map_err(error_at(folder, "write", NAMES_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::RealFolder;

    #[test]
    fn names_are_read_back_and_bounded() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = RealFolder::new(scratch.path());
        for name in ["b", "a name", "b", "no\nline", ""] {
            add(&folder, name).expect("a disk");
        }
        let names = read(&folder).expect("a disk");
        assert_eq!(names.len(), 2);
        assert_eq!(names[&Realm::named("a name")], "a name");
        add(&folder, &"x".repeat(NAMES_BYTES_MAX)).expect("a disk");
        assert_eq!(read(&folder).expect("a disk").len(), 2);
    }
}
