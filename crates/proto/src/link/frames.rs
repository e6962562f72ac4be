//! What comes on a lane: hello, frames, events.

use super::{Event, Fault, LaneFault, Link, LinkFault, ResetReason, Role, moves::RESET_LANE_LOST};
use crate::{
    by_sender::receiver::Rejected,
    counters::LayerCounters,
    flow::Flow,
    frame::{BlockFrame, FlowId, Frame, LaneId, end_check},
    hello::Hello,
    limits::{ACK_DELAY, ACK_WINDOW_SHARE, PADDING_BYTES_MAX},
    moment::Moment,
    traffic::TrafficClass,
};

impl Link {
    /// Takes the next bytes of `lane`, split anywhere.
    ///
    /// # Errors
    /// [`Fault::Lane`]: the lane is dead and forgotten, its transport is to be closed.
    /// [`Fault::Link`]: the link is over; what [`poll_transmit`](Self::poll_transmit) still
    /// gives tells the other end why.
    pub fn receive(&mut self, now: Moment, lane: LaneId, bytes: &[u8]) -> Result<(), Fault> {
        let Some(state) = self.lanes.get_mut(&lane) else {
            return Ok(());
        };
        state.heard_at = now;
        state.received_bytes += bytes.len() as u64;
        self.totals.link_bytes_received += bytes.len() as u64;
        let mut input = core::mem::take(&mut state.input);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        let result = loop {
            match self.receive_next(now, lane, rest) {
                Ok(0) => break Ok(()),
                // Each frame has one short answer at most, so this is soon enough.
                Ok(_) if self.is_flooded(lane) => {
                    break Err(LaneFault::Protocol("requests without reading the answers").into());
                }
                Ok(read) => rest = &rest[read..],
                Err(fault) => break Err(fault),
            }
        };
        let read = input.len() - rest.len();
        input.drain(..read);
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.input = input;
        }
        match result {
            Err(Fault::Lane(fault)) => self.lane_down(lane, fault),
            Err(Fault::Link(fault)) => self.condemn(fault),
            Ok(()) => {}
        }
        result
    }

    /// Reads one hello or frame off `bytes`; says how many bytes it took, 0 if none is whole.
    fn receive_next(&mut self, now: Moment, lane: LaneId, bytes: &[u8]) -> Result<usize, Fault> {
        let Some(state) = self.lanes.get(&lane) else {
            // A frame before this one closed the lane.
            return Ok(0);
        };
        if !state.is_up {
            let Some((hello, read)) = Hello::read(bytes).map_err(LaneFault::from)? else {
                return Ok(0);
            };
            self.hello_answered(now, lane, &hello)?;
            return Ok(read);
        }
        let Some((frame, read)) = Frame::read(bytes).map_err(LaneFault::from)? else {
            return Ok(0);
        };
        self.receive_frame(now, lane, &frame)?;
        Ok(read)
    }

    fn receive_frame(&mut self, now: Moment, lane: LaneId, frame: &Frame<'_>) -> Result<(), Fault> {
        match *frame {
            Frame::Open {
                flow,
                credit_bytes,
                target,
                excluded,
            } => self.receive_open(now, lane, flow, credit_bytes, target, excluded),
            Frame::Block(ref block) => self.receive_block(now, lane, block),
            Frame::Accept {
                flow: id,
                credit_bytes,
                excluded,
            } => {
                if let Some(flow) = self.flow_of(id)? {
                    if !flow.opened_here || (flow.accepted && !flow.abandoned) {
                        return Err(LaneFault::Protocol("an acceptance out of place").into());
                    }
                    flow.send.add_credit(credit_bytes)?;
                    if excluded {
                        flow.send.class = TrafficClass::Excluded;
                    }
                    if !flow.abandoned {
                        flow.accepted = true;
                        self.events.push_back(Event::FlowAccepted(id));
                        self.say_writable(id);
                    }
                }
                Ok(())
            }
            Frame::Refuse {
                flow: id,
                code,
                text,
            } => {
                if let Some(flow) = self.flow_on(lane, id)? {
                    if !flow.opened_here || (flow.accepted && !flow.abandoned) {
                        return Err(LaneFault::Protocol("a refusal out of place").into());
                    }
                    flow.receive.is_over = true;
                    let (said_all, abandoned) = (flow.send.is_over, flow.abandoned);
                    if !said_all {
                        self.say_reset(id, code);
                    }
                    if !abandoned {
                        let text = text.to_owned();
                        self.events.push_back(Event::FlowRefused {
                            flow: id,
                            code,
                            text,
                        });
                    }
                    self.abandon_flow(id);
                }
                Ok(())
            }
            Frame::End { flow: id, check } => {
                if let Some(flow) = self.flow_on(lane, id)? {
                    if check != end_check(id, flow.receive.counters.app_bytes) {
                        return Err(LaneFault::Protocol("a flow's end in the wrong place").into());
                    }
                    if core::mem::replace(&mut flow.receive.is_over, true) {
                        return Err(LaneFault::Protocol("a flow ended twice").into());
                    }
                    if !flow.abandoned {
                        self.events.push_back(Event::Readable(id));
                    }
                    self.forget_if_gone(id);
                }
                Ok(())
            }
            Frame::Reset { flow: id, code } => self.receive_reset(lane, id, code),
            Frame::Credit { flow: id, bytes } => {
                if let Some(flow) = self.flow_of(id)? {
                    flow.send.add_credit(bytes)?;
                    self.say_writable(id);
                }
                Ok(())
            }
            Frame::Ack { blocks } => {
                let Some(caches) = &mut self.caches else {
                    return Ok(());
                };
                let news = caches
                    .sender
                    .acknowledged(lane, blocks)
                    .map_err(|_| LaneFault::Protocol("an impossible acknowledgement"))?;
                if news {
                    self.finish_moves(lane);
                    self.say_transmit_all();
                }
                Ok(())
            }
            Frame::Move { flow, to } => self.move_came(now, lane, flow, to),
            Frame::LaneClosed {
                lane: dead,
                blocks,
                answered,
            } => self.final_count_came(lane, dead, blocks, answered),
            Frame::Ping {
                nonce,
                answer_bytes,
                padding: _,
            } => {
                let padding = &[0; PADDING_BYTES_MAX][..answer_bytes];
                self.send_control(lane, &Frame::Pong { nonce, padding });
                Ok(())
            }
            Frame::Pong { nonce, padding: _ } => {
                self.pong_came(now, lane, nonce);
                Ok(())
            }
            Frame::Drain => {
                if !core::mem::replace(&mut self.peer_draining, true) {
                    self.events.push_back(Event::PeerDraining);
                }
                Ok(())
            }
            Frame::Pressure { held_up } => {
                if let Some(state) = self.lanes.get_mut(&lane) {
                    state.peer_held_up = held_up;
                }
                if held_up {
                    self.loss_seen(now);
                }
                Ok(())
            }
            Frame::Abort { .. } => Err(LinkFault::AbortedByPeer.into()),
        }
    }

    fn receive_open(
        &mut self,
        now: Moment,
        lane: LaneId,
        id: FlowId,
        credit_bytes: u64,
        target: &str,
        excluded: bool,
    ) -> Result<(), Fault> {
        let parity = u64::from(self.role == Role::Near);
        if id.0 % 2 != parity {
            return Err(LaneFault::Protocol("a flow with the other end's number").into());
        }
        let is_replay = self
            .lanes
            .get(&lane)
            .is_none_or(|state| id < state.peer_flows_end);
        if is_replay || self.flows.contains_key(&id) {
            return Err(LaneFault::Protocol("a flow opened twice").into());
        }
        if self.flows.len() >= 2 * self.config.flows_max {
            return Err(LaneFault::Protocol("far too many flows").into());
        }
        let end = FlowId(id.0.saturating_add(2));
        self.peer_flows_end = self.peer_flows_end.max(end);
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.peer_flows_end = end;
        }
        let mut flow = Flow::new(now, lane, target, false, excluded);
        flow.send.add_credit(credit_bytes)?;
        let too_many = self.flows.len() >= self.config.flows_max;
        self.add_flow(now, id, flow);
        if too_many {
            self.refuse_flow(id, crate::REFUSED_LIMIT, "too many open connections");
        } else if self.draining {
            self.refuse_flow(id, crate::REFUSED_DRAINING, "shutting down");
        } else {
            let target = target.to_owned();
            self.events.push_back(Event::FlowOffered {
                flow: id,
                target,
                excluded,
            });
        }
        Ok(())
    }

    fn receive_reset(&mut self, lane: LaneId, id: FlowId, code: u8) -> Result<(), Fault> {
        let Some(flow) = self.flow_of(id)? else {
            return Ok(());
        };
        let in_place = flow.receive.lane == lane || flow.receive.left_lane == Some(lane);
        // The flow's lane is dead at the other end, and maybe not yet here: what was sent on it
        // may still come.
        let by_lane = code == RESET_LANE_LOST;
        if !in_place && !by_lane && !flow.receive.is_over {
            return Err(LaneFault::Protocol("a flow on another's lane").into());
        }
        flow.receive.is_over |= in_place;
        flow.receive.is_lost = true;
        if !flow.send.is_over {
            self.say_reset(id, code);
        }
        let reason = match by_lane {
            true => ResetReason::LaneLost,
            false => ResetReason::ByPeer(code),
        };
        self.end_flow(id, reason);
        Ok(())
    }

    fn receive_block(
        &mut self,
        now: Moment,
        lane: LaneId,
        block: &BlockFrame<'_>,
    ) -> Result<(), Fault> {
        let caches = self
            .caches
            .as_mut()
            .ok_or(LaneFault::Protocol("a block before the hello"))?;
        let flow = self
            .flows
            .get_mut(&block.flow)
            .filter(|flow| flow.receive.lane == lane && !flow.receive.is_over)
            .ok_or(LaneFault::Protocol("a block of no flow"))?;
        flow.receive
            .credit
            .received(block.len)
            .map_err(|_| LaneFault::Protocol("a block beyond its flow's credit"))?;
        let was_empty = flow.receive.ready.is_empty();
        let plain_start = flow.receive.ready.len();
        let mut counted = LayerCounters::default();
        caches
            .receiver
            .receive(
                lane,
                block,
                &mut flow.receive.cursor,
                &mut flow.receive.ready,
                &mut counted,
            )
            .map_err(|rejected| match rejected {
                Rejected::Lane(why) => LaneFault::Protocol(why).into(),
                Rejected::Cache(violation) => Fault::from(violation),
            })?;
        let first_block = flow.receive.counters.blocks == 0;
        flow.receive.counters.add(&counted);
        self.totals.received.add(&counted);
        if first_block {
            let class = TrafficClass::Unknown.after(&flow.receive.ready[plain_start..]);
            if class == TrafficClass::Excluded {
                flow.send.class = TrafficClass::Excluded;
            }
        }
        if flow.abandoned {
            flow.receive.ready = Vec::new();
        } else if was_empty {
            self.events.push_back(Event::Readable(block.flow));
        }
        self.acknowledge_soon(now, lane, block.len);
        Ok(())
    }

    /// A block of `len` bytes was applied.
    pub(super) fn acknowledge_soon(&mut self, now: Moment, lane: LaneId, len: usize) {
        let Some(caches) = &self.caches else {
            return;
        };
        let at_once = caches.receive_geometry.window_bytes() as u64 / ACK_WINDOW_SHARE;
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.unacked_bytes += len as u64;
            let due = if state.unacked_bytes >= at_once {
                now
            } else {
                now + ACK_DELAY
            };
            state.ack_due = Some(state.ack_due.map_or(due, |earlier| earlier.min(due)));
            if due == now {
                self.say_transmit(lane);
            }
        }
    }

    /// The flow that a frame names which has to come on the flow's own lane; `None` if it is
    /// over already.
    pub(super) fn flow_on(
        &mut self,
        lane: LaneId,
        id: FlowId,
    ) -> Result<Option<&mut Flow>, LaneFault> {
        match self.flow_of(id)? {
            Some(flow) if flow.receive.lane != lane => {
                Err(LaneFault::Protocol("a flow on another's lane"))
            }
            flow => Ok(flow),
        }
    }

    /// The flow that a frame names; `None` if it is over already.
    fn flow_of(&mut self, id: FlowId) -> Result<Option<&mut Flow>, LaneFault> {
        let ended = if id.0.is_multiple_of(2) == (self.role == Role::Near) {
            id < self.next_flow
        } else {
            id < self.peer_flows_end
        };
        match self.flows.get_mut(&id) {
            Some(flow) => Ok(Some(flow)),
            None if ended => Ok(None),
            None => Err(LaneFault::Protocol("a flow that was never opened")),
        }
    }

    /// The link is over. What its lanes still say is why.
    fn condemn(&mut self, fault: LinkFault) {
        if self.fault.is_some() {
            return;
        }
        let text = fault.to_string();
        let lanes: Vec<LaneId> = self.lanes.keys().copied().collect();
        if fault != LinkFault::AbortedByPeer {
            for lane in lanes {
                self.send_control(lane, &Frame::Abort { text: &text });
            }
        }
        self.fault = Some(fault);
        let flows: Vec<FlowId> = self.flows.keys().copied().collect();
        for id in flows {
            self.drop_flow(id, ResetReason::LaneLost);
        }
    }
}
