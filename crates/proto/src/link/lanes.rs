//! Lanes: how they come up, how they die, and how both ends settle what a dead one
//! carried (`docs/architecture.md`, 6 and 7).
//!
//! A receiver that learns of a lane's death first reads no more from it and then says how
//! many of its blocks it applied; only then does the sender turn the rest into holes.
//! Otherwise a late read would overwrite newer bytes. Each end is receiver of one
//! direction, so each says its final count and says it again until it knows that the
//! other end has it.
//!
//! A link outlives its lanes: when all are dead, the next hello that names both ends'
//! instances goes on with the same caches, once the dead lanes are settled on it.

use std::collections::{BTreeMap, VecDeque};

use refrain_codec::{geometry::CacheGeometry, simd::Backend};

use super::{Caches, Event, Link, Role, keys_where};
use crate::{
    fault::{CacheViolation, Fault, LaneFault, LinkFault, Violation},
    flow::Strand,
    frame::{FlowId, Frame, LaneId},
    hello::Hello,
    limited::LaneClock,
    limits::{
        ACK_DELAY, HELD_UP_SHOWN, LANES_EVER_MAX, STRANDS_FLOWS_MIN, STRANDS_TIMES_FLOWS,
        WINDOW_BYTES_MAX,
    },
    matching::{receiver::Receiver, sender::Sender},
    moment::Moment,
    planted::Bug,
    predictions::link_history::LinkHistory,
    targets::place,
};

/// A new connection sends so many bytes at once: ten segments (RFC 6928).
const FIRST_FLIGHT_BYTES: u64 = 10 * 1460;

/// A lane that is alive.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Whether the other end's hello has come.
    pub(super) is_up: bool,
    /// Whether no more flows begin here: the link needs fewer lanes.
    pub(super) is_spare: bool,
    /// Whether the far end has left it too: nothing more of a flow comes from there.
    pub(super) is_left_by_far: bool,
    /// The flows that the other end opened here have numbers below this, and count up.
    pub(super) peer_flows_end: FlowId,
    /// Bytes that are no whole frame yet.
    pub(super) input: Vec<u8>,
    /// Frames that go before any block.
    pub(super) control: Vec<u8>,
    /// Flows with something to send, those that have sent little so far.
    pub(super) short_flows: VecDeque<FlowId>,
    /// The other flows with something to send.
    pub(super) long_flows: VecDeque<FlowId>,
    /// Short flows served since a long one was.
    pub(super) short_turns: u32,
    /// What flows have sent here, and not yet ended. Lives on when a flow is over at this end.
    pub(super) strands: BTreeMap<FlowId, Strand>,
    /// Whether its transport still takes what was last given to it.
    pub(super) is_writing: bool,
    /// Plain bytes in what is being written.
    pub(super) plain_bytes: usize,
    /// Whether [`Event::Transmit`] was said and not yet followed.
    pub(super) transmit_said: bool,
    pub(super) acked_blocks: u64,
    pub(super) unacked_bytes: u64,
    pub(super) ack_due: Option<Moment>,
    /// When the last acknowledgement went out.
    pub(super) acked_at: Moment,
    pub(super) heard_at: Moment,
    pub(super) ping: Option<(u64, Moment)>,
    pub(super) ping_due: Moment,
    /// When loss last slowed it down, either way; for users to see.
    pub(super) lossy_at: Option<Moment>,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    /// How many bytes its transport is best given at a time, if that is known.
    pub(super) write_bytes_max: Option<usize>,
    /// How its transport has spent its time.
    pub(super) clock: LaneClock,
}

/// What is to be remembered of a lane that died.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeadLane {
    /// Blocks that this end applied.
    blocks_applied: u64,
    /// Whether the other end's final count has come.
    settled: bool,
    /// Whether the other end is known to have ours.
    peer_has_ours: bool,
    /// The lane that our count was last said on.
    said_on: Option<LaneId>,
    /// Whether we said that we have the other end's.
    said_settled: bool,
}

