//! The status as Prometheus reads it: its text format, version 0.0.4.
//!
//! Names end in their unit, those of counters in `_total`; bytes and seconds are the only units.
//! A metric is a row of the table below, or a counter of a link with a name
//! ([`refrain_proto::counters`]). The table of `docs/monitor.md` is made of them:
//! `REFRAIN_BLESS=1 cargo test -p refrain-gateway --lib metrics` writes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use refrain_proto::counters::{Count, Counter, LinkCounters};

use crate::status::{CarriedBytes, Direction, Peer, Status, Store};

/// What a page is.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric of a `T`.
struct Metric<T> {
    name: &'static str,
    help: &'static str,
    /// `None` where there is no series.
    value: fn(&T) -> Option<f64>,
}

/// Lists of metrics: help, name and value of each. What ends in `_total` is a counter, all else a
/// gauge.
macro_rules! metrics {
    ($(const $list:ident: $type:ty = {
        $(#[doc = $help:literal] $name:ident = |$of:pat_param| $value:expr;)*
    })*) => {$(
        const $list: &[Metric<$type>] = &[$(Metric {
            name: stringify!($name),
            help: $help,
            value: |$of| $value.into(),
        },)*];
    )*};
}

metrics! {
    const OF_PROGRAM: Status = {
        /// Always 1. The labels are the program's role, its version and its SIMD path.
        refrain_info = |_| 1.0;
    }

    const OF_GATEWAY: Status = {
        /// Time since the gateway started.
        refrain_uptime_seconds = |it| it.uptime_s;
        /// CPU time of the whole process.
        refrain_cpu_seconds_total = |it| it.cpu_s;
        /// Memory limit of all links together.
        refrain_memory_bound_bytes = |it| it.memory.bound_bytes as f64;
        /// Part of the memory limit that the links have reserved.
        refrain_memory_reserved_bytes = |it| it.memory.reserved_bytes as f64;
        /// Memory that the links' caches, tables and second stages use now.
        refrain_memory_allocated_bytes = |it| it.memory.allocated_bytes as f64;
        /// Resident memory of the whole process.
        refrain_memory_resident_bytes = |it| it.memory.resident_bytes.map(|bytes| bytes as f64);
    }

    const OF_STORE: Store = {
        /// 1 if the store is open, else 0.
        refrain_store_open = |it| f64::from(it.is_open);
        /// 1 from an error of the store until it works again, else 0.
        refrain_store_failing = |it| f64::from(it.last_error.is_some());
        /// Disk space that the store uses.
        refrain_store_disk_bytes = |it| it.disk_bytes as f64;
        /// Disk space that the store may use.
        refrain_store_disk_bound_bytes = |it| it.disk_bytes_max as f64;
        /// Chunks in the store.
        refrain_store_chunks = |it| it.chunks as f64;
        /// Bytes of chunks received since the store was opened.
        refrain_store_received_bytes_total = |it| it.received_bytes as f64;
        /// Bytes of received chunks that were new to the store.
        refrain_store_stored_bytes_total = |it| it.stored_bytes as f64;
        /// Chunks that were deleted to free disk space.
        refrain_store_evicted_chunks_total = |it| it.evicted_chunks as f64;
        /// Chunks that were found damaged and dropped.
        refrain_store_damaged_chunks_total = |it| it.damaged_chunks as f64;
    }

    const OF_PEER: Peer = {
        /// 1 if a lane to the peer is up, else 0.
        refrain_peer_up = |it| f64::from(it.up);
        /// 1 if new flows of a near end without a route go to the peer, else 0.
        refrain_peer_serves = |it| it.serves.map(f64::from);
        /// Lanes that are up.
        refrain_lanes = |it| it.lanes as f64;
        /// Lanes that are up and were delayed by packet loss within the last 10 s.
        refrain_lanes_held_up = |it| it.lanes_held_up as f64;
        /// Flows that are open.
        refrain_flows_open = |it| it.flows_open as f64;
        /// Holes in the log of the data that this end sends.
        refrain_holes = |it| it.holes as f64;
        /// Plain bytes in memory for the predictions that this end offered.
        refrain_predictions_held_bytes = |it| it.offered_bytes_held as f64;
        /// Smoothed round trip over TCP, TLS and both programs.
        refrain_round_trip_seconds = |it| it.round_trip_ms.map(|time| time / 1e3);
        /// Current sampling period. A smaller one is more effort.
        refrain_effort_period_bytes = |it| it.effort.as_ref().map(|it| it.period_bytes.into());
        /// Current level of zstd.
        refrain_effort_zstd_level = |it| it.effort.as_ref().map(|it| it.zstd_level.into());
    }

    // Savings of a moment may be negative: gauges.
    const OF_DIRECTION: Direction = {
        /// Bytes that matching saved, minus its tokens.
        refrain_matching_saved_bytes = |it| it.matching_saved_bytes as f64;
        /// Bytes that zstd saved of the rest.
        refrain_zstd_saved_bytes = |it| it.zstd_saved_bytes as f64;
        /// Size of the cache.
        refrain_cache_bytes = |it| it.cache_bytes as f64;
        /// Filled part of the cache.
        refrain_cache_filled_bytes = |it| it.cache_filled_bytes as f64;
    }

    // Gauges: a target that leaves the table, and returns, begins at 0.
    const OF_TARGET: CarriedBytes = {
        /// Plain bytes of applications: of each target with the most traffic, and of all others together.
        refrain_target_app_bytes = |it| it.app_bytes as f64;
        /// Bytes of the targets' frames on the link, before encryption.
        refrain_target_link_bytes = |it| it.link_bytes as f64;
    }
}

/// The page of a status.
pub(super) fn page(status: &Status) -> String {
    let mut page = Page::default();
    let program = [
        ("role", status.role.as_str()),
        ("version", &status.version),
        ("kernels", &status.kernels),
    ];
    page.add(&program, OF_PROGRAM, status);
    page.add(&[], OF_GATEWAY, status);
    if let Some(store) = &status.store {
        page.add(&[], OF_STORE, store);
    }
    for traffic in &status.targets {
        let target = traffic.target.as_deref().unwrap_or("other");
        for (direction, carried) in [("sent", &traffic.sent), ("received", &traffic.received)] {
            let labels = [
                ("target", target),
                ("class", &traffic.class),
                ("direction", direction),
            ];
            page.add(&labels, OF_TARGET, carried);
        }
    }
    for (name, (peer, counted)) in by_name(status) {
        let labels = [("peer", name.as_str())];
        page.add(&labels, OF_PEER, &peer);
        page.add_counters(&labels, &counted.events);
        for (direction, now, counted) in [
            ("sent", &peer.sent, &counted.sent),
            ("received", &peer.received, &counted.received),
        ] {
            let labels = [("peer", name.as_str()), ("direction", direction)];
            let mut of_direction = Direction::of(counted);
            of_direction.add_cache(now);
            page.add(&labels, OF_DIRECTION, &of_direction);
            page.add_counters(&labels, counted);
        }
    }
    page.text()
}

/// Several links of one peer are one series: as they stand now, and what was counted.
fn by_name(status: &Status) -> BTreeMap<String, (Peer, LinkCounters)> {
    let (mut peers, mut keys) = (BTreeMap::<_, (Peer, LinkCounters)>::new(), BTreeSet::new());
    for link in &status.peers {
        let name = link.name.clone().unwrap_or_else(|| link.key.clone());
        let peer = peers.entry(name);
        let (_, counted) = peer
            .and_modify(|(peer, _)| peer.add(link))
            .or_insert_with(|| (link.clone(), LinkCounters::default()));
        // Those of all links of a key are counted together.
        if keys.insert(&link.key)
            && let Ok(key) = link.key.parse()
            && let Some(of_key) = status.counted.get(&key)
        {
            counted.add(of_key);
        }
    }
    peers
}

/// Help and series of metrics, by their names.
#[derive(Default)]
struct Page(BTreeMap<&'static str, (&'static str, String)>);

impl Page {
    fn add<T>(&mut self, labels: &[(&str, &str)], metrics: &[Metric<T>], of: &T) {
        for metric in metrics {
            if let Some(value) = (metric.value)(of) {
                self.series(metric.name, metric.help, labels, value);
            }
        }
    }

    /// All of `counters` that have a name here.
    fn add_counters(&mut self, labels: &[(&str, &str)], counters: &impl Count) {
        counters.each(Counter::default(), &mut |counter, value| {
            if let Some(name) = counter.metric {
                self.series(name, counter.help[0], labels, value);
            }
        });
    }

    fn series(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        value: impl Display,
    ) {
        let labels = labels.iter();
        let labels = labels.map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
        let labels: Vec<_> = labels.collect();
        let (_, series) = self.0.entry(name).or_insert((help.trim(), String::new()));
        *series += &match labels.is_empty() {
            true => format!("{name} {value}\n"),
            false => format!("{name}{{{}}} {value}\n", labels.join(",")),
        };
    }

    fn text(self) -> String {
        let families = self.0.iter().map(|(name, (help, series))| {
            let kind = match name.ends_with("_total") {
                true => "counter",
                false => "gauge",
            };
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{series}\n")
        });
        families.collect()
    }
}

/// A label's value between its quotes.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
