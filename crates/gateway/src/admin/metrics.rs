//! The status as Prometheus reads it: its text format, version 0.0.4.
//!
//! Names end in their unit, those of counters in `_total`; bytes and seconds are the only units.

use std::collections::{BTreeMap, BTreeSet};

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use refrain_proto::counters::{Count, Counter, DirectionCounters, LinkCounters};

use crate::status::{Direction, Peer, Status, Store, TargetTraffic};

/// What a page is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page of a status.
pub fn page(status: &Status) -> String {
    // The engine has the counts; a recorder made for each page turns them into text, so that a
    // link that ended leaves no stale series.
    let recorder = PrometheusBuilder::new().build_recorder();
    let program = [
        ("role", status.role.as_str()),
        ("version", &status.version),
        ("kernels", &status.kernels),
    ];
    Series::new(&recorder, &program).gauge(
        "refrain_info",
        "1, with the program's role and version and the kernels that it runs with.",
        1.0,
    );
    add_gateway(&Series::new(&recorder, &[]), status);
    if let Some(store) = &status.store {
        add_store(&Series::new(&recorder, &[]), store);
    }
    for target in &status.targets {
        add_target(&recorder, target);
    }
    for (name, (peer, counted)) in by_name(status) {
        let series = Series::new(&recorder, &[("peer", &name)]);
        series.counters(&counted.events);
        add_peer(&series, &peer);
        for (direction, now, counted) in [
            ("sent", &peer.sent, &counted.sent),
            ("received", &peer.received, &counted.received),
        ] {
            let labels = [("peer", name.as_str()), ("direction", direction)];
            add_direction(&Series::new(&recorder, &labels), now, counted);
        }
    }
    recorder.handle().render()
}

fn add_gateway(series: &Series<'_>, status: &Status) {
    let memory = &status.memory;
    series.gauge(
        "refrain_uptime_seconds",
        "Time since the gateway started.",
        status.uptime_s,
    );
    series.gauge(
        "refrain_memory_bound_bytes",
        "What all links may hold together.",
        memory.bound_bytes as f64,
    );
    series.gauge(
        "refrain_memory_reserved_bytes",
        "What the links have reserved of the bound.",
        memory.reserved_bytes as f64,
    );
    series.gauge(
        "refrain_memory_allocated_bytes",
        "What the links' caches, tables and second stages take now.",
        memory.allocated_bytes as f64,
    );
    if let Some(resident) = memory.resident_bytes {
        series.gauge(
            "refrain_memory_resident_bytes",
            "What the whole process has resident.",
            resident as f64,
        );
    }
}

fn add_store(series: &Series<'_>, store: &Store) {
    series.gauge(
        "refrain_store_open",
        "1 if the store is open, else 0.",
        f64::from(u8::from(store.is_open)),
    );
    series.gauge(
        "refrain_store_failing",
        "1 from what last went wrong with the store until it goes well again, else 0.",
        f64::from(u8::from(store.last_error.is_some())),
    );
    series.gauge(
        "refrain_store_disk_bytes",
        "What the store takes on disk.",
        store.disk_bytes as f64,
    );
    series.gauge(
        "refrain_store_disk_bound_bytes",
        "What it may take.",
        store.disk_bytes_max as f64,
    );
    series.gauge(
        "refrain_store_chunks",
        "Chunks in the store.",
        store.chunks as f64,
    );
    series.counter(
        "refrain_store_received_bytes_total",
        "Bytes of chunks that came since the store was opened.",
        store.received_bytes,
    );
    series.counter(
        "refrain_store_stored_bytes_total",
        "Bytes of chunks that were new to it.",
        store.stored_bytes,
    );
    series.counter(
        "refrain_store_evicted_chunks_total",
        "Chunks that went to make room.",
        store.evicted_chunks,
    );
    series.counter(
        "refrain_store_damaged_chunks_total",
        "Chunks that were found damaged, and are gone.",
        store.damaged_chunks,
    );
}

/// A peer as it stands now.
fn add_peer(series: &Series<'_>, peer: &Peer) {
    series.gauge(
        "refrain_peer_up",
        "1 if a lane to the peer is up, else 0.",
        f64::from(u8::from(peer.up)),
    );
    series.gauge("refrain_lanes", "Lanes that are up.", peer.lanes as f64);
    series.gauge(
        "refrain_lanes_held_up",
        "Lanes that are up and were held up by loss within 10 s.",
        peer.lanes_held_up as f64,
    );
    series.gauge(
        "refrain_flows_open",
        "Flows that are open.",
        peer.flows_open as f64,
    );
    series.gauge(
        "refrain_holes",
        "Holes in the log of what this end sends.",
        peer.holes as f64,
    );
    series.gauge(
        "refrain_predictions_held_bytes",
        "Plain bytes that are held in memory for what this end offered.",
        peer.offered_bytes_held as f64,
    );
    if let Some(time) = peer.round_trip_ms {
        series.gauge(
            "refrain_round_trip_seconds",
            "Smoothed round trip over TCP, TLS and both programs.",
            time / 1e3,
        );
    }
    if let Some(effort) = &peer.effort {
        series.gauge(
            "refrain_effort_period_bytes",
            "Sampling period of the moment: less is more effort.",
            effort.period_bytes.into(),
        );
        series.gauge(
            "refrain_effort_zstd_level",
            "Level of zstd of the moment.",
            effort.zstd_level.into(),
        );
    }
}

