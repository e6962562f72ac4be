//! Flows on several lanes.
//!
//! Most congestion controls slow down by half for a lost segment, whatever it was lost for. So where segments are
//! lost by chance, as the sender's kernel knows, one connection has a fraction of the link, and all flows on it
//! together. There a lane that has nothing to send takes over flows that wait for one whose transport is busy,
//! block by block.
//! The receiver decodes blocks as they come, whatever their lane, and puts the flow's bytes in
//! order; no lane waits for another. A single flow then has all lanes' congestion windows.
//!
//! Without loss flows stay on the lane that their target hashes to, where they find each other
//! at once. Only the first bytes of a flow, and those after a rest, go elsewhere while long ones
//! keep that lane busy.

use super::{Event, Link, ResetReason, Role, keys_where, lanes::Lane};
use crate::{
    codes::reset,
    fault::{LaneFault, Violation},
    flow::Flow,
    frame::{FlowId, Frame, LaneId},
    limits::WANT_LANES_AGAIN,
    moment::Moment,
    planted::Bug,
};

/// A flow that waits for a lane counts as so many bytes on their way.
const WAITING_FLOW_BYTES: usize = 16 << 10;

/// A lane is not left for one that has only so many bytes fewer on their way: history on a
/// lane is worth something, and a flow on few lanes waits for few stalls.
const LEFT_FOR_BYTES: usize = 64 << 10;

impl Link {
    /// Whether loss slowed down a lane of late, as this end sees it or the other.
    pub(super) fn is_lossy(&self) -> bool {
        self.loss_seen_at.is_some()
    }

