//! Where what `refrain bulk` finds goes, beside being counted.

use refrain_bulk::Sink;
use serde::Serialize;

/// Keeps what was found.
pub(super) trait Keep: Sink {
    /// All was given: keeps it for good, and says what came of it.
    ///
    /// # Errors
    /// What went wrong, now or before; then an archive that was there is as it was.
    fn finish(self: Box<Self>) -> anyhow::Result<Kept>;
}

/// What was kept.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kept {
    /// An archive.
    Archive {
        archive_bytes: u64,
        /// Of its frames.
        stored_bytes: u64,
        entries: u64,
        chunks: u64,
        /// BLAKE3 of the plain content.
        digest: String,
        /// What could not be read, and is no file that is reported as such.
        left_out: u64,
    },
    /// History in a chunk store.
    Store(KeptHistory),
}

/// What a chunk store was given, and has.
#[derive(Default, Serialize)]
pub(super) struct KeptHistory {
    pub realm: String,
    pub files: u64,
    pub new_chunks: u64,
    pub new_bytes: u64,
    pub known_chunks: u64,
    pub known_bytes: u64,
    /// All that the store has now: less than what is new where that found no room.
    pub held_bytes: u64,
    /// Private keys and chunk stores.
    pub passed_over: u64,
}
