//! The findings of `refrain analyze`, as its JSON has them.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    path::PathBuf,
    time::Duration,
};

use refrain_analysis::{
    blocks::Group,
    columns::Kind,
    details::{AGES, CACHE_SIZES, CacheCurve, Chains, Details, Matches, TRIPS, TripRow, knee},
    protocol::Protocol,
    run::{Analysis, Finished},
};
use refrain_capture::{Packet, StreamCounts, Time};
use serde::{Serialize, Serializer};

use crate::cost::{Bill, Prices};

/// Rows of sites and of pairs of machines that a report has at most.
const ROWS_MAX: usize = 10_000;

/// Packets of a capture by kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Packets {
    pub(super) tcp: u64,
    pub(super) other_over_ip: u64,
    pub(super) fragments: u64,
    pub(super) other: u64,
    pub(super) malformed: u64,
    /// Packets that were not captured whole.
    pub(super) truncated: u64,
    /// The first and last one of this capture.
    #[serde(skip)]
    times: Option<(u64, u64)>,
    /// Of all captures before.
    #[serde(skip)]
    seconds: f64,
}

impl Packets {
    pub(super) fn saw(&mut self, packet: &Packet<'_>, at: Time) {
        self.truncated += u64::from((packet.bytes.len() as u64) < u64::from(packet.length));
        let at = at.0;
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
    }

    /// Another capture follows. The time between them does not count.
    pub(super) fn next_capture(&mut self) {
        self.seconds = self.seconds();
        self.times = None;
    }

    fn seconds(&self) -> f64 {
        let (first, last) = self.times.unwrap_or_default();
        self.seconds + (last - first) as f64 / 1e9
    }

    pub(super) fn total(&self) -> u64 {
        self.tcp + self.other_over_ip + self.fragments + self.other + self.malformed
    }
}

/// Everything that a report is made of.
pub(super) struct Seen<'a> {
    pub(super) captures: &'a [PathBuf],
    pub(super) kinds: &'a [Kind],
    pub(super) packets: Packets,
    pub(super) counts: StreamCounts,
    pub(super) analysis: Analysis,
    pub(super) unread: u64,
    pub(super) elapsed: Duration,
    pub(super) is_cut_short: bool,
    pub(super) is_anonymous: bool,
    pub(super) prices: &'a Prices,
}

/// See the module.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) captures: Vec<String>,
    /// Whether a signal ended it.
    pub(super) is_cut_short: bool,
    pub(super) unread_captures: u64,
    pub(super) packets: Packets,
    /// From the first packet to the last, of all captures.
    pub(super) capture_seconds: f64,
    pub(super) tcp_flows: u64,
    /// Connections that began before the capture.
    pub(super) flows_without_begin: u64,
    /// Connections that were forgotten for memory.
    pub(super) flows_ended_early: u64,
    /// Bytes of applications, in order and once.
    pub(super) payload_bytes: u64,
    /// Bytes that the capture lacks.
    pub(super) missed_bytes: u64,
    /// Bytes of packets that came again.
    pub(super) retransmitted_bytes: u64,
    /// Packets whose sequence number fits no other of their connection.
    pub(super) misplaced_packets: u64,
    pub(super) seconds: f64,
    /// The most memory of this process so far.
    pub(super) peak_memory_bytes: Option<u64>,
    /// Bytes of TLS and SSH.
    pub(super) encrypted_bytes: u64,
    /// Other bytes that zstd shortens by less than 5 %.
    pub(super) compressed_bytes: Option<u64>,
    #[serde(serialize_with = "by_name")]
    pub(super) columns: Vec<Column>,
    pub(super) protocols: Vec<Row>,
    pub(super) sites: Vec<Row>,
    pub(super) pairs: Vec<Row>,
    /// Savings by the size of caches.
    pub(super) cache: Option<Cache>,
    pub(super) matches: Option<Matches>,
    pub(super) chains: Option<Chains>,
    /// The limits of ages in `matches` and `chains`, in seconds. The last place has older ones.
    pub(super) age_limits_seconds: [u64; AGES.len()],
    pub(super) client_memory: Option<Quantiles>,
    pub(super) server_memory: Option<Quantiles>,
    pub(super) round_trips: Option<Vec<Trips>>,
    /// A month with this traffic, with the savings of the engine.
    pub(super) month: Option<Month>,
}

#[derive(Serialize)]
pub(super) struct Column {
    #[serde(skip)]
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) source: &'static str,
    pub(super) sent_bytes: u64,
    /// Below zero where more would have been sent.
    pub(super) saved_bytes: i64,
    pub(super) saved_percent: f64,
    /// Of caches at both ends.
    pub(super) memory_bytes: u64,
    /// Caches that were emptied for memory.
    pub(super) caches_given_up: u64,
    pub(super) cpu_seconds: f64,
    pub(super) mb_per_cpu_second: f64,
}

