//! What goes wrong with an index that spills, and the folder it spills to, which says so.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why an index cannot answer. After any of these it answers nothing more.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The folder takes no temporary file.
    #[error("cannot make a temporary file in {}", folder.display())]
    Create {
        /// The folder for what is spilled.
        folder: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The disk is full, or a quota or a limit on the length of files is reached.
    #[error("{} has no room for an index of {names} chunk names", folder.display())]
    Full {
        /// The folder for what is spilled.
        folder: PathBuf,
        /// Names that the index holds. On disk they take up to 46 bytes each.
        names: u64,
        /// What the system says.
        source: io::Error,
    },
    /// A temporary file cannot be written.
    #[error("cannot write to a temporary file in {}", folder.display())]
    Write {
        /// The folder for what is spilled.
        folder: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A temporary file cannot be read.
    #[error("cannot read a temporary file in {}", folder.display())]
    Read {
        /// The folder for what is spilled.
        folder: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A temporary file holds something else than what was written.
    #[error("page {page} of a temporary file in {} was damaged", folder.display())]
    Damaged {
        /// The folder for what is spilled.
        folder: PathBuf,
        /// Which page of the file.
        page: u64,
    },
    /// It failed before, and may have lost names.
    #[error("the index of chunk names failed before")]
    Failed,
}

/// Where spilled files lie. They have no names there, so nothing is left behind whatever happens.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub fn file(&self) -> Result<File, IndexError> {
        tempfile::tempfile_in(&self.0).map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.written(0)(source),
            _ => IndexError::Create {
                folder: self.0.clone(),
                source,
            },
        })
    }

    /// What failed while an index of `names` names was written.
    pub fn written(&self, names: u64) -> impl Fn(io::Error) -> IndexError {
        let folder = self.0.clone();
        move |source| {
            let folder = folder.clone();
            match source.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => IndexError::Full {
                    folder,
                    names,
                    source,
                },
                _ => IndexError::Write { folder, source },
            }
        }
    }

    pub fn read(&self, source: io::Error) -> IndexError {
        IndexError::Read {
            folder: self.0.clone(),
            source,
        }
    }

    pub fn damaged(&self, page: u64) -> IndexError {
        IndexError::Damaged {
            folder: self.0.clone(),
            page,
        }
    }
}
