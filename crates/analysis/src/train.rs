//! The table of SAMPLEBYTE, chosen by training (EndRE, section 5.1.4): MAXP finds the redundant content, values of bytes
//! are sorted by how often they are in it, and are added one at a time until savings grow no more.
//!
//! The training data is passed twice: to [`Redundancy`], and then to [`Trials`], which tries all tables at once.
//! All connections share one cache of EndRE's size, as one far end's do.

use std::{num::NonZero, thread};

use refrain_codec::{
    EncodedBlock, Encoder, EncoderConfig, SourceCursor,
    geometry::CacheGeometry,
    marker::{MarkerAlgorithm, MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes},
    matching::Everything,
};

use crate::{
    blocks::{BLOCK_BYTES_MAX, Step, Steps},
    columns::regions,
};

/// As in the paper: 10 MB.
const CACHE_BYTES: usize = 10 << 20;

/// Longer tables are not tried.
const VALUES_MAX: usize = 32;

/// A table is long enough if the best one saves no more of all bytes: one in so many.
const GAIN_MIN: u64 = 1000;

/// Blocks that are encoded together have so many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// An encoder, and the bytes that it would have sent.
struct Sender {
    encoder: Encoder,
    cursor: SourceCursor,
    encoded: EncodedBlock,
    sent_bytes: u64,
}

impl Sender {
    fn new(algorithm: MarkerAlgorithm, table: SampleByteTable) -> Self {
        let period = SamplingPeriod::default();
        let geometry = CacheGeometry::new(CACHE_BYTES).expect("a valid size");
        Self {
            encoder: Encoder::new(EncoderConfig {
                markers: MarkerFinder::new(algorithm, period, WindowBytes::default(), table),
                ..EncoderConfig::with_defaults(geometry)
            }),
            cursor: SourceCursor::default(),
            encoded: EncodedBlock::default(),
            sent_bytes: 0,
        }
    }

    fn block(&mut self, bytes: &[u8]) {
        let (cursor, encoded) = (&mut self.cursor, &mut self.encoded);
        self.encoder.encode(0, bytes, &Everything, cursor, encoded);
        let sent = encoded.tokens.len() + encoded.literals.len();
        self.sent_bytes += sent.min(bytes.len()) as u64;
    }
}

/// A pass over the training data, whose connections come as steps of a capture.
pub trait Content: Steps {
    /// Takes the next content of files.
    fn content(&mut self, bytes: &[u8]);
}

/// The first pass: how often each value is in redundant content.
pub struct Redundancy {
    maxp: Sender,
    counts: [u64; 256],
    /// All bytes that were passed.
    pub bytes: u64,
}

impl Default for Redundancy {
    fn default() -> Self {
        Self {
            maxp: Sender::new(MarkerAlgorithm::Maxp, SampleByteTable::default()),
            counts: [0; 256],
            bytes: 0,
        }
    }
}

impl Redundancy {
    /// Bytes that MAXP saved.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        self.bytes - self.maxp.sent_bytes
    }

    /// The values that redundant content has, those first that it has most.
    #[must_use]
    pub fn values(&self) -> Vec<u8> {
        let mut values: Vec<u8> = (0..=255).collect();
        values.retain(|&value| self.counts[usize::from(value)] > 0);
        values.sort_by_key(|&value| core::cmp::Reverse(self.counts[usize::from(value)]));
        values
    }
}

impl Content for Redundancy {
    fn content(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(BLOCK_BYTES_MAX) {
            let (cursor, at) = (self.maxp.cursor, self.maxp.encoder.head());
            self.maxp.block(block);
            self.bytes += block.len() as u64;
            for (place, region) in regions(&self.maxp.encoded, at, cursor) {
                for &value in &block[place..place + region.len] {
                    self.counts[usize::from(value)] += 1;
                }
            }
        }
    }
}

impl Steps for Redundancy {
    fn step(&mut self, step: Step<'_>) {
        if let Step::Block { bytes, .. } = step {
            self.content(bytes);
        }
    }
}

/// The second pass: the savings of tables of the first one, two, three, ... of these values.
pub struct Trials {
    values: Vec<u8>,
    /// MAXP, the default table, and the others.
    senders: Vec<Sender>,
    batch: Vec<Vec<u8>>,
    batch_bytes: usize,
    bytes: u64,
}

/// The savings of each table.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The values in the order in which they were tried, each with the bytes saved by a table of it and all before it.
    pub steps: Vec<(u8, u64)>,
    /// How many of them are the table.
    pub chosen: usize,
    /// All bytes.
    pub bytes: u64,
    /// Bytes that the default table saves.
    pub default_saved_bytes: u64,
    /// Bytes that MAXP saves.
    pub maxp_saved_bytes: u64,
}