/// A part of the traffic, with the savings of each column.
#[derive(Serialize)]
pub(super) struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) site: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<&'static str>,
    pub(super) tcp_flows: u64,
    pub(super) bytes_to_server: u64,
    pub(super) bytes_to_client: u64,
    /// The cache per pair of machines and direction that is enough for 95 % of the savings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_bytes: Option<u64>,
    pub(super) saved_bytes: BTreeMap<&'static str, i64>,
}

#[derive(Serialize)]
pub(super) struct Cache {
    pub(super) sizes: [u64; CACHE_SIZES.len()],
    /// By size.
    pub(super) saved_bytes: [u64; CACHE_SIZES.len()],
    /// Enough for 95 % of the savings.
    pub(super) recommended_bytes: u64,
    pub(super) protocols: Vec<ProtocolCache>,
}

#[derive(Serialize)]
pub(super) struct ProtocolCache {
    pub(super) protocol: &'static str,
    pub(super) payload_bytes: u64,
    pub(super) saved_bytes: [u64; CACHE_SIZES.len()],
    pub(super) recommended_bytes: u64,
}

/// Of machines' most memory, in bytes.
#[derive(Serialize)]
pub(super) struct Quantiles {
    pub(super) machines: u64,
    /// Hundredths of them: 1 %, 2 %, and so on to 100 %.
    pub(super) percentiles: Vec<u64>,
}

#[derive(Serialize)]
pub(super) struct Trips {
    /// Transfers of at most so many round trips, and more than the row before; `None` for all longer ones.
    pub(super) trips_max: Option<u64>,
    #[serde(flatten)]
    pub(super) row: TripRow,
}

#[derive(Serialize)]
pub(super) struct Month {
    /// Without elimination. The bill has the traffic with it.
    pub(super) traffic_before_gb: f64,
    /// Whether that is the capture's rate, and not the user's figure.
    pub(super) is_scaled: bool,
    #[serde(flatten)]
    pub(super) bill: Bill,
}

/// As one object, in the order of the tables.
fn by_name<S: Serializer>(columns: &[Column], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(columns.iter().map(|column| (column.name, column)))
}

impl Row {
    pub(super) fn total(&self) -> u64 {
        self.bytes_to_server + self.bytes_to_client
    }
}

