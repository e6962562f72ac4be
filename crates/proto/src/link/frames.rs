//! What comes on a lane: hello, frames, events.

use super::{Event, Link, ResetReason, Role};
use refrain_codec::geometry::CacheGeometry;

use crate::{
    codes::{refusal, reset},
    counters::{Count, LayerCounters},
    credit::ReceiveWindow,
    fault::{Fault, LaneFault, LinkFault, Violation},
    flow::{Flow, ReceiveHalf, Verdict},
    frame::{BlockFrame, FlowId, Frame, LaneId, LaneList, end_check},
    hello::Hello,
    limits::{
        ACK_AT_ONCE_BYTES, ACK_DELAY, ACK_WINDOW_SHARE, OUTSTANDING_BLOCKS_MAX, PADDING_BYTES_MAX,
    },
    moment::Moment,
    planted::Bug,
    predictions::opening,
    targets::{Carried, CarriedBytes},
    traffic::Exclusion,
};

impl Link {
    /// Takes the next bytes of `lane`, split anywhere.
    ///
    /// # Errors
    /// [`Fault::Lane`]: the lane is dead and forgotten, its transport is to be closed.
    /// [`Fault::Link`]: the link is over; what [`poll_transmit`](Self::poll_transmit) still
    /// gives tells the other end why.
    pub fn receive(&mut self, now: Moment, lane: LaneId, bytes: &[u8]) -> Result<(), Fault> {
        self.look_at_proven(now);
        let Some(state) = self.lanes.get_mut(&lane) else {
            return Ok(());
        };
        state.heard_at = now;
        state.received_bytes += bytes.len() as u64;
        self.counters.received.link_bytes += bytes.len() as u64;
        let mut input = core::mem::take(&mut state.input);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        let result = loop {
            match self.receive_next(now, lane, rest) {
                Ok(0) => break Ok(()),
                // A frame has one short answer on its lane at most, so this is soon enough.
                Ok(_) if self.is_flooded(lane) => {
                    break Err(Violation::AnswersNotRead.into());
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
                    if !flow.opened_here || flow.accepted || flow.home != lane {
                        return Err(Violation::UnexpectedAccept.into());
                    }
                    flow.send.credit.widen(credit_bytes)?;
                    if excluded && !Bug::AcceptFlagIgnored.is_planted() {
                        flow.exclude(Exclusion::Rule);
                    }
                    flow.accepted = true;
                    self.events.push_back(Event::FlowAccepted(id));
                    self.say_writable(id);
                    // From now on it may leave a lane that is held up.
                    self.offer_to_idle_lane(lane);
                }
                Ok(())
            }
            Frame::Refuse {
                flow: id,
                code,
                text,
            } => {
                self.end_strand(lane, id);
                if let Some(flow) = self.flow_of(id)? {
                    if !flow.opened_here || flow.accepted || flow.home != lane {
                        return Err(Violation::UnexpectedRefusal.into());
                    }
                    let is_to_answer = !flow.send.is_over;
                    let text = text.to_owned();
                    self.events.push_back(Event::FlowRefused {
                        flow: id,
                        code,
                        text,
                    });
                    if is_to_answer {
                        self.say_reset(id, code);
                    }
                    self.forget_flow(id);
                    self.let_go(id);
                }
                Ok(())
            }
            Frame::End {
                flow: id,
                plain_bytes,
                check,
                lanes,
            } => {
                if check != end_check(id, plain_bytes) {
                    return Err(Violation::EndAtWrongOffset.into());
                }
                self.end_strand(lane, id);
                self.receive_end(id, plain_bytes, lanes)
            }
            Frame::Reset { flow: id, code } => {
                self.end_strand(lane, id);
                self.receive_reset(id, code)
            }
            Frame::Credit { flow: id, bytes } => {
                self.flow_of(id)?;
                match self.flows.get_mut(&id) {
                    Some(flow) => {
                        let credit = &mut flow.send.credit;
                        let waits = flow.send.pending.len();
                        let window = &mut self.send_window;
                        if !window.credited(now, id, credit, bytes, waits)? {
                            return Ok(());
                        }
                        flow.send.limits.reader_took(now, credit.taken_bytes());
                        self.say_writable(id);
                    }
                    None => self.send_window.credited_over(id, bytes),
                }
                self.wake_for_window();
                if !self.send_window.holds_up_writers() {
                    self.look_at_held_up(now, false);
                }
                Ok(())
            }
            Frame::Ack { blocks } => {
                let news = self
                    .caches
                    .sender
                    .acknowledged(lane, blocks, &mut self.targets)?;
                if news {
                    self.say_transmit_all();
                }
                Ok(())
            }
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
            Frame::Stalled => {
                self.loss_seen(now, lane);
                Ok(())
            }
            Frame::Spare => Ok(self.lane_is_spare(lane)?),
            Frame::Offer(ref frame) => self.offers_came(lane, frame),
            Frame::Confirm(ref frame) => self.confirmation_came(now, lane, frame),
            Frame::Withdrawn {
                flow,
                below,
                offset,
            } => self.withdrawal_came(lane, flow, below, offset),
            Frame::Dispersion { flow, level } => self.dispersion_came(lane, flow, level),
            Frame::Driven { flow, by_sender } => self.driver_came(lane, flow, by_sender),
            Frame::Moved { flow, by } => self.offers_moved(lane, flow, by),
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
        let excluded = excluded && !Bug::OpenFlagIgnored.is_planted();
        let parity = u64::from(self.role == Role::Near);
        if id.0 % 2 != parity {
            return Err(Violation::FlowNumberOfOtherEnd.into());
        }
        let is_replay = self
            .lanes
            .get(&lane)
            .is_none_or(|state| id < state.peer_flows_end);
        let is_replay = is_replay && !Bug::ReplayAccepted.is_planted();
        if is_replay || self.flows.contains_key(&id) {
            return Err(Violation::FlowOpenedTwice.into());
        }
        let end = FlowId(id.0.saturating_add(2));
        self.peer_flows_end = self.peer_flows_end.max(end);
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.peer_flows_end = end;
        }
        let mut flow = Flow::new(now, lane, target, false, excluded);
        flow.send.credit.widen(credit_bytes)?;
        let too_many = self.is_full_of_flows();
        let opening = opening::of_target(target);
        self.add_flow(now, id, flow);
        self.opening_seen(id, opening);
        if too_many {
            let limit = self.flows_limit();
            self.refuse_flow(id, refusal::LIMIT, &limit);
        } else if self.draining {
            self.refuse_flow(id, refusal::DRAINING, "shutting down");
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

    /// The last word of a flow came on `lane`: none of its blocks follows there.
    fn end_strand(&mut self, lane: LaneId, id: FlowId) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.strands.remove(&id);
        }
    }

