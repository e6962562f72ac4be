//! The bound on memory: all links together stay under `--memory`.
//!
//! A link reserves its worst case when it begins: both caches, the fingerprint table, the
//! second stage of all the lanes that it may have, and what its flows may hold. Caches are
//! allocated as they fill, but what was promised to one link is never promised to another.
//! Each peer has an equal *share* of the bound for all its links together, so that all of them find
//! room whoever comes first. How many lanes and flows a link may have follows the share, and so do its caches,
//! down to 1 MiB; when not even that fits, there is no link.
//!
//! The process itself comes on top: `PROCESS_BYTES_MAX` in `tests/common/resident.rs`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use refrain_codec::{
    EncoderConfig,
    geometry::{CACHE_BYTES_MIN, CacheGeometry},
};
use refrain_proto::{
    LinkConfig,
    limits::{
        CREDIT_FLOOR_BYTES, LANE_MEMORY_BYTES_MAX, LEARNING_BYTES, OFFERED_BYTES_LINK,
        PENDING_BYTES_LINK_MAX, WINDOW_BYTES_MAX,
    },
    planted::Bug,
    predictions::history::HistoryConfig,
};
use tokio::sync::Semaphore;

use crate::config::{Config, HistoryOptions, MEMORY_BYTES_MIN};
use crate::keys::PublicKey;
use crate::units::decimal_bytes;

/// What a flow takes before it has any share of the pools: what its opener may send at
/// once, and its task, signals and state, measured and rounded up.
const FLOW_BYTES: u64 = CREDIT_FLOOR_BYTES + (12 << 10);

/// Buffers grow by doubling, so they may hold twice what is in them.
const BUFFER_GROWTH: u64 = 2;

/// What `--memory` has left.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    books: Arc<Mutex<Books>>,
    /// What the links of one peer may take together.
    share_bytes: u64,
    /// The turn of the link that prefaults its caches.
    prefaulting: Arc<Semaphore>,
}

#[derive(Debug)]
struct Books {
    free_bytes: u64,
    /// What the links of each peer have reserved.
    reserved_bytes: BTreeMap<PublicKey, u64>,
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: MemoryBudget,
    peer: PublicKey,
    bytes: u64,
}

impl MemoryBudget {
    /// A budget of `bytes` for the links of so many peers.
    pub fn new(bytes: u64, peers: usize) -> MemoryBudget {
        MemoryBudget {
            books: Arc::new(Mutex::new(Books {
                free_bytes: bytes,
                reserved_bytes: BTreeMap::new(),
            })),
            share_bytes: match Bug::WholeMemoryForOne.is_planted() {
                true => bytes,
                false => (bytes / peers.max(1) as u64).max(MEMORY_BYTES_MIN),
            },
            prefaulting: Arc::new(Semaphore::new(1)),
        }
    }

    /// Bytes that nobody has reserved.
    pub fn free_bytes(&self) -> u64 {
        self.lock().free_bytes
    }

    /// A link's configuration with the largest cache that fits a peer's share, and the memory for
    /// it. `None` if the other links of the peer leave too little of the share.
    pub fn link(&self, peer: PublicKey, config: &Config) -> Option<(LinkConfig, Reservation)> {
        let history = config.history.as_ref().map(HistoryOptions::engine);
        self.link_within(peer, self.share_bytes, config, history)
    }

    /// A smaller link, which fits what the peer's other links leave of its share.
    pub(crate) fn further_link(
        &self,
        peer: PublicKey,
        config: &Config,
    ) -> Option<(LinkConfig, Reservation)> {
        let reserved = self.lock().reserved_bytes.get(&peer).copied();
        let left = self.share_bytes.checked_sub(reserved.unwrap_or(0))?;
        match left {
            MEMORY_BYTES_MIN.. => self.link_within(peer, left, config, None),
            _ => None,
        }
    }

    fn link_within(
        &self,
        peer: PublicKey,
        share_bytes: u64,
        config: &Config,
        history: Option<HistoryConfig>,
    ) -> Option<(LinkConfig, Reservation)> {
        let mut cache_bytes = config.cache.0 as usize;
        loop {
            let cache = CacheGeometry::new(cache_bytes)?;
            let link = link_config(config, history.clone(), share_bytes, cache);
            let bytes = link_bytes(&link);
            if bytes <= share_bytes || cache_bytes == CACHE_BYTES_MIN {
                return Some((link, self.reserve(peer, bytes)?));
            }
            cache_bytes = (cache_bytes / 2).max(CACHE_BYTES_MIN);
        }
    }

