//! The bound on memory: all links together stay under `--memory`.
//!
//! A link reserves its worst case when it begins: both caches, the fingerprint table, the
//! second stage of all the lanes that it may have, and what its flows may hold. Caches are
//! allocated as they fill, but what was promised to one link is never promised to another.
//! When the full cache no longer fits, a link gets a smaller one, down to 1 MiB; when not
//! even that fits, there is no link.

use std::sync::{Arc, Mutex};

use refrain_codec::{
    EncoderConfig,
    geometry::{CACHE_BYTES_MIN, CacheGeometry},
    marker::MarkerFinder,
};
use refrain_proto::{
    LinkConfig,
    effort::EffortMode,
    limits::{CREDIT_POOL_BYTES, PENDING_BYTES_LINK_MAX},
};

use crate::config::{CommonConfig, Effort};

/// Both ends' second stage of one lane: two compressors at the highest level that is used,
/// two decompressors, measured and rounded up.
const LANE_BYTES: u64 = 24 << 20;

/// What `--memory` has left.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<Mutex<u64>>);

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
}

impl MemoryBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> MemoryBudget {
        MemoryBudget(Arc::new(Mutex::new(bytes)))
    }

    /// Bytes that nobody has reserved.
    pub fn free_bytes(&self) -> u64 {
        *self.0.lock().expect("no panics while the budget is locked")
    }

    /// A link's configuration with the largest cache that fits, and the memory for it.
    pub fn link(&self, config: &CommonConfig) -> Option<(LinkConfig, Reservation)> {
        let mut cache_bytes = config.cache.0 as usize;
        loop {
            let link = link_config(config, CacheGeometry::new(cache_bytes)?);
            if let Some(reservation) = self.reserve(link_bytes(config, &link)) {
                return Some((link, reservation));
            }
            if cache_bytes == CACHE_BYTES_MIN {
                return None;
            }
            cache_bytes = (cache_bytes / 2).max(CACHE_BYTES_MIN);
        }
    }

    fn reserve(&self, bytes: u64) -> Option<Reservation> {
        let mut free = self.0.lock().expect("no panics while the budget is locked");
        *free = free.checked_sub(bytes)?;
        Some(Reservation {
            budget: self.clone(),
            bytes,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self
            .budget
            .0
            .lock()
            .expect("no panics while the budget is locked") += self.bytes;
    }
}

/// The worst case of one link.
fn link_bytes(config: &CommonConfig, link: &LinkConfig) -> u64 {
    let encoder = EncoderConfig {
        geometry: link.send_cache,
        matching: link.matching,
        markers: link.markers.clone(),
        chunk_hasher: link.chunk_hasher,
    };
    encoder.memory_bytes_max() as u64
        + link.receive_cache.cache_bytes() as u64
        + u64::from(config.lanes) * LANE_BYTES
        + CREDIT_POOL_BYTES
        + PENDING_BYTES_LINK_MAX as u64
}

fn link_config(config: &CommonConfig, cache: CacheGeometry) -> LinkConfig {
    let matching = &config.matching;
    LinkConfig {
        matching: matching.algorithm,
        markers: MarkerFinder::new(
            matching.marker,
            matching.sampling_period,
            matching.window,
            matching.marker_table.clone(),
        ),
        chunk_hasher: matching.chunk_hash,
        effort: match config.effort {
            Effort::Auto => EffortMode::Auto,
            Effort::Max => EffortMode::Max,
        },
        dead_after: config.timeouts.dead_after,
        ..LinkConfig::with_cache(cache)
    }
}
