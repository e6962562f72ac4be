//! Which offers may be right at a place, and whether they are: hint first, hash then.

use refrain_codec::universal::UniversalHash;

use super::{Expectations, Expected, Waiting};
use crate::{
    limits::CANDIDATES_MAX,
    planted::Bug,
    terms::{Hint, PREFIX_BYTES},
};

/// What an offer is at some place.
pub(super) enum Verdict {
    Right(UniversalHash),
    Wrong,
    /// Right as far as its bytes have come.
    Incomplete,
}

impl Expectations {
    /// Tries the offers that may begin at `at`.
    pub(super) fn try_at(&mut self, at: u64, waiting: &Waiting<'_>) -> Option<(u64, Verdict)> {
        if let Some(found) = self.found.filter(|found| found.at == at) {
            return Some((found.number, Verdict::Right(found.hash)));
        }
        let bytes = &waiting.bytes[(at - waiting.offset) as usize..];
        let mut incomplete = None;
        for number in self.candidates(at, bytes).into_iter().flatten() {
            match self.judge(number, at, bytes, waiting.is_last) {
                right @ Verdict::Right(_) => return Some((number, right)),
                Verdict::Incomplete => {
                    incomplete.get_or_insert((number, Verdict::Incomplete));
                }
                Verdict::Wrong => {}
            }
        }
        incomplete
    }

    /// The offers that may begin at `at` with `bytes`: those that are expected or supposed there;
    /// the one that is next in turn, others that are still to come, and what was skipped.
    fn candidates(&self, at: u64, bytes: &[u8]) -> [Option<u64>; CANDIDATES_MAX] {
        let mut candidates = [None; CANDIDATES_MAX];
        let mut count = 0;
        let mut add = |number: Option<u64>| {
            if let Some(number) = number
                && count < CANDIDATES_MAX
                && !candidates[..count].contains(&Some(number))
            {
                candidates[count] = Some(number);
                count += 1;
            }
        };
        let aligned = self.alignment.at(at);
        aligned.for_each(|number| add(Some(number)));
        let supposed = self.supposed.filter(|supposed| supposed.at == at);
        add(supposed.map(|supposed| supposed.number));
        let in_turn = self.expected(self.turn).map(|_| self.turn);
        if bytes.len() < PREFIX_BYTES {
            add(in_turn);
            return candidates;
        }
        let prefix = Hint::prefix_of(bytes);
        let is_in_turn = |number: &u64| {
            self.expected(*number).is_some_and(|expected| {
                expected.offer.hint.prefix == prefix || (expected.offer.len as usize) < PREFIX_BYTES
            })
        };
        add(in_turn.filter(is_in_turn));
        let later = self
            .prefixes
            .range((prefix, self.turn)..=(prefix, u64::MAX));
        later
            .take(CANDIDATES_MAX)
            .for_each(|&(_, number)| add(Some(number)));
        let skipped = self.prefixes.range((prefix, 0)..(prefix, self.turn));
        skipped
            .rev()
            .take(CANDIDATES_MAX)
            .for_each(|&(_, number)| add(Some(number)));
        candidates
    }

    pub(super) fn judge(&mut self, number: u64, at: u64, bytes: &[u8], is_last: bool) -> Verdict {
        let Some(Expected { offer, unmoved }) = self.expected(number).copied() else {
            return Verdict::Wrong;
        };
        let is_elsewhere = unmoved.is_some_and(|unmoved| !self.alignment.is_at(unmoved, at));
        if is_elsewhere || self.refuted == Some((at, number)) {
            return Verdict::Wrong;
        }
        let len = offer.len as usize;
        if bytes.len() >= len.min(PREFIX_BYTES)
            && Hint::prefix_of(&bytes[..len.min(PREFIX_BYTES)]) != offer.hint.prefix
        {
            return Verdict::Wrong;
        }
        let Some(chunk) = bytes.get(..len) else {
            // What is typed has no hint: it is held once.
            let is_unheld = bytes.len() < PREFIX_BYTES && self.unheld == Some(number);
            return if is_last || is_unheld {
                Verdict::Wrong
            } else {
                Verdict::Incomplete
            };
        };
        if Hint::sum_of(chunk) != offer.hint.sum {
            return Verdict::Wrong;
        }
        let hash = self.key.hash(chunk);
        if self.key.sign(&hash) == offer.signature || Bug::HintIsProof.is_planted() {
            self.counters.hashed_true_bytes += len as u64;
            self.false_bytes = 0;
            return Verdict::Right(hash);
        }
        self.counters.hashed_false_bytes += len as u64;
        self.false_bytes += len as u64;
        self.refuted = Some((at, number));
        Verdict::Wrong
    }
}
