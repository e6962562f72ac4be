//! What a lower bound costs, for who is to know before the store is opened with it.
//!
//! Whole segments go, and one takes up to 256 MiB: a bound that is a little lower may cost much more
//! than the difference. The lengths of files tell; nothing is locked, loaded or written.

use super::{Sealed, StoreConfig, evict::is_within, room::room_bytes};
use crate::{
    DiskBytes, StoreError,
    folder::Folder,
    format::{self, sizes},
};

/// What opening a store with a lower bound than it had takes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// What the store's segments take on disk.
    pub held_bytes: u64,
    /// What of it goes, the oldest first; some of that is kept where it came again lately.
    pub leaving_bytes: u64,
}

impl Lowered {
    /// Nothing where the bound is not lower than it was, or all fits it.
    pub(super) fn of(
        folder: &dyn Folder,
        config: &StoreConfig,
    ) -> Result<Option<Self>, StoreError> {
        let stored = format::read(folder)?;
        let stored = stored.filter(|stored| stored.chunking == config.chunking);
        if stored.is_none_or(|stored| stored.size_bytes <= config.size_bytes) {
            return Ok(None);
        }
        let segment_bytes = config.checked_segment_bytes(room_bytes(folder)?)?;
        let held_bytes = sizes(folder)?.values().map(DiskBytes::total).sum();
        let [mut log, of_files] = Sealed::of(folder)?;
        // The youngest goes on being written, unless it is too large for that.
        if let Some((&head, disk)) = log.segments.last_key_value()
            && disk.total() <= segment_bytes
        {
            log.remove(head);
        }
        let mut leaving_bytes = 0;
        while !is_within(config.size_bytes, segment_bytes, &log, &of_files)
            && let Some(&oldest) = log.segments.keys().next()
        {
            leaving_bytes += log.remove(oldest);
        }
        Ok((leaving_bytes > 0).then_some(Self {
            held_bytes,
            leaving_bytes,
        }))
    }
}