/// Why a lane is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneRefused {
    /// It belongs to a link that this end does not know.
    #[error("the lane belongs to another instance of the link")]
    OtherInstance,
    /// Its number was used before.
    #[error("the lane's number was used before")]
    NumberUsed,
    /// The link has as many lanes as it may have.
    #[error("too many lanes")]
    TooMany,
}

impl Lane {
    fn new(now: Moment) -> Self {
        Self {
            heard_at: now,
            ping_due: now,
            ..Self::default()
        }
    }

    /// The strand of `flow` on this lane; a lane carries only so many.
    pub(super) fn strand(
        &mut self,
        flow: FlowId,
        flows_max: usize,
    ) -> Result<&mut Strand, Violation> {
        let is_full = self.strands.len() >= STRANDS_TIMES_FLOWS * flows_max.max(STRANDS_FLOWS_MIN);
        if is_full && !self.strands.contains_key(&flow) {
            return Err(Violation::TooManyFlows);
        }
        Ok(self.strands.entry(flow).or_default())
    }

    /// Whether all that it sent is in its connection's first flight.
    pub(super) fn is_new(&self) -> bool {
        self.sent_bytes < FIRST_FLIGHT_BYTES
    }

    pub(super) fn has_queued_flows(&self) -> bool {
        self.queued_flows() > 0
    }

    pub(super) fn queued_flows(&self) -> usize {
        self.short_flows.len() + self.long_flows.len()
    }

    /// Whether an acknowledgement is due soon, or has gone out just now, so that the next is not far.
    pub(super) fn acknowledges(&self) -> bool {
        self.ack_due.is_some() || self.heard_at.since(self.acked_at) < ACK_DELAY
    }

    pub(super) fn is_held_up(&self, now: Moment) -> bool {
        self.lossy_at
            .is_some_and(|at| now.since(at) < HELD_UP_SHOWN)
    }
}

impl Link {
    /// Begins a lane whose transport was just connected (near end). `None` when the link
    /// may have no more lanes: when it had `LANES_EVER_MAX`, begin a new link.
    pub fn dial_lane(&mut self, now: Moment) -> Option<LaneId> {
        let lane = LaneId(self.next_lane);
        if self.next_lane >= LANES_EVER_MAX
            || self.lanes.len() >= self.config.lanes_max
            || self.fault.is_some()
        {
            return None;
        }
        self.next_lane += 1;
        self.add_lane(now, lane);
        Some(lane)
    }

    /// Whether the link has used up all the numbers that lanes may have.
    #[must_use]
    pub fn is_out_of_lanes(&self) -> bool {
        self.next_lane >= LANES_EVER_MAX
    }

    /// Takes a lane on which `hello` came (far end); what follows the hello goes to
    /// [`receive`](Self::receive).
    ///
    /// # Errors
    /// See [`LaneRefused`]: on [`LaneRefused::OtherInstance`] a new link is to be made.
    pub fn accept_lane(&mut self, now: Moment, hello: &Hello) -> Result<LaneId, LaneRefused> {
        let lane = LaneId(hello.lane);
        let other_peer = self
            .peer_instance
            .is_some_and(|known| known != hello.instance);
        let other_self = hello
            .peer_instance
            .is_some_and(|known| known != self.instance);
        if other_peer || other_self || self.fault.is_some() {
            return Err(LaneRefused::OtherInstance);
        }
        if self.lanes.contains_key(&lane) || self.dead_lanes.contains_key(&lane) {
            return Err(LaneRefused::NumberUsed);
        }
        if self.lanes.len() >= self.config.lanes_max {
            return Err(LaneRefused::TooMany);
        }
        self.peer_instance = Some(hello.instance);
        self.add_lane(now, lane);
        self.lane_up(now, lane, hello);
        Ok(lane)
    }

    /// The transport of `lane` is gone, or the caller gives it up.
    pub fn close_lane(&mut self, lane: LaneId, fault: LaneFault) {
        if self.lanes.contains_key(&lane) {
            self.lane_down(lane, fault);
        }
    }

    /// Most lanes that may be alive at once.
    #[must_use]
    pub fn lanes_max(&self) -> usize {
        self.config.lanes_max
    }

    /// Most flows that may be open at once.
    #[must_use]
    pub fn flows_max(&self) -> usize {
        self.config.flows_max
    }

