//! What a receiver offered on a flow and still holds.
//!
//! An offer is held from the moment it is made until it is confirmed, or until the sender has
//! said that it forgot it and all bytes have come that it sent before it said so
//! (`docs/architecture.md`, 13): what may still be confirmed can be delivered.

use std::collections::{BTreeSet, VecDeque};

use refrain_codec::{chunk::hash::ChunkDigest, universal::UniversalHash};

use super::history::FoundChunk;
use crate::{
    frame::{ConfirmFrame, Offer},
    limits::OFFERS_FRAME_MAX,
    planted::Bug,
    terms::{Hint, OfferKey, RunDigest},
};

/// The offers of a flow, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    /// The front one has the number `first`.
    held: VecDeque<Offered>,
    first: u64,
    /// Chunks, and the open offers that hold them.
    open: BTreeSet<(ChunkDigest, u64)>,
    /// Behind the last offer that came.
    turn: u64,
    /// Offers with lower numbers are withdrawn.
    withdrawn_below: u64,
    /// What the other end was told of: offers, and withdrawals.
    said_end: u64,
    said_withdrawn_below: u64,
    /// How far those that it was told of were moved since it was told.
    unsaid_move: i64,
    /// What the sender forgot, and up to which offset it may have confirmed it.
    forgotten: VecDeque<(u64, u64)>,
}

/// An expected chunk, or in aligned mode a range of several.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) chunks: Vec<FoundChunk>,
    pub(crate) len: u64,
    /// Where it is expected, in aligned mode; before the flow's beginning if it was moved there.
    pub(crate) start: Option<i64>,
    /// The chain that it is of.
    pub(crate) chain: u32,
    pub(crate) state: State,
    /// Of all of its bytes.
    hash: UniversalHash,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// Its bytes came as they are: they had left before the offer could count.
    Overtaken,
    /// A later one of its chain was hit when so many bytes of the flow had come.
    Skipped(u64),
    Confirmed,
}

/// What is to be told to the sender, in one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) withdrawn_below: u64,
    pub(crate) start: Option<u64>,
    pub(crate) offers: Vec<Offer>,
}

/// Why a confirmation is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unconfirmed {
    /// It names what was not offered, or is confirmed or forgotten already.
    NotOffered,
    /// Its length or digest is not that of what was offered.
    Mismatch,
}

impl Offered {
    /// An offer of `chunks`, one or more, that are expected one after the other.
    pub(crate) fn new(
        chunks: Vec<FoundChunk>,
        start: Option<u64>,
        chain: u32,
        key: &OfferKey,
    ) -> Self {
        let hash = match &chunks[..] {
            [chunk] => key.hash(&chunk.bytes),
            chunks => key.hash(&concatenated(chunks)),
        };
        let len = chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
        Self {
            chunks,
            len,
            start: start.map(u64::cast_signed),
            chain,
            state: State::Open,
            hash,
        }
    }

    /// Where its chunks are expected, in aligned mode.
    fn places(&self) -> impl Iterator<Item = (i64, &ChunkDigest)> {
        let mut next = self.start;
        self.chunks.iter().map_while(move |chunk| {
            let place = next?;
            next = Some(place + chunk.bytes.len() as i64);
            Some((place, &chunk.digest))
        })
    }

    fn on_the_wire(&self, key: &OfferKey) -> Offer {
        let hint = match &self.chunks[..] {
            [chunk] => Hint::of(&chunk.bytes),
            chunks => Hint::of(&concatenated(chunks)),
        };
        Offer {
            len: self.len as u32,
            hint,
            signature: key.sign(&self.hash),
        }
    }
}

