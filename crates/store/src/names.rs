//! The file `realms`: what realms are called, a line each, for those who look at a store. A store
//! works without it.

use std::collections::BTreeMap;

use crate::{Realm, StoreError, folder::Folder, format};

pub(crate) const NAMES_FILE: &str = "realms";

/// The file is no longer, and of a longer one no more is read.
const NAMES_BYTES_MAX: usize = 16 << 10;

/// The names that the file has.
pub(crate) fn read(folder: &dyn Folder) -> Result<BTreeMap<Realm, String>, StoreError> {
    let bytes = format::content(folder, NAMES_FILE, NAMES_BYTES_MAX as u64)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
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
    let text: String = names.values().map(|name| format!("{name}\n")).collect();
    if text.len() > NAMES_BYTES_MAX {
        return Ok(());
    }
    format::replace(folder, NAMES_FILE, text.as_bytes())
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