    /// The bound on flows in words, as a refusal names it.
    #[must_use]
    pub fn flows_limit(&self) -> String {
        let (flows, option) = (self.config.flows_max, self.config.flows_max_option);
        let plural = if flows == 1 { "" } else { "s" };
        format!("at most {flows} open connection{plural} per link ({option})")
    }

    /// Whether the other end speaks TLS with targets. False before its first hello.
    #[must_use]
    pub fn peer_speaks_tls_to_targets(&self) -> bool {
        self.peer_speaks_tls_to_targets
    }

    /// Lanes that carry flows now.
    #[must_use]
    pub fn lanes_up(&self) -> usize {
        self.lanes.values().filter(|lane| lane.is_up).count()
    }

    /// Lanes alive, those included whose hello has not come.
    #[must_use]
    pub fn lanes_alive(&self) -> usize {
        self.lanes.len()
    }

    fn add_lane(&mut self, now: Moment, lane: LaneId) {
        self.lanes.insert(lane, Lane::new(now));
        self.caches.sender.open_lane(lane);
        self.caches.receiver.open_lane(lane);
        self.say_hello(lane);
    }

    /// Whether a lane may carry flows of this end. The near end's first ones wait for no hello: what they carry before it
    /// needs no cache and no window.
    pub(super) fn carries(&self, lane: &Lane) -> bool {
        lane.is_up || self.role == Role::Near && !self.caches.are_agreed
    }

    /// Whether flows may be opened that go along with the hello of the link's first lane: it is dialled, and nothing has
    /// come on it yet (near end).
    #[must_use]
    pub fn takes_early_flows(&self) -> bool {
        !self.caches.are_agreed && self.lanes.values().any(|lane| self.carries(lane))
    }

    /// Whether new flows, or blocks of others, may go there.
    pub(super) fn takes_flows(&self, lane: &Lane) -> bool {
        self.carries(lane) && !lane.is_spare
    }

    fn say_hello(&mut self, lane: LaneId) {
        let hello = Hello {
            instance: self.instance,
            peer_instance: self.peer_instance,
            lane: lane.0,
            send_cache_bytes: self.config.cache_bytes(self.config.send_cache),
            receive_cache_bytes: self.config.cache_bytes(self.config.receive_cache),
            takes_offers: self.config.mode.predicts(),
            offers: self.history.as_ref().map(LinkHistory::terms),
            is_check: false,
            counts_confirmations: self.config.mode.predicts(),
            window_bytes: Some(self.config.window_bytes),
            has_long_span: true,
            speaks_tls_to_targets: true,
            knows_secret_blocks: true,
        };
        if let Some(state) = self.lanes.get_mut(&lane) {
            hello.write(&mut state.control);
        }
        self.say_transmit(lane);
    }

    /// The far end's hello came on a lane that this end dialled.
    pub(super) fn hello_answered(
        &mut self,
        now: Moment,
        lane: LaneId,
        hello: &Hello,
    ) -> Result<(), Fault> {
        if hello.lane != lane.0 || hello.peer_instance != Some(self.instance) {
            return Err(Violation::HelloForAnotherLane.into());
        }
        if self
            .peer_instance
            .is_some_and(|known| known != hello.instance)
        {
            // One of several gateways behind one address: the link stays where its lanes are.
            return Err(match self.lanes_up() {
                0 => LinkFault::PeerRestarted.into(),
                _ => LaneFault::OtherGateway.into(),
            });
        }
        self.lane_up(now, lane, hello);
        Ok(())
    }