impl Report {
    pub(super) fn new(seen: Seen<'_>) -> Self {
        let Analysis {
            groups,
            totals,
            columns,
        } = &seen.analysis;
        let payload_bytes = totals.total();
        let mut names = Names::new(seen.is_anonymous);
        let bytes_of = |group: usize| {
            totals
                .bytes
                .get(group)
                .map_or(0, |bytes| bytes.iter().sum())
        };
        let is_encrypted = |group: usize| groups[group].protocol.is_encrypted();
        let details = |find: fn(&Details) -> bool| {
            let column = columns.iter().find(|column| find(&column.outcome.details));
            column.map(|column| &column.outcome.details)
        };
        let dense =
            details(|details| details.dense_bytes.is_some()).and_then(|it| it.dense_bytes.as_ref());
        let curve =
            details(|details| details.cache_curve.is_some()).and_then(|it| it.cache_curve.as_ref());
        let trips =
            details(|details| details.round_trips.is_some()).and_then(|it| it.round_trips.as_ref());
        let machines =
            details(|details| details.machines.is_some()).and_then(|it| it.machines.as_ref());
        let chains = details(|details| details.chains.is_some()).and_then(|it| it.chains.clone());
        let matches =
            details(|details| details.matches.is_some()).and_then(|it| it.matches.clone());
        let capture_seconds = seen.packets.seconds();
        let rows = Rows {
            analysis: &seen.analysis,
            curve,
        };
        let protocols = rows.by(|group| Key {
            protocol: Some(group.protocol),
            ..Key::default()
        });
        let sites = rows.by(|group| Key {
            site: group.site.as_deref(),
            ..Key::default()
        });
        let pairs = rows.by(|group| Key {
            client: Some(group.client),
            server: Some(group.server),
            port: Some(group.port),
            protocol: Some(group.protocol),
            site: None,
        });
        let mut named = |rows: Vec<(Key<'_>, Row)>| -> Vec<Row> {
            let rows = rows.into_iter().take(ROWS_MAX);
            rows.map(|(key, row)| names.name(&key, row)).collect()
        };
        let cache = curve.map(|curve| cache(curve, groups, &bytes_of));
        let columns_of = columns.iter().map(|column| {
            let kind = seen.kinds.iter().find(|kind| kind.name == column.name);
            Column::new(column, kind, payload_bytes)
        });
        let columns_of: Vec<Column> = columns_of.collect();
        let month = columns_of
            .iter()
            .find(|column| column.name.starts_with("refrain"));
        let month = month
            .and_then(|column| Month::new(column, payload_bytes, capture_seconds, seen.prices));
        let captures = seen.captures.iter().enumerate();
        Self {
            captures: captures
                .map(|(nth, path)| match seen.is_anonymous {
                    true => format!("capture-{}", nth + 1),
                    false => path.display().to_string(),
                })
                .collect(),
            is_cut_short: seen.is_cut_short,
            unread_captures: seen.unread,
            packets: seen.packets,
            capture_seconds,
            tcp_flows: seen.counts.flows,
            flows_without_begin: seen.counts.without_begin,
            flows_ended_early: seen.counts.ended_early,
            payload_bytes,
            missed_bytes: seen.counts.missed_bytes,
            retransmitted_bytes: seen.counts.repeated_bytes,
            misplaced_packets: seen.counts.misplaced,
            seconds: seen.elapsed.as_secs_f64(),
            peak_memory_bytes: crate::report::peak_memory_bytes(),
            encrypted_bytes: (0..groups.len())
                .filter(|group| is_encrypted(*group))
                .map(bytes_of)
                .sum(),
            compressed_bytes: dense.map(|dense| {
                let dense = dense.iter().enumerate();
                dense
                    .filter(|(group, _)| !is_encrypted(*group))
                    .map(|(_, bytes)| bytes)
                    .sum()
            }),
            protocols: named(protocols),
            sites: named(
                sites
                    .into_iter()
                    .filter(|(key, _)| key.site.is_some())
                    .collect(),
            ),
            pairs: named(pairs),
            cache,
            matches,
            chains,
            age_limits_seconds: AGES,
            client_memory: machines.and_then(|machines| quantiles(&machines.clients())),
            server_memory: machines.and_then(|machines| quantiles(&machines.servers())),
            round_trips: trips.map(|trips| {
                let rows = TRIPS.iter().zip(trips.rows());
                rows.map(|(limit, row)| Trips {
                    trips_max: (*limit < u64::MAX).then_some(*limit),
                    row: *row,
                })
                .collect()
            }),
            month,
            columns: columns_of,
        }
    }
}

impl Column {
    fn new(column: &Finished, kind: Option<&Kind>, payload_bytes: u64) -> Self {
        let sent_bytes = column.outcome.total();
        let saved_bytes = payload_bytes as i64 - sent_bytes as i64;
        let cpu_seconds = column.cpu.as_secs_f64();
        Self {
            name: column.name,
            title: kind.map_or("", |kind| kind.title),
            source: kind.map_or("", |kind| kind.source),
            sent_bytes,
            saved_bytes,
            saved_percent: 100.0 * saved_bytes as f64 / payload_bytes.max(1) as f64,
            memory_bytes: column.outcome.memory_bytes,
            caches_given_up: column.outcome.details.caches_given_up,
            cpu_seconds,
            mb_per_cpu_second: payload_bytes as f64 / 1e6 / cpu_seconds.max(1e-9),
        }
    }
}

impl Month {
    fn new(
        column: &Column,
        payload_bytes: u64,
        capture_seconds: f64,
        prices: &Prices,
    ) -> Option<Self> {
        const MONTH_SECONDS: f64 = 730.0 * 3600.0;
        let gb = payload_bytes as f64 / 1e9;
        let traffic_gb = match prices.traffic_gb() {
            Some(gb) => gb,
            None if capture_seconds >= 1.0 => gb * MONTH_SECONDS / capture_seconds,
            None => return None,
        };
        let share = (column.saved_percent / 100.0).max(0.0);
        // The column works for both ends.
        let cpu_s_per_gb = column.cpu_seconds / 2.0 / gb.max(1e-9);
        Some(Self {
            traffic_before_gb: traffic_gb,
            is_scaled: prices.traffic_gb().is_none(),
            bill: prices.bill(traffic_gb, share, cpu_s_per_gb),
        })
    }
}

