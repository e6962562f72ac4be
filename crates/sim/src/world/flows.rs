//! Applications: how flows begin, take their turns, and end.

use std::time::Duration;

use refrain_proto::{FlowId, ResetReason};

use super::{Step, World};
use crate::{
    End, Failure, Kind,
    application::{Application, Next},
    content::content,
    ledger::FlowKey,
};

/// Few, so that flows share lanes.
const TARGETS: [&str; 3] = ["files.example:80", "pages.example:80", "10.0.0.7:443"];

impl World {
    /// Opens a flow, if `end` has a link that takes it; says whether it did.
    pub(super) fn open(&mut self, end: End) -> bool {
        let now = self.now();
        let target = TARGETS[self.rng.usize(..TARGETS.len())];
        let is_excluded = self.rng.u8(..16) == 0;
        let sides = &mut self.ends[end as usize].links;
        let Some((&link, side)) = sides
            .iter_mut()
            .find(|(_, side)| side.link.lanes_up() > 0 && side.link.fault().is_none())
        else {
            return false;
        };
        let Ok(flow) = side.link.open_flow(now, target, is_excluded) else {
            return false;
        };
        self.begin(end, link, flow, true);
        true
    }

    pub(super) fn offered(&mut self, end: End, link: u64, flow: FlowId) -> Result<(), Failure> {
        let bytes_changed = [Kind::FlippedBit, Kind::TruncatedFrame]
            .iter()
            .any(|&kind| self.kinds.count(kind) > 0);
        match self.begin(end, link, flow, false) {
            Some(key) => self.ledger.record(key).offered(end, flow, bytes_changed),
            None => Ok(()),
        }
    }

    fn begin(&mut self, end: End, link: u64, flow: FlowId, opened_here: bool) -> Option<FlowKey> {
        let now = self.now();
        let side = self.ends[end as usize].links.get(&link)?;
        let far_instance = match end {
            End::Near => side.link.peer_instance()?,
            End::Far => side.link.instance(),
        };
        let key = FlowKey {
            near_instance: link,
            far_instance,
            flow,
        };
        let (plan, rng) = (&self.plan, &mut self.rng);
        let record = self.ledger.open(key, || {
            [(); 2].map(|()| {
                let bytes = plan.content_bytes(rng);
                content(rng, bytes)
            })
        });
        let application =
            Application::new(rng, now, end, key, record, opened_here, &mut self.kinds);
        self.side(end)
            .applications
            .insert((link, flow), application);
        let pause = match opened_here {
            true => Duration::ZERO,
            false => Duration::from_micros(self.rng.u64(..100_000)),
        };
        self.book_turn(end, (link, flow), pause);
        Some(key)
    }

    fn book_turn(&mut self, end: End, flow: (u64, FlowId), pause: Duration) {
        if let Some(application) = self.side(end).applications.get_mut(&flow)
            && !core::mem::replace(&mut application.is_booked, true)
        {
            self.schedule.after(pause, Step::Turn { end, flow });
        }
    }

    pub(super) fn turn(&mut self, end: End, flow: (u64, FlowId)) -> Result<(), Failure> {
        let now = self.now();
        let side = &mut self.ends[end as usize];
        let (Some(application), Some(link)) = (
            side.applications.get_mut(&flow),
            side.links.get_mut(&flow.0),
        ) else {
            return Ok(());
        };
        application.is_booked = false;
        let record = self.ledger.record(application.key);
        self.progress_at = now;
        match application.turn(now, &mut link.link, record, &mut self.kinds)? {
            Next::Again(pause) => self.book_turn(end, flow, pause),
            Next::Waits => {}
            Next::Over => self.flow_over(end, flow),
        }
        self.settle(end, flow.0)
    }

    pub(super) fn readable(&mut self, end: End, flow: (u64, FlowId)) {
        if let Some(application) = self.side(end).applications.get_mut(&flow) {
            application.readable();
            self.book_turn_soon(end, flow);
        }
    }

    pub(super) fn writable(&mut self, end: End, flow: (u64, FlowId)) {
        if let Some(application) = self.side(end).applications.get_mut(&flow) {
            application.writable();
            self.book_turn_soon(end, flow);
        }
    }

    fn book_turn_soon(&mut self, end: End, flow: (u64, FlowId)) {
        let pause = match self.rng.u8(..4) {
            0 => Duration::from_micros(self.rng.u64(..5_000)),
            _ => Duration::ZERO,
        };
        self.book_turn(end, flow, pause);
    }

    pub(super) fn flow_over(&mut self, end: End, flow: (u64, FlowId)) {
        self.progress_at = self.now();
        self.side(end).applications.remove(&flow);
    }

    pub(super) fn flow_reset(
        &mut self,
        end: End,
        flow: (u64, FlowId),
        reason: ResetReason,
    ) -> Result<(), Failure> {
        let Some(application) = self.side(end).applications.get(&flow) else {
            return Ok(());
        };
        let key = application.key;
        let is_expected = match reason {
            ResetReason::ByPeer(_) => self.ledger.record(key).was_cut_short || self.is_damaged,
            ResetReason::LaneLost => self.is_troubled,
        };
        if !is_expected {
            return Err(Failure::ResetForNoReason(flow.1));
        }
        if reason == ResetReason::LaneLost {
            self.kinds.note(Kind::ResetByLane);
        }
        if self.rng.bool() {
            // The application was about to read when the word came.
            self.readable(end, flow);
            self.turn(end, flow)?;
        }
        self.flow_over(end, flow);
        Ok(())
    }
}