/// Gauges: a target that leaves the table, and returns, begins at 0.
fn add_target(recorder: &PrometheusRecorder, traffic: &TargetTraffic) {
    let target = traffic.target.as_deref().unwrap_or("other");
    for (direction, carried) in [("sent", &traffic.sent), ("received", &traffic.received)] {
        let labels = [
            ("target", target),
            ("class", &traffic.class),
            ("direction", direction),
        ];
        let series = Series::new(recorder, &labels);
        series.gauge(
            "refrain_target_app_bytes",
            "Plain bytes of applications, of the targets that carried most, and of the others.",
            carried.app_bytes as f64,
        );
        series.gauge(
            "refrain_target_link_bytes",
            "Bytes of their frames on the link, inside of its encryption.",
            carried.link_bytes as f64,
        );
    }
}

/// One direction as it stands now, and what was counted of it.
fn add_direction(series: &Series<'_>, now: &Direction, counters: &DirectionCounters) {
    series.counters(counters);
    let counts = Direction::of(counters);
    // Savings of a moment may be negative: gauges.
    series.gauge(
        "refrain_matching_saved_bytes",
        "What matching saved, net of its tokens.",
        counts.matching_saved_bytes as f64,
    );
    series.gauge(
        "refrain_zstd_saved_bytes",
        "What zstd saved of the rest.",
        counts.zstd_saved_bytes as f64,
    );
    series.gauge(
        "refrain_cache_bytes",
        "Size of the cache.",
        now.cache_bytes as f64,
    );
    series.gauge(
        "refrain_cache_filled_bytes",
        "How much of the cache is filled.",
        now.cache_filled_bytes as f64,
    );
}

/// Several links of one peer are one series: as they stand now, and what was counted.
fn by_name(status: &Status) -> BTreeMap<String, (Peer, LinkCounters)> {
    let mut peers: BTreeMap<String, (Peer, BTreeSet<&str>)> = BTreeMap::new();
    for link in &status.peers {
        let name = link.name.clone().unwrap_or_else(|| link.key.clone());
        let peer = peers.entry(name);
        let peer = peer
            .and_modify(|(peer, _)| peer.add(link))
            .or_insert_with(|| (link.clone(), BTreeSet::new()));
        peer.1.insert(&link.key);
    }
    let with_counters = |(name, (peer, keys)): (String, (Peer, BTreeSet<&str>))| {
        let mut sum = LinkCounters::default();
        for (key, counters) in &status.counted {
            if keys.contains(key.to_string().as_str()) {
                sum.add(counters);
            }
        }
        (name, (peer, sum))
    };
    peers.into_iter().map(with_counters).collect()
}

/// Series of a page with the same labels.
struct Series<'a> {
    recorder: &'a PrometheusRecorder,
    labels: Vec<Label>,
}

impl Series<'_> {
    fn new<'a>(recorder: &'a PrometheusRecorder, labels: &[(&'static str, &str)]) -> Series<'a> {
        let label = |&(name, value): &(&'static str, &str)| Label::new(name, value.to_owned());
        Series {
            recorder,
            labels: labels.iter().map(label).collect(),
        }
    }

    fn gauge(&self, name: &'static str, help: &'static str, value: f64) {
        let described = KeyName::from_const_str(name);
        self.recorder.describe_gauge(described, None, help.into());
        let gauge = self.recorder.register_gauge(&self.key(name), &METADATA);
        gauge.set(value);
    }

    fn counter(&self, name: &'static str, help: &'static str, value: u64) {
        let described = KeyName::from_const_str(name);
        self.recorder.describe_counter(described, None, help.into());
        let counter = self.recorder.register_counter(&self.key(name), &METADATA);
        counter.absolute(value);
    }

    /// All of `counters` that have a name here.
    fn counters(&self, counters: &impl Count) {
        counters.each(Counter::default(), &mut |counter, value| {
            if let Some(name) = counter.metric {
                self.counter(name, counter.help[0].trim(), value);
            }
        });
    }

    fn key(&self, name: &'static str) -> Key {
        Key::from_parts(name, self.labels.clone())
    }
}

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
