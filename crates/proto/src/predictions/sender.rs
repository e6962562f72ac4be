//! What the sender of a flow was offered, and what of its bytes it need not send.
//!
//! Offers and the flow's waiting bytes enter; [`Step`]s leave: confirm a run of offers, send
//! some bytes as they are, or wait a moment for the rest of an expected chunk.
//!
//! ```text
//! at a place where a chunk may begin:
//!     for the offer that is next in turn, then others with the same prefix, two at most:
//!         the hint is right, and all bytes are here?  hash them; right: confirm
//!         the hint is right so far?                    wait, but not long
//! a chunk may begin at an anchor or a backup anchor, behind a confirmed chunk, where a pause has
//! ended, behind the head of an HTTP response that begins there, where it would if those before it
//! had changed and kept their lengths, and in aligned mode at the offset that the offer names, or
//! where it was moved since
//! ```
//!
//! The sender looks for anchors, not for chunks: it takes an offer's length from the offer, so
//! it need not cut as the receiver does (`docs/architecture.md`, 16). Without offers a flow
//! costs it nothing, and one whose offers keep being wrong costs at most
//! [`FALSE_HASH_BYTES_MAX`] of hashing (PACK, section 5.2.1) and [`VAIN_SEARCH_BYTES_MAX`] of
//! looking for them.

mod alignment;
mod judgement;
mod scan;

use std::collections::{BTreeSet, VecDeque};

use refrain_codec::universal::UniversalHash;

use super::response_head::HeadEnd;
use crate::{
    counters::PredictionCounters,
    fault::Violation,
    frame::{Offer, OfferFrame},
    limits::{
        FALSE_HASH_BYTES_MAX, HOLD_AFTER_LAST, HOLD_MAX, OFFERS_FLOW_MAX, VAIN_SEARCH_BYTES_MAX,
    },
    moment::Moment,
    terms::{OfferKey, OfferTerms, PREFIX_BYTES, RunDigest},
};
use alignment::{Alignment, Unmoved};
use judgement::Verdict;
use scan::Scan;

/// What a flow's sender knows of its receiver's offers.
#[derive(Debug)]
pub(crate) struct Expectations {
    terms: OfferTerms,
    key: OfferKey,
    /// `None`: confirmed, or withdrawn. The front one, which is neither, has the number `first`.
    offers: VecDeque<Option<Expected>>,
    first: u64,
    /// Offers with lower numbers were withdrawn.
    withdrawn_below: u64,
    /// Prefixes of the offers that are left and may come anywhere, with their numbers.
    prefixes: BTreeSet<(u16, u64)>,
    /// Where the others are expected.
    alignment: Alignment,
    /// The offer that is next in turn: the one behind the last that was confirmed.
    turn: u64,
    /// Where a chunk may begin, beside anchors.
    here: Option<u64>,
    /// Behind the head of a response that begins where a chunk may.
    body: Option<u64>,
    supposed: Option<Supposed>,
    /// An offer that was found right, and where.
    found: Option<Found>,
    /// An offer that was found wrong, and where.
    refuted: Option<(u64, u64)>,
    scan: Option<Scan>,
    hold: Option<Hold>,
    /// An offer for which fewer bytes than have a hint were held in vain.
    unheld: Option<u64>,
    /// Bytes hashed in vain since the last success, less those sent before the latest offer.
    false_bytes: u64,
    /// Where the latest offer or success was: how long it has been looked for any in vain.
    searched_from: u64,
    /// Offset of the last step, and of the latest offer.
    offset: u64,
    offered_at: u64,
    pub(crate) counters: PredictionCounters,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    offer: Offer,
    /// By what its place is known, in aligned mode.
    unmoved: Option<Unmoved>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    at: u64,
    number: u64,
    hash: UniversalHash,
}

/// Where an offer, perhaps one that is yet to come, begins if those before it have changed and kept
/// their lengths.
#[derive(Clone, Copy, Debug)]
struct Supposed {
    at: u64,
    number: u64,
}

/// A wait for the rest of an expected chunk.
#[derive(Clone, Copy, Debug)]
struct Hold {
    at: u64,
    /// Behind the chunk.
    chunk_end: u64,
    since: Moment,
    /// Offset behind the last byte that has come, and when it was first seen.
    end: u64,
    end_since: Moment,
}

