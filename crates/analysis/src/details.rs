//! Findings of columns beside the bytes that they would have sent.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use refrain_capture::{Direction, FlowNumber, Time};
use serde::Serialize;

use crate::blocks::{BlockFlow, GroupNumber};

/// See the module. Each is found by one or two columns.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// Caches that were given up for memory. Their data is sent again.
    pub caches_given_up: u64,
    /// Savings by the size of caches (EndRE, Figures 8 and 9).
    pub cache_curve: Option<CacheCurve>,
    /// Where repeats come from (EndRE, section 3).
    pub matches: Option<Matches>,
    /// Chains of chunks (PACK, Figures 6 and 8).
    pub chains: Option<Chains>,
    /// Memory of machines (EndRE, Figure 10).
    pub machines: Option<MachineMemory>,
    /// Round trips of short transfers (EndRE, Table 5).
    pub round_trips: Option<RoundTrips>,
    /// Bytes that no compression shortens, by group.
    pub dense_bytes: Option<Vec<u64>>,
}

/// Sizes of a cache in bytes, for which savings are counted.
pub const CACHE_SIZES: [u64; 15] = doubling(64 << 10);

/// Sizes, each twice as large as the one before.
pub(crate) const fn doubling<const N: usize>(first: u64) -> [u64; N] {
    let mut sizes = [first; N];
    let mut nth = 1;
    while nth < N {
        sizes[nth] = sizes[nth - 1] * 2;
        nth += 1;
    }
    sizes
}

/// Bytes that matching saves, by the smallest cache of a pair of machines and direction that finds them.
///
/// Approximation: one pass with caches that hardly forget. A smaller cache finds a repeat if it is near enough. In truth it
/// may find another one instead, so real savings are not lower.
#[derive(Clone, Debug, Default)]
pub struct CacheCurve {
    groups: Vec<[u64; CACHE_SIZES.len()]>,
}

impl CacheCurve {
    pub(crate) fn add(&mut self, group: GroupNumber, distance: u64, bytes: u64) {
        let index = group.0 as usize;
        if self.groups.len() <= index {
            self.groups.resize(index + 1, Default::default());
        }
        let size = CACHE_SIZES.partition_point(|size| *size < distance);
        self.groups[index][size.min(CACHE_SIZES.len() - 1)] += bytes;
    }

    /// Bytes that each of [`CACHE_SIZES`] saves of these groups.
    #[must_use]
    pub fn saved(&self, groups: impl IntoIterator<Item = usize>) -> [u64; CACHE_SIZES.len()] {
        let mut saved = [0; CACHE_SIZES.len()];
        for group in groups
            .into_iter()
            .filter_map(|group| self.groups.get(group))
        {
            let mut sum = 0;
            for (saved, bytes) in saved.iter_mut().zip(group) {
                sum += bytes;
                *saved += sum;
            }
        }
        saved
    }
}

/// The smallest of [`CACHE_SIZES`] that saves 95 % of the bytes that the largest saves.
#[must_use]
pub fn knee(saved: &[u64; CACHE_SIZES.len()]) -> u64 {
    let most = saved[saved.len() - 1];
    let enough = saved.iter().position(|saved| saved * 20 >= most * 19);
    CACHE_SIZES[enough.unwrap_or_default()]
}

/// Ages in seconds, for which repeats are counted. Older ones have a place of their own.
pub const AGES: [u64; 7] = [1, 10, 60, 600, 3_600, 86_400, 604_800];

/// Counts by [`AGES`].
pub type ByAge = [u64; AGES.len() + 1];

pub(crate) fn age_index(nanos: u64) -> usize {
    let seconds = Duration::from_nanos(nanos).as_secs();
    AGES.partition_point(|age| *age <= seconds)
}

/// Repeats of all machines' traffic.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Matches {
    /// Repeated bytes that the same pair of machines had exchanged.
    pub same_pair_bytes: u64,
    /// Repeated bytes that another pair had exchanged last.
    pub other_pair_bytes: u64,
    /// Repeated bytes by how many bytes of all traffic lie between, for [`CACHE_SIZES`] and beyond.
    pub by_distance: [u64; CACHE_SIZES.len() + 1],
    /// Repeated bytes by age.
    pub by_age: ByAge,
}

impl Matches {
    pub(crate) fn add(&mut self, bytes: u64, is_same_pair: bool, distance: u64, age_nanos: u64) {
        match is_same_pair {
            true => self.same_pair_bytes += bytes,
            false => self.other_pair_bytes += bytes,
        }
        self.by_distance[CACHE_SIZES.partition_point(|size| *size < distance)] += bytes;
        self.by_age[age_index(age_nanos)] += bytes;
    }
}

