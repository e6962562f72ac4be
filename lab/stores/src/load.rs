//! The load: what a receiver of similar streams hands to its store.
//!
//! In: a number of chunks, the share that was seen before, a seed. Out: flows of chunk numbers, and
//! each number's content and length. Services take turns; a service's next flow repeats its last one
//! with runs of new chunks in it, as a release repeats the release before. Everything follows from
//! the seed, so that a process that was killed can be checked by another one.

use clap::Args;
use serde::{Deserialize, Serialize};

/// Chunks of one flow: 4 MiB at the default mean.
pub const FLOW_CHUNKS: usize = 500;
/// Services whose flows take turns, so that what is seen again is not only what came last.
const SERVICES: usize = 16;
/// Chunks in a row that were seen before, in the mean.
const KNOWN_RUN_CHUNKS: f64 = 32.0;

/// What is stored, told to every process of one comparison.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Distinct chunks
    #[arg(long, default_value_t = 100_000)]
    pub chunks: u32,
    /// Share of arrivals that were seen before, between 0 and 1
    #[arg(long, default_value_t = 0.8)]
    pub known: f64,
    /// Mean length of a chunk in bytes; lengths lie between a quarter and four times of it
    #[arg(long, default_value_t = 8192)]
    pub mean_bytes: u32,
    /// Seed of contents, lengths and order
    #[arg(long, default_value_t = 4)]
    pub seed: u64,
}

impl Load {
    /// The same load as arguments of another process.
    pub fn arguments(&self) -> Vec<String> {
        vec![
            format!("--chunks={}", self.chunks),
            format!("--known={}", self.known),
            format!("--mean-bytes={}", self.mean_bytes),
            format!("--seed={}", self.seed),
        ]
    }

    /// Bytes of one chunk: PACK's distribution, exponential above a minimum.
    pub fn length(&self, chunk: u32) -> usize {
        let (least, most) = (self.mean_bytes / 4, self.mean_bytes * 4);
        let above = Random::of(self.seed, chunk).exponential(f64::from(self.mean_bytes - least));
        (f64::from(least) + above).min(f64::from(most)) as usize
    }

    /// Appends one chunk's bytes.
    pub fn append_content(&self, chunk: u32, to: &mut Vec<u8>) {
        let length = self.length(chunk);
        let mut random = Random::of(self.seed ^ 0x5eed, chunk);
        to.reserve(length + 8);
        let end = to.len() + length;
        while to.len() < end {
            to.extend_from_slice(&random.next().to_le_bytes());
        }
        to.truncate(end);
    }

    /// The flows, in order, until every chunk has been seen.
    pub fn flows(&self) -> Flows {
        Flows {
            random: Random::of(self.seed, u32::MAX),
            chunks: self.chunks,
            known: self.known,
            next_chunk: 0,
            next_flow: 0,
            last: vec![Vec::new(); SERVICES],
        }
    }
}

/// The chunk numbers of each flow.
pub struct Flows {
    random: Random,
    chunks: u32,
    known: f64,
    next_chunk: u32,
    next_flow: u64,
    last: Vec<Vec<u32>>,
}

impl Iterator for Flows {
    type Item = (u64, Vec<u32>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next_chunk == self.chunks {
            return None;
        }
        let service = self.next_flow as usize % SERVICES;
        let last = std::mem::take(&mut self.last[service]);
        let new_run_chunks = KNOWN_RUN_CHUNKS * (1.0 - self.known) / self.known;
        let mut flow = Vec::with_capacity(FLOW_CHUNKS);
        while flow.len() < FLOW_CHUNKS && self.next_chunk < self.chunks {
            if !last.is_empty() {
                let run = self.random.exponential(KNOWN_RUN_CHUNKS).ceil() as usize;
                let end = (flow.len() + run).min(last.len());
                flow.extend_from_slice(&last[flow.len()..end]);
            }
            let run = self.random.exponential(new_run_chunks).round() as usize;
            let run = if last.is_empty() { FLOW_CHUNKS } else { run };
            let run = run.min(FLOW_CHUNKS - flow.len()) as u32;
            let end = self.next_chunk.saturating_add(run).min(self.chunks);
            flow.extend(self.next_chunk..end);
            self.next_chunk = end;
        }
        self.last[service].clone_from(&flow);
        self.next_flow += 1;
        Some((self.next_flow - 1, flow))
    }
}

/// SplitMix64: fast, seeded, and random enough that nothing compresses.
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed and number.
    pub fn of(seed: u64, number: u32) -> Self {
        let mut random = Self(seed ^ (u64::from(number) << 32));
        Self(random.next())
    }

    /// 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u32
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        -mean * (1.0 - unit).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(known: f64) -> Load {
        Load {
            chunks: 50_000,
            known,
            mean_bytes: 8192,
            seed: 4,
        }
    }

    #[test]
    fn every_chunk_comes_first_in_order() {
        let mut next = 0;
        for (_, flow) in load(0.8).flows() {
            for chunk in flow {
                assert!(chunk <= next);
                next += u32::from(chunk == next);
            }
        }
        assert_eq!(next, 50_000);
    }

    #[test]
    fn the_share_seen_before_is_as_asked() {
        for known in [0.7, 0.8, 0.9] {
            let arrivals: usize = load(known).flows().map(|(_, flow)| flow.len()).sum();
            let share = 1.0 - 50_000.0 / arrivals as f64;
            assert!((share - known).abs() < 0.05, "{share} for {known}");
        }
    }

    #[test]
    fn lengths_have_the_mean_and_the_bounds() {
        let load = load(0.8);
        let lengths: Vec<_> = (0..load.chunks).map(|chunk| load.length(chunk)).collect();
        assert!(lengths.iter().all(|length| (2048..=32768).contains(length)));
        let mean = lengths.iter().sum::<usize>() / lengths.len();
        assert!((7500..8600).contains(&mean), "{mean}");
    }

    #[test]
    fn contents_follow_from_seed_and_number() {
        let (mut once, mut again, mut other) = (Vec::new(), Vec::new(), Vec::new());
        load(0.8).append_content(7, &mut once);
        load(0.7).append_content(7, &mut again);
        load(0.8).append_content(8, &mut other);
        assert_eq!(once, again);
        assert_eq!(once.len(), load(0.8).length(7));
        assert_ne!(once[..64], other[..64]);
    }
}
