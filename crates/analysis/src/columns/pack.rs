//! PACK: the receiver of a stream predicts the chunks that followed a chunk before.
//!
//! Deviation: a prediction reaches the sender at once. In the paper, as in this program, data of a round trip has left before.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    ops::Range,
};

use refrain_capture::{Direction, FlowNumber, Time};
use refrain_codec::chunk::{
    hash::{ChunkHash, ChunkHasher},
    stream::StreamChunks,
};

use super::{Column, Outcome};
use crate::{
    blocks::{BlockFlow, Step},
    details::Chains,
};

/// The cost of a predicted chunk: its signature, place and length (section 4.2), and its part of the sender's answer.
const PREDICTION_BYTES: u64 = 20 + 4 + 4 + 8;

/// Memory of a chunk: its digest, twice, its successor and its place in tables.
const ENTRY_BYTES: u64 = 160;

/// See the module.
pub(super) struct Pack {
    /// Of each receiver's store.
    store_bytes_max: u64,
    stores: HashMap<IpAddr, Store>,
    open: HashMap<(FlowNumber, Direction), Stream>,
    /// Of all stores.
    chunks: u64,
    chunks_max: u64,
    chains: Chains,
    outcome: Outcome,
}

/// The chunks of a receiver.
#[derive(Default)]
struct Store {
    chunks: HashMap<ChunkHash, Known>,
    /// By age.
    oldest: VecDeque<ChunkHash>,
    bytes: u64,
    most_bytes: u64,
}

struct Known {
    length: u32,
    /// The chunk that followed last.
    next: Option<ChunkHash>,
    /// When it came last.
    at: Time,
}

#[derive(Default)]
struct Stream {
    chunks: StreamChunks,
    /// Those of no whole chunk yet, from this place on.
    bytes: Vec<u8>,
    start: u64,
    last: Option<ChunkHash>,
    /// The chunk that is predicted.
    predicted: Option<ChunkHash>,
    /// Known chunks, one after the other as they were before.
    chain: u64,
}

impl Pack {
    pub(super) fn new(store_bytes_max: u64, memory: u64) -> Self {
        Self {
            store_bytes_max,
            stores: HashMap::new(),
            open: HashMap::new(),
            chunks: 0,
            chunks_max: (memory / ENTRY_BYTES).max(1),
            chains: Chains::default(),
            outcome: Outcome::default(),
        }
    }

    fn chunks(&mut self, flow: BlockFlow, direction: Direction, at: Time, chunks: &[Range<u64>]) {
        let receiver = match direction {
            Direction::Up => flow.server.ip(),
            Direction::Down => flow.client.ip(),
        };
        let store = self.stores.entry(receiver).or_default();
        let Some(stream) = self.open.get_mut(&(flow.number, direction)) else {
            return;
        };
        for chunk in chunks {
            let own = (chunk.start - stream.start) as usize..(chunk.end - stream.start) as usize;
            let length = own.len() as u64;
            let hash = ChunkHasher::default().hash(&stream.bytes[own]);
            let is_predicted = stream.predicted == Some(hash);
            let sent = match is_predicted {
                true => PREDICTION_BYTES.min(length),
                // A wrong prediction costs its own bytes.
                false => length + stream.predicted.map_or(0, |_| PREDICTION_BYTES),
            };
            self.outcome.add(flow.group, sent);
            if let Some(last) = stream.last.and_then(|last| store.chunks.get_mut(&last)) {
                last.next = Some(hash);
            }
            if !is_predicted {
                self.chains.ended(core::mem::take(&mut stream.chain));
            }
            stream.predicted = None;
            match store.chunks.get_mut(&hash) {
                Some(known) => {
                    stream.chain += 1;
                    self.chains.found(length, at.0.saturating_sub(known.at.0));
                    known.at = at;
                    let next = known.next;
                    stream.predicted = next.filter(|next| store.chunks.contains_key(next));
                }
                None => {
                    self.chains.ended(core::mem::take(&mut stream.chain));
                    self.chains.new_chunk(length);
                    self.chunks += 1;
                    store.learn(hash, length as u32, at);
                    while store.bytes > self.store_bytes_max || self.chunks > self.chunks_max {
                        if !store.forget_oldest() {
                            break;
                        }
                        self.chunks -= 1;
                    }
                }
            }
            stream.last = Some(hash);
        }
        if let Some(last) = chunks.last() {
            stream.bytes.drain(..(last.end - stream.start) as usize);
            stream.start = last.end;
        }
    }
}

impl Store {
    fn learn(&mut self, hash: ChunkHash, length: u32, at: Time) {
        let next = None;
        self.chunks.insert(hash, Known { length, next, at });
        self.oldest.push_back(hash);
        self.bytes += u64::from(length);
        let memory = self.bytes + self.chunks.len() as u64 * ENTRY_BYTES;
        self.most_bytes = self.most_bytes.max(memory);
    }

    fn forget_oldest(&mut self) -> bool {
        let oldest = self.oldest.pop_front();
        match oldest.and_then(|oldest| self.chunks.remove(&oldest)) {
            Some(known) => {
                self.bytes -= u64::from(known.length);
                true
            }
            None => false,
        }
    }
}

impl Column for Pack {
    fn step(&mut self, step: Step<'_>) {
        let mut chunks = Vec::new();
        match step {
            Step::Bytes { .. } => {}
            Step::Block {
                flow,
                direction,
                at,
                bytes,
            } => {
                let stream = self.open.entry((flow.number, direction)).or_default();
                stream.bytes.extend_from_slice(bytes);
                stream.chunks.feed(bytes, &mut chunks);
                self.chunks(flow, direction, at, &chunks);
            }
            Step::Closed(flow, at) => {
                for direction in [Direction::Up, Direction::Down] {
                    let key = (flow.number, direction);
                    if let Some(stream) = self.open.get_mut(&key) {
                        chunks.clear();
                        stream.chunks.finish(&mut chunks);
                        self.chunks(flow, direction, at, &chunks);
                        if let Some(stream) = self.open.remove(&key) {
                            self.chains.ended(stream.chain);
                        }
                    }
                }
            }
        }
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        self.outcome.memory_bytes = self.stores.values().map(|store| store.most_bytes).sum();
        self.outcome.details.chains = Some(self.chains);
        self.outcome
    }
}
