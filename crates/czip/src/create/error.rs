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
    #[error("{} cannot be read: {error}", .path.display())]
    Input {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An earlier archive cannot be read.
    #[error("the earlier archive {}: {error}", .path.display())]
    Earlier {
        /// Which.
        path: PathBuf,
        /// Why.
        error: Box<ReadError>,
    },
    /// An earlier archive has no chunk that could be one of the new archive.
    #[error(
        "the earlier archive {} was cut or encrypted in another way, so that no chunk of it is one of the \
         new archive: `refrain czip stat` says how; make both alike", .path.display()
    )]
    EarlierCut {
        /// Which.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("the archive cannot be written: {0}")]
    Output(#[from] io::Error),
    /// There is no key to encrypt it with.
    #[error("the archive cannot be encrypted: {0}")]
    Random(#[from] NoRandomness),
    /// Nobody could read it if it were encrypted.
    #[error("the archive cannot be encrypted: {0}")]
    Wrap(#[from] WrapError),
    /// Two arguments have the same name.
    #[error(
        "two of the files and folders given are called {name}; rename one, or give the folder that holds both"
    )]
    SameName {
        /// The name.
        name: String,
    },
    /// What was given has no content that ends.
    #[error(
        "{} is no regular file: give `-`, and its content on standard input", .path.display()
    )]
    Special {
        /// What was given.
        path: PathBuf,
    },
    /// It would replace what it is made of.
    #[error("{} is both what is to be archived and where the archive is to go", .path.display())]
    OutputIsInput {
        /// What was given.
        path: PathBuf,
    },
    /// All that was given is left out.
    #[error("there is nothing to archive: all that was given is left out")]
    Nothing,
    /// A path is too long, or no path that an archive may hold.
    #[error("{} has a name that an archive cannot hold", .path.display())]
    Name {
        /// The path.
        path: PathBuf,
    },
    /// Paths compress so well that no reader would take them.
    #[error(
        "the paths of the files take {bytes} bytes, and no more than {limit} may be in so short an \
         archive: archive the folders one by one"
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