/// What to do with a flow's next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Confirm `count` offers from `first` on instead of sending their `len` bytes.
    Confirm {
        first: u64,
        count: u64,
        len: usize,
        digest: RunDigest,
    },
    /// Send so many bytes.
    Send(usize),
    /// Wait until then, or for more bytes.
    Wait(Moment),
}

/// A flow's bytes that wait to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting<'a> {
    /// Of the first one.
    pub(crate) offset: u64,
    /// At least one.
    pub(crate) bytes: &'a [u8],
    /// No more will come.
    pub(crate) is_last: bool,
}

impl Waiting<'_> {
    /// Where the body begins of the response that begins at `at`, if it is one and its head has
    /// come.
    fn body_behind(&self, at: u64) -> Option<u64> {
        let response = self.bytes.get((at - self.offset) as usize..)?;
        let head = HeadEnd::default().find(response)?;
        Some(at + head as u64)
    }
}

impl Expectations {
    pub(crate) fn new(terms: OfferTerms, key: OfferKey) -> Self {
        Self {
            terms,
            key,
            offers: VecDeque::new(),
            first: 0,
            withdrawn_below: 0,
            prefixes: BTreeSet::new(),
            alignment: Alignment::new(),
            turn: 0,
            here: None,
            body: None,
            supposed: None,
            found: None,
            refuted: None,
            scan: None,
            hold: None,
            unheld: None,
            false_bytes: 0,
            searched_from: 0,
            offset: 0,
            offered_at: 0,
            counters: PredictionCounters::default(),
        }
    }

    /// Offers that were neither confirmed nor withdrawn.
    pub(crate) fn outstanding(&self) -> usize {
        self.prefixes.len() + self.alignment.len()
    }

    /// Offers whose numbers are kept, for the bound of the link.
    pub(crate) fn kept(&self) -> usize {
        self.offers.len()
    }

    /// Takes a frame of offers; says whether any were withdrawn.
    pub(crate) fn offered(&mut self, frame: &OfferFrame<'_>) -> Result<bool, Violation> {
        let end = self.first + self.offers.len() as u64;
        if frame.withdrawn_below > end {
            return Err(Violation::InvalidOffers);
        }
        let is_news = frame.withdrawn_below > self.withdrawn_below;
        self.withdrawn_below = self.withdrawn_below.max(frame.withdrawn_below);
        for number in self.first..frame.withdrawn_below {
            self.forget(number);
        }
        self.pop_forgotten();
        if self.counters.offers == 0 {
            // A flow's opening.
            self.supposed = Some(Supposed { at: 0, number: 0 });
        }
        let mut start = frame.start;
        for offer in frame.offers.iter() {
            if self.offers.len() >= OFFERS_FLOW_MAX {
                return Err(Violation::InvalidOffers);
            }
            let number = self.first + self.offers.len() as u64;
            let unmoved = start.map(|start| self.alignment.add(start, number));
            if unmoved.is_none() {
                self.prefixes.insert((offer.hint.prefix, number));
            }
            self.offers.push_back(Some(Expected { offer, unmoved }));
            start = start.map(|start| start.saturating_add(offer.len.into()));
            self.counters.offers += 1;
            self.counters.offered_bytes += u64::from(offer.len);
        }
        self.counters.offer_frame_bytes += frame.offers.wire_bytes() as u64;
        if frame.offers.wire_bytes() > 0 {
            // The receiver reports a hit: it is worth trying again, as far as bytes were sent.
            let sent = self.offset.saturating_sub(self.offered_at);
            self.false_bytes = self.false_bytes.saturating_sub(sent);
            self.offered_at = self.offset;
            self.searched_from = self.offset;
        }
        self.turn = self.turn.max(self.first);
        if self
            .found
            .is_some_and(|found| self.expected(found.number).is_none())
        {
            self.found = None;
        }
        Ok(is_news)
    }

    /// The aligned offers that were made so far are expected `by` bytes further on.
    pub(crate) fn moved(&mut self, by: i64) {
        self.alignment.moved(by);
    }

