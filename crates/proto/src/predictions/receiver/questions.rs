//! What a receiver asks the history, one question at a time, and how much it wants to hear.

use super::{Predictions, chains::Chain};
use crate::{
    frame::ConfirmFrame,
    limits::{OFFERS_FLOW_MAX, PREDICTED_BYTES_START},
    predictions::{
        history::{HistoryRequest, Predict, Wanted},
        link_history::LinkHistory,
    },
};

/// Chunks that are asked for at a time.
pub(super) const CHUNKS_A_REQUEST: usize = 128;

/// Chunks that are looked up to see whether a chain holds, while the sender drives.
pub(super) const PROBED_CHUNKS: usize = 16;

/// For less room than this the history is not asked.
pub(super) const ROOM_BYTES_MIN: u64 = 64 << 10;

/// Offers of an opening whose key never hit, and of one that did: 1 and 8 KiB on the wire.
const OPENING_OFFERS_FIRST: usize = 78;
const OPENING_OFFERS: usize = 630;

/// Bytes that a flow may offer at first.
const OPENING_BYTES: u64 = 8 << 20;

/// A chain that was not hit while so many bytes came makes room for the one that is.
const IDLE_FOR_BYTES: u64 = 256 << 10;

const SIDE_BYTES: u64 = 128 << 10;

/// What the history was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) request: u64,
    pub(super) about: About,
    /// Where the next chunk begins.
    pub(super) at: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum About {
    /// What followed the chunk that ended at this offset.
    ChunkEndingAt(u64),
    Chain(u32),
    Opening(u64),
}

impl Predictions {
    /// Asks the history for the opening, or to read the present chain onward, where there is room.
    pub(super) fn ask(&mut self, link: &mut LinkHistory) {
        if self.asked.is_some() || self.by_sender || self.stopped || !link.has_peer() {
            return;
        }
        if let Some(opening) = self.opening_due.take() {
            let hit = link.has_opening_hit(opening);
            let chunks_max = if hit {
                OPENING_OFFERS
            } else {
                OPENING_OFFERS_FIRST
            };
            self.window.widen_to(OPENING_BYTES);
            if let Some(wanted) = self.want(About::Opening(opening), chunks_max, link) {
                link.ask(HistoryRequest::Open { opening, wanted });
            }
            return;
        }
        let Some(Chain {
            number,
            next: Some(from),
            is_hit: true,
            dry_at,
            ..
        }) = self.chains.present()
        else {
            return;
        };
        if dry_at == Some(self.came) {
            return;
        }
        self.make_room(number, link);
        if let Some(wanted) = self.want(About::Chain(number), CHUNKS_A_REQUEST, link) {
            link.ask(HistoryRequest::Read { from, wanted });
        }
    }

    /// The confirmation of a run did not hold. Which of its chunks is to blame nobody knows, so
    /// the history shall forget all of them.
    pub(crate) fn distrust(&self, run: &ConfirmFrame, link: &mut LinkHistory) {
        let numbers = run.first..run.first.saturating_add(run.count);
        let offers = numbers.map_while(|number| self.offers.offered(number));
        link.forget(offers.flat_map(|offered| &offered.chunks));
    }

    pub(super) fn want(
        &mut self,
        about: About,
        chunks_max: usize,
        link: &LinkHistory,
    ) -> Option<Wanted> {
        let mut room = self.room_bytes(link);
        if matches!(about, About::ChunkEndingAt(_)) {
            // Another chain may begin here, whatever the present one has on offer.
            room = match self.config.predict {
                Predict::Window => room.clamp(SIDE_BYTES, PREDICTED_BYTES_START),
                Predict::Aligned => self.window.allowed_bytes(),
            }
            .min(link.share_bytes());
        }
        let chunks_max = chunks_max
            .min(OFFERS_FLOW_MAX - self.offers.held().min(OFFERS_FLOW_MAX))
            .min(link.free_offers());
        if room < ROOM_BYTES_MIN.min(self.window.allowed_bytes())
            || chunks_max == 0
            || !link.takes_questions()
        {
            return None;
        }
        self.next_request += 1;
        let request = self.next_request;
        let at = self.cut;
        self.asked = Some(Asked { request, about, at });
        Some(Wanted {
            flow: self.flow,
            request,
            chunks_max,
            bytes_max: room as usize,
        })
    }

    /// The present chain wants to go on, and others that were not hit for long are in its way.
    fn make_room(&mut self, current: u32, link: &mut LinkHistory) {
        while self.room_bytes(link) < ROOM_BYTES_MIN
            && let Some((number, offered)) = self.offers.oldest()
            && offered.chain != current
            && self.chains.idle_bytes(offered.chain, self.came) > IDLE_FOR_BYTES
        {
            self.withdraw_below(number + 1);
            self.tidy(link);
        }
    }

    /// Whether there is enough room for the history to be asked to fill it.
    pub(super) fn has_room(&self, link: &LinkHistory) -> bool {
        let least = ROOM_BYTES_MIN.min(self.window.allowed_bytes());
        self.room_bytes(link) >= least && link.free_offers() > 0
    }

    fn room_bytes(&self, link: &LinkHistory) -> u64 {
        self.window.room_bytes().min(link.share_bytes())
    }
}
