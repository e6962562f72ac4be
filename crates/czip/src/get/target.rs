//! Where the output goes in the end: a regular file, whose place a new one takes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::GetError;

/// The file that `output` names, through links: it is replaced, and they stay. What is there and no
/// regular file is refused, as it would be gone.
pub(super) fn target(output: &Path) -> Result<PathBuf, GetError> {
    let path = output.to_owned();
    let local = |error| GetError::local(output, error);
    let is_link = fs::symlink_metadata(output).is_ok_and(|named| named.is_symlink());
    match fs::metadata(output) {
        Ok(there) if there.is_dir() => Err(local(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a directory",
        ))),
        Ok(there) if !there.is_file() => Err(GetError::NotAFile { path }),
        Ok(_) if is_link => fs::canonicalize(output).map_err(local),
        Err(error) if is_link && error.kind() == io::ErrorKind::NotFound => {
            let to = fs::read_link(output).map_err(local)?;
            Err(GetError::DanglingLink { path, to })
        }
        // Whatever else is wrong shows where the folder beside it is made.
        _ => Ok(path),
    }
}
