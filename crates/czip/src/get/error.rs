//! Why a get ended without its file.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{
    archive::ReadError,
    crypt::UnwrapError,
    format::{FormatError, Stream},
    remote::RemoteError,
};

/// Why a file could not be fetched. What came is kept: the next get of it goes on from there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GetError {
    /// The server, or the way to it.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// There is no archive at that address.
    #[error("\"{url}\" is not a CZIP archive (download it with curl or a browser)")]
    NotAnArchive {
        /// The address.
        url: String,
    },
    /// The archive is encrypted.
    #[error(
        "\"{url}\" is encrypted (give the file of a recipient's private key with --identity, or download the \
         archive unchanged with --archive)"
    )]
    Encrypted {
        /// The address.
        url: String,
    },
    /// One file is not what the archive holds.
    #[error(
        "\"{url}\" holds {entries} files, directories and links, but the output is a single file. For the tree: \
         `refrain czip extract URL -o DIR`, or `get --archive` and `extract`. For one file with all content in \
         order: --joined"
    )]
    SeveralEntries {
        /// The address.
        url: String,
        /// Files, folders and links.
        entries: u64,
    },
    /// There are no keys.
    #[error(transparent)]
    Keys(Box<dyn std::error::Error + Send + Sync>),
    /// The keys do not open the archive.
    #[error(transparent)]
    Unwrap(UnwrapError),
    /// What the server sent is no archive that can be read: damaged, hostile, or changed on the way.
    #[error(transparent)]
    Archive(ReadError),
    /// A chunk is not what its name says, although its frame has the right digest.
    #[error("the archive is invalid: chunk {chunk} of the {stream} does not match its name")]
    Chunk {
        /// Of which stream.
        stream: Stream,
        /// Its number.
        chunk: u64,
    },
    /// The output is a device, a pipe or a socket: a new file would take its place.
    #[error(
        "\"{}\" is not a regular file, and a new file would replace it (redirect the standard output of \
         `refrain czip cat URL` there)",
        .path.display()
    )]
    NotAFile {
        /// The output.
        path: PathBuf,
    },
    /// The folder that the output is to be in is not there.
    #[error("cannot write \"{}\": its directory does not exist", .path.display())]
    NoFolder {
        /// The output.
        path: PathBuf,
    },
    /// The output is a link to nothing.
    #[error(
        "\"{}\" is a symbolic link to \"{}\", which does not exist (give that path itself)",
        .path.display(), .to.display()
    )]
    DanglingLink {
        /// The output.
        path: PathBuf,
        /// What it links to, as it says.
        to: PathBuf,
    },
    /// The cache cannot be made or read.
    #[error("--cache: cannot open \"{}\": {error}{}", .path.display(), advice(.error))]
    Cache {
        /// Its folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The output or a file beside it cannot be read or written.
    #[error("cannot write \"{}\": {error}{}", .path.display(), advice(.error))]
    Local {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A temporary file, or one of those kept, failed.
    #[error("cannot keep the downloaded data: {}{}", .0, advice(.0))]
    Io(#[from] io::Error),
    /// Another get of the same file is at work.
    #[error("\"{}\" is in use by another get of the same file", .path.display())]
    Busy {
        /// The folder in which it keeps what it has.
        path: PathBuf,
    },
    /// Somebody else may have made the folder of the download, and could have this get write to
    /// any file.
    #[error(
        "cannot keep the download in {:?}: {why} (remove it, or choose another output)",
        .path.display().to_string()
    )]
    UnsafePart {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It was told to stop.
    #[error("interrupted (run the same command to resume)")]
    Interrupted,
}

impl GetError {
    /// Whether the archive is damaged or hostile where it is served: the next get of it fails too.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use FormatError::{UnknownFlags, Version};
        match self {
            Self::Chunk { .. } => true,
            Self::Archive(ReadError::Format(Version { .. } | UnknownFlags { .. })) => false,
            Self::Archive(error) => error.is_damage(),
            _ => false,
        }
    }

    /// Whether the same get may succeed later, with what it keeps: nothing is wrong with its arguments or the
    /// archive.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Remote(error) => error.may_pass(),
            Self::Cache { .. } | Self::Local { .. } | Self::Io(_) | Self::Interrupted => true,
            _ => false,
        }
    }

    /// What failed at the file or folder at `path`.
    pub(super) fn local(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Local {
            path: path.to_owned(),
            error: error.into(),
        }
    }
}

/// What to do about an error of the system.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => " (free some space)",
        _ => "",
    }
}

impl From<ReadError> for GetError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::Io(error),
            ReadError::Unwrap(error) => Self::Unwrap(error),
            error => Self::Archive(error),
        }
    }
}

impl From<FormatError> for GetError {
    fn from(error: FormatError) -> Self {
        Self::Archive(error.into())
    }
}