impl Trials {
    /// Tries tables of the first of these values.
    #[must_use]
    pub fn new(values: &[u8]) -> Self {
        let values = &values[..values.len().min(VALUES_MAX)];
        let algorithm = MarkerAlgorithm::SampleByte;
        let tables = (1..=values.len()).map(|count| {
            SampleByteTable::from_bytes(&values[..count]).expect("a table has a value")
        });
        let others = [MarkerAlgorithm::Maxp, algorithm];
        let others = others.map(|algorithm| Sender::new(algorithm, SampleByteTable::default()));
        let mut senders = Vec::from(others);
        senders.extend(tables.map(|table| Sender::new(algorithm, table)));
        Self {
            values: values.to_vec(),
            senders,
            batch: Vec::new(),
            batch_bytes: 0,
            bytes: 0,
        }
    }

    fn encode(&mut self) {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let each = self.senders.len().div_ceil(threads);
        let batch = &self.batch;
        thread::scope(|scope| {
            for senders in self.senders.chunks_mut(each) {
                scope.spawn(move || {
                    for sender in senders {
                        batch.iter().for_each(|block| sender.block(block));
                    }
                });
            }
        });
        self.batch.clear();
        self.batch_bytes = 0;
    }

    /// The savings, after all content.
    #[must_use]
    pub fn finish(mut self) -> Trained {
        self.encode();
        let mut saved = self
            .senders
            .iter()
            .map(|sender| self.bytes - sender.sent_bytes);
        let mut next = || saved.next().unwrap_or_default();
        let (maxp_saved_bytes, default_saved_bytes) = (next(), next());
        let steps: Vec<_> = self.values.into_iter().zip(saved).collect();
        let best = steps.iter().map(|&(_, saved)| saved).max();
        let enough = best.unwrap_or(0).saturating_sub(self.bytes / GAIN_MIN);
        let chosen = steps.iter().position(|&(_, saved)| saved >= enough);
        Trained {
            chosen: chosen.map_or(0, |last| last + 1),
            steps,
            bytes: self.bytes,
            default_saved_bytes,
            maxp_saved_bytes,
        }
    }
}

impl Content for Trials {
    fn content(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(BLOCK_BYTES_MAX) {
            self.bytes += block.len() as u64;
            self.batch_bytes += block.len();
            self.batch.push(block.to_vec());
            if self.batch_bytes >= BATCH_BYTES {
                self.encode();
            }
        }
    }
}

impl Steps for Trials {
    fn step(&mut self, step: Step<'_>) {
        if let Step::Block { bytes, .. } = step {
            self.content(bytes);
        }
    }
}

impl Trained {
    /// The values of the table.
    #[must_use]
    pub fn table(&self) -> Vec<u8> {
        let chosen = self.steps[..self.chosen].iter();
        chosen.map(|&(value, _)| value).collect()
    }

    /// Bytes that it saves.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        let last = self.chosen.checked_sub(1);
        last.map_or(0, |last| self.steps[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of letters that repeat, between noise that does not and has all values but these.
    fn content() -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize
        };
        let records: Vec<Vec<u8>> = (0..50)
            .map(|_| (0..400).map(|_| b"qxzj"[next() % 4]).collect())
            .collect();
        let mut content = Vec::new();
        for _ in 0..2000 {
            content.extend_from_slice(&records[next() % records.len()]);
            content.extend((0..200).map(|_| 128 + (next() % 100) as u8));
        }
        content
    }

    #[test]
    fn values_of_redundant_content_are_chosen() {
        let content = content();
        let mut redundancy = Redundancy::default();
        redundancy.content(&content);
        assert_eq!(redundancy.bytes, content.len() as u64);
        let share = redundancy.saved_bytes() as f64 / redundancy.bytes as f64;
        assert!((0.5..0.67).contains(&share), "{share}");
        let mut first = redundancy.values()[..4].to_vec();
        first.sort_unstable();
        assert_eq!(first, b"jqxz");

        let mut trials = Trials::new(&redundancy.values());
        trials.content(&content);
        let trained = trials.finish();
        assert_eq!(trained.maxp_saved_bytes, redundancy.saved_bytes());
        assert!((1..=4).contains(&trained.chosen), "{trained:?}");
        assert!(trained.table().iter().all(|value| b"jqxz".contains(value)));
        // No value of the default table is in it.
        assert!(trained.saved_bytes() > trained.default_saved_bytes + trained.bytes / 2);
        let mut again = Trials::new(&trained.table());
        again.content(&content);
        let again = again.finish();
        assert_eq!(
            again.steps,
            trained.steps[..trained.chosen],
            "the same data"
        );
    }

    #[test]
    fn content_without_repeats_has_no_table() {
        let mut redundancy = Redundancy::default();
        redundancy.content(b"nothing repeats");
        redundancy.content(b"");
        assert_eq!(redundancy.values(), []);
        let trained = Trials::new(&redundancy.values()).finish();
        assert!(trained.table().is_empty() && trained.saved_bytes() == 0);
    }
}