    fn receive_end(
        &mut self,
        id: FlowId,
        plain_bytes: u64,
        lanes: LaneList<'_>,
    ) -> Result<(), Fault> {
        let Some(flow) = self.flow_of(id)? else {
            return Ok(());
        };
        let receive = &mut flow.receive;
        let is_first = receive.total_bytes.is_none();
        if is_first {
            receive.ends_awaited = 1 + lanes.iter().count();
            lanes.iter().for_each(|lane| receive.travels_on_too(lane));
        }
        let known = *receive.total_bytes.get_or_insert(plain_bytes);
        receive.ends_awaited = receive.ends_awaited.saturating_sub(1);
        let is_over = receive.is_over();
        let all_came = is_over || receive.ends_awaited > 0;
        if known != plain_bytes || plain_bytes < receive.counters.app_bytes || !all_came {
            return Err(Violation::EndAtWrongOffset.into());
        }
        if is_over && is_first {
            self.all_came(id);
            self.events.push_back(Event::Readable(id));
            self.forget_if_gone(id);
        } else if !is_over && is_first && lanes.iter().any(|lane| !self.lanes.contains_key(&lane)) {
            // A lane that died later took the flow along.
            self.lose_flow(id);
        }
        Ok(())
    }

    fn receive_reset(&mut self, id: FlowId, code: u8) -> Result<(), Fault> {
        if self.flow_of(id)?.is_none() {
            self.let_go(id);
            return Ok(());
        }
        // The other end waits for it, if it has sent what was not taken here.
        self.say_reset(id, code);
        let reason = match code {
            reset::LANE_LOST => ResetReason::LaneLost,
            code => ResetReason::ByPeer(code),
        };
        self.end_flow(id, reason);
        self.let_go(id);
        Ok(())
    }

    /// The other end holds nothing more of a flow that is over.
    fn let_go(&mut self, id: FlowId) {
        self.send_window.let_go(id);
        self.wake_for_window();
    }