    /// What was offered is of no more use; says how many were kept.
    pub(crate) fn drop_all(&mut self) -> usize {
        let dropped = self.offers.len();
        self.first += dropped as u64;
        self.offers.clear();
        self.prefixes.clear();
        self.alignment.clear();
        self.body = None;
        self.supposed = None;
        self.found = None;
        self.scan = None;
        self.hold = None;
        dropped
    }

    /// Bytes come at `offset` after a pause, or the first offers did before them: a chunk may
    /// begin there.
    pub(crate) fn begins_at(&mut self, offset: u64) {
        self.here = Some(offset);
    }

    /// What to do with the first of the waiting bytes.
    pub(crate) fn step(&mut self, now: Moment, waiting: Waiting<'_>) -> Step {
        let Waiting { offset, bytes, .. } = waiting;
        self.alignment.earned(offset.saturating_sub(self.offset));
        self.offset = offset;
        let is_vain = self.false_bytes >= FALSE_HASH_BYTES_MAX
            || offset.saturating_sub(self.searched_from) >= VAIN_SEARCH_BYTES_MAX;
        if self.outstanding() == 0 || is_vain {
            self.scan = None;
            self.here = None;
            self.hold = None;
            return Step::Send(bytes.len());
        }
        while let Some(at) = self.next_place(&waiting) {
            let before = (at - offset) as usize;
            match self.try_at(at, &waiting) {
                Some((number, Verdict::Right(hash))) => {
                    self.hold = None;
                    self.found = Some(Found { at, number, hash });
                    if before > 0 {
                        return Step::Send(before);
                    }
                    return self.run(&waiting);
                }
                Some((number, Verdict::Incomplete)) => {
                    if before > 0 {
                        return Step::Send(before);
                    }
                    let until = self.hold_until(at, number, offset + bytes.len() as u64, now);
                    if now < until {
                        return Step::Wait(until);
                    }
                    self.hold = None;
                    if bytes.len() < PREFIX_BYTES {
                        self.unheld = Some(number);
                    }
                }
                _ => {}
            }
            self.pass(at);
        }
        Step::Send(bytes.len())
    }

    /// Bytes behind `end`, before which all has come, that an expected chunk is waited for with.
    pub(crate) fn awaited(&self, end: u64) -> usize {
        self.hold
            .map_or(0, |hold| hold.chunk_end.saturating_sub(end) as usize)
    }

    /// How long the rest of the expected chunk `number` that begins at `at` is waited for; all
    /// before `end` has come.
    fn hold_until(&mut self, at: u64, number: u64, end: u64, now: Moment) -> Moment {
        let len = self
            .expected(number)
            .map_or(0, |expected| expected.offer.len.into());
        let before = self.hold.filter(|hold| hold.at == at);
        let unchanged = before.filter(|hold| hold.end == end);
        let hold = self.hold.insert(Hold {
            at,
            chunk_end: at + len,
            since: before.map_or(now, |hold| hold.since),
            end,
            end_since: unchanged.map_or(now, |hold| hold.end_since),
        });
        (hold.end_since + HOLD_AFTER_LAST).min(hold.since + HOLD_MAX)
    }

    /// The first place among the waiting bytes where a chunk may begin.
    fn next_place(&mut self, waiting: &Waiting<'_>) -> Option<u64> {
        let end = waiting.offset + waiting.bytes.len() as u64;
        let aligned = self.alignment.next(waiting.offset);
        if let Some(found) = self.found {
            if found.at >= waiting.offset {
                // Moves, or other offers, may have come since it was found.
                return Some(aligned.map_or(found.at, |at| at.min(found.at)));
            }
            self.found = None;
        }
        if let Some(here) = self.here {
            if here >= waiting.offset {
                self.body = waiting.body_behind(here);
                return (here < end).then_some(here);
            }
            self.here = None;
        }
        if let Some(start) = aligned {
            return (start < end).then_some(start);
        }
        let supposed = self.supposed_from(waiting.offset);
        let supposed = supposed.filter(|&at| at < end);
        let anchor = self.scan_for_anchor(waiting);
        let body = self.body.filter(|at| (waiting.offset..end).contains(at));
        [supposed, anchor, body].into_iter().flatten().min()
    }

