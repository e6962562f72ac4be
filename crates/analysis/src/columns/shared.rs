//! A box at the IP layer: one cache for all machines (Spring and Wetherall, SIGCOMM 2000).

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
};

use refrain_capture::{Direction, FlowNumber, Time};
use refrain_codec::{
    EncodedBlock, EncoderConfig, LogPosition, SourceCursor, geometry::CacheGeometry,
    marker::MarkerAlgorithm,
};

use super::{
    Column, Outcome,
    cache::Cache,
    repeats::{markers, regions},
};
use crate::{blocks::Step, details::Matches};

const CACHE_BYTES: usize = 2 << 30;

/// See the module. Both directions share the cache.
pub(super) struct Middlebox {
    config: EncoderConfig,
    limit: usize,
    cache: Cache,
    cursors: HashMap<(FlowNumber, Direction), SourceCursor>,
    encoded: EncodedBlock,
    /// The blocks of the cache, by position.
    origins: VecDeque<Origin>,
    matches: Matches,
    outcome: Outcome,
}

#[derive(Clone, Copy)]
struct Origin {
    position: LogPosition,
    pair: (IpAddr, IpAddr),
    at: Time,
}

impl Middlebox {
    pub(super) fn new(memory: u64) -> Self {
        let config = EncoderConfig {
            markers: markers(MarkerAlgorithm::Modp, 32),
            ..EncoderConfig::with_defaults(CacheGeometry::SMALLEST)
        };
        // Its table has a fourth of its bytes, and blocks that it may grow with are kept besides.
        let limit = (memory / 2).clamp(
            CacheGeometry::SMALLEST.cache_bytes() as u64,
            CACHE_BYTES as u64,
        );
        Self {
            cache: Cache::new(&config),
            config,
            limit: limit as usize,
            cursors: HashMap::new(),
            encoded: EncodedBlock::default(),
            origins: VecDeque::new(),
            matches: Matches::default(),
            outcome: Outcome::default(),
        }
    }
}

impl Column for Middlebox {
    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Bytes { .. } => {}
            Step::Block {
                flow,
                direction,
                at,
                bytes,
            } => {
                let cursor = self.cursors.entry((flow.number, direction)).or_default();
                let before = *cursor;
                let (config, encoded) = (&self.config, &mut self.encoded);
                let position = self
                    .cache
                    .encode(bytes, self.limit, config, cursor, encoded);
                let sent = encoded.tokens.len() + encoded.literals.len();
                self.outcome.add(flow.group, sent.min(bytes.len()) as u64);
                let pair = (flow.client.ip(), flow.server.ip());
                self.origins.push_back(Origin { position, pair, at });
                let oldest = position.back(self.limit as u64);
                while self
                    .origins
                    .get(1)
                    .is_some_and(|next| next.position <= oldest)
                {
                    self.origins.pop_front();
                }
                for (place, region) in regions(encoded, position, before) {
                    let after = self
                        .origins
                        .partition_point(|origin| origin.position <= region.source);
                    let Some(origin) = after.checked_sub(1).and_then(|nth| self.origins.get(nth))
                    else {
                        continue;
                    };
                    let distance = (position + place as u64).since(region.source);
                    let age = at.0.saturating_sub(origin.at.0);
                    self.matches
                        .add(region.len as u64, origin.pair == pair, distance, age);
                }
            }
            Step::Closed(flow, _) => {
                self.cursors.remove(&(flow.number, Direction::Up));
                self.cursors.remove(&(flow.number, Direction::Down));
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        self.outcome.memory_bytes = 2 * self.cache.memory_bytes();
        self.outcome.details.matches = Some(self.matches);
        self.outcome
    }
}
