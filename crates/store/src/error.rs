//! What can go wrong with a store.

use std::{io, path::PathBuf};

use rustix::io::Errno;

use crate::{Chunking, layout::FORMAT_VERSION};

/// Why a store could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk failed.
    #[error("cannot {doing} \"{}\": {source}", path.display())]
    Io {
        /// What was being done, such as `read`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is where the folder is to be, or on the way to it.
    #[error("\"{}\" is not a directory", path.display())]
    NotADirectory {
        /// The file.
        path: PathBuf,
    },
    /// Another process owns the store.
    #[error(
        "cannot open store \"{}\": {} uses this store (stop that process first)",
        path.display(),
        owner.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The store.
        path: PathBuf,
        /// The other process, if it left its number.
        owner: Option<u32>,
    },
    /// The folder went away, or another took its place, while the store was open.
    #[error(
        "\"{}\" was removed or replaced while it was open: new data is not stored (restart to begin a new \
         store)",
        path.display()
    )]
    Gone {
        /// The store.
        path: PathBuf,
    },
    /// The folder holds something else.
    #[error(
        "\"{}\" is not a store, and not empty (name a new or an empty directory)",
        path.display()
    )]
    NotAStore {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds no store, and none was to be made.
    #[error(
        "\"{}\" does not {}",
        path.display(),
        if path.exists() { "contain a store" } else { "exist" }
    )]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// Another version of refrain wrote the store.
    #[error(
        "store \"{}\" has format {found}, but this program reads {ours} (use the refrain that wrote it, or \
         move the directory away to start again)",
        path.display(),
        ours = FORMAT_VERSION
    )]
    OtherVersion {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The file `format` is damaged.
    #[error(
        "\"{}\" is damaged: {what} (restore it, or move the store away to start again)",
        path.display()
    )]
    DamagedFormat {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The store was cut into chunks in another way, so that no new chunk would meet an old one.
    #[error(
        "store \"{}\" was made with {ours}, not with {} (give {ours}, or another directory)",
        path.display(),
        asked.options_unlike(*stored),
        ours = stored.options_unlike(*asked)
    )]
    OtherChunking {
        /// The store.
        path: PathBuf,
        /// How its chunks were cut.
        stored: Chunking,
        /// How they are to be cut now.
        asked: Chunking,
    },
    /// A bound on disk in which not even a few segments fit.
    #[error("a store of {size_bytes} bytes is too small (minimum {needed_bytes})")]
    TooSmall {
        /// The bound that was asked for.
        size_bytes: u64,
        /// The least.
        needed_bytes: u64,
    },
    /// A chunk that is empty, or longer than the store takes.
    #[error("a chunk of {bytes} bytes cannot be stored: it must have 1 to {bytes_max}")]
    ChunkLength {
        /// Its length.
        bytes: usize,
        /// The longest.
        bytes_max: usize,
    },
    /// A recipe that was never begun, or has ended.
    #[error("unknown recipe: it was not begun, or it has ended")]
    UnknownRecipe,
    /// More realms than a store can tell apart.
    #[error("too many realms: the store cannot distinguish more")]
    TooManyRealms,
    /// The metadata of files of others takes half of the bound.
    #[error(
        "the metadata of the files takes more than half of the store's {size_bytes} bytes (make the \
         store larger, or add fewer files)"
    )]
    TooManyFiles {
        /// The bound.
        size_bytes: u64,
    },
    /// All segment numbers were used: tens of terabytes were written.
    #[error("the store has no more segment numbers (move it away to start again)")]
    WornOut,
}

impl StoreError {
    /// Whether the disk cannot read what it has: another attempt finds the same. That the system
    /// has no more open files or memory passes, and what is forbidden is for its owner to allow.
    pub(crate) fn is_unreadable(&self) -> bool {
        let passes = |source: &io::Error| {
            let error = Errno::from_io_error(source);
            matches!(error, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
        };
        let is_forbidden = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
        matches!(self, Self::Io { source, .. } if !passes(source) && !is_forbidden(source))
    }

    /// Whether the disk has no room left.
    pub(crate) fn is_full_disk(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}