/// Chunks that a receiver had, in the chains that they form.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Chains {
    /// Bytes of all chunks.
    pub bytes: u64,
    /// Bytes of chunks that the receiver had.
    pub repeated_bytes: u64,
    /// Repeated chunks.
    pub repeated_chunks: u64,
    /// Repeated chunks by the length of their chain: 1 chunk, 2 or 3, 4 to 7, and so on. The last place has all longer ones.
    pub by_chain_length: [u64; 12],
    /// Repeated bytes by the time since their receiver had them last.
    pub by_age: ByAge,
}

impl Chains {
    pub(crate) fn found(&mut self, bytes: u64, age_nanos: u64) {
        self.bytes += bytes;
        self.repeated_bytes += bytes;
        self.repeated_chunks += 1;
        self.by_age[age_index(age_nanos)] += bytes;
    }

    pub(crate) fn new_chunk(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(crate) fn ended(&mut self, length: u64) {
        if let Some(log) = length.checked_ilog2() {
            let last = self.by_chain_length.len() - 1;
            self.by_chain_length[(log as usize).min(last)] += length;
        }
    }

    /// Repeated chunks in chains of two or more.
    #[must_use]
    pub fn chunks_in_chains(&self) -> u64 {
        self.by_chain_length[1..].iter().sum()
    }
}

/// As in EndRE: the bytes that a pair of machines keeps at most for a direction.
const PAIR_BYTES_MAX: u64 = 10 << 20;

/// A pair of machines that was silent for so long has its caches on disk, as in EndRE.
const PAGED_OUT_NANOS: u64 = 10 * 3_600 * 1_000_000_000;

/// Further pairs are not counted.
const PAIRS_MAX: usize = 1 << 20;

/// The most memory of caches that each machine needs at any time.
#[derive(Clone, Debug, Default)]
pub struct MachineMemory {
    pairs: HashMap<(IpAddr, IpAddr), PairMemory>,
    /// All pairs in memory, by a time at which each was used.
    in_memory: VecDeque<(IpAddr, IpAddr)>,
    clients: HashMap<IpAddr, Peak>,
    servers: HashMap<IpAddr, Peak>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PairMemory {
    /// By direction.
    bytes: [u64; 2],
    last: Time,
    is_in_memory: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    now: u64,
    most: u64,
}

impl MachineMemory {
    pub(crate) fn saw(
        &mut self,
        client: IpAddr,
        server: IpAddr,
        direction: Direction,
        bytes: u64,
        at: Time,
    ) {
        self.page_out(at);
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&(client, server)) {
            return;
        }
        let pair = self.pairs.entry((client, server)).or_default();
        pair.last = at;
        let mut grown = 0;
        if !pair.is_in_memory {
            pair.is_in_memory = true;
            grown += pair.bytes.iter().sum::<u64>();
            self.in_memory.push_back((client, server));
        }
        let cached = &mut pair.bytes[direction as usize];
        let added = bytes.min(PAIR_BYTES_MAX - *cached);
        *cached += added;
        grown += added;
        for (peaks, machine) in [(&mut self.clients, client), (&mut self.servers, server)] {
            let peak = peaks.entry(machine).or_default();
            peak.now += grown;
            peak.most = peak.most.max(peak.now);
        }
    }

    fn page_out(&mut self, now: Time) {
        while let Some(key) = self.in_memory.front().copied() {
            let Some(pair) = self.pairs.get_mut(&key) else {
                return;
            };
            if now.0.saturating_sub(pair.last.0) < PAGED_OUT_NANOS {
                return;
            }
            self.in_memory.pop_front();
            pair.is_in_memory = false;
            let bytes: u64 = pair.bytes.iter().sum();
            for (peaks, machine) in [(&mut self.clients, key.0), (&mut self.servers, key.1)] {
                peaks.entry(machine).or_default().now -= bytes;
            }
        }
    }

    /// The most bytes of each client, in rising order.
    #[must_use]
    pub fn clients(&self) -> Vec<u64> {
        rising(&self.clients)
    }

    /// The same of servers.
    #[must_use]
    pub fn servers(&self) -> Vec<u64> {
        rising(&self.servers)
    }
}

fn rising(peaks: &HashMap<IpAddr, Peak>) -> Vec<u64> {
    let mut most: Vec<u64> = peaks.values().map(|peak| peak.most).collect();
    most.sort_unstable();
    most
}

/// Bytes of a segment.
const SEGMENT_BYTES: u64 = 1_448;

/// Segments of a connection's first round trip (RFC 6928).
const WINDOW_SEGMENTS: u64 = 10;

/// Transfers by the round trips that they take, up to these.
pub const TRIPS: [u64; 7] = [1, 2, 3, 4, 6, 8, u64::MAX];

/// Round trips of transfers from servers, while the connection starts slowly: the first has ten segments, each of the others
/// twice as many as the one before.
///
/// A transfer is the bytes that a server sends until its client sends again. Transfers that are less than 10 ms apart count
/// as one.
#[derive(Clone, Debug, Default)]
pub struct RoundTrips {
    rows: [TripRow; TRIPS.len()],
    open: HashMap<FlowNumber, (u64, u64)>,
}

/// Transfers that take alike many round trips.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TripRow {
    /// All of them.
    pub transfers: u64,
    /// Round trips of all bytes.
    pub trips: u64,
    /// Round trips of the sent bytes.
    pub trips_after: u64,
    /// Seconds of round trips, where the capture has the connection's round trip.
    pub seconds: f64,
    /// Those of the sent bytes.
    pub seconds_after: f64,
}

