//! The bound on memory: all links together stay under `--memory`.
//!
//! A link reserves its worst case when it begins: both caches, the fingerprint table, the
//! second stage of all the lanes that it may have, and what its flows may hold. Caches are
//! allocated as they fill, but what was promised to one link is never promised to another.
//! Each peer has an equal *share* of the bound, so that all of them find room whoever comes
//! first. How many lanes and flows a link may have follows the share, and so do its caches,
//! down to 1 MiB; when not even that fits, there is no link.
//!
//! The process itself comes on top: `PROCESS_BYTES_MAX` in `tests/common/resident.rs`.

use std::sync::{Arc, Mutex, MutexGuard};

use refrain_codec::{
    EncoderConfig,
    geometry::{CACHE_BYTES_MIN, CacheGeometry},
    marker::MarkerFinder,
};
use refrain_proto::{
    LinkConfig,
    by_receiver::history::HistoryConfig,
    effort::EffortMode,
    limits::{
        BLOCK_BYTES_MAX, CREDIT_BYTES_INITIAL, CREDIT_POOL_BYTES, FLOWS_MAX, LANE_MEMORY_BYTES_MAX,
        LEARNING_BYTES, OFFERED_BYTES_LINK, PENDING_BYTES_LINK_MAX,
    },
    planted::Bug,
};

use crate::config::{CommonConfig, Effort};
use crate::pace;

/// What a flow takes before it has any share of the pools: what its opener may send at
/// once, and its task, signals and state, measured and rounded up.
const FLOW_BYTES: u64 = CREDIT_BYTES_INITIAL + (12 << 10);

/// Buffers grow by doubling, so they may hold twice what is in them.
const BUFFER_GROWTH: u64 = 2;

/// The least that `--memory` may be: one link with the smallest caches and one lane.
pub const MEMORY_BYTES_MIN: u64 = 40 << 20;

/// What `--memory` has left.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    free_bytes: Arc<Mutex<u64>>,
    /// What one peer's link may take.
    share_bytes: u64,
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
}

impl MemoryBudget {
    /// A budget of `bytes` for the links of so many peers.
    pub fn new(bytes: u64, peers: usize) -> MemoryBudget {
        MemoryBudget {
            free_bytes: Arc::new(Mutex::new(bytes)),
            share_bytes: match Bug::WholeMemoryForOne.is_planted() {
                true => bytes,
                false => (bytes / peers.max(1) as u64).max(MEMORY_BYTES_MIN),
            },
        }
    }

    /// Bytes that nobody has reserved.
    pub fn free_bytes(&self) -> u64 {
        *self.lock()
    }

    /// A link's configuration with the largest cache that fits, and the memory for it.
    pub fn link(
        &self,
        config: &CommonConfig,
        history: Option<HistoryConfig>,
    ) -> Option<(LinkConfig, Reservation)> {
        let mut cache_bytes = config.cache.0 as usize;
        loop {
            let cache = CacheGeometry::new(cache_bytes)?;
            let link = link_config(config, history.clone(), self.share_bytes, cache);
            let bytes = link_bytes(&link);
            if bytes <= self.share_bytes || cache_bytes == CACHE_BYTES_MIN {
                return Some((link, self.reserve(bytes)?));
            }
            cache_bytes = (cache_bytes / 2).max(CACHE_BYTES_MIN);
        }
    }