    fn lane_up(&mut self, now: Moment, lane: LaneId, hello: &Hello) {
        self.peer_instance = Some(hello.instance);
        if !self.caches.are_agreed {
            self.caches.agree(&self.config, hello);
            self.agree_on_window(hello.window_bytes);
        }
        self.agree_on_offers(hello);
        self.counts_confirmations = hello.counts_confirmations && self.config.mode.predicts();
        self.peer_speaks_tls_to_targets = hello.speaks_tls_to_targets;
        self.peer_knows_secret_blocks = hello.knows_secret_blocks;
        let Some(state) = self.lanes.get_mut(&lane) else {
            return;
        };
        state.is_up = true;
        state.heard_at = now;
        self.events.push_back(Event::LaneUp(lane));
        if self.draining {
            self.send_control(lane, &Frame::Drain);
        }
        let is_unsettled = |dead: &DeadLane| !(dead.settled && dead.peer_has_ours);
        for dead in keys_where(&self.dead_lanes, is_unsettled) {
            self.say_final_count(dead, lane);
        }
        if self.is_lossy() || self.lanes.get(&lane).is_some_and(Lane::has_queued_flows) {
            // There may be flows that wait for lanes which are held up, or for the hello.
            self.say_transmit(lane);
        }
    }

    fn agree_on_window(&mut self, bytes: Option<u64>) {
        let is_unasked = Bug::WindowUnasked.is_planted();
        let bytes = bytes.or(is_unasked.then_some(self.config.window_bytes));
        self.receive_window.is_shared(bytes.is_some());
        let Some(bytes) = bytes else {
            // Flows that were opened before this was known get what others get when they begin.
            for id in keys_where(&self.flows, |_| true) {
                if let Some(flow) = self.flows.get_mut(&id) {
                    let (home, bytes) = (
                        flow.home,
                        flow.receive.credit.lend(&mut self.receive_window),
                    );
                    self.send_control(home, &Frame::Credit { flow: id, bytes });
                }
            }
            return;
        };
        self.send_window.share(bytes.min(WINDOW_BYTES_MAX));
        self.wake_for_window();
    }

    pub(super) fn lane_down(&mut self, lane: LaneId, fault: LaneFault) {
        let Some(state) = self.lanes.remove(&lane) else {
            return;
        };
        let fault = match state.is_left_by_far {
            true => LaneFault::Spare,
            false => fault,
        };
        let blocks_applied = self.caches.receiver.close_lane(lane);
        if !self.caches.are_agreed {
            // All that it carried was bypassed, and no other lane may ever say how much of that came.
            let settled = self.caches.sender.settle_lane(lane, 0, &mut self.targets);
            debug_assert_eq!(settled, Ok(()), "no count is too low");
        }
        if Bug::EarlyHoles.is_planted() {
            self.caches.sender.settle_unasked(lane);
        }
        self.counters.events.lanes_lost += u64::from(state.is_up && !state.is_left_by_far);
        self.dead_lanes.insert(
            lane,
            DeadLane {
                blocks_applied,
                ..DeadLane::default()
            },
        );
        self.events.push_back(Event::LaneDown(lane, fault));

        let is_planted = Bug::LostLaneKeepsFlows.is_planted();
        for id in keys_where(&self.flows, |flow| flow.travels_on(lane) && !is_planted) {
            self.lose_flow(id);
        }
        // A flow of which all has come depends on its home lane alone. CREDIT that went over another may be lost.
        for id in keys_where(&self.flows, |flow| flow.receive.is_over()) {
            self.repeat_credit_at_home(id);
        }
        // Others only waited for it, and have sent nothing there.
        for id in state.short_flows.into_iter().chain(state.long_flows) {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.send.queued = false;
                flow.send.limits.no_lane_waits();
                self.queue_flow(id);
            }
        }
        if let Some(on) = self.any_lane_up() {
            let is_unheard =
                |dead: &DeadLane| !dead.peer_has_ours && dead.said_on.is_none_or(|on| on == lane);
            for dead in keys_where(&self.dead_lanes, is_unheard) {
                self.say_final_count(dead, on);
            }
        }
        // A window that was full of this lane's blocks may be free soon.
        self.say_transmit_all();
    }

    /// Says again over the home lane of `id` what was reported over another.
    pub(super) fn repeat_credit_at_home(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id)
            && let Some(bytes) = flow.receive.credit.repeat_at_home(&self.receive_window)
        {
            let home = flow.home;
            self.send_control(home, &Frame::Credit { flow: id, bytes });
        }
    }

    /// The other end says that it reads no more from `dead` and applied `blocks` of it.
    pub(super) fn final_count_came(
        &mut self,
        on: LaneId,
        dead: LaneId,
        blocks: u64,
        answered: bool,
    ) -> Result<(), Fault> {
        if dead == on {
            return Err(Violation::LaneClosedItself.into());
        }
        self.lane_down(dead, LaneFault::ClosedByPeer);
        let known = self.dead_lanes.entry(dead).or_default();
        known.peer_has_ours |= answered;
        let news = !core::mem::replace(&mut known.settled, true);
        let is_to_answer = !answered || !known.said_settled;
        if news {
            let sender = &mut self.caches.sender;
            let holes = sender.books().holes();
            sender
                .settle_lane(dead, blocks, &mut self.targets)
                .map_err(|_| Fault::from(CacheViolation::ImpossibleCount))?;
            self.counters.events.holes_made += sender.books().holes().saturating_sub(holes) as u64;
            self.counters.events.lanes_settled += 1;
            self.send_window.let_go_of_lane(dead);
            self.wake_for_window();
            self.say_transmit_all();
        }
        // Each end hears once that the other has its count; then neither says it again.
        if is_to_answer {
            self.say_final_count(dead, on);
        }
        Ok(())
    }

    fn say_final_count(&mut self, dead: LaneId, on: LaneId) {
        let Some(known) = self.dead_lanes.get_mut(&dead) else {
            return;
        };
        known.said_on = Some(on);
        known.said_settled = known.settled;
        let frame = Frame::LaneClosed {
            lane: dead,
            blocks: known.blocks_applied,
            answered: known.settled,
        };
        self.send_control(on, &frame);
    }

    fn any_lane_up(&self) -> Option<LaneId> {
        self.lanes
            .iter()
            .find(|(_, lane)| lane.is_up)
            .map(|(&id, _)| id)
    }

    /// The lane for a new flow to `target`: the one that the target hashes to, so that
    /// flows of a kind find each other at once. Where loss was seen of late, lanes in turn,
    /// those that are held up left out if there are others.
    pub(super) fn lane_for(&self, target: &str) -> Option<LaneId> {
        let all = keys_where(&self.lanes, |lane| self.takes_flows(lane));
        if all.is_empty() {
            return None;
        }
        let pick = |lanes: &[LaneId], turn: u64| lanes[turn as usize % lanes.len()];
        if !self.is_lossy() {
            return Some(pick(
                &all,
                refrain_codec::check(0, place(target).as_bytes()),
            ));
        }
        let free = keys_where(&self.lanes, |lane| {
            self.takes_flows(lane) && !lane.is_writing
        });
        let choice = if free.is_empty() { &all } else { &free };
        Some(pick(choice, self.next_flow.0 / 2))
    }
}

