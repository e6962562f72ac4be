//! Flows that change lanes.
//!
//! When loss holds a lane up, the flows that share it would be slower together than on
//! connections of their own; so each direction of a flow may move to a lane that carries
//! less. The old lane says so behind the flow's last block, in a frame that counts as a
//! block; nothing is sent on the new one until that is acknowledged. So the receiver has all
//! that came before, no block waits for another lane, and either lane may die at any moment:
//! whoever loses a flow that way says so on whichever lane is left.

use std::collections::BTreeMap;

use super::{Fault, Link, ResetReason};
use crate::{
    flow::Moving,
    frame::{FlowId, Frame, LaneId},
    moment::Moment,
};

/// Code of the reset that says that a flow's lane died.
pub(super) const RESET_LANE_LOST: u8 = 0;

impl Link {
    /// Moves flows with something to send from `lane` to lanes that have fewer such flows.
    pub(super) fn spread_flows(&mut self, lane: LaneId) {
        let lanes = self.lanes.iter().filter(|(_, state)| state.is_up);
        let mut busy: BTreeMap<LaneId, usize> = lanes.map(|(&id, _)| (id, 0)).collect();
        let mut movable = Vec::new();
        for (&id, flow) in &self.flows {
            if flow.send.is_over || flow.send.pending.is_empty() {
                continue;
            }
            let travels_on = flow.send.moving.map_or(flow.send.lane, |moving| moving.to);
            if let Some(flows) = busy.get_mut(&travels_on) {
                *flows += 1;
            }
            if travels_on == lane && flow.accepted && flow.send.moving.is_none() {
                movable.push(id);
            }
        }
        while let Some(id) = movable.pop() {
            let Some((&to, &fewest)) = busy.iter().min_by_key(|(_, flows)| **flows) else {
                return;
            };
            if busy.get(&lane).is_none_or(|&flows| flows < fewest + 2) {
                return;
            }
            for (place, flows) in &mut busy {
                *flows = *flows + usize::from(*place == to) - usize::from(*place == lane);
            }
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.send.moving = Some(Moving { to, said_at: None });
                self.moving_flows.push(id);
                self.queue_flow(id);
            }
        }
    }

    /// Says a move whose flow's turn it is on its lane.
    pub(super) fn say_move(&mut self, id: FlowId, out: &mut Vec<u8>) {
        let (Some(flow), Some(caches)) = (self.flows.get_mut(&id), &mut self.caches) else {
            return;
        };
        flow.send.queued = false;
        let (from, Some(moving)) = (flow.send.lane, flow.send.moving.as_mut()) else {
            return;
        };
        moving.said_at = Some(caches.sender.send_move(from, id, moving.to, out));
    }

    /// Blocks of `lane` were acknowledged: flows whose move was read go on elsewhere.
    pub(super) fn finish_moves(&mut self, lane: LaneId) {
        let Some(caches) = &self.caches else {
            return;
        };
        let acked = caches.sender.blocks_acked(lane);
        let mut read = Vec::new();
        let flows = &self.flows;
        self.moving_flows.retain(|&id| {
            let Some(moving) = flows
                .get(&id)
                .and_then(|flow| flow.send.moving.filter(|_| flow.send.lane == lane))
            else {
                return flows
                    .get(&id)
                    .is_some_and(|flow| flow.send.moving.is_some());
            };
            let is_read = moving.said_at.is_some_and(|blocks| blocks <= acked);
            if is_read {
                read.push((id, moving.to));
            }
            !is_read
        });
        for (id, to) in read {
            self.totals.flows_moved += 1;
            let Some(flow) = self.flows.get_mut(&id) else {
                continue;
            };
            flow.send.lane = to;
            flow.send.moving = None;
            if let Some(code) = flow.send.reset_after_move.take() {
                self.say_reset(id, code);
                self.forget_if_gone(id);
            } else {
                self.queue_flow(id);
            }
        }
    }

    /// The other end's blocks of a flow will come on another lane.
    pub(super) fn move_came(
        &mut self,
        now: Moment,
        lane: LaneId,
        id: FlowId,
        to: LaneId,
    ) -> Result<(), Fault> {
        if let Some(caches) = &mut self.caches {
            caches.receiver.count_block(lane);
        }
        self.acknowledge_soon(now, lane, 0);
        let is_alive = self.lanes.contains_key(&to);
        if let Some(flow) = self.flow_on(lane, id)?.filter(|flow| !flow.receive.is_over) {
            flow.receive.left_lane = Some(lane);
            flow.receive.lane = to;
            if flow.receive.is_lost {
                // Its reset was faster, and nothing was sent on the other lane.
                flow.receive.is_over = true;
                self.forget_if_gone(id);
            } else if !is_alive {
                self.lose_flow(id, to);
            }
        }
        Ok(())
    }

    /// `lane` is dead: flows that were only meant to move there stay.
    pub(super) fn cancel_moves_to(&mut self, lane: LaneId) {
        let meant = Some(Moving {
            to: lane,
            said_at: None,
        });
        for flow in self.flows.values_mut() {
            if flow.send.moving == meant {
                flow.send.moving = None;
            }
        }
    }

    /// `lane`, which `id` depends on, is dead. Both ends notice, unless a move makes it depend
    /// on the lane at one end alone: so this end says it where it still can.
    pub(super) fn lose_flow(&mut self, id: FlowId, lane: LaneId) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        flow.receive.is_over |= flow.receive.lane == lane;
        let moving = flow.send.moving.take();
        flow.send.reset_after_move = None;
        let places = [Some(flow.send.lane), moving.map(|moving| moving.to)];
        let mut left = places.into_iter().flatten().filter(|&place| place != lane);
        if let Some(place) = left.find(|place| self.lanes.contains_key(place)) {
            let reset = Frame::Reset {
                flow: id,
                code: RESET_LANE_LOST,
            };
            self.send_control(place, &reset);
        }
        self.end_flow(id, ResetReason::LaneLost);
    }
}
