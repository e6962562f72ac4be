//! Archives of an origin that sends no parts of files: each comes once, as a whole, into a file without a
//! name in the folder for chunks, and is read there.
//!
//! All of them together have as much room as chunks have, and one of them a quarter of it; not many come
//! at a time. Where a file is closed its room is free.

use std::{
    collections::VecDeque,
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use thiserror::Error;
use tokio::sync::Semaphore;

use crate::{
    archive::Source,
    cache::CacheOptions,
    remote::{Remote, RemoteError},
    serve::{counters::Counters, file::ArchiveFile},
};

/// Archives that come at a time.
const FETCHES_MAX: usize = 4;
/// The part of the room that one may take.
const PART_OF_ONE: u64 = 4;

/// The archives that came as wholes.
pub(super) struct Wholes {
    folder: PathBuf,
    bytes_max: u64,
    taken: Arc<AtomicU64>,
    /// Who has one of these fetches.
    pub(super) fetches: Arc<Semaphore>,
    /// The paths of those that came, the oldest first. Some may be closed.
    came: Mutex<VecDeque<String>>,
    counters: Arc<Counters>,
}

/// Why an archive did not come as a whole.
#[derive(Debug, Error)]
pub(super) enum WholeError {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("cannot keep it: {0}")]
    File(#[from] io::Error),
    #[error("the origin neither supports Range requests nor reports the archive's length")]
    NoLength,
    #[error(
        "the origin does not support Range requests, and the whole archive is too large: {bytes} bytes \
         (limit {bytes_max}, a quarter of the cache limit)"
    )]
    TooLong { bytes: u64, bytes_max: u64 },
    #[error(
        "the origin does not support Range requests, and other whole archives leave no space for it"
    )]
    NoRoom,
}

/// Room that is taken, until dropped.
struct Room {
    taken: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Relaxed);
    }
}

struct Whole {
    file: ArchiveFile,
    _room: Room,
}

impl Wholes {
    pub(super) fn new(options: &CacheOptions, counters: Arc<Counters>) -> Self {
        Self {
            folder: options.folder.clone(),
            bytes_max: options.bytes_max,
            taken: Arc::default(),
            fetches: Arc::new(Semaphore::new(FETCHES_MAX)),
            came: Mutex::default(),
            counters,
        }
    }

    /// Fetches all of the archive at `remote`. Room for it is made by having `close` close others by their
    /// paths.
    pub(super) fn fetch(
        &self,
        path: &str,
        remote: &Remote,
        close: impl Fn(&str),
    ) -> Result<Box<dyn Source>, WholeError> {
        let bytes = remote.len().ok_or(WholeError::NoLength)?;
        let bytes_max = self.bytes_max / PART_OF_ONE;
        if bytes > bytes_max {
            return Err(WholeError::TooLong { bytes, bytes_max });
        }
        let room = self.room(bytes, close)?;
        // A folder that cannot be written costs chunks, and not archives.
        let mut file = tempfile::tempfile_in(&self.folder).or_else(|_| tempfile::tempfile())?;
        remote.fetch(std::slice::from_ref(&(0..bytes)), &mut |_, piece| {
            file.write_all(piece).map_err(WholeError::File)
        })?;
        self.came().push_back(path.to_owned());
        Ok(Box::new(Whole {
            file: ArchiveFile::new(file, bytes, self.counters.clone()),
            _room: room,
        }))
    }

    fn room(&self, bytes: u64, close: impl Fn(&str)) -> Result<Room, WholeError> {
        let take = |taken: u64| Some(taken + bytes).filter(|&taken| taken <= self.bytes_max);
        while self.taken.fetch_update(Relaxed, Relaxed, take).is_err() {
            let oldest = self.came().pop_front().ok_or(WholeError::NoRoom)?;
            close(&oldest);
        }
        Ok(Room {
            taken: self.taken.clone(),
            bytes,
        })
    }

    fn came(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Whole {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}