impl RoundTrips {
    pub(crate) fn block(&mut self, flow: &BlockFlow, direction: Direction, bytes: u64, sent: u64) {
        match direction {
            Direction::Up => self.closed(flow),
            Direction::Down => {
                let open = self.open.entry(flow.number).or_default();
                open.0 += bytes;
                open.1 += sent;
            }
        }
    }

    pub(crate) fn closed(&mut self, flow: &BlockFlow) {
        let Some((bytes, sent)) = self.open.remove(&flow.number) else {
            return;
        };
        let (trips, after) = (trips(bytes), trips(sent));
        let row = &mut self.rows[TRIPS.partition_point(|limit| *limit < trips)];
        row.transfers += 1;
        row.trips += trips;
        row.trips_after += after;
        if let Some(round_trip) = flow.round_trip {
            row.seconds += trips as f64 * round_trip.as_secs_f64();
            row.seconds_after += after as f64 * round_trip.as_secs_f64();
        }
    }

    /// A row for each of [`TRIPS`].
    #[must_use]
    pub fn rows(&self) -> &[TripRow; TRIPS.len()] {
        &self.rows
    }
}

fn trips(bytes: u64) -> u64 {
    let (mut left, mut window, mut trips) = (bytes, WINDOW_SEGMENTS * SEGMENT_BYTES, 1);
    while left > window {
        left -= window;
        window *= 2;
        trips += 1;
    }
    trips
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn machine(number: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, number).into()
    }

    #[test]
    fn round_trips_double_their_bytes() {
        assert_eq!(trips(0), 1);
        assert_eq!(trips(14_480), 1);
        assert_eq!(trips(14_481), 2);
        assert_eq!(trips(3 * 14_480), 2);
        assert_eq!(trips(3 * 14_480 + 1), 3);
        assert_eq!(trips(15 * 14_480), 4);
    }

    #[test]
    fn savings_by_cache_size_only_grow() {
        let mut curve = CacheCurve::default();
        curve.add(GroupNumber(0), 1, 100);
        curve.add(GroupNumber(1), 64 << 10, 10);
        curve.add(GroupNumber(1), (64 << 10) + 1, 1_000);
        curve.add(GroupNumber(3), u64::MAX, 1);
        let all = curve.saved(0..4);
        assert_eq!(all[..3], [110, 1_110, 1_110]);
        assert_eq!(all[14], 1_111);
        assert_eq!(curve.saved([1])[1], 1_010);
        assert_eq!(knee(&all), 128 << 10);
        assert_eq!(knee(&[0; 15]), 64 << 10);
    }

    #[test]
    fn idle_caches_leave_memory_and_return_with_their_bytes() {
        const HOUR: u64 = 3_600 * 1_000_000_000;
        let mut memory = MachineMemory::default();
        let (one, other, server) = (machine(1), machine(2), machine(3));
        memory.saw(one, server, Direction::Down, 7 << 20, Time(0));
        memory.saw(one, server, Direction::Down, 7 << 20, Time(HOUR));
        memory.saw(one, server, Direction::Up, 1 << 20, Time(HOUR));
        assert_eq!(memory.clients(), [11 << 20]);
        // Eleven hours later the first pair is on disk.
        memory.saw(other, server, Direction::Down, 5 << 20, Time(12 * HOUR));
        assert_eq!(memory.servers(), [11 << 20]);
        memory.saw(one, server, Direction::Up, 1 << 20, Time(13 * HOUR));
        assert_eq!(memory.servers(), [17 << 20]);
        assert_eq!(memory.clients(), [5 << 20, 12 << 20]);
    }

    #[test]
    fn chains_are_counted_by_length() {
        let mut chains = Chains::default();
        for length in [0, 1, 1, 2, 3, 4, 1 << 40] {
            chains.ended(length);
        }
        assert_eq!(chains.by_chain_length[..3], [2, 5, 4]);
        assert_eq!(chains.by_chain_length[11], 1 << 40);
        assert_eq!(chains.chunks_in_chains(), 9 + (1 << 40));
    }

    #[test]
    fn ages_end_before_their_limits() {
        assert_eq!(age_index(0), 0);
        assert_eq!(age_index(999_999_999), 0);
        assert_eq!(age_index(1_000_000_000), 1);
        assert_eq!(age_index(u64::MAX), 7);
    }
}
