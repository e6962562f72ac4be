//! What `refrain status` shows of a store, and of its neighbours'.

use refrain_store::{Realm, StoreStat};
use serde::{Deserialize, Serialize};

use crate::{history::HistoryReport, last_error::LastError};

/// A store of what was received.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Store {
    /// Its folder.
    pub path: String,
    /// The realm that is learnt and answers; those of several peers, with commas.
    pub realm: String,
    /// Chunks, and their bytes.
    pub chunks: u64,
    /// See there.
    pub chunk_bytes: u64,
    /// What it takes on disk, and may take.
    pub disk_bytes: u64,
    /// See there.
    pub disk_bytes_max: u64,
    /// Bytes of chunks that came since it was opened, and of these, that were new.
    pub received_bytes: u64,
    /// See there.
    pub stored_bytes: u64,
    /// Chunks that went since then, to make room.
    pub evicted_chunks: u64,
    /// Chunks that were found damaged since then, and are gone.
    pub damaged_chunks: u64,
    /// Memory of its index.
    pub memory_bytes: u64,
    /// Chunks of these realms alone, at most: dead ones may count.
    pub realm_chunks: u64,
    /// Whether it is open: traffic goes on without one that the disk refuses.
    pub is_open: bool,
    /// What last went wrong, until it goes well again.
    pub last_error: Option<String>,
    /// Seconds since that was last met.
    pub last_error_s: Option<f64>,
    /// Stores of neighbours that are read too.
    pub also: Vec<StoreAlso>,
}

/// A neighbour's store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreAlso {
    /// Its folder.
    pub path: String,
    /// Whether it was ever there to read.
    pub is_there: bool,
    /// Its chunks.
    pub chunks: u64,
    /// Those of the realm, at most.
    pub realm_chunks: u64,
    /// What is wrong with it now.
    pub trouble: Option<String>,
}

impl Store {
    pub(super) fn of(report: HistoryReport) -> Store {
        let realms = report.realms.iter();
        let realms: Vec<String> = realms.map(|name| Realm::named(name).to_string()).collect();
        let of_realm = |stat: &StoreStat| {
            let known = stat.realms.iter();
            let known = known.filter(|known| realms.contains(&known.realm));
            known.map(|known| known.chunks).sum()
        };
        let also = report.also.into_iter().map(|neighbour| StoreAlso {
            path: neighbour.folder.display().to_string(),
            is_there: neighbour.stat.is_some(),
            chunks: neighbour.stat.as_ref().map_or(0, |stat| stat.chunks),
            realm_chunks: neighbour.stat.as_ref().map_or(0, of_realm),
            trouble: neighbour.trouble,
        });
        let stat = report.stat;
        Store {
            realm_chunks: of_realm(&stat),
            also: also.collect(),
            path: report.store.display().to_string(),
            realm: report.realms.join(", "),
            chunks: stat.chunks,
            chunk_bytes: stat.chunk_bytes,
            disk_bytes: stat.disk.total(),
            disk_bytes_max: stat.disk_bytes_max,
            received_bytes: stat.received_bytes,
            stored_bytes: stat.stored_bytes,
            evicted_chunks: stat.evicted_chunks,
            damaged_chunks: stat.damaged,
            memory_bytes: stat.memory_bytes,
            is_open: report.is_open,
            last_error_s: report.last_error.as_ref().map(LastError::age_s),
            last_error: report.last_error.map(|last| last.text),
        }
    }
}
