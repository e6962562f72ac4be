//! Recipes that a flow's receiver reads onward.

use crate::limits::CHAINS_FLOW_MAX;

use std::collections::VecDeque;

use crate::predictions::history::HistoryPlace;

/// The chains of a flow; the one that was found or hit last is the present one.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// The present one is in front.
    known: VecDeque<Chain>,
    last_number: u32,
}

/// A recipe that is read onward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) number: u32,
    pub(super) next: Option<HistoryPlace>,
    /// Where its next chunk is expected; aligned mode only.
    pub(super) end: u64,
    /// Some of it came. Of an opening nothing may have: it is not read onward before.
    pub(super) is_hit: bool,
    /// How many bytes had come when it was found or last hit.
    hit_at: u64,
    /// How many had come when it was read in vain: its recipe is still written.
    pub(super) dry_at: Option<u64>,
}

impl Chains {
    /// One that was found when `came` bytes had come; it is still to be
    /// [remembered](Self::remember).
    pub(super) fn found(&mut self, came: u64, end: u64, is_hit: bool) -> Chain {
        self.last_number += 1;
        Chain {
            number: self.last_number,
            next: None,
            end,
            is_hit,
            hit_at: came,
            dry_at: None,
        }
    }

    /// The one that is read onward.
    pub(super) fn present(&self) -> Option<Chain> {
        self.known.front().copied()
    }

    pub(super) fn get(&self, number: u32) -> Option<Chain> {
        let mut known = self.known.iter().copied();
        known.find(|chain| chain.number == number)
    }

    /// Makes `chain` the present one.
    pub(super) fn remember(&mut self, chain: Chain) {
        self.known.retain(|other| other.number != chain.number);
        self.known.push_front(chain);
        self.known.truncate(CHAINS_FLOW_MAX);
    }

    /// An offer of chain `number` was right when `came` bytes had come.
    pub(super) fn hit(&mut self, number: u32, came: u64) {
        if let Some(chain) = self.get(number) {
            self.remember(Chain {
                is_hit: true,
                hit_at: came,
                ..chain
            });
        }
    }

    /// Of `came` bytes, those that came since chain `number` was found or last hit; all of them and
    /// more if it is not known.
    pub(super) fn idle_bytes(&self, number: u32, came: u64) -> u64 {
        self.get(number)
            .map_or(u64::MAX, |chain| came - chain.hit_at)
    }

    /// Drops those that were not hit while more than `bytes` of the `came` bytes came.
    pub(super) fn drop_idle(&mut self, bytes: u64, came: u64) {
        self.known.retain(|chain| came - chain.hit_at <= bytes);
    }

    /// What is expected next is `by` bytes further on, in aligned mode.
    pub(super) fn move_by(&mut self, by: i64) {
        for chain in &mut self.known {
            chain.end = chain.end.saturating_add_signed(by);
        }
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}
