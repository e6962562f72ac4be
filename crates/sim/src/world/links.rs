//! Engines: what they say, when they want to be called, how their links begin and end.

use std::time::Duration;

use refrain_codec::{
    geometry::CacheGeometry,
    marker::{MarkerFinder, SampleByteTable, SamplingPeriod, WindowBytes},
};
use refrain_proto::{
    Event, Fault, LaneFault, LaneId, Link, LinkConfig, LinkFault, Moment, Role, hello::Hello,
    link::LaneRefused,
};

use super::{LinkSide, Step, World};
use crate::{End, Failure, Kind, counters::Counters, trouble::Plan};

/// Counters are looked at after so many calls of an engine.
const COUNTERS_EACH: u64 = 16;

impl LinkSide {
    fn new(end: End, instance: u64, plan: &Plan) -> Self {
        let role = match end {
            End::Near => Role::Near,
            End::Far => Role::Far,
        };
        let cache = CacheGeometry::new(plan.cache_bytes[end as usize]).expect("a valid size");
        let config = LinkConfig {
            matching: plan.matching,
            markers: MarkerFinder::new(
                plan.marker_algorithm,
                SamplingPeriod::default(),
                WindowBytes::default(),
                SampleByteTable::default(),
            ),
            effort: plan.effort,
            flows_max: plan.flows_max,
            window_bytes: plan.window_bytes,
            pending_bytes_max: plan.pending_bytes_max,
            block_bytes_max: plan.block_bytes_max,
            ..LinkConfig::with_cache(cache)
        };
        let config = match &plan.foresight {
            None => config,
            Some(foresight) => LinkConfig {
                mode: foresight.modes[end as usize],
                history: foresight.histories[end as usize].clone(),
                ..config
            },
        };
        Self {
            link: Link::new(role, instance, config),
            transports: Default::default(),
            timer_at: None,
            had_lanes: false,
            region_bytes_at_reunion: None,
            counters: Counters::default(),
            calls: 0,
        }
    }
}

impl World {
    pub(super) fn begin_near_link(&mut self) {
        let instance = self.draw_instance();
        self.trace(|| format!("the near end begins link {instance:x}"));
        self.near_instance = instance;
        let side = LinkSide::new(End::Near, instance, &self.plan);
        self.side(End::Near).links.insert(instance, side);
        self.book_dial();
    }

    fn draw_instance(&mut self) -> u64 {
        self.rng.u64(1..)
    }

    /// A hello came to the far end, which finds the link or begins it.
    pub(super) fn accept_lane(&mut self, hello: &Hello) -> Result<LaneId, LaneRefused> {
        let now = self.now();
        if let Some(side) = self.link_side(End::Far, hello.instance) {
            match side.link.accept_lane(now, hello) {
                Err(LaneRefused::OtherInstance) => {}
                other => return other,
            }
        }
        self.end_link(End::Far, hello.instance);
        let instance = self.draw_instance();
        self.trace(|| {
            format!(
                "the far end begins link {:x} as {instance:x}",
                hello.instance
            )
        });
        let mut side = LinkSide::new(End::Far, instance, &self.plan);
        // An instance that the near end still expects is gone: the answer will tell it.
        let lane = side.link.accept_lane(
            now,
            &Hello {
                peer_instance: None,
                ..*hello
            },
        );
        self.side(End::Far).links.insert(hello.instance, side);
        lane
    }

    /// Takes all that the engine has to say, and books its deadline.
    pub(super) fn settle(&mut self, end: End, link: u64) -> Result<(), Failure> {
        self.look_at_counters(end, link)?;
        while let Some(side) = self.link_side(end, link) {
            let Some(event) = side.link.poll_event() else {
                self.ask(end, link);
                self.book_timer(end, link);
                break;
            };
            self.trace(|| format!("  {end} {link:x} reports {event:?}"));
            self.event(end, link, event)?;
        }
        Ok(())
    }

    /// Looks now and then whether a counter fell.
    fn look_at_counters(&mut self, end: End, link: u64) -> Result<(), Failure> {
        let now = self.now();
        let Some(side) = self.link_side(end, link) else {
            return Ok(());
        };
        side.calls += 1;
        if !side.calls.is_multiple_of(COUNTERS_EACH) {
            return Ok(());
        }
        let counters = Counters::of(&side.link.status(now));
        let fallen = counters.fallen_since(&side.counters);
        side.counters = counters;
        match fallen {
            Some((counter, from, to)) => Err(Failure::CounterFell {
                end,
                counter,
                from,
                to,
            }),
            None => Ok(()),
        }
    }

    pub(super) fn settle_all(&mut self, end: End) -> Result<(), Failure> {
        let links: Vec<u64> = self.side(end).links.keys().copied().collect();
        links
            .into_iter()
            .try_for_each(|link| self.settle(end, link))
    }

