//! Where the aligned offers of a flow are expected.
//!
//! Each was made for one place. When something before them became longer or shorter, their
//! receiver moves them, all at once and whatever their number: places are kept less the moves.
//! A flow often comes back, as where a file grew within the padding behind it, so that places of
//! the last few moves are tried, the latest first. What is passed is kept, since it may be moved.

use std::collections::{BTreeSet, VecDeque};

use crate::limits::{MOVES_MAX, OFFERS_FLOW_MAX};

/// A place may be tried for each offer, and another for so many bytes of the flow: moves, which
/// are cheap to say, buy none.
const BYTES_A_TRY: u64 = 256;

/// What there is of these at first, and what may be saved up.
const TRY_BYTES_START: u64 = BYTES_A_TRY * 64;
const TRY_BYTES_MAX: u64 = BYTES_A_TRY * OFFERS_FLOW_MAX as u64;

/// See the module.
#[derive(Debug)]
pub(super) struct Alignment {
    /// Places less the moves made before, with offers' numbers.
    unmoved: BTreeSet<(Unmoved, u64)>,
    /// How far all was moved since the flow began, the latest sum first; 1 to [`MOVES_MAX`].
    moves: VecDeque<i128>,
    /// What is expected before here was tried.
    tried_below: u64,
    try_bytes: u64,
}

/// A place less the moves that were made before it was named.
pub(super) type Unmoved = i128;

impl Alignment {
    pub(super) fn new() -> Self {
        Self {
            unmoved: BTreeSet::new(),
            moves: VecDeque::from([0]),
            tried_below: 0,
            try_bytes: TRY_BYTES_START,
        }
    }

    /// Offers that are expected.
    pub(super) fn len(&self) -> usize {
        self.unmoved.len()
    }

    /// Offer `number` is expected at `place`; gives what it is known by.
    pub(super) fn add(&mut self, place: u64, number: u64) -> Unmoved {
        let unmoved = i128::from(place) - self.moves[0];
        self.unmoved.insert((unmoved, number));
        self.tried_below = 0;
        self.earned(BYTES_A_TRY);
        unmoved
    }

    pub(super) fn remove(&mut self, unmoved: Unmoved, number: u64) {
        self.unmoved.remove(&(unmoved, number));
    }

    pub(super) fn clear(&mut self) {
        self.unmoved.clear();
    }

    /// All offers are expected `by` bytes further on.
    pub(super) fn moved(&mut self, by: i64) {
        let latest = self.moves[0] + i128::from(by);
        self.moves.retain(|&earlier| earlier != latest);
        self.moves.push_front(latest);
        self.moves.truncate(MOVES_MAX);
        self.tried_below = 0;
    }

    /// So many bytes of the flow were sent.
    pub(super) fn earned(&mut self, bytes: u64) {
        self.try_bytes = TRY_BYTES_MAX.min(self.try_bytes + bytes);
    }

    /// The next place from `offset` on that was not tried.
    pub(super) fn next(&self, offset: u64) -> Option<u64> {
        if self.try_bytes < BYTES_A_TRY {
            return None;
        }
        let from = i128::from(offset.max(self.tried_below));
        let next = |moved: &i128| {
            let &(unmoved, _) = self.unmoved.range((from - moved, 0)..).next()?;
            u64::try_from(unmoved + moved).ok()
        };
        self.moves.iter().filter_map(next).min()
    }

    /// The offers that are expected at `place`: by each move the last that was made.
    pub(super) fn at(&self, place: u64) -> impl Iterator<Item = u64> {
        self.moves.iter().filter_map(move |moved| {
            let unmoved = i128::from(place) - moved;
            let there = self.unmoved.range((unmoved, 0)..=(unmoved, u64::MAX));
            there.map(|&(_, number)| number).next_back()
        })
    }

    pub(super) fn is_at(&self, unmoved: Unmoved, place: u64) -> bool {
        self.moves.contains(&(i128::from(place) - unmoved))
    }

    /// What is expected at `place` or before was tried.
    pub(super) fn tried(&mut self, place: u64) {
        if self.at(place).next().is_some() {
            self.try_bytes = self.try_bytes.saturating_sub(BYTES_A_TRY);
        }
        self.tried_below = self.tried_below.max(place.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn moves_alone_buy_no_tries() {
        let mut alignment = Alignment::new();
        (0..10).for_each(|number| {
            alignment.add(1000 + 100 * number, number);
        });
        let mut tries = || {
            let mut tries = 0;
            for turn in 0..1000 {
                alignment.moved(turn % 7 - 3);
                while let Some(place) = alignment.next(0) {
                    alignment.tried(place);
                    tries += 1;
                }
            }
            alignment.earned(3 * BYTES_A_TRY);
            tries
        };
        assert_eq!(tries(), 64 + 10);
        assert_eq!(tries(), 3);
    }

    proptest! {
        /// Against a list of places that are moved one by one.
        #[test]
        fn places_are_those_of_the_last_few_moves(
            steps in vec((0..2000u64, prop::option::of(-300..300i64)), 1..40),
            offset in 0..3000u64,
        ) {
            let mut alignment = Alignment::new();
            let mut sums = vec![0i128];
            let mut offers: Vec<(i128, Unmoved)> = Vec::new();
            for (place, by) in steps {
                if let Some(by) = by {
                    alignment.moved(by);
                    let latest = sums[0] + i128::from(by);
                    sums.retain(|&sum| sum != latest);
                    sums.insert(0, latest);
                    sums.truncate(MOVES_MAX);
                } else {
                    let unmoved = alignment.add(place, offers.len() as u64);
                    offers.push((i128::from(place) - sums[0], unmoved));
                }
            }
            let place_by = |offer: &(i128, Unmoved), sum: &i128| offer.0 + sum;
            let places = offers.iter().flat_map(|offer| {
                sums.iter().map(move |sum| place_by(offer, sum))
            });
            let next = places.filter(|&place| place >= i128::from(offset)).min();
            prop_assert_eq!(alignment.next(offset).map(i128::from), next);
            let at = alignment.next(offset).unwrap_or(offset);
            let there: Vec<u64> = sums
                .iter()
                .filter_map(|sum| {
                    let is_there = |offer: &(i128, Unmoved)| place_by(offer, sum) == i128::from(at);
                    offers.iter().rposition(is_there).map(|number| number as u64)
                })
                .collect();
            prop_assert_eq!(alignment.at(at).collect::<Vec<_>>(), there.clone());
            for (number, offer) in (0..).zip(&offers) {
                prop_assert!(!there.contains(&number) || alignment.is_at(offer.1, at));
            }
            alignment.tried(at);
            prop_assert!(alignment.next(offset).is_none_or(|next| next > at));
            alignment.moved(0);
            prop_assert_eq!(alignment.next(offset).map(i128::from), next);
        }
    }
}
