//! Why there is no archive.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::{
    archive::ReadError,
    crypt::{NoRandomness, WrapError},
};

/// Why an archive could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// What is to go into it cannot be read.
    #[error("cannot {} \"{}\": {error}", failed(.error), .path.display())]
    Input {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An earlier archive cannot be read.
    #[error("cannot use the earlier archive \"{}\": {}", .path.display(), reason(.error))]
    Earlier {
        /// Which.
        path: PathBuf,
        /// Why.
        error: Box<ReadError>,
    },
    /// An earlier archive has no chunk that could be one of the new archive.
    #[error(
        "\"{old}\" has other options for chunks or encryption, so the new archive cannot share its chunks \
         (`refrain czip stat -v {old}` shows them; use the same options)",
        old = path.display()
    )]
    EarlierCut {
        /// Which.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("cannot write the archive: {0}")]
    Output(#[from] io::Error),
    /// There is no key to encrypt it with.
    #[error("cannot encrypt the archive: {0}")]
    Random(#[from] NoRandomness),
    /// Nobody could read it if it were encrypted.
    #[error("cannot encrypt the archive: {0}")]
    Wrap(#[from] WrapError),
    /// Two arguments have the same name.
    #[error(
        "two of the given files and directories have the name \"{name}\" (rename one, or give the directory that \
         holds both)"
    )]
    SameName {
        /// The name.
        name: String,
    },
    /// What was given has no content that ends.
    #[error(
        "\"{}\" is not a regular file (give `-`, and its content on standard input)", .path.display()
    )]
    Special {
        /// What was given.
        path: PathBuf,
    },
    /// It would replace what it is made of.
    #[error("\"{}\" is both an input and the output", .path.display())]
    OutputIsInput {
        /// What was given.
        path: PathBuf,
    },
    /// All that was given is left out.
    #[error("nothing to archive: all inputs are excluded")]
    Nothing,
    /// A path is too long, or no path that an archive may hold.
    #[error("an archive cannot hold the name of \"{}\"", .path.display())]
    Name {
        /// The path.
        path: PathBuf,
    },
    /// Paths compress so well that no reader would take them.
    #[error(
        "the paths of the files are too large for so short an archive: {bytes} bytes (limit {limit}; archive \
         the directories one by one)"
    )]
    Catalog {
        /// Bytes of the catalog.
        bytes: u64,
        /// What it may have.
        limit: u64,
    },
    /// It was told to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What failed at an input.
fn failed(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => "open",
        _ => "read",
    }
}

/// Why an archive is of no use. Which one is said before.
fn reason(error: &ReadError) -> String {
    match error {
        ReadError::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}