    /// Loss slows down `lane`, in the direction of either end.
    pub(super) fn loss_seen(&mut self, now: Moment, lane: LaneId) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.lossy_at = Some(now);
        }
        let seen_before = self.loss_seen_at.replace(now);
        if seen_before.is_some_and(|at| now.since(at) < WANT_LANES_AGAIN) {
            return;
        }
        if self.role == Role::Near {
            self.events.push_back(Event::WantLanes);
        }
        let lanes: Vec<LaneId> = self.lanes.keys().copied().collect();
        lanes.into_iter().for_each(|lane| self.say_transmit(lane));
    }

    /// The link needs no more than `keep` lanes (near end). One beyond those that nothing uses is left: no more flows
    /// begin there. The far end, which may have opened one just now, says when it has left it too; then this end
    /// closes it. Returns its number.
    pub fn leave_spare_lane(&mut self, keep: usize) -> Option<LaneId> {
        let lanes = self.lanes.values();
        if lanes.filter(|lane| self.takes_flows(lane)).count() <= keep {
            return None;
        }
        let mut lanes = self.lanes.iter().rev();
        let spare = lanes.find(|&(&id, lane)| self.takes_flows(lane) && self.is_unused(id));
        // Version 1 has no word for it.
        let lane = spare
            .map(|(&id, _)| id)
            .filter(|_| self.send_window.is_shared() || Bug::SpareForVersion1.is_planted())?;
        self.lanes.get_mut(&lane)?.is_spare = true;
        self.send_control(lane, &Frame::Spare);
        Some(lane)
    }

    /// The other end opens no more flows on `lane`. Told again, it is nothing new.
    pub(super) fn lane_is_spare(&mut self, lane: LaneId) -> Result<(), Violation> {
        let role = self.role;
        let Some(state) = self.lanes.get_mut(&lane) else {
            return Ok(());
        };
        match role {
            Role::Near if !state.is_spare => return Err(Violation::SpareUnasked),
            Role::Near if state.is_left_by_far => return Ok(()),
            Role::Far if state.is_spare => return Ok(()),
            Role::Far => state.is_spare = true,
            Role::Near => {
                state.is_left_by_far = true;
                if !Bug::SpareLaneKeepsFlows.is_planted() {
                    self.all_came_on(lane);
                }
            }
        }
        self.finish_if_spare(lane);
        Ok(())
    }

    /// No more of any flow comes on `lane`, so that flows with another home depend on it no longer.
    fn all_came_on(&mut self, lane: LaneId) {
        let came_there = |flow: &Flow| flow.home != lane && flow.receive.lanes.contains(&lane);
        for id in keys_where(&self.flows, |flow| came_there(flow)) {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.receive.leaves(lane, flow.home);
                self.repeat_credit_at_home(id);
            }
        }
    }

    /// What follows once this end has no use for a lane that is spare: the far end says so, behind all that it sent
    /// there, and then the near end closes it.
    pub(super) fn finish_if_spare(&mut self, lane: LaneId) {
        let Some(state) = self.lanes.get(&lane).filter(|state| state.is_spare) else {
            return;
        };
        let is_next = match self.role {
            Role::Far => !state.is_left_by_far,
            Role::Near => state.is_left_by_far && state.control.is_empty(),
        };
        let has_others = || self.lanes.values().any(|lane| self.takes_flows(lane));
        let is_unused = || self.is_unused(lane) || Bug::SpareLaneInUse.is_planted();
        if !is_next || !has_others() || !is_unused() {
            return;
        }
        match self.role {
            Role::Far if Bug::FarEndClosesSpare.is_planted() => {
                self.lane_down(lane, LaneFault::Spare);
            }
            Role::Far => {
                if let Some(state) = self.lanes.get_mut(&lane) {
                    state.is_left_by_far = true;
                }
                self.send_control(lane, &Frame::Spare);
            }
            Role::Near => self.lane_down(lane, LaneFault::Spare),
        }
    }

    /// Lanes that are alive, and that this end or the other has left.
    #[must_use]
    pub fn spare_lanes(&self) -> usize {
        self.lanes.values().filter(|lane| lane.is_spare).count()
    }

    /// Whether no flow depends on the lane, and all that was sent on it has arrived.
    fn is_unused(&self, id: LaneId) -> bool {
        let has_work = |lane: &Lane| lane.is_writing || lane.has_queued_flows();
        !self.lanes.get(&id).is_some_and(has_work)
            && self.caches.sender.outstanding_bytes(id) == 0
            && !self.flows.values().any(|flow| flow.travels_on(id))
    }

    /// If flows wait for `lane`, another one that has nothing to do may take them over.
    pub(super) fn offer_to_idle_lane(&mut self, lane: LaneId) {
        let is_busy = |lane: &Lane| lane.is_writing || lane.transmit_said;
        let waited_for = |lane: &Lane| lane.has_queued_flows() && is_busy(lane);
        if !self.is_lossy() || !self.lanes.get(&lane).is_some_and(waited_for) {
            return;
        }
        let mut lanes = self.lanes.iter().filter(|(_, lane)| self.takes_flows(lane));
        if let Some((&idle, _)) = lanes.find(|(_, lane)| !is_busy(lane)) {
            self.say_transmit(idle);
        }
    }

    /// Takes a flow out of the queue of a lane whose transport is busy.
    pub(super) fn take_over(&mut self) -> Option<FlowId> {
        if !self.is_lossy() {
            return None;
        }
        let flows = &self.flows;
        let may_leave = |id: &FlowId| flows.get(id).is_some_and(|flow| flow.may_leave_home());
        let mut busy: Vec<&mut Lane> = self
            .lanes
            .values_mut()
            .filter(|other| other.is_writing && other.has_queued_flows())
            .collect();
        busy.sort_by_key(|other| core::cmp::Reverse(other.queued_flows()));
        busy.into_iter().find_map(|other| {
            let queues = [&mut other.short_flows, &mut other.long_flows];
            queues.into_iter().find_map(|queue| {
                let at = queue.iter().position(may_leave)?;
                queue.remove(at)
            })
        })
    }

    /// The lane that a short flow with something to send had best travel on. On a home lane that long flows keep busy it
    /// would wait for all that they have given its transport.
    pub(super) fn lane_without_long_flows(&self, home: LaneId) -> LaneId {
        let is_slow = |lane: &Lane| lane.is_writing && !lane.long_flows.is_empty();
        if !self.lanes.get(&home).is_some_and(is_slow) {
            return home;
        }
        let lanes = self.lanes.iter();
        let quick = lanes.filter(|(_, lane)| self.takes_flows(lane) && !is_slow(lane));
        // One that stands still has bytes left to write, or a ping without an answer.
        let best = quick.min_by_key(|(_, lane)| (lane.is_writing, lane.ping.is_some()));
        best.map_or(home, |(&id, _)| id)
    }

    /// The lane that a flow with something to send, now on `present`, had best travel on.
    pub(super) fn lightest_lane(&self, present: LaneId) -> LaneId {
        let load = |id: LaneId, lane: &Lane| {
            self.caches.sender.outstanding_bytes(id) + lane.queued_flows() * WAITING_FLOW_BYTES
        };
        let lanes = self.lanes.iter().filter(|(_, lane)| self.takes_flows(lane));
        let lightest = lanes.min_by_key(|&(&id, lane)| load(id, lane));
        let (Some(present_lane), Some((&id, lane))) = (self.lanes.get(&present), lightest) else {
            return present;
        };
        match load(present, present_lane) > load(id, lane) + LEFT_FOR_BYTES {
            true => id,
            false => present,
        }
    }

    /// `lane`, which `id` depends on, is dead. The other end may not know that the flow
    /// travelled there, so this end says it on the lanes that are left.
    pub(super) fn lose_flow(&mut self, id: FlowId) {
        self.say_reset(id, reset::LANE_LOST);
        self.end_flow(id, ResetReason::LaneLost);
    }
}
