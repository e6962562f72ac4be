//! Histories: what engines ask of them enters, answers leave, in order and when they are ready.
//! Some forget meanwhile, and some lie.

use std::{collections::VecDeque, time::Duration};

use refrain_proto::{Moment, predictions::history::HistoryRequest};

use super::{Step, World};
use crate::{End, Failure, Kind, remembered::Remembered, trouble::Foresight};

/// An end's history.
#[derive(Debug, Default)]
pub(super) struct MemorySide {
    remembered: Remembered,
    /// What was asked, and for which link.
    asked: VecDeque<(u64, HistoryRequest)>,
    /// When the last of it is answered.
    busy_until: Moment,
}

impl World {
    pub(super) fn prepare_memories(&mut self) {
        let lies = self.plan.foresight.as_ref().map(|foresight| foresight.lies);
        for end in End::BOTH {
            self.side(end).memory.remembered.lies = lies.is_some_and(|lies| lies[end as usize]);
        }
    }

    /// Takes what the engine asks of its end's history.
    pub(super) fn ask(&mut self, end: End, link: u64) {
        let now = self.now();
        let Some(&Foresight { answer_ms_max, .. }) = self.plan.foresight.as_ref() else {
            return;
        };
        while let Some(request) = self
            .link_side(end, link)
            .and_then(|side| side.link.poll_history())
        {
            let pause = Duration::from_micros(self.rng.u64(..=1000 * answer_ms_max));
            let memory = &mut self.side(end).memory;
            memory.asked.push_back((link, request));
            // Many chunks at once take no longer than one of them.
            memory.busy_until = memory.busy_until.max(now + pause);
            let at = memory.busy_until;
            self.schedule.at(at, Step::Remember(end));
        }
    }

    pub(super) fn remember(&mut self, end: End) -> Result<(), Failure> {
        let forgets_one_of = match &self.plan.foresight {
            Some(foresight) => foresight.forgets_one_of,
            None => 0,
        };
        // What a process asked before it died is not answered.
        let Some((link, request)) = self.side(end).memory.asked.pop_front() else {
            return Ok(());
        };
        if forgets_one_of > 0 && self.rng.u32(..forgets_one_of) == 0 {
            self.kinds.note(Kind::Eviction);
            if self.has_offers_out(end) {
                self.kinds.note(Kind::EvictionAmidOffers);
            }
            let count = self.rng.usize(..40);
            self.side(end).memory.remembered.evict(count);
        }
        let Some((wanted, found)) = self.side(end).memory.remembered.handle_of(link, request)
        else {
            return Ok(());
        };
        if let Some(side) = self.link_side(end, link) {
            side.link
                .history_answered(wanted.flow, wanted.request, found);
        }
        self.settle(end, link)
    }

    /// Whether a link of this end offered what the other end may still confirm.
    pub(super) fn has_offers_out(&self, end: End) -> bool {
        let now = self.now();
        let mut links = self.ends[end as usize].links.values();
        links.any(|side| side.link.status(now).offered_bytes_held > 0)
    }

    /// The process dies, and with it what it was about to ask.
    pub(super) fn memory_restarts(&mut self, end: End) {
        let memory = &mut self.side(end).memory;
        memory.asked.clear();
        memory.remembered.restarted();
    }
}