    fn event(&mut self, end: End, link: u64, event: Event) -> Result<(), Failure> {
        match event {
            Event::Transmit(lane) => match self.rng.u8(..4) {
                // A task that was woken runs when its turn comes.
                0 => {
                    let after = Duration::from_micros(self.rng.u64(..3_000));
                    self.schedule.after(after, Step::Pump { end, link, lane });
                }
                _ => self.pump(end, link, lane),
            },
            Event::LaneUp(_) => self.lane_up(end, link),
            Event::LaneDown(lane, fault) => self.lane_down(end, link, lane, fault)?,
            Event::WantLanes => {
                self.kinds.note(Kind::LaneWanted);
                self.lanes_wanted = (self.lanes_wanted + 1).min(6);
                self.book_dial();
            }
            Event::FlowOffered { flow, .. } => self.offered(end, link, flow)?,
            Event::FlowRefused { flow, .. } => self.flow_over(end, (link, flow)),
            Event::FlowReset(flow, reason) => self.flow_reset(end, (link, flow), reason)?,
            Event::Readable(flow) => self.readable(end, (link, flow)),
            Event::Writable(flow) => self.writable(end, (link, flow)),
            Event::FlowAccepted(_) | Event::FlowEnded(_) | Event::PeerDraining => {}
        }
        Ok(())
    }

    fn lane_up(&mut self, end: End, link: u64) {
        let now = self.now();
        self.progress_at = now;
        let Some(side) = self.link_side(end, link) else {
            return;
        };
        let is_first = side.link.lanes_up() == 1;
        if core::mem::replace(&mut side.had_lanes, true) && is_first {
            let regions = side.link.status(now).counters.sent.layers.region_bytes;
            side.region_bytes_at_reunion = Some(regions);
            self.kinds.note(Kind::Reunion);
        }
    }

    fn lane_down(
        &mut self,
        end: End,
        link: u64,
        lane: LaneId,
        fault: LaneFault,
    ) -> Result<(), Failure> {
        let is_spared = self.spared.contains(&(link, lane));
        let damage_alone = match fault {
            LaneFault::Spare => {
                self.kinds.note(Kind::LaneSpared);
                false
            }
            LaneFault::TransportClosed | LaneFault::OtherGateway => false,
            LaneFault::Silent => {
                self.kinds.note(Kind::LaneFoundSilent);
                false
            }
            LaneFault::ClosedByPeer => {
                self.kinds.note(Kind::LaneClosedByPeer);
                false
            }
            LaneFault::Hello(_) | LaneFault::Frame(_) | LaneFault::Protocol(_) => {
                self.kinds.note(Kind::LaneViolation);
                true
            }
        };
        if !self.is_troubled && !is_spared || (damage_alone && !self.is_damaged) {
            return Err(Failure::LaneForNoReason { end, fault });
        }
        let side = self.link_side(end, link);
        if let Some(transport) = side.and_then(|side| side.transports.remove(&lane)) {
            self.close_transport(transport, end);
        }
        if end == End::Near {
            self.book_dial();
        }
        Ok(())
    }

    fn book_timer(&mut self, end: End, link: u64) {
        let now = self.now();
        let Some(side) = self.link_side(end, link) else {
            return;
        };
        let due = side.link.poll_timeout().map(|due| due.max(now));
        if due != side.timer_at {
            side.timer_at = due;
            if let Some(at) = due {
                self.schedule.at(at, Step::Timer { end, link, at });
            }
        }
    }

    pub(super) fn timer(&mut self, end: End, link: u64, at: Moment) -> Result<(), Failure> {
        let now = self.now();
        let Some(side) = self.link_side(end, link) else {
            return Ok(());
        };
        // Deadlines move; only the latest booking counts.
        if side.timer_at != Some(at) {
            return Ok(());
        }
        side.timer_at = None;
        side.link.handle_timeout(now);
        let status = side.link.status(now).sent;
        let span = (status.cache_bytes / 2).max(1);
        if status.outstanding_bytes > span {
            return Err(Failure::WindowExceeded {
                end,
                outstanding: status.outstanding_bytes,
            });
        }
        if status.outstanding_bytes > span * 7 / 8 {
            self.kinds.note(Kind::FullWindow);
        }
        self.settle(end, link)
    }

    /// Hands over what came on a lane, split anywhere.
    pub(super) fn receive(
        &mut self,
        end: End,
        link: u64,
        lane: LaneId,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        let now = self.now();
        let split = self.rng.usize(..=bytes.len());
        for part in [&bytes[..split], &bytes[split..]] {
            let Some(side) = self.link_side(end, link) else {
                return Ok(());
            };
            match side.link.receive(now, lane, part) {
                Err(Fault::Link(fault)) => self.link_over(end, link, fault)?,
                // The engine says so again, by an event.
                Err(Fault::Lane(_)) | Ok(()) => {}
            }
            self.settle(end, link)?;
        }
        Ok(())
    }