    fn receive_block(
        &mut self,
        now: Moment,
        lane: LaneId,
        block: &BlockFrame<'_>,
    ) -> Result<(), Fault> {
        self.flow_of(block.flow)?;
        let Some(state) = self.lanes.get_mut(&lane) else {
            return Ok(());
        };
        let strand = state.strand(block.flow, self.config.flows_max)?;
        let offset = strand.locate(block.offset, block.len);
        let mut flow = self.flows.get_mut(&block.flow);
        let is_next = match &mut flow {
            Some(flow) => flow
                .receive
                .admit(lane, offset, block.len, &mut self.receive_window)?,
            None => false,
        };
        let (mut elsewhere, mut was_ready) = (Vec::new(), false);
        let plain = match &mut flow {
            Some(flow) if is_next => {
                was_ready = flow.receive.bytes.is_ready();
                flow.receive.bytes.next(block.len, &mut self.spare_pieces)
            }
            _ => &mut elsewhere,
        };
        let plain_start = plain.len();
        let mut counted = LayerCounters::default();
        self.caches.receiver.receive(
            lane,
            block,
            offset,
            &mut strand.cursor,
            plain,
            &mut counted,
        )?;
        let end = plain_start + block.len;
        let verdict = match &flow {
            Some(flow) if is_next => {
                let plain = &flow.receive.bytes.latest()[plain_start..end];
                flow.judge_received(offset, plain)
            }
            Some(flow) => flow.judge_received(offset, &elsewhere),
            None => Verdict::without_flow(&elsewhere),
        };
        let row = flow.as_ref().map(|flow| self.targets.row(&flow.target));
        let received = CarriedBytes {
            app_bytes: counted.app_bytes,
            link_bytes: counted.block_bytes,
        };
        let sent = CarriedBytes::default();
        let carried = Carried { sent, received };
        self.targets.count(row, verdict.class, &carried);
        if let Some(flow) = flow {
            flow.received(verdict, block.len);
            let bytes = &mut flow.receive.bytes;
            self.early_runs -= bytes.early_runs();
            if is_next {
                bytes.appended(block.len);
                if !was_ready {
                    self.events.push_back(Event::Readable(block.flow));
                }
            } else {
                bytes.keep(offset, elsewhere);
            }
            self.early_runs += bytes.early_runs();
            flow.receive.counters.add(&counted);
            if let Some(predictions) = flow
                .receive
                .predictions
                .as_mut()
                .filter(|_| block.is_secret)
            {
                predictions.is_secret(offset..offset + block.len as u64);
            }
            if is_next {
                self.bytes_came(block.flow, plain_start);
            }
            // A gap is a block on its way, of which a sender has only so many.
            if self.early_runs > OUTSTANDING_BLOCKS_MAX {
                return Err(Violation::TooManyEarlyBlocks.into());
            }
        } else {
            self.counters.received.layers.add(&counted);
        }
        self.acknowledge_soon(now, lane, block.len);
        Ok(())
    }

    /// A block of `len` bytes was applied.
    pub(super) fn acknowledge_soon(&mut self, now: Moment, lane: LaneId, len: usize) {
        let geometry = self
            .caches
            .receive_geometry
            .unwrap_or(CacheGeometry::SMALLEST);
        let at_once = geometry.window_bytes() as u64 / ACK_WINDOW_SHARE;
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.unacked_bytes += len as u64;
            // One that goes out as bytes come leaves the kernel's own acknowledgements at their pace. One in between makes
            // the kernel acknowledge a packet late, and BBR at the other end takes the link for faster than it is.
            let is_long = len >= ACK_AT_ONCE_BYTES && now.since(state.acked_at) >= ACK_DELAY;
            let due = match is_long || state.unacked_bytes >= at_once {
                true => now,
                false => now + ACK_DELAY,
            };
            state.ack_due = Some(state.ack_due.map_or(due, |earlier| earlier.min(due)));
            if due == now {
                self.say_transmit(lane);
            }
        }
    }

    /// The flow that a frame names; `None` if it is over already.
    pub(super) fn flow_of(&mut self, id: FlowId) -> Result<Option<&mut Flow>, Violation> {
        let ended = if id.0.is_multiple_of(2) == (self.role == Role::Near) {
            id < self.next_flow
        } else {
            id < self.peer_flows_end
        };
        match self.flows.get_mut(&id) {
            Some(flow) => Ok(Some(flow)),
            None if ended => Ok(None),
            None => Err(Violation::FlowNeverOpened),
        }
    }

    /// Ends the link and its flows: this end no longer accepts the peer. Its lanes tell the other end, and are to be
    /// closed.
    pub fn revoke(&mut self) {
        self.condemn(LinkFault::Revoked);
    }

    /// The link is over. What its lanes still say is why.
    fn condemn(&mut self, fault: LinkFault) {
        if self.fault.is_some() {
            return;
        }
        let text = fault.to_string();
        let lanes: Vec<LaneId> = self.lanes.keys().copied().collect();
        for lane in lanes {
            match fault {
                // Its writer waits for something to send, and ends it.
                LinkFault::AbortedByPeer => self.say_transmit(lane),
                _ => self.send_control(lane, &Frame::Abort { text: &text }),
            }
        }
        self.fault = Some(fault);
        let flows: Vec<FlowId> = self.flows.keys().copied().collect();
        for id in flows {
            self.end_flow(id, ResetReason::LaneLost);
        }
    }
}

impl ReceiveHalf {
    /// Whether a block that comes on `lane` may; says whether its bytes are the next ones.
    pub(super) fn admit(
        &mut self,
        lane: LaneId,
        offset: u64,
        len: usize,
        window: &mut ReceiveWindow,
    ) -> Result<bool, Violation> {
        let is_next = self.bytes.is_next(offset, len)?;
        let end = offset + len as u64;
        if self.total_bytes.is_some_and(|total| end > total) {
            return Err(Violation::BlockAfterEnd);
        }
        self.credit.received(window, len)?;
        self.latest_lane = lane;
        self.travels_on_too(lane);
        Ok(is_next)
    }
}
