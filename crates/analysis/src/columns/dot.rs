//! DOT (Tolia et al., NSDI 2006) as EndRE's section 9.1 adds it: chunks of 2 KiB that another pair of machines has had, as
//! far as EndRE has not found their bytes. An object ends with its connection, or with a second of silence.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    ops::Range,
};

use refrain_capture::{Direction, FlowNumber, Time};
use refrain_codec::{
    chunk::{
        hash::{ChunkHash, ChunkHasher},
        stream::{ChunkBounds, StreamChunks},
    },
    marker::PackMask,
};

use crate::blocks::BlockFlow;

/// A digest that names a chunk, and its place in a list.
const COST: u64 = 20 + 4;

const SILENCE_NANOS: u64 = 1_000_000_000;

/// Memory of a chunk that was seen.
const ENTRY_BYTES: u64 = 160;

/// See the module.
pub(super) struct Dot {
    /// The pair that had a chunk first; `None` if several had it.
    seen: HashMap<ChunkHash, Option<(IpAddr, IpAddr)>>,
    /// By age.
    oldest: VecDeque<ChunkHash>,
    seen_max: usize,
    open: HashMap<(FlowNumber, Direction), Object>,
}

/// The bytes of a direction that are no whole chunk yet.
struct Object {
    chunks: StreamChunks,
    bytes: Vec<u8>,
    /// The place of the first of them.
    start: u64,
    /// Ranges that EndRE found.
    covered: Vec<Range<u64>>,
    fed: u64,
    last: Time,
}

impl Object {
    fn new(last: Time) -> Self {
        Self {
            // Anchors of 11 bits, so chunks of 2 KiB on average.
            chunks: StreamChunks::new(
                PackMask::with_bits(11).expect("a valid mask"),
                ChunkBounds::new(512, 16 << 10).expect("valid bounds"),
            ),
            bytes: Vec::new(),
            start: 0,
            covered: Vec::new(),
            fed: 0,
            last,
        }
    }
}

impl Dot {
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self {
            seen: HashMap::new(),
            oldest: VecDeque::new(),
            seen_max: (memory_bytes / ENTRY_BYTES) as usize,
            open: HashMap::new(),
        }
    }

    /// Takes a block of which EndRE covered these ranges. Returns bytes that chunks save beyond that.
    pub(super) fn block(
        &mut self,
        flow: &BlockFlow,
        direction: Direction,
        at: Time,
        bytes: &[u8],
        covered: impl Iterator<Item = Range<u64>>,
    ) -> u64 {
        let key = (flow.number, direction);
        let is_over = |object: &Object| at.0.saturating_sub(object.last.0) > SILENCE_NANOS;
        let mut found = match self.open.get(&key).is_some_and(is_over) {
            true => self.closed(flow, direction),
            false => 0,
        };
        let mut object = self.open.remove(&key).unwrap_or_else(|| Object::new(at));
        object.last = at;
        let base = object.fed;
        object
            .covered
            .extend(covered.map(|range| range.start + base..range.end + base));
        object.bytes.extend_from_slice(bytes);
        object.fed += bytes.len() as u64;
        let mut chunks = Vec::new();
        object.chunks.feed(bytes, &mut chunks);
        found += self.take(&mut object, &chunks, flow);
        self.open.insert(key, object);
        found
    }

    /// The object is over. Returns bytes that its last chunk saves.
    pub(super) fn closed(&mut self, flow: &BlockFlow, direction: Direction) -> u64 {
        let Some(mut object) = self.open.remove(&(flow.number, direction)) else {
            return 0;
        };
        let mut chunks = Vec::new();
        object.chunks.finish(&mut chunks);
        self.take(&mut object, &chunks, flow)
    }

    fn take(&mut self, object: &mut Object, chunks: &[Range<u64>], flow: &BlockFlow) -> u64 {
        let pair = (flow.client.ip(), flow.server.ip());
        let mut found = 0;
        for chunk in chunks {
            let own = (chunk.start - object.start) as usize..(chunk.end - object.start) as usize;
            let hash = ChunkHasher::default().hash(&object.bytes[own]);
            match self.seen.get_mut(&hash) {
                Some(first) => {
                    if *first != Some(pair) {
                        let known = object.covered.iter().map(|range| overlap(range, chunk));
                        let left = (chunk.end - chunk.start).saturating_sub(known.sum());
                        found += left.saturating_sub(COST);
                        *first = None;
                    }
                }
                None => self.learn(hash, pair),
            }
        }
        if let Some(last) = chunks.last() {
            object.bytes.drain(..(last.end - object.start) as usize);
            object.start = last.end;
            object.covered.retain(|range| range.end > last.end);
        }
        found
    }

    fn learn(&mut self, hash: ChunkHash, pair: (IpAddr, IpAddr)) {
        if self.seen.len() >= self.seen_max
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.seen.remove(&oldest);
        }
        self.seen.insert(hash, Some(pair));
        self.oldest.push_back(hash);
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> u64 {
    one.end
        .min(other.end)
        .saturating_sub(one.start.max(other.start))
}
