//! Applications: how flows begin, take their turns, and end.

use std::time::Duration;

use fastrand::Rng;
use refrain_proto::{FlowId, LaneId, ResetReason};

use super::{Step, World};
use crate::{
    End, Failure, Kind,
    application::{Application, Next},
    content::{content, repeated},
    ledger::FlowKey,
};

/// Few, so that flows share lanes.
const TARGETS: [&str; 3] = ["files.example:80", "pages.example:80", "10.0.0.7:443"];

/// Code of the reset of a flow whose confirmation did not hold.
const MISCONFIRMED: u8 = 4;

/// A flow to one of the targets, with so many bytes each way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    target: usize,
    bytes: usize,
}

impl Wish {
    pub(super) fn large(rng: &mut Rng) -> Self {
        Self {
            target: rng.usize(..TARGETS.len()),
            bytes: 300_000,
        }
    }
}

impl World {
    /// Opens a flow, if `end` has a link that takes it; the lane says where it went.
    pub(super) fn open(&mut self, end: End, wish: Option<Wish>) -> Option<(u64, LaneId)> {
        let now = self.now();
        let target = wish.map_or_else(|| self.rng.usize(..TARGETS.len()), |wish| wish.target);
        let is_excluded = wish.is_none() && self.rng.u8(..16) == 0;
        let sides = &mut self.ends[end as usize].links;
        let (&link, side) = sides
            .iter_mut()
            .find(|(_, side)| side.link.lanes_up() > 0 && side.link.fault().is_none())?;
        let flow = side
            .link
            .open_flow(now, TARGETS[target], is_excluded)
            .ok()?;
        let flows = side.link.status(now).flows;
        let lane = flows.iter().find(|status| status.id == flow)?.lane;
        self.begin(end, link, flow, Some(wish));
        Some((link, lane))
    }

    pub(super) fn offered(&mut self, end: End, link: u64, flow: FlowId) -> Result<(), Failure> {
        let altering = [
            Kind::FlippedBit,
            Kind::AlteredConfirmation,
            Kind::AlteredOffer,
            Kind::TruncatedFrame,
        ];
        let bytes_changed = altering.iter().any(|&kind| self.kinds.count(kind) > 0);
        match self.begin(end, link, flow, None) {
            Some(key) => self.ledger.record(key).offered(end, flow, bytes_changed),
            None => Ok(()),
        }
    }

    /// `opened` here, or offered.
    fn begin(
        &mut self,
        end: End,
        link: u64,
        flow: FlowId,
        opened: Option<Option<Wish>>,
    ) -> Option<FlowKey> {
        let opened_here = opened.is_some();
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
        let repertoire = &mut self.repertoire;
        let record = self.ledger.open(key, || {
            [(); 2].map(|()| {
                let wish = opened.flatten();
                let bytes = wish.map_or_else(|| plan.content_bytes(rng), |wish| wish.bytes);
                match &plan.foresight {
                    Some(foresight) => repeated(rng, foresight, repertoire, bytes),
                    None => content(rng, bytes),
                }
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
            ResetReason::ByPeer(MISCONFIRMED) => self.is_damaged,
            ResetReason::ByPeer(_) => self.ledger.record(key).was_cut_short || self.is_damaged,
            ResetReason::LaneLost => self.is_troubled,
            ResetReason::Misconfirmed => self.is_damaged,
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
