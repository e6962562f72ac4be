//! Max-Match by the book (EndRE, section 5.2.2 and Figure 5), to hold the encoder against:
//! what does the fast one save, and what ought it to?
//!
//! ```text
//! for each marker of the block that no region covers yet:
//!     if the history has the marker's window:
//!         grow the region byte by byte to the left, up to the last region's end
//!         grow the region byte by byte to the right
//! append the block to the history, and remember where the windows of its markers lie
//! ```
//!
//! The windows themselves stand for their fingerprints, and none ever collide or are
//! forgotten. The history is never cut short and has no holes; a region's source lies in
//! earlier blocks alone, and crosses their boundaries.

use alloc::{collections::BTreeMap, vec::Vec};

use crate::marker::MarkerFinder;

/// A range of a block that repeats a range of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where it begins in the block.
    pub(crate) block_offset: usize,
    /// Where its bytes begin in the history.
    pub source: usize,
    /// How many bytes it covers; at least a window.
    pub length: usize,
}

impl Region {
    fn block_end(&self) -> usize {
        self.block_offset + self.length
    }
}

/// The bytes that regions cover: what Max-Match saves, tokens aside.
#[must_use]
pub fn saved_bytes(regions: &[Region]) -> usize {
    regions.iter().map(|region| region.length).sum()
}

/// All that was encoded so far, and where each marker's window was seen last.
///
/// ```
/// use refrain_codec::marker::MarkerFinder;
/// use refrain_codec::reference::max_match::{MaxMatch, saved_bytes};
///
/// let verse: Vec<u8> = (0..1000_u32).flat_map(|n| (n * n).to_le_bytes()).collect();
/// let mut reference = MaxMatch::new(MarkerFinder::default());
/// assert_eq!(saved_bytes(&reference.encode(&verse)), 0);
/// assert_eq!(saved_bytes(&reference.encode(&verse)), verse.len());
/// ```
#[derive(Debug)]
pub struct MaxMatch {
    history: Vec<u8>,
    last_seen: BTreeMap<Vec<u8>, usize>,
    finder: MarkerFinder,
}

impl MaxMatch {
    /// Starts with an empty history.
    #[must_use]
    pub fn new(finder: MarkerFinder) -> Self {
        Self {
            history: Vec::new(),
            last_seen: BTreeMap::new(),
            finder,
        }
    }

    /// The regions of `block` in order, none overlapping; then adds it to the history.
    pub fn encode(&mut self, block: &[u8]) -> Vec<Region> {
        let window = self.finder.window().bytes();
        let mut markers = Vec::new();
        self.finder.find(block, &mut markers);
        let windows = markers
            .into_iter()
            .map(|marker| (marker as usize, &block[marker as usize..][..window]));

        let mut regions: Vec<Region> = Vec::new();
        for (marker, window) in windows.clone() {
            let covered = regions.last().map_or(0, Region::block_end);
            if marker < covered {
                continue;
            }
            let source = self.last_seen.get(window);
            regions.extend(source.map(|&source| self.grow(block, covered, marker, source)));
        }

        let at = self.history.len();
        self.history.extend_from_slice(block);
        self.last_seen
            .extend(windows.map(|(marker, window)| (window.to_vec(), at + marker)));
        regions
    }

    /// The longest region around the equal windows at `marker` and `source` that begins at
    /// `covered` or later.
    fn grow(&self, block: &[u8], covered: usize, marker: usize, source: usize) -> Region {
        let window = self.finder.window().bytes();
        let left = block[covered..marker]
            .iter()
            .rev()
            .zip(self.history[..source].iter().rev())
            .take_while(|(ours, theirs)| ours == theirs)
            .count();
        let right = block[marker + window..]
            .iter()
            .zip(&self.history[source + window..])
            .take_while(|(ours, theirs)| ours == theirs)
            .count();
        Region {
            block_offset: marker - left,
            source: source - left,
            length: left + window + right,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    proptest! {
        /// Blocks of few words, so that they repeat each other.
        #[test]
        fn regions_are_what_they_say(picks in vec(vec(0_u8..20, 0..40), 1..12)) {
            let mut reference = MaxMatch::new(MarkerFinder::default());
            let mut history: Vec<u8> = Vec::new();
            for picks in picks {
                let block: Vec<u8> = picks
                    .into_iter()
                    .flat_map(|pick| (0..29).map(move |index| pick.wrapping_mul(41) ^ index << 2))
                    .collect();
                let mut covered = 0;
                for region in reference.encode(&block) {
                    let Region { block_offset, source, length } = region;
                    prop_assert!(block_offset >= covered);
                    prop_assert!(length >= 32);
                    covered = region.block_end();
                    let (ours, theirs) = (&block[block_offset..], &history[source..]);
                    prop_assert_eq!(&ours[..length], &theirs[..length]);
                    let ends = ours.len() == length || theirs.get(length) != ours.get(length);
                    prop_assert!(ends, "it could grow");
                }
                history.extend_from_slice(&block);
            }
        }
    }

    #[test]
    fn a_region_crosses_the_boundaries_of_earlier_blocks() {
        let verse: Vec<u8> = (0..500_u32)
            .flat_map(|n| (n * n * 7).to_le_bytes())
            .collect();
        let mut reference = MaxMatch::new(MarkerFinder::default());
        for block in verse.chunks(700) {
            assert_eq!(reference.encode(block), []);
        }
        let length = verse.len();
        assert_eq!(
            reference.encode(&verse),
            [Region {
                block_offset: 0,
                source: 0,
                length
            }]
        );
    }
}
