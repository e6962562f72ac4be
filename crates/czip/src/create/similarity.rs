//! Finds which frame holds a chunk much like a new one.
//!
//! Super-features after Odess (Zou et al., ICDE 2021): of the values of a rolling hash, a sample
//! chosen by content goes through a few linear functions, whose maxima are the chunk's features.
//! Groups of features make super-features; chunks that share one are mostly the same. They are a
//! hint: a wrong one costs compression alone.
//!
//! The index forgets what is old: its memory is bounded, and similar content is seldom far apart.

use std::collections::HashMap;

/// Super-features of a chunk: where a change hits the maxima of one, another may still agree.
const SUPER_FEATURES: usize = 3;
/// Features in each.
const FEATURES_EACH: usize = 4;
const FEATURES: usize = SUPER_FEATURES * FEATURES_EACH;
/// One in 2 to the power of this many values is sampled.
const SAMPLING_BITS: u32 = 7;

/// Super-features kept in each of the index's two generations.
const GENERATION_ENTRIES: usize = 1 << 19;

/// What a chunk is recognised by.
pub(super) type Features = [u64; SUPER_FEATURES];

/// Computes features.
pub(super) struct FeatureFinder {
    gear: [u64; 256],
    /// A factor, odd, and a summand for each feature.
    functions: [(u64, u64); FEATURES],
}

impl FeatureFinder {
    pub(super) fn new() -> Self {
        let mut state = 0_u64;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        };
        Self {
            gear: std::array::from_fn(|_| next()),
            functions: std::array::from_fn(|_| (next() | 1, next())),
        }
    }

    /// What `chunk` is recognised by; nothing if no value was sampled, as in runs of one byte.
    pub(super) fn features(&self, chunk: &[u8]) -> Option<Features> {
        let mut maxima = [0_u64; FEATURES];
        let mut rolling = 0_u64;
        for &byte in chunk {
            rolling = (rolling << 1).wrapping_add(self.gear[usize::from(byte)]);
            if rolling >> (64 - SAMPLING_BITS) == 0 {
                for (maximum, (factor, summand)) in maxima.iter_mut().zip(self.functions) {
                    *maximum = (*maximum).max(rolling.wrapping_mul(factor).wrapping_add(summand));
                }
            }
        }
        let (groups, _) = maxima.as_chunks::<FEATURES_EACH>();
        let is_sampled = maxima.iter().any(|&maximum| maximum != 0);
        is_sampled.then(|| {
            std::array::from_fn(|group| {
                groups[group]
                    .iter()
                    .fold(group as u64, |hash, &feature| mix(hash ^ feature))
            })
        })
    }
}

/// The finalizer of SplitMix64.
fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Which frame has a chunk with a super-feature.
#[derive(Default)]
pub(super) struct SimilarityIndex {
    young: HashMap<u64, u64>,
    old: HashMap<u64, u64>,
}

impl SimilarityIndex {
    /// The frame of a chunk that is similar by one of `features`.
    pub(super) fn find(&self, features: &Features) -> Option<u64> {
        let find_in = |entries: &HashMap<u64, u64>| {
            features
                .iter()
                .find_map(|feature| entries.get(feature).copied())
        };
        find_in(&self.young).or_else(|| find_in(&self.old))
    }

    /// Remembers that `frame` has a chunk with `features`; where others had them before, those stay.
    pub(super) fn insert(&mut self, features: &Features, frame: u64) {
        if self.young.len() + SUPER_FEATURES > GENERATION_ENTRIES {
            self.old = std::mem::take(&mut self.young);
        }
        for &feature in features {
            self.young.entry(feature).or_insert(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, bytes: usize) -> Vec<u8> {
        let words = (0..).map(|word| mix(seed << 32 | word));
        words.flat_map(u64::to_le_bytes).take(bytes).collect()
    }

    /// No certainty: a change may hit what all super-features of a chunk stand on.
    #[test]
    fn nearly_all_chunks_with_a_change_are_found() {
        const CHUNKS: u64 = 1000;
        let finder = FeatureFinder::new();
        let found = (0..CHUNKS).filter(|&seed| {
            let mut chunk = noise(seed, 16_384);
            let mut index = SimilarityIndex::default();
            index.insert(&finder.features(&chunk).expect("noise"), seed);
            chunk[mix(seed) as usize % 16_384] ^= 1;
            let features = finder.features(&chunk).expect("noise");
            index.find(&features) == Some(seed)
        });
        assert!(found.count() as u64 >= CHUNKS - 1);
    }

    #[test]
    fn other_chunks_are_not_similar() {
        let finder = FeatureFinder::new();
        let mut index = SimilarityIndex::default();
        for seed in 0..500 {
            let features = finder.features(&noise(seed, 8_192)).expect("noise");
            assert_eq!(index.find(&features), None);
            index.insert(&features, seed);
        }
    }

    #[test]
    fn runs_of_one_byte_are_like_nothing() {
        for byte in [0, 7, 0xff] {
            assert_eq!(FeatureFinder::new().features(&vec![byte; 32_768]), None);
        }
    }

    #[test]
    fn the_index_forgets_what_is_old_and_not_what_is_new() {
        let mut index = SimilarityIndex::default();
        let entries = 4 * GENERATION_ENTRIES as u64;
        for number in 0..entries {
            index.insert(&[number, entries + number, 2 * entries + number], number);
        }
        assert!(index.young.len() <= GENERATION_ENTRIES && index.old.len() <= GENERATION_ENTRIES);
        let last = entries - 1;
        assert_eq!(index.find(&[last, last, last]), Some(last));
        assert_eq!(index.find(&[0, 0, 0]), None);
    }
}