impl Offers {
    /// Offers that are held.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// The number behind the last offer.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.held.len() as u64
    }

    /// The open offer that holds the chunk with this digest: of several the first behind what came
    /// last, else the last before it, as the sender finds it.
    pub(crate) fn open(&self, digest: &ChunkDigest) -> Option<u64> {
        let mut later = self.open.range((*digest, self.turn)..=(*digest, u64::MAX));
        let mut earlier = self.open.range((*digest, 0)..(*digest, self.turn));
        let found = later.next().or_else(|| earlier.next_back());
        found.map(|&(_, number)| number)
    }

    /// Whether another chain than this has the chunk on offer.
    pub(crate) fn is_open_elsewhere(&self, digest: &ChunkDigest, chain: u32) -> bool {
        let mut open = self.open.range((*digest, 0)..=(*digest, u64::MAX));
        open.any(|&(_, number)| {
            self.offered(number)
                .is_some_and(|offered| offered.chain != chain)
        })
    }

    /// The offer that holds the chunk with this digest, which begins at `at`, and where it is
    /// expected: there, if an aligned offer says so, and where an offer has no place.
    pub(crate) fn expected(&self, digest: &ChunkDigest, at: u64) -> Option<(u64, i64)> {
        let at = at.cast_signed();
        if let Some(number) = self.last_from(at)
            && let Some(offered) = self.offered(number)
            && offered.places().any(|place| place == (at, digest))
        {
            return Some((number, at));
        }
        let number = self.open(digest)?;
        let mut places = self.offered(number)?.places();
        let place = places.find(|&(_, expected)| expected == digest);
        Some((number, place.map_or(at, |(place, _)| place)))
    }

    /// The last offer that is not withdrawn and expected at `at` or before. In aligned mode such
    /// are of one chain, each right behind the one before.
    fn last_from(&self, at: i64) -> Option<u64> {
        let from = self.withdrawn_below.max(self.first);
        let (mut low, mut high) = (from, self.end());
        while low < high {
            let middle = low.midpoint(high);
            match self.offered(middle)?.start? <= at {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low.checked_sub(1).filter(|&number| number >= from)
    }

    pub(crate) fn offered(&self, number: u64) -> Option<&Offered> {
        let index = number.checked_sub(self.first)?;
        self.held.get(usize::try_from(index).ok()?)
    }

    /// The first offer that was neither withdrawn nor confirmed.
    pub(crate) fn oldest(&self) -> Option<(u64, &Offered)> {
        let below = self.withdrawn_below.saturating_sub(self.first) as usize;
        let index =
            (below..self.held.len()).find(|&index| self.held[index].state != State::Confirmed)?;
        Some((self.first + index as u64, &self.held[index]))
    }

    pub(crate) fn add(&mut self, offered: Offered) {
        let number = self.end();
        for chunk in &offered.chunks {
            self.open.insert((chunk.digest, number));
        }
        self.held.push_back(offered);
    }

    /// The bytes of an offer came as they are.
    pub(crate) fn overtaken(&mut self, number: u64) {
        self.close(number);
        if let Some(index) = number.checked_sub(self.first)
            && let Some(offered) = self.held.get_mut(index as usize)
        {
            offered.state = State::Overtaken;
        }
    }

    /// Offer `number` was hit when `came` bytes of the flow had come: those of its chain that
    /// were offered before it were skipped.
    pub(crate) fn hit(&mut self, number: u64, chain: u32, came: u64) {
        self.turn = number + 1;
        let from = self.withdrawn_below.saturating_sub(self.first) as usize;
        let to = number.saturating_sub(self.first) as usize;
        // What came before them now was behind them in no chain: they are to come.
        let later = (to + 1).min(self.held.len());
        let later = self.held.range_mut(later..);
        for offered in later.filter(|offered| offered.chain == chain) {
            match offered.state {
                State::Skipped(_) => offered.state = State::Open,
                State::Open => break,
                State::Overtaken | State::Confirmed => {}
            }
        }
        for offered in self.held.range_mut(from.min(to)..to).rev() {
            match offered.state {
                State::Open if offered.chain == chain => offered.state = State::Skipped(came),
                // Those before it were skipped before.
                State::Skipped(_) if offered.chain == chain => break,
                _ => {}
            }
        }
    }

    /// Takes the run that a confirmation names as the flow's bytes at `offset`: the offers with
    /// their numbers, in order.
    pub(crate) fn confirm(
        &mut self,
        frame: &ConfirmFrame,
        offset: u64,
    ) -> Result<Vec<(u64, Offered)>, Unconfirmed> {
        let start = frame
            .first
            .checked_sub(self.first)
            .ok_or(Unconfirmed::NotOffered)?;
        let end = start
            .checked_add(frame.count)
            .filter(|&end| end <= self.held.len() as u64)
            .ok_or(Unconfirmed::NotOffered)?;
        let run = start as usize..end as usize;
        let mut offers = self.held.range(run.clone());
        if offers.any(|offered| offered.state == State::Confirmed) {
            return Err(Unconfirmed::NotOffered);
        }
        let offers = self.held.range(run.clone());
        let len: u64 = offers.clone().map(|offered| offered.len).sum();
        let digest = RunDigest::of(offset, offers.map(|offered| &offered.hash));
        let is_right = digest == frame.digest || Bug::SignatureIsProof.is_planted();
        if len != frame.len || !is_right {
            return Err(Unconfirmed::Mismatch);
        }
        let taken = (frame.first..frame.first + frame.count)
            .map(|number| {
                self.close(number);
                let offered = &mut self.held[(number - self.first) as usize];
                let chunks = core::mem::take(&mut offered.chunks);
                let was = Offered { chunks, ..*offered };
                offered.state = State::Confirmed;
                (number, was)
            })
            .collect();
        self.pop_confirmed();
        Ok(taken)
    }

    /// Withdraws the offers below `number`, which exist; the sender is yet to hear of it. Gives
    /// the bytes that are not on offer any more.
    pub(crate) fn withdraw_below(&mut self, number: u64) -> u64 {
        let mut bytes = 0;
        for number in self.withdrawn_below.max(self.first)..number {
            self.close(number);
            let left = self.offered(number);
            let left = left.filter(|offered| offered.state != State::Confirmed);
            bytes += left.map_or(0, |offered| offered.len);
        }
        self.withdrawn_below = self.withdrawn_below.max(number);
        bytes
    }

    /// Whether an offer counts as on offer still.
    pub(crate) fn is_on_offer(&self, number: u64) -> bool {
        number >= self.withdrawn_below
    }

    /// The sender forgot the offers below `below`, and may have confirmed them up to `offset`.
    /// What it was not told to forget it cannot.
    pub(crate) fn forgotten(&mut self, below: u64, offset: u64) {
        let known = self
            .forgotten
            .back()
            .map_or(self.first, |&(known, _)| known);
        if (known + 1..=self.said_withdrawn_below).contains(&below) {
            self.forgotten.push_back((below, offset));
        }
    }

    /// Expects `by` bytes further on what is on offer, in aligned mode; the sender is yet to
    /// hear of it.
    pub(crate) fn move_by(&mut self, by: i64) {
        let from = self.withdrawn_below.saturating_sub(self.first) as usize;
        for offered in self.held.range_mut(from.min(self.held.len())..) {
            offered.start = offered.start.map(|start| start + by);
        }
        self.unsaid_move += by;
    }

    /// How far offers were moved that the sender knows elsewhere.
    pub(crate) fn say_moved(&mut self) -> Option<i64> {
        let by = core::mem::take(&mut self.unsaid_move);
        (by != 0).then_some(by)
    }

    /// Releases, with their numbers, what can be confirmed no more when all bytes up to `came`
    /// have come.
    pub(crate) fn release(&mut self, came: u64) -> Vec<(u64, Offered)> {
        let mut released = Vec::new();
        let is_hasty = Bug::EarlyRelease.is_planted();
        while let Some(&(below, offset)) = self.forgotten.front()
            && (offset <= came || is_hasty)
        {
            self.forgotten.pop_front();
            while self.first < below
                && let Some(offered) = self.held.pop_front()
            {
                released.push((self.first, offered));
                self.first += 1;
            }
        }
        released.retain(|(_, offered)| offered.state != State::Confirmed);
        released
    }

    /// The flow is over: gives all that is held, with numbers.
    pub(crate) fn release_all(&mut self) -> Vec<(u64, Offered)> {
        self.open.clear();
        let numbers = self.first..;
        self.first = self.end();
        let held = numbers.zip(core::mem::take(&mut self.held));
        held.filter(|(_, offered)| offered.state != State::Confirmed)
            .collect()
    }

    /// The next frame for the sender: offers that it does not know, and withdrawals, of which
    /// `withdrawals_min` are worth a frame of their own.
    pub(crate) fn say(&mut self, key: &OfferKey, withdrawals_min: u64) -> Option<Said> {
        let from = self.said_end.max(self.first);
        let mut expected = self.offered(from).and_then(|offered| offered.start);
        let start = expected.map(|start| start.max(0).cast_unsigned());
        let mut offers = Vec::new();
        while let Some(offered) = self.offered(from + offers.len() as u64)
            && offered.start == expected
            && offers.len() < OFFERS_FRAME_MAX
        {
            expected = expected.map(|start| start + offered.len.cast_signed());
            offers.push(offered.on_the_wire(key));
        }
        let withdrawn = self.withdrawn_below.min(self.said_end);
        let unsaid = withdrawn.saturating_sub(self.said_withdrawn_below);
        if offers.is_empty() && unsaid < withdrawals_min {
            return None;
        }
        // What the sender does not know yet is withdrawn by a later frame.
        let withdrawn_below = self.withdrawn_below.min(self.said_end);
        self.said_end = from + offers.len() as u64;
        self.said_withdrawn_below = withdrawn_below;
        Some(Said {
            withdrawn_below,
            start,
            offers,
        })
    }

    /// Its chunks are open no more.
    fn close(&mut self, number: u64) {
        let open = &mut self.open;
        if let Some(index) = number.checked_sub(self.first)
            && let Some(offered) = self.held.get(index as usize)
        {
            for chunk in &offered.chunks {
                open.remove(&(chunk.digest, number));
            }
        }
    }

    fn pop_confirmed(&mut self) {
        while let Some(State::Confirmed) = self.held.front().map(|offered| offered.state) {
            self.held.pop_front();
            self.first += 1;
        }
    }
}

fn concatenated(chunks: &[FoundChunk]) -> Vec<u8> {
    let chunks: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk.bytes[..]).collect();
    chunks.concat()
}

#[cfg(test)]
mod tests;
