//! EndRE's columns: a cache per pair of machines and direction, Max-Match or Chunk-Match.

use std::{collections::HashMap, net::IpAddr};

use refrain_capture::{Direction, FlowNumber, Time};
use refrain_codec::{
    EncodedBlock, EncoderConfig, LogPosition, SourceCursor,
    geometry::CacheGeometry,
    marker::{MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes},
    matching::MatchingAlgorithm,
    token::{Region, TokenReader},
};

use super::{Column, Outcome, cache::Cache, compression::compressor, dot::Dot};
use crate::{
    blocks::{BlockFlow, Step},
    details::{CacheCurve, MachineMemory, RoundTrips},
    protocol::Protocol,
};

/// As in the paper: 10 MB.
const CACHE_BYTES: usize = 10 << 20;

/// The longest distance at which repeats are found where no size of the cache is given.
const CACHE_BYTES_MAX: usize = 1 << 30;

/// A machine, another one, and the sender's direction.
type Pair = (IpAddr, IpAddr, Direction);

/// See the module.
pub(super) struct Repeats {
    config: EncoderConfig,
    limit: CacheLimit,
    pairs: HashMap<Pair, PairCache>,
    cursors: HashMap<(FlowNumber, Direction), SourceCursor>,
    encoded: EncodedBlock,
    /// Compresses the rest after matching.
    second: Option<zstd::bulk::Compressor<'static>>,
    dot: Option<Dot>,
    curve: Option<CacheCurve>,
    details: Option<(MachineMemory, RoundTrips)>,
    outcome: Outcome,
    out: Vec<u8>,
    memory_bytes_max: u64,
    memory_bytes: u64,
    blocks: u64,
}

struct PairCache {
    cache: Cache,
    /// The number of its last block.
    last_use: u64,
    /// By the protocols so far.
    limit: usize,
}

/// The size of a pair's cache.
#[derive(Clone, Copy)]
enum CacheLimit {
    Fixed(usize),
    /// EndRE, section 8.2.
    ByProtocol,
}

/// Markers of this algorithm.
pub(super) fn markers(algorithm: MarkerAlgorithm, period: usize) -> MarkerFinder {
    MarkerFinder::new(
        algorithm,
        SamplingPeriod::new(period).expect("a power of two"),
        WindowBytes::default(),
        SampleByteTable::default(),
    )
}

impl Repeats {
    pub(super) fn max_match(algorithm: MarkerAlgorithm, period: usize, memory: u64) -> Self {
        Self::new(algorithm, period, CacheLimit::Fixed(CACHE_BYTES), memory)
    }

    /// The column by which the report knows memory of machines and round trips.
    pub(super) fn samplebyte(memory: u64) -> Self {
        Self {
            details: Some(Default::default()),
            ..Self::max_match(MarkerAlgorithm::SampleByte, 32, memory)
        }
    }

    /// The column by which it knows savings by the size of caches.
    pub(super) fn unbounded(memory: u64) -> Self {
        let limit = CacheLimit::Fixed(CACHE_BYTES_MAX);
        Self {
            curve: Some(CacheCurve::default()),
            ..Self::new(MarkerAlgorithm::SampleByte, 32, limit, memory)
        }
    }

    pub(super) fn by_protocol(memory: u64) -> Self {
        Self::new(
            MarkerAlgorithm::SampleByte,
            32,
            CacheLimit::ByProtocol,
            memory,
        )
    }

    pub(super) fn with_zstd(memory: u64) -> Self {
        Self {
            second: Some(compressor()),
            ..Self::max_match(MarkerAlgorithm::SampleByte, 32, memory)
        }
    }

    pub(super) fn with_dot(memory: u64) -> Self {
        Self {
            dot: Some(Dot::new(memory / 2)),
            ..Self::max_match(MarkerAlgorithm::SampleByte, 32, memory / 2)
        }
    }

    pub(super) fn chunk_match(memory: u64) -> Self {
        let mut repeats = Self::max_match(MarkerAlgorithm::SampleByte, 32, memory);
        repeats.config.matching = MatchingAlgorithm::ChunkMatch;
        repeats
    }

    fn new(algorithm: MarkerAlgorithm, period: usize, limit: CacheLimit, memory: u64) -> Self {
        Self {
            config: EncoderConfig {
                markers: markers(algorithm, period),
                ..EncoderConfig::with_defaults(CacheGeometry::SMALLEST)
            },
            limit,
            pairs: HashMap::new(),
            cursors: HashMap::new(),
            encoded: EncodedBlock::default(),
            second: None,
            dot: None,
            curve: None,
            details: None,
            outcome: Outcome::default(),
            out: Vec::new(),
            memory_bytes_max: memory,
            memory_bytes: 0,
            blocks: 0,
        }
    }

