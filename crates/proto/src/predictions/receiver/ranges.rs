//! Offers of aligned mode: ranges at stream offsets (PACK, section 4.1).

use refrain_codec::chunk::hash::ChunkDigest;

use super::{Predictions, chains::Chain};
use crate::{
    limits::OFFER_BYTES_MAX,
    predictions::{
        history::{FoundChunk, Predict},
        link_history::LinkHistory,
    },
};

/// An aligned range covers several chunks when the window holds so many ranges: a change costs
/// its whole range.
const RANGES_A_WINDOW: u64 = 384;

impl Predictions {
    /// Offers chunks one behind the other from the chain's end on, several in one range.
    pub(super) fn offer_ranges(
        &mut self,
        chunks: Vec<FoundChunk>,
        chain: &mut Chain,
        link: &mut LinkHistory,
    ) {
        let whole_bytes = (self.window.allowed_bytes() / RANGES_A_WINDOW) as usize;
        let mut range: Vec<FoundChunk> = Vec::new();
        let mut range_bytes = 0;
        for chunk in chunks {
            let len = chunk.bytes.len();
            if chain.end < self.cut && range.is_empty() {
                // It came meanwhile, if the chain holds.
                let came = self.recent.partition_point(|&(at, _)| at < chain.end);
                if self.recent.get(came) != Some(&(chain.end, chunk.digest)) {
                    chain.next = None;
                    return;
                }
                chain.end += len as u64;
                continue;
            }
            if range_bytes + len > whole_bytes.min(OFFER_BYTES_MAX) {
                self.offer_range(&mut range, chain, link);
                range_bytes = 0;
            }
            range_bytes += len;
            range.push(chunk);
        }
        self.offer_range(&mut range, chain, link);
    }

    /// Whether the chunk that begins at `at` has a place on offer: if another one, what is on offer
    /// is moved.
    pub(super) fn has_place(&mut self, digest: &ChunkDigest, at: u64) -> bool {
        if self.config.predict == Predict::Window {
            return false;
        }
        let expected = self.offers.expected(digest, at);
        if let Some((_, place)) = expected {
            self.moved(place, at);
        }
        expected.is_some()
    }

    /// What was expected at `place` is at `at`: something before it became longer or shorter,
    /// and what follows it is moved.
    pub(super) fn moved(&mut self, place: i64, at: u64) {
        let by = at.cast_signed() - place;
        if by != 0 {
            self.offers.move_by(by);
            self.chains.move_by(by);
        }
    }

    fn offer_range(
        &mut self,
        range: &mut Vec<FoundChunk>,
        chain: &mut Chain,
        link: &mut LinkHistory,
    ) {
        if !range.is_empty() {
            self.offer(core::mem::take(range), Some(chain.end), chain, link);
        }
    }
}
