//! What the flows of a link share as receivers: requests to the history, and the memory for
//! what they offer.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::history::{FoundChunk, HistoryConfig, HistoryRequest, RecipeNumber};
use crate::limits::{OFFERS_LINK_MAX, OPENING_KEYS_MAX, QUESTIONS_LINK_MAX};
use crate::terms::{OfferKey, OfferTerms};

/// See the module.
#[derive(Debug)]
pub(crate) struct LinkHistory {
    pub(crate) config: Arc<HistoryConfig>,
    requests: VecDeque<HistoryRequest>,
    /// What they take, and how many of them are questions.
    queued_bytes: usize,
    questions: usize,
    next_recipe: u64,
    /// Bytes, and offers, that may still be held for all flows. Of the offers that a sender may
    /// keep, half are for those of flows whose end it has not heard of.
    free_bytes: u64,
    free_offers: usize,
    /// The key of this link's signatures, once the other end said that it takes offers.
    key: Option<OfferKey>,
    /// Opening keys that hit, and those that many requests have in common and that did not.
    openings: BTreeMap<u64, Tried>,
    /// Chunks that were not learnt since the history was too slow.
    pub(crate) unlearnt: u64,
}

/// The success of an opening key.
#[derive(Clone, Copy, Debug)]
enum Tried {
    Hit,
    /// It missed, and is not tried for so many flows. After the next miss, it is not for so many.
    Missed {
        wait: u16,
        next: u16,
    },
}

/// Flows that do without the openings of alike requests after these missed: once, and often.
const WAIT_MIN: u16 = 4;
const WAIT_MAX: u16 = 1 << 10;

impl LinkHistory {
    pub(crate) fn new(config: HistoryConfig) -> Self {
        Self {
            free_bytes: config.offered_bytes_max,
            free_offers: OFFERS_LINK_MAX / 2,
            config: Arc::new(config),
            requests: VecDeque::new(),
            queued_bytes: 0,
            questions: 0,
            next_recipe: 0,
            key: None,
            openings: BTreeMap::new(),
            unlearnt: 0,
        }
    }

    pub(crate) fn terms(&self) -> OfferTerms {
        OfferTerms {
            mask: self.config.mask,
        }
    }

    pub(crate) fn next_recipe(&mut self) -> RecipeNumber {
        self.next_recipe += 1;
        RecipeNumber(self.next_recipe)
    }

    /// The other end takes offers, with signatures by `key`, or none.
    pub(crate) fn agree(&mut self, key: Option<OfferKey>) {
        self.key = key;
    }

    pub(crate) fn key(&self) -> Option<&OfferKey> {
        self.key.as_ref()
    }

    pub(crate) fn has_peer(&self) -> bool {
        self.key.is_some()
    }

    /// Whether the history keeps up; what comes while it does not is not learnt.
    pub(crate) fn takes_chunks(&self) -> bool {
        self.queued_bytes < self.config.learning_bytes_max
    }

    /// Whether it answers in time: what an answer is for does not wait for it.
    pub(crate) fn takes_questions(&self) -> bool {
        self.questions < QUESTIONS_LINK_MAX
    }

    pub(crate) fn ask(&mut self, request: HistoryRequest) {
        self.queued_bytes += request.queued_bytes();
        self.questions += usize::from(request.wanted().is_some());
        self.requests.push_back(request);
    }

    /// These chunks were confirmed wrongly.
    pub(crate) fn forget<'a>(&mut self, chunks: impl IntoIterator<Item = &'a FoundChunk>) {
        for chunk in chunks {
            let digest = chunk.digest;
            self.ask(HistoryRequest::Forget { digest });
        }
    }

    pub(crate) fn poll(&mut self) -> Option<HistoryRequest> {
        let request = self.requests.pop_front()?;
        self.queued_bytes -= request.queued_bytes();
        self.questions -= usize::from(request.wanted().is_some());
        Some(request)
    }

    /// Takes memory for an offer of `bytes`, if there is some.
    pub(crate) fn hold(&mut self, bytes: u64) -> bool {
        if self.free_bytes < bytes || self.free_offers == 0 {
            return false;
        }
        self.free_bytes -= bytes;
        self.free_offers -= 1;
        true
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.free_bytes += bytes;
        self.free_offers += 1;
    }

    /// Offers that may still be held.
    pub(crate) fn free_offers(&self) -> usize {
        self.free_offers
    }

    /// Bytes that are held for offers.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.config.offered_bytes_max - self.free_bytes
    }

    /// Bytes that one flow may hold, whatever its window: under pressure windows shrink.
    pub(crate) fn share_bytes(&self) -> u64 {
        self.free_bytes / 2
    }

    pub(crate) fn opening_hit(&mut self, opening: u64) {
        self.opening_tried(opening, Tried::Hit);
    }

    pub(crate) fn has_opening_hit(&self, opening: u64) -> bool {
        matches!(self.openings.get(&opening), Some(Tried::Hit))
    }

    /// Whether to try what alike requests have in common.
    pub(crate) fn tries_alike(&mut self, opening: u64) -> bool {
        match self.openings.get_mut(&opening) {
            Some(Tried::Missed { wait, .. }) if *wait > 0 => {
                *wait -= 1;
                false
            }
            _ => true,
        }
    }

    /// Something is offered that alike requests have in common: a miss, until it hits.
    pub(crate) fn offers_alike(&mut self, opening: u64) {
        let wait = match self.openings.get(&opening) {
            Some(Tried::Hit) => return,
            Some(&Tried::Missed { next, .. }) => next,
            None => WAIT_MIN,
        };
        let next = WAIT_MAX.min(2 * wait);
        self.opening_tried(opening, Tried::Missed { wait, next });
    }

    fn opening_tried(&mut self, opening: u64, tried: Tried) {
        let is_new = self.openings.insert(opening, tried).is_none();
        if is_new && self.openings.len() > OPENING_KEYS_MAX {
            self.openings.pop_first();
        }
    }
}

impl HistoryRequest {
    fn queued_bytes(&self) -> usize {
        let chunk_bytes = match self {
            Self::Learn { bytes, .. } => bytes.len(),
            _ => 0,
        };
        size_of::<Self>() + chunk_bytes
    }
}
