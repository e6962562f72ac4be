//! The files of a folder and of those below, in the order of their paths.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::AddReport;
use crate::{StoreError, history::state_of, layout::files_file::FileState, private};

/// What there is to add. What cannot or shall not be is counted; the store itself is left out.
pub(super) fn files(
    root: &Path,
    store: Option<&Path>,
    takes_private: bool,
    report: &mut AddReport,
) -> Result<Vec<(PathBuf, FileState)>, StoreError> {
    fs::read_dir(root).map_err(|source| StoreError::Io {
        doing: "read",
        path: root.to_owned(),
        source,
    })?;
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        if Some(folder.as_path()) == store {
            continue;
        }
        if !takes_private && private::is_store(&folder) {
            report.pass_over(&folder, private::STORE);
            continue;
        }
        let entries = fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                report.unreadable += 1;
                report.tell(&folder, &error);
                continue;
            }
        };
        for entry in entries {
            let path = entry.path();
            // Of the link itself, where it is one.
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(path),
                Ok(metadata)
                    if !takes_private
                        && metadata.is_file()
                        && private::is_named_like_a_key(&path, metadata.len()) =>
                {
                    report.pass_over(&path, private::KEY);
                }
                Ok(metadata) if metadata.is_file() => files.push((path, state_of(&metadata))),
                Ok(metadata) if metadata.is_symlink() => report.symlinks += 1,
                Ok(_) => report.special_files += 1,
                Err(error) => {
                    report.unreadable += 1;
                    report.tell(&path, &error);
                }
            }
        }
    }
    files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
}