    fn reserve(&self, peer: PublicKey, bytes: u64) -> Option<Reservation> {
        let mut books = self.lock();
        let reserved = books.reserved_bytes.get(&peer).copied().unwrap_or(0) + bytes;
        if reserved > self.share_bytes {
            return None;
        }
        let left = books.free_bytes.checked_sub(bytes)?;
        if !Bug::MemoryPromisedTwice.is_planted() {
            books.free_bytes = left;
        }
        books.reserved_bytes.insert(peer, reserved);
        drop(books);
        Some(Reservation {
            budget: self.clone(),
            peer,
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books
            .lock()
            .expect("no panics while the budget is locked")
    }
}

impl Reservation {
    /// The turn of the link that prefaults its caches, one of all.
    pub(crate) fn prefaulting(&self) -> Arc<Semaphore> {
        Arc::clone(&self.budget.prefaulting)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut books = self.budget.lock();
        if !Bug::MemoryPromisedTwice.is_planted() {
            books.free_bytes += self.bytes;
        }
        if let Some(reserved) = books.reserved_bytes.get_mut(&self.peer) {
            *reserved -= self.bytes;
            if *reserved == 0 {
                books.reserved_bytes.remove(&self.peer);
            }
        }
    }
}

/// A warning if links have smaller caches than a given `--cache-size`.
pub fn smaller_caches(config: &Config) -> Option<String> {
    let budget = MemoryBudget::new(config.memory.0, config.peers.len());
    let (link, _reserved) = budget.link(config.key.public(), config)?;
    let (asked, given) = (config.cache.0, link.send_cache.cache_bytes() as u64);
    (config.is_cache_given && given < asked).then(|| {
        format!(
            "--cache-size: a link gets caches of {}, not {}: the memory has no space for more (raise \
             --memory)",
            decimal_bytes(given),
            decimal_bytes(asked)
        )
    })
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
        + BUFFER_GROWTH * (link.window_bytes + link.pending_bytes_max as u64)
}

/// What a link is to do, within its share of the memory.
fn link_config(
    config: &Config,
    history: Option<HistoryConfig>,
    memory: u64,
    cache: CacheGeometry,
) -> LinkConfig {
    let lanes_that_fit = memory / 3 / LANE_MEMORY_BYTES_MAX as u64;
    let flows_that_fit = memory / 8 / FLOW_BYTES;
    LinkConfig {
        history: history.map(|history| HistoryConfig {
            offered_bytes_max: (memory / 32).clamp(1 << 20, OFFERED_BYTES_LINK),
            learning_bytes_max: (memory / 64).clamp(512 << 10, LEARNING_BYTES as u64) as usize,
            ..history
        }),
        lanes_max: lanes_that_fit.clamp(1, config.lanes_max.into()) as usize,
        flows_max: flows_that_fit.min(config.flows_max.into()) as usize,
        flows_max_option: match flows_that_fit < config.flows_max.into() {
            true => "--memory",
            false => "--flows-max",
        },
        window_bytes: (memory / 16).clamp(1 << 20, WINDOW_BYTES_MAX),
        pending_bytes_max: (memory / 64).clamp(1 << 20, PENDING_BYTES_LINK_MAX as u64) as usize,
        ..config.engine(cache)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use refrain_proto::Mode;

    use crate::{keys::PrivateKey, loopback::Keys, units::ByteSize};

    fn config(memory: u64) -> Config {
        let keys = Keys::new().expect("keys");
        let mut config = keys.far_config(&[]).expect("valid");
        config.memory = ByteSize(memory);
        config
    }

    fn peer() -> PublicKey {
        PrivateKey::generate().expect("a key").public()
    }

    #[test]
    fn a_link_fits_and_shrinks_with_the_memory() {
        for mebibytes in [MEMORY_BYTES_MIN >> 20, 64, 128, 256, 1024, 65536] {
            let config = config(mebibytes << 20);
            let budget = MemoryBudget::new(config.memory.0, 1);
            let history = Some(HistoryConfig::default());
            let link = budget.link_within(peer(), budget.share_bytes, &config, history);
            let (link, reserved) = link.expect("it fits");
            assert!(link.lanes_max >= 1 && link.flows_max >= 64, "{link:?}");
            drop(reserved);
            assert_eq!(budget.free_bytes(), config.memory.0);
        }
    }

    /// The last column of the table in `docs/run.md`, "Memory".
    #[test]
    fn a_link_takes_what_is_documented() {
        let config = config(2 << 30);
        let budget = MemoryBudget::new(config.memory.0, 1);
        let with = |history| {
            let link = budget.link_within(peer(), budget.share_bytes, &config, history);
            link.expect("it fits").0
        };
        let link = with(None);
        let caches = (link.send_cache.cache_bytes() + link.receive_cache.cache_bytes()) as u64;
        let lanes = (link.lanes_max * LANE_MEMORY_BYTES_MAX) as u64;
        let flows = link.flows_max as u64 * FLOW_BYTES;
        let waiting = BUFFER_GROWTH * (link.window_bytes + link.pending_bytes_max as u64);
        let all = link_bytes(&link);
        let table = all - caches - lanes - flows - waiting;
        let store = link_bytes(&with(Some(HistoryConfig::default()))) - all;
        let expected = [caches, table, lanes, flows, waiting, all, store];

        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run.md");
        let page = fs::read_to_string(page).expect("the documentation");
        let (_, rows) = page.split_once("| with a share of 2 GiB").expect("a table");
        let rows = rows.lines().skip(2).take_while(|row| row.starts_with('|'));
        let documented: Vec<u64> = rows
            .map(|row| row.split('|').nth(3).expect("three columns"))
            .map(|size| size.trim_matches([' ', '*']))
            .map(|size| size.split_once(" MiB").expect("a size").0)
            .map(|number| number.parse().expect("a number"))
            .collect();
        assert_eq!(documented, expected.map(|bytes| bytes.div_ceil(1 << 20)));
    }

    /// Both directions together reserve twice as much.
    #[test]
    fn the_window_is_a_sixteenth_of_the_share_and_128_mib_at_most() {
        for (share_bytes, mebibytes) in [(160 << 20, 10), (2 << 30, 128), (64 << 30, 128)] {
            let config = config(share_bytes);
            let budget = MemoryBudget::new(share_bytes, 1);
            let (link, _reserved) = budget.link(peer(), &config).expect("it fits");
            assert_eq!(link.window_bytes, mebibytes << 20);
        }
    }

    /// Near ends of which each has a link, of so many peers.
    fn served(memory: u64, peers: usize, mode: Mode) -> usize {
        let mut config = config(memory);
        config.mode = mode;
        let budget = MemoryBudget::new(memory, peers);
        let links: Vec<_> = (0..peers)
            .filter_map(|_| budget.link(peer(), &config))
            .collect();
        links.len()
    }

    /// As many as before links had one window for all flows.
    #[test]
    fn a_far_end_serves_so_many_near_ends() {
        assert_eq!(served(6_320_000_000, 40, Mode::Auto), 40);
        assert_eq!(served(6_320_000_000, 200, Mode::Auto), 166);
        assert_eq!(served(6_320_000_000, 40, Mode::Receiver), 40);
        assert_eq!(served(2 << 30, 200, Mode::Receiver), 64);
    }

    /// As many links as the peer gets, by one way and then by the other.
    fn all_links(
        budget: &MemoryBudget,
        peer: PublicKey,
        config: &Config,
    ) -> Vec<(LinkConfig, Reservation)> {
        let link = || {
            let link = budget.link(peer, config);
            link.or_else(|| budget.further_link(peer, config))
        };
        std::iter::from_fn(link).take(1000).collect()
    }

    #[test]
    fn the_bound_on_flows_is_the_options_or_the_memorys() {
        let bound = |memory: u64, flows_max: u16| {
            let mut config = config(memory);
            config.flows_max = flows_max;
            let budget = MemoryBudget::new(config.memory.0, 1);
            let (link, _reserved) = budget.link(peer(), &config).expect("it fits");
            (link.flows_max, link.flows_max_option)
        };
        assert_eq!(bound(4 << 30, 10_000), (10_000, "--flows-max"));
        assert_eq!(bound(4 << 30, 7), (7, "--flows-max"));
        let (flows, option) = bound(64 << 20, 10_000);
        assert!(flows < 1000 && option == "--memory", "{flows} {option}");
    }

    #[test]
    fn smaller_caches_than_asked_for_are_a_warning() {
        let keys = Keys::new().expect("keys");
        let warned = |options: &[&str]| {
            let config = keys.far_config(options).expect("valid");
            smaller_caches(&config)
        };
        let smaller = warned(&["--memory", "2GiB", "--cache-size", "1GiB"]);
        let smaller = smaller.expect("half of it does not fit");
        let part = "caches of 537 MB, not 1.07 GB: ";
        assert!(smaller.contains(part), "{smaller}");
        let fits = ["--memory", "2GiB", "--cache-size", "128MiB"];
        assert_eq!(warned(&fits), None);
        let without_caches = ["--memory", "300MiB", "--cache-size", "128MiB"];
        let without_caches = [&without_caches[..], &["--mode", "off"]].concat();
        assert_eq!(warned(&without_caches), None);
        // A default follows the memory.
        assert_eq!(warned(&["--memory", "300MiB"]), None);
    }

    #[test]
    fn a_peer_with_many_links_leaves_the_others_their_shares() {
        for (mebibytes, peers) in [(1024, 1), (1024, 2), (1024, 7), (1024, 25), (120, 3)] {
            let config = config(mebibytes << 20);
            let budget = MemoryBudget::new(config.memory.0, peers);
            let greedy = all_links(&budget, peer(), &config);
            let taken: u64 = greedy.iter().map(|(link, _)| link_bytes(link)).sum();
            assert!(taken <= config.memory.0 / peers as u64, "{taken}");
            assert_eq!(taken + budget.free_bytes(), config.memory.0);
            let others: Vec<_> = (1..peers)
                .map(|_| budget.link(peer(), &config).expect("its share is free"))
                .collect();
            drop((greedy, others));
            assert_eq!(budget.free_bytes(), config.memory.0);
        }
    }

    #[test]
    fn a_further_link_of_a_peer_fits_what_is_left_of_its_share() {
        let config = config(1536 << 20);
        let budget = MemoryBudget::new(config.memory.0, 1);
        let peer = peer();
        let first = budget.link(peer, &config).expect("it fits");
        assert!(budget.link(peer, &config).is_none());
        let further = budget
            .further_link(peer, &config)
            .expect("a smaller one fits");
        assert!(link_bytes(&further.0) < link_bytes(&first.0));
    }
}