    fn reserve(&self, bytes: u64) -> Option<Reservation> {
        let mut free = self.lock();
        let left = free.checked_sub(bytes)?;
        *free = if Bug::MemoryPromisedTwice.is_planted() {
            *free
        } else {
            left
        };
        drop(free);
        Some(Reservation {
            budget: self.clone(),
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.free_bytes
            .lock()
            .expect("no panics while the budget is locked")
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !Bug::MemoryPromisedTwice.is_planted() {
            *self.budget.lock() += self.bytes;
        }
    }
}

/// The worst case of one link.
fn link_bytes(link: &LinkConfig) -> u64 {
    let encoder = EncoderConfig {
        geometry: link.send_cache,
        matching: link.matching,
        markers: link.markers.clone(),
        chunk_hasher: link.chunk_hasher,
        backend: link.backend,
    };
    let caches = match link.mode.keeps_caches() {
        true => encoder.memory_bytes_max() as u64 + link.receive_cache.cache_bytes() as u64,
        false => 0,
    };
    let history = link.history.as_ref().map_or(0, |history| {
        history.offered_bytes_max + history.learning_bytes_max as u64
    });
    caches
        + history
        + (link.lanes_max * LANE_MEMORY_BYTES_MAX) as u64
        + link.flows_max as u64 * FLOW_BYTES
        + BUFFER_GROWTH * (link.credit_pool_bytes + link.pending_bytes_max as u64)
}

fn link_config(
    config: &CommonConfig,
    history: Option<HistoryConfig>,
    memory: u64,
    cache: CacheGeometry,
) -> LinkConfig {
    let matching = &config.matching;
    let lanes_that_fit = memory / 3 / LANE_MEMORY_BYTES_MAX as u64;
    LinkConfig {
        mode: config.mode,
        history: history.map(|history| HistoryConfig {
            offered_bytes_max: (memory / 32).clamp(1 << 20, OFFERED_BYTES_LINK),
            learning_bytes_max: (memory / 64).clamp(512 << 10, LEARNING_BYTES as u64) as usize,
            ..history
        }),
        matching: matching.algorithm,
        markers: MarkerFinder::new(
            matching.marker,
            matching.sampling_period,
            matching.window,
            matching.marker_table.clone(),
        ),
        chunk_hasher: matching.chunk_hash,
        backend: matching.backend,
        effort: match config.effort {
            Effort::Auto => EffortMode::Auto,
            Effort::Max => EffortMode::Max,
        },
        block_bytes_max: config.rate.map_or(BLOCK_BYTES_MAX, pace::block_bytes),
        dead_after: config.timeouts.dead_after,
        lanes_max: lanes_that_fit.clamp(1, config.lanes_max.into()) as usize,
        flows_max: (memory / 8 / FLOW_BYTES).min(FLOWS_MAX as u64) as usize,
        credit_pool_bytes: (memory / 16).clamp(1 << 20, CREDIT_POOL_BYTES),
        pending_bytes_max: (memory / 64).clamp(1 << 20, PENDING_BYTES_LINK_MAX as u64) as usize,
        ..LinkConfig::with_cache(cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{loopback::Keys, units::ByteSize};

    fn config(memory: u64) -> CommonConfig {
        let keys = Keys::new().expect("keys");
        let mut config = keys.far_config(&[]).expect("valid").common;
        config.memory = ByteSize(memory);
        config
    }

    #[test]
    fn a_link_fits_and_shrinks_with_the_memory() {
        for mebibytes in [MEMORY_BYTES_MIN >> 20, 64, 128, 256, 1024, 65536] {
            let config = config(mebibytes << 20);
            let budget = MemoryBudget::new(config.memory.0, 1);
            let history = Some(HistoryConfig::default());
            let (link, reserved) = budget.link(&config, history).expect("it fits");
            assert!(link.lanes_max >= 1 && link.flows_max >= 64, "{link:?}");
            drop(reserved);
            assert_eq!(budget.free_bytes(), config.memory.0);
        }
    }

    #[test]
    fn each_peer_finds_room_whoever_comes_first_and_the_bound_holds() {
        let config = config(1 << 30);
        for peers in [1, 2, 7, 25] {
            let budget = MemoryBudget::new(config.memory.0, peers);
            let mut links = Vec::new();
            while let Some(link) = budget.link(&config, None) {
                links.push(link);
                assert!(links.len() < 1000, "the budget ends");
            }
            assert!(links.len() >= peers, "{} of {peers}", links.len());
            let reserved: u64 = links.iter().map(|(link, _)| link_bytes(link)).sum();
            assert_eq!(reserved + budget.free_bytes(), config.memory.0);
        }
    }
}
