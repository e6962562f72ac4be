//! The near end's own store, which may fail to open: it is tried again now and then, and traffic
//! goes on without it.

use std::time::{Duration, Instant};

use refrain_store::{ChunkSource, DiskStore, StoreError, StoreStat};

use super::needs_somebody;
use crate::{config::HistoryOptions, units::decimal_bytes};

/// The pause before a store that did not open is tried again: it doubles each time.
const PAUSE_MIN: Duration = Duration::from_secs(2);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(60);

pub(super) struct OwnStore {
    options: HistoryOptions,
    store: Option<DiskStore>,
    retry_at: Instant,
    pause: Duration,
    /// What it was said to lose by a lower bound.
    told_loss: Option<String>,
}

impl OwnStore {
    /// The store, and why it is not open yet. Fails only where somebody has to see to it.
    pub(super) fn open(
        options: &HistoryOptions,
    ) -> Result<(Self, Result<(), StoreError>), StoreError> {
        let mut own = Self {
            options: options.clone(),
            store: None,
            retry_at: Instant::now(),
            pause: PAUSE_MIN,
            told_loss: None,
        };
        match own.try_to_open() {
            Err(error) if needs_somebody(&error) => Err(error),
            opened => Ok((own, opened)),
        }
    }

    /// Tries again to open it, if it is time for that.
    pub(super) fn look(&mut self) -> Option<Result<(), StoreError>> {
        let is_due = self.store.is_none() && Instant::now() >= self.retry_at;
        is_due.then(|| self.try_to_open())
    }

    fn try_to_open(&mut self) -> Result<(), StoreError> {
        if let Some(loss) = self.options.loss()
            && self.told_loss.as_ref() != Some(&loss)
        {
            tracing::warn!("{loss}");
            self.told_loss = Some(loss);
        }
        match DiskStore::open(&self.options.store, self.options.store_config()) {
            Ok(mut store) => {
                for realm in self.options.realm_names() {
                    if let Err(error) = store.name_realm(realm) {
                        tracing::warn!("the store: {error}");
                    }
                }
                tell_evicted(&store.stat());
                if let Some(lack) = self.options.lack_of_room() {
                    tracing::warn!("{lack}");
                }
                self.store = Some(store);
                Ok(())
            }
            Err(error) => {
                self.retry_at = Instant::now() + self.pause;
                self.pause = (2 * self.pause).min(PAUSE_MAX);
                Err(error)
            }
        }
    }

    /// The store, if it is open.
    pub(super) fn get(&mut self) -> Option<&mut DiskStore> {
        self.store.as_mut()
    }

    pub(super) fn is_open(&self) -> bool {
        self.store.is_some()
    }

    pub(super) fn into_inner(self) -> Option<DiskStore> {
        self.store
    }

    pub(super) fn stat(&self) -> StoreStat {
        let unopened = || StoreStat {
            disk_bytes_max: self.options.size.0,
            ..StoreStat::default()
        };
        self.store.as_ref().map_or_else(unopened, ChunkSource::stat)
    }
}

/// Says what went to keep within the bound when the store was opened.
fn tell_evicted(stat: &StoreStat) {
    if stat.evicted_segments > 0 {
        let [gone, bound] = [stat.evicted_bytes, stat.disk_bytes_max].map(decimal_bytes);
        let chunks = stat.evicted_chunks;
        tracing::info!(
            "the store: deleted {gone} of the oldest history, {chunks} chunks, to stay within {bound}"
        );
    }
}