    fn block(&mut self, flow: BlockFlow, direction: Direction, at: Time, bytes: &[u8]) {
        let cursor = *self.cursors.entry((flow.number, direction)).or_default();
        let position = self.encode(flow, direction, bytes);
        let encoded = &self.encoded;
        let whole = encoded.tokens.len() + encoded.literals.len();
        let sent = match &mut self.second {
            Some(compressor) => {
                let streams = [&encoded.tokens[..], &encoded.literals].concat();
                self.out.clear();
                self.out
                    .reserve(zstd::zstd_safe::compress_bound(streams.len()));
                let written = compressor.compress_to_buffer(&streams, &mut self.out);
                written
                    .expect("the buffer has its bound")
                    .min(streams.len())
            }
            None => whole,
        };
        let sent = sent.min(bytes.len()) as u64;
        self.outcome.add(flow.group, sent);
        if let Some((machines, round_trips)) = &mut self.details {
            machines.saw(
                flow.client.ip(),
                flow.server.ip(),
                direction,
                bytes.len() as u64,
                at,
            );
            round_trips.block(&flow, direction, bytes.len() as u64, sent);
        }
        if let Some(curve) = &mut self.curve {
            let regions = regions(&self.encoded, position, cursor);
            // All tokens cost the same here.
            let count = regions.len().max(1);
            let cost = self.encoded.tokens.len() / count;
            for (place, region) in regions {
                let distance = (position + place as u64).since(region.source);
                curve.add(flow.group, distance, region.len.saturating_sub(cost) as u64);
            }
        }
        if let Some(dot) = &mut self.dot {
            let covered = regions(&self.encoded, position, cursor);
            let covered = covered.iter().map(|(place, region)| {
                let place = *place as u64;
                place..place + region.len as u64
            });
            let found = dot.block(&flow, direction, at, bytes, covered);
            self.outcome.subtract(flow.group, found);
        }
    }

    fn encode(&mut self, flow: BlockFlow, direction: Direction, bytes: &[u8]) -> LogPosition {
        let pair = (flow.client.ip(), flow.server.ip(), direction);
        let config = &self.config;
        let cursor = self.cursors.entry((flow.number, direction)).or_default();
        self.blocks += 1;
        let mut is_new = false;
        let pair = self.pairs.entry(pair).or_insert_with(|| {
            is_new = true;
            PairCache {
                cache: Cache::new(config),
                last_use: 0,
                limit: 0,
            }
        });
        let limit = match self.limit {
            CacheLimit::Fixed(bytes) => bytes,
            CacheLimit::ByProtocol => flow.protocol.cache_bytes(),
        };
        pair.limit = pair.limit.max(limit);
        pair.last_use = self.blocks;
        let before = match is_new {
            true => 0,
            false => pair.cache.bytes() as u64,
        };
        let position = pair
            .cache
            .encode(bytes, pair.limit, config, cursor, &mut self.encoded);
        let grown = pair.cache.bytes() as u64 - before;
        if grown > 0 {
            self.memory_bytes += grown;
            if self.memory_bytes > self.memory_bytes_max {
                self.make_room();
            }
        }
        position
    }

    /// Gives up the caches of half of all pairs: those that were silent for longest.
    fn make_room(&mut self) {
        let mut uses: Vec<u64> = self.pairs.values().map(|pair| pair.last_use).collect();
        let half = uses.len() / 2;
        if half == 0 {
            return;
        }
        let (_, median, _) = uses.select_nth_unstable(half);
        let median = *median;
        self.pairs.retain(|_, pair| pair.last_use >= median);
        self.outcome.details.caches_given_up += half as u64;
        self.memory_bytes = self
            .pairs
            .values()
            .map(|pair| pair.cache.bytes() as u64)
            .sum();
        // Their positions begin again.
        self.cursors.clear();
    }
}

/// The regions of a block, each with its place there. `cursor` is as it was before the block.
pub(crate) fn regions(
    encoded: &EncodedBlock,
    position: LogPosition,
    mut cursor: SourceCursor,
) -> Vec<(usize, Region)> {
    let (mut tokens, mut place) = (TokenReader::new(&encoded.tokens, position), 0);
    let mut regions = Vec::new();
    while let Ok(Some(region)) = tokens.next(&mut cursor) {
        place += region.literals;
        regions.push((place, region));
        place += region.len;
    }
    regions
}

impl Protocol {
    /// The size of a cache by which EndRE's section 8.2 bounds memory.
    fn cache_bytes(self) -> usize {
        match self {
            Protocol::Http => 10 << 20,
            Protocol::Smb => 4 << 20,
            _ => 1 << 20,
        }
    }
}

impl Column for Repeats {
    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Bytes { .. } => {}
            Step::Block {
                flow,
                direction,
                at,
                bytes,
            } => self.block(flow, direction, at, bytes),
            Step::Closed(flow, _) => {
                for direction in [Direction::Up, Direction::Down] {
                    self.cursors.remove(&(flow.number, direction));
                    if let Some(dot) = &mut self.dot {
                        let found = dot.closed(&flow, direction);
                        self.outcome.subtract(flow.group, found);
                    }
                }
                if let Some((_, round_trips)) = &mut self.details {
                    round_trips.closed(&flow);
                }
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        let caches: u64 = self
            .pairs
            .values()
            .map(|pair| pair.cache.memory_bytes())
            .sum();
        // Both ends have them.
        self.outcome.memory_bytes = 2 * caches;
        if let Some((machines, round_trips)) = self.details {
            self.outcome.details.machines = Some(machines);
            self.outcome.details.round_trips = Some(round_trips);
        }
        self.outcome.details.cache_curve = self.curve;
        self.outcome
    }
}