    /// Where the next offer is supposed, from `offset` on.
    fn supposed_from(&mut self, offset: u64) -> Option<u64> {
        let end = self.first + self.offers.len() as u64;
        while let Some(Supposed { at, number }) = self.supposed
            && number < end
        {
            if at >= offset {
                return Some(at);
            }
            // The offer came too late.
            self.supposed = self.behind(number, at);
        }
        None
    }

    fn scan_for_anchor(&mut self, waiting: &Waiting<'_>) -> Option<u64> {
        if self.prefixes.is_empty() {
            return None;
        }
        let offset = waiting.offset;
        let is_behind = self.scan.as_ref().is_none_or(|scan| scan.end() < offset);
        if is_behind {
            self.scan = Some(Scan::new(self.terms.mask, offset));
        }
        self.scan.as_mut()?.next(waiting)
    }

    /// Nothing begins at `at`.
    fn pass(&mut self, at: u64) {
        if self.found.is_some_and(|found| found.at == at) {
            self.found = None;
        }
        let supposed = self.supposed.filter(|supposed| supposed.at == at);
        let missed = match self.supposed {
            Some(_) => supposed.map(|supposed| supposed.number),
            None => self.here.filter(|&here| here == at).map(|_| self.turn),
        };
        if let Some(number) = missed {
            self.supposed = self.behind(number, at);
        }
        if self.here == Some(at) {
            self.here = None;
        }
        if self.body == Some(at) {
            self.body = None;
        }
        if let Some(scan) = &mut self.scan {
            scan.pass(at);
        }
        self.alignment.tried(at);
    }

    /// What is supposed behind something as long as offer `number` at `at`.
    fn behind(&self, number: u64, at: u64) -> Option<Supposed> {
        let expected = self.expected(number)?;
        expected.unmoved.is_none().then(|| Supposed {
            at: at + u64::from(expected.offer.len),
            number: number + 1,
        })
    }

    /// The run that begins with the offer that was found at the first of the waiting bytes.
    fn run(&mut self, waiting: &Waiting<'_>) -> Step {
        let mut hashes = Vec::new();
        let (mut len, mut first) = (0, 0);
        while let Some(Found { number, hash, .. }) = self.found.take() {
            let Some(expected) = self.expected(number) else {
                break;
            };
            if hashes.is_empty() {
                first = number;
            }
            len += expected.offer.len as usize;
            hashes.push(hash);
            self.forget(number);
            self.turn = number + 1;
            let behind = waiting.offset + len as u64;
            let rest = &waiting.bytes[len..];
            if rest.is_empty() {
                self.here = Some(behind);
                break;
            }
            match self.judge(self.turn, behind, rest, waiting.is_last) {
                Verdict::Right(hash) => {
                    self.found = Some(Found {
                        at: behind,
                        number: self.turn,
                        hash,
                    });
                }
                Verdict::Wrong | Verdict::Incomplete => {
                    self.here = Some(behind);
                    break;
                }
            }
        }
        self.pop_forgotten();
        self.scan = None;
        self.supposed = None;
        self.searched_from = waiting.offset + len as u64;
        self.counters.confirmed += hashes.len() as u64;
        self.counters.confirmed_bytes += len as u64;
        Step::Confirm {
            first,
            count: hashes.len() as u64,
            len,
            digest: RunDigest::of(waiting.offset, hashes.iter()),
        }
    }

    fn expected(&self, number: u64) -> Option<&Expected> {
        let index = number.checked_sub(self.first)?;
        self.offers.get(usize::try_from(index).ok()?)?.as_ref()
    }

    fn pop_forgotten(&mut self) {
        while let Some(None) = self.offers.front() {
            self.offers.pop_front();
            self.first += 1;
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(index) = number.checked_sub(self.first) else {
            return;
        };
        if let Some(expected) = self.offers.get_mut(index as usize).and_then(Option::take) {
            match expected.unmoved {
                Some(unmoved) => self.alignment.remove(unmoved, number),
                None => {
                    self.prefixes.remove(&(expected.offer.hint.prefix, number));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