fn cache(curve: &CacheCurve, groups: &[Group], bytes_of: &dyn Fn(usize) -> u64) -> Cache {
    let saved = curve.saved(0..groups.len());
    let protocols = Protocol::ALL.iter().filter_map(|protocol| {
        let is_of = |group: usize| groups[group].protocol == *protocol;
        let payload_bytes: u64 = (0..groups.len())
            .filter(|group| is_of(*group))
            .map(bytes_of)
            .sum();
        let saved_bytes = curve.saved((0..groups.len()).filter(|group| is_of(*group)));
        (payload_bytes > 0).then(|| ProtocolCache {
            protocol: protocol.name(),
            payload_bytes,
            saved_bytes,
            recommended_bytes: knee(&saved_bytes),
        })
    });
    Cache {
        sizes: CACHE_SIZES,
        saved_bytes: saved,
        recommended_bytes: knee(&saved),
        protocols: protocols.collect(),
    }
}

fn quantiles(rising: &[u64]) -> Option<Quantiles> {
    let last = rising.len().checked_sub(1)?;
    let at = |percent: usize| {
        rising[(rising.len() * percent)
            .div_ceil(100)
            .saturating_sub(1)
            .min(last)]
    };
    Some(Quantiles {
        machines: rising.len() as u64,
        percentiles: (1..=100).map(at).collect(),
    })
}

/// The properties that the groups of a row share.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key<'a> {
    client: Option<IpAddr>,
    server: Option<IpAddr>,
    port: Option<u16>,
    protocol: Option<Protocol>,
    site: Option<&'a str>,
}

struct Rows<'a> {
    analysis: &'a Analysis,
    curve: Option<&'a CacheCurve>,
}

impl<'a> Rows<'a> {
    /// Sums of groups with the same key, those with most bytes first.
    fn by(&self, key: impl Fn(&'a Group) -> Key<'a>) -> Vec<(Key<'a>, Row)> {
        let Analysis {
            groups,
            totals,
            columns,
        } = self.analysis;
        let mut members: BTreeMap<Key<'a>, Vec<usize>> = BTreeMap::new();
        for (nth, group) in groups.iter().enumerate() {
            members.entry(key(group)).or_default().push(nth);
        }
        let rows = members.into_iter().map(|(key, members)| {
            let sum = |of: &dyn Fn(usize) -> u64| members.iter().map(|nth| of(*nth)).sum::<u64>();
            let bytes = |direction: usize| {
                sum(&|nth| totals.bytes.get(nth).map_or(0, |bytes| bytes[direction]))
            };
            let (up, down) = (bytes(0), bytes(1));
            let saved = columns.iter().map(|column| {
                let sent = sum(&|nth| column.outcome.sent.get(nth).copied().unwrap_or_default());
                (column.name, (up + down) as i64 - sent as i64)
            });
            let row = Row {
                client: None,
                server: None,
                site: None,
                port: key.port,
                protocol: key.protocol.map(Protocol::name),
                tcp_flows: sum(&|nth| totals.flows.get(nth).copied().unwrap_or_default()),
                bytes_to_server: up,
                bytes_to_client: down,
                cache_bytes: self
                    .curve
                    .map(|curve| knee(&curve.saved(members.iter().copied()))),
                saved_bytes: saved.collect(),
            };
            (key, row)
        });
        let mut rows: Vec<(Key<'a>, Row)> = rows.collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.total()));
        rows
    }
}

/// Names of machines and sites.
struct Names {
    is_anonymous: bool,
    machines: HashMap<IpAddr, usize>,
    sites: HashMap<String, usize>,
}

impl Names {
    fn new(is_anonymous: bool) -> Self {
        Self {
            is_anonymous,
            machines: HashMap::new(),
            sites: HashMap::new(),
        }
    }

    fn name(&mut self, key: &Key<'_>, mut row: Row) -> Row {
        row.client = key.client.map(|address| self.machine(address));
        row.server = key.server.map(|address| self.machine(address));
        row.site = key.site.map(|site| self.site(site));
        row
    }

    fn machine(&mut self, address: IpAddr) -> String {
        let next = self.machines.len() + 1;
        match self.is_anonymous {
            true => format!("machine-{}", self.machines.entry(address).or_insert(next)),
            false => address.to_string(),
        }
    }

    fn site(&mut self, site: &str) -> String {
        let next = self.sites.len() + 1;
        match self.is_anonymous {
            true => format!("site-{}", self.sites.entry(site.to_owned()).or_insert(next)),
            false => site.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_machines() {
        assert!(quantiles(&[]).is_none());
        let one = quantiles(&[7]).expect("a machine");
        assert_eq!(
            (one.machines, one.percentiles[0], one.percentiles[99]),
            (1, 7, 7)
        );
        let rising: Vec<u64> = (1..=200).collect();
        let all = quantiles(&rising).expect("machines");
        assert_eq!(all.percentiles[49], 100);
        assert_eq!(all.percentiles[98], 198);
        assert_eq!(all.percentiles[99], 200);
    }
}