    /// The link is over: its last words are sent, and the near end begins another.
    fn link_over(&mut self, end: End, link: u64, fault: LinkFault) -> Result<(), Failure> {
        self.trace(|| format!("  {end} {link:x} is over: {fault}"));
        let is_expected = match fault {
            LinkFault::Cache(_) => self.is_damaged,
            LinkFault::PeerRestarted | LinkFault::AbortedByPeer => {
                self.is_damaged || self.has_restarted
            }
            LinkFault::Revoked => false,
        };
        if !is_expected {
            let fault = fault.into();
            return Err(Failure::FaultForNoReason { end, fault });
        }
        match fault {
            LinkFault::Cache(_) => self.kinds.note(Kind::CacheViolation),
            LinkFault::PeerRestarted => self.kinds.note(Kind::RestartFound),
            LinkFault::AbortedByPeer | LinkFault::Revoked => {}
        }
        self.settle(end, link)?;
        self.end_link(end, link);
        if end == End::Near {
            self.begin_near_link();
        }
        Ok(())
    }

    /// The process forgets the link, and with it all that its applications did.
    pub(super) fn end_link(&mut self, end: End, link: u64) {
        let now = self.now();
        let Some(side) = self.side(end).links.remove(&link) else {
            return;
        };
        let status = side.link.status(now);
        self.kinds
            .note_many(Kind::Hole, status.counters.events.holes_made);
        self.kinds
            .note_many(Kind::StrandAdded, status.counters.events.strands_added);
        self.kinds.note_many(
            Kind::BypassedBlock,
            status.counters.sent.layers.bypassed_blocks,
        );
        let (made, taken) = (
            status.counters.received.predictions,
            status.counters.sent.predictions,
        );
        self.kinds.note_many(Kind::OfferMade, made.offers);
        self.kinds.note_many(Kind::OfferConfirmed, taken.confirmed);
        let overtaken = u64::from(made.overtaken_bytes > 0);
        self.kinds.note_many(Kind::OfferOvertaken, overtaken);
        let wasted = u64::from(made.wasted_bytes > 0);
        self.kinds.note_many(Kind::OfferWithdrawn, wasted);
        self.kinds
            .note_many(Kind::Misconfirmed, status.counters.events.misconfirmed);
        self.kinds
            .note_many(Kind::DrivenBySender, status.counters.events.flows_driven);
        let wrapped = status.sent.cache_bytes > 0
            && status.sent.cache_filled_bytes == status.sent.cache_bytes;
        self.kinds.note_many(Kind::CacheWrapped, u64::from(wrapped));
        let hit = side
            .region_bytes_at_reunion
            .is_some_and(|before| status.counters.sent.layers.region_bytes > before);
        self.kinds.note_many(Kind::ReunionHit, u64::from(hit));
        for transport in side.transports.into_values() {
            self.close_transport(transport, end);
        }
        self.side(end).applications.retain(|&(of, _), _| of != link);
    }

    pub(super) fn end_all(&mut self) {
        for end in End::BOTH {
            let links: Vec<u64> = self.side(end).links.keys().copied().collect();
            for link in links {
                self.end_link(end, link);
            }
        }
    }

    /// A process dies and comes back; word of it may reach the other end or not.
    pub(super) fn restart(&mut self, end: End) {
        self.is_troubled = true;
        self.has_restarted = true;
        self.kinds.note(match end {
            End::Near => Kind::NearRestart,
            End::Far => Kind::FarRestart,
        });
        let says_nothing = self.rng.bool();
        for transport in 0..self.transports.len() {
            if says_nothing && self.transports[transport].end(end).is_open {
                self.break_off(transport, &End::BOTH);
            }
        }
        let links: Vec<u64> = self.side(end).links.keys().copied().collect();
        for link in links {
            self.end_link(end, link);
        }
        self.memory_restarts(end);
        // A hello that was half read dies with its process.
        for transport in 0..self.transports.len() {
            self.close_transport(transport, end);
        }
        if end == End::Near {
            self.begin_near_link();
        }
    }

    pub(super) fn leave_spare_lane(&mut self) -> Result<(), Failure> {
        let link = self.near_instance;
        // As a dialler does, which may look again before the far end has left the first.
        for _ in 0..3 {
            let Some(lane) = self
                .link_side(End::Near, link)
                .and_then(|side| side.link.leave_spare_lane(1))
            else {
                break;
            };
            self.spared.insert((link, lane));
            self.lanes_wanted = (self.lanes_wanted - 1).max(1);
        }
        self.settle(End::Near, link)
    }

    pub(super) fn drain(&mut self, end: End) -> Result<(), Failure> {
        self.kinds.note(Kind::Drain);
        for side in self.side(end).links.values_mut() {
            side.link.drain();
        }
        self.settle_all(end)
    }
}