impl Caches {
    /// None yet.
    pub(super) fn new(backend: Backend, level: i32) -> Self {
        Self {
            sender: Sender::new(backend, level),
            receiver: Receiver::new(backend),
            are_agreed: false,
            send_geometry: None,
            receive_geometry: None,
        }
    }

    fn agree(&mut self, config: &super::LinkConfig, hello: &Hello) {
        let kept = |cache: CacheGeometry, peer_bytes: u64| {
            let is_kept = config.mode.keeps_caches() && peer_bytes > 0;
            let geometry = is_kept.then(|| smaller(cache, peer_bytes))?;
            Some(
                match hello.has_long_span || Bug::LongSpanUnasked.is_planted() {
                    true => geometry.with_long_span(),
                    false => geometry,
                },
            )
        };
        self.are_agreed = true;
        self.send_geometry = kept(config.send_cache, hello.receive_cache_bytes);
        self.receive_geometry = kept(config.receive_cache, hello.send_cache_bytes);
        if let Some(geometry) = self.send_geometry {
            self.sender.keep_cache(config.encoder(geometry));
        }
        if let Some(geometry) = self.receive_geometry {
            self.receiver.keep_cache(geometry);
        }
    }
}

/// The smaller of both ends' caches; a hello's sizes were held against the limits.
fn smaller(own: CacheGeometry, peer_bytes: u64) -> CacheGeometry {
    usize::try_from(peer_bytes)
        .ok()
        .filter(|&bytes| bytes < own.cache_bytes())
        .and_then(CacheGeometry::new)
        .unwrap_or(own)
}
