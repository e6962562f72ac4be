//! The applications' side of a link: opening, writing, reading, ending flows.

use super::{Event, Link, ResetReason, Role, keys_where, lanes::Lane};
use crate::{
    flow::Flow,
    frame::{FlowId, Frame, LaneId},
    limits::{ACK_DELAY, BLOCK_BYTES_MAX, PING_INTERVAL, REASON_BYTES_MAX, TARGET_BYTES_MAX},
    moment::Moment,
    predictions::opening,
    traffic::Exclusion,
};

/// CREDIT for less waits for the next acknowledgement, as does the last of a flow, for which no writer waits.
const LAZY_CREDIT_BYTES: u64 = 64 << 10;

/// A flow may have pending one of so many parts of what all flows leave of the link's bound: one for each mebibyte of it,
/// within these limits, so that a single flow reads ahead. It writes no less than the least share at a time.
const PENDING_PARTS: (usize, usize) = (4, 16);
const PENDING_SHARE_MIN: usize = 4 << 10;

/// Why a flow cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The link has no lane.
    #[error("the peer cannot be reached")]
    LinkDown,
    /// This end or the other is shutting down.
    #[error("the gateway is shutting down")]
    Draining,
    /// As many flows are open as may be.
    #[error("too many open connections")]
    TooManyFlows,
    /// The target's name is longer than a frame carries.
    #[error("the target's name is too long")]
    TargetTooLong,
}

impl Link {
    /// Opens a flow to `target` at the other end: `host:port`, and after a space words for that end. Its first bytes may be
    /// written at once; [`Event::FlowAccepted`] or [`Event::FlowRefused`] follows.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing was sent then.
    pub fn open_flow(
        &mut self,
        now: Moment,
        target: &str,
        excluded: bool,
    ) -> Result<FlowId, OpenError> {
        if target.len() > TARGET_BYTES_MAX {
            return Err(OpenError::TargetTooLong);
        }
        if self.draining || self.peer_draining {
            return Err(OpenError::Draining);
        }
        if self.is_full_of_flows() {
            return Err(OpenError::TooManyFlows);
        }
        let lane = self.lane_for(target).ok_or(OpenError::LinkDown)?;
        let id = self.next_flow;
        self.next_flow = FlowId(id.0 + 2);
        let mut flow = Flow::new(now, lane, target, true, excluded);
        let credit_bytes = flow.receive.credit.lend(&mut self.receive_window);
        self.add_flow(now, id, flow);
        self.opening_seen(id, opening::of_target(target));
        self.send_control(
            lane,
            &Frame::Open {
                flow: id,
                credit_bytes,
                target,
                excluded,
            },
        );
        Ok(id)
    }

    /// The target of a flow that the other end offered was reached.
    pub fn accept_flow(&mut self, id: FlowId, excluded: bool) {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.accepted) else {
            return;
        };
        flow.accepted = true;
        if excluded {
            flow.exclude(Exclusion::Rule);
        }
        let credit_bytes = flow.receive.credit.lend(&mut self.receive_window);
        let home = flow.home;
        self.send_control(
            home,
            &Frame::Accept {
                flow: id,
                credit_bytes,
                excluded,
            },
        );
    }

    /// The target of a flow that the other end offered was not reached.
    pub fn refuse_flow(&mut self, id: FlowId, code: u8, text: &str) {
        let Some(flow) = self.flows.get(&id).filter(|flow| !flow.accepted) else {
            return;
        };
        let home = flow.home;
        let text = &text[..text.floor_char_boundary(REASON_BYTES_MAX)];
        self.send_control(
            home,
            &Frame::Refuse {
                flow: id,
                code,
                text,
            },
        );
        self.forget_flow(id);
    }

    /// How many bytes [`write`](Self::write) would take now.
    pub(super) fn writable_bytes(&self, id: FlowId) -> usize {
        let Some(flow) = self.flows.get(&id) else {
            return 0;
        };
        let writable = flow.writable_bytes(&self.send_window);
        let pending = flow.send.pending.len();
        let free = self.free_bytes();
        let mut share = self.share_of(free, pending);
        if flow.send.expectations.is_some() {
            // What was offered is confirmed once all of it is here.
            share = share.max(BLOCK_BYTES_MAX.saturating_sub(pending).min(free));
        }
        match self.held_writers.is_empty() {
            true => writable.min(share),
            // While others wait, each writes a block at a time.
            false => writable.min(share.min(BLOCK_BYTES_MAX.saturating_sub(pending))),
        }
    }

    /// What the link may have pending beside what it has.
    pub(super) fn free_bytes(&self) -> usize {
        let most = self.config.pending_bytes_max;
        most.saturating_sub(self.pending_bytes)
    }

    /// What a flow may have pending beside what it has, where so much is free. The more flows have something pending, the
    /// less, so that there is room for another one, and a thousand take turns of a few kilobytes.
    pub(super) fn share_of(&self, free: usize, pending: usize) -> usize {
        let most = self.config.pending_bytes_max;
        let parts = (most >> 20).clamp(PENDING_PARTS.0, PENDING_PARTS.1);
        let least = PENDING_SHARE_MIN.min(most / (2 * parts));
        // Each has a turn of one share, so the shares of many are alike, whatever is free when they come.
        let even = most / self.flows_that_send().max(1);
        let share = (free / parts).min(even.max(least)).saturating_sub(pending);
        match share >= least {
            true => share,
            false => 0,
        }
    }

    /// How many flows have something to send.
    fn flows_that_send(&self) -> usize {
        let queued = self.lanes.values().map(Lane::queued_flows).sum::<usize>();
        queued + self.held_writers.len()
    }

    /// Whether a flow has nothing pending, and there is no room for more.
    pub(super) fn has_no_share(&self, id: FlowId) -> bool {
        let is_full = self.share_of(self.free_bytes(), 0) == 0;
        is_full && (self.flows.get(&id)).is_some_and(|flow| flow.send.pending.is_empty())
    }

    /// Hands the next bytes of a flow over; says how many were taken. When that is fewer
    /// than given, [`Event::Writable`] says when to go on.
    pub fn write(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        let taken = self.admit(id, bytes);
        self.keep(id, &bytes[..taken]);
        if taken > 0 {
            self.queue_flow(id);
        }
        taken
    }

    /// The same for bytes that are secret, such as a password. They travel in blocks of their own, which are neither
    /// searched for repeats, nor cached, nor compressed: so others' data does not change their length on the wire, and
    /// they do not change that of others' data (CRIME: Rizzo and Duong, 2012).
    pub fn write_secret(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        let taken = self.admit(id, bytes);
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.send.pending.push_secret(&bytes[..taken]);
            self.pending_bytes += taken;
        }
        if taken > 0 {
            self.queue_flow(id);
        }
        taken
    }

    /// How many of a flow's next bytes are taken.
    pub(super) fn admit(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.writable_bytes(id));
        let Some(flow) = self.flows.get_mut(&id).filter(|_| !bytes.is_empty()) else {
            return 0;
        };
        self.send_window.written(&mut flow.send.credit, taken);
        flow.send.writer_waits = taken < bytes.len();
        if !flow.send.writer_waits {
            self.send_window.stop_waiting(id, &mut flow.send.credit);
        }
        if flow.send.writer_waits && flow.writable_bytes(&self.send_window) == 0 {
            self.wait_for_window(id);
        } else if taken == 0 && self.has_no_share(id) {
            self.hold_writer(id);
        }
        let Some(flow) = self.flows.get_mut(&id).filter(|_| taken > 0) else {
            return taken;
        };
        if flow.send.pending.is_empty()
            && let Some(expectations) = &mut flow.send.expectations
        {
            expectations.begins_at(flow.send.counters.app_bytes);
        }
        // A request says more of what will come than the target does.
        let predicts = flow.receive.predictions.is_some();
        let request = predicts.then(|| opening::of_request(&flow.target, &bytes[..taken]));
        if let Some(opening) = request.flatten() {
            self.opening_seen(id, opening);
        }
        taken
    }

    /// Keeps bytes of a flow until they are sent; says how many.
    pub(super) fn keep(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.send.pending.push(bytes);
            self.pending_bytes += bytes.len();
        }
        bytes.len()
    }

    /// How many bytes [`write`](Self::write) would take now. If none, [`Event::Writable`] says when it takes some
    /// again, and the wait counts as one of the flow.
    pub fn room(&mut self, now: Moment, id: FlowId) -> usize {
        let room = self.writable_bytes(id);
        let round_trip = self.smoothed_round_trip();
        let Some(flow) = self.flows.get_mut(&id) else {
            return 0;
        };
        if room > 0 {
            flow.send.limits.writer_came(now, round_trip);
            if !flow.send.queued {
                flow.send.limits.no_lane_waits();
            }
            return room;
        }
        flow.send.writer_waits = true;
        let lane = flow.send.lane;
        if flow.writable_bytes(&self.send_window) == 0 {
            flow.send.limits.writer_waits(now);
            self.wait_for_window(id);
        }
        if self.has_no_share(id) {
            if let (Some(flow), Some(state)) = (self.flows.get_mut(&id), self.lanes.get(&lane)) {
                flow.send.limits.lane_waits(lane, state.clock);
            }
            self.hold_writer(id);
        }
        0
    }

    /// The application has sent its last byte (half-close).
    pub fn finish(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id)
            && !flow.send.is_over
        {
            flow.send.ending = true;
            self.queue_flow(id);
        }
    }

    /// The application is gone: both directions end at once.
    pub fn reset(&mut self, id: FlowId, code: u8) {
        let Some(flow) = self.flows.get(&id) else {
            return;
        };
        if !flow.send.is_over || !flow.receive.is_over() {
            self.say_reset(id, code);
        }
        self.counters.events.flows_reset += 1;
        self.forget_flow(id);
    }

    /// Takes the next bytes that came on a flow, in exchange for `buffer`; none if there are
    /// none. If there are more, [`Event::Readable`] follows. Call [`taken`](Self::taken) once they are passed on.
    pub fn take_ready(&mut self, id: FlowId, buffer: &mut Vec<u8>) {
        let Some(flow) = self.flows.get_mut(&id) else {
            buffer.clear();
            return;
        };
        let used = core::mem::replace(buffer, flow.receive.bytes.take());
        self.spare_pieces.put(used);
        if flow.receive.bytes.is_ready() {
            self.events.push_back(Event::Readable(id));
        }
    }

    /// `bytes` of what was taken have reached the application: the other end may send more.
    pub fn taken(&mut self, id: FlowId, bytes: usize) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let receive = &mut flow.receive;
        // The latest lane moves. Once all has come, the flow depends on its home lane alone.
        let lane = match receive.total_bytes {
            Some(_) => flow.home,
            None => receive.latest_lane,
        };
        let is_home = lane == flow.home;
        let window = &mut self.receive_window;
        let is_last = receive.total_bytes.is_some();
        let before = receive.credit.reported_bytes();
        if let Some(bytes) = receive.credit.taken(window, bytes, is_last, is_home) {
            let is_little = receive.credit.reported_bytes() - before < LAZY_CREDIT_BYTES;
            self.say_credit(lane, id, bytes, is_last || is_little);
        }
        self.forget_if_gone(id);
    }

    /// Says what of a flow was taken. CREDIT that `can_wait` leaves with the next acknowledgement, at the latest when one
    /// would: each would be a write of its own.
    fn say_credit(&mut self, lane: LaneId, id: FlowId, bytes: u64, can_wait: bool) {
        let frame = Frame::Credit { flow: id, bytes };
        match self.lanes.get_mut(&lane) {
            Some(state) if can_wait && state.acknowledges() => {
                frame.write(&mut state.control);
                state.ack_due.get_or_insert(state.acked_at + ACK_DELAY);
            }
            _ => self.send_control(lane, &frame),
        }
    }

    /// Whether the other end has sent its last byte and all were taken. A flow is remembered
    /// until it was asked for its end, so that one that was reset is never taken for one
    /// that ended; ask after each [`take_ready`](Self::take_ready).
    pub fn take_end(&mut self, id: FlowId) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else {
            return false;
        };
        let ended = flow.receive.is_over() && !flow.receive.bytes.is_ready();
        flow.receive.end_taken = ended;
        self.forget_if_gone(id);
        ended
    }

    /// Whether anything of the flow is still to be sent or received.
    #[must_use]
    pub fn is_open(&self, id: FlowId) -> bool {
        self.flows.contains_key(&id)
    }

    /// Takes no more flows, and tells the other end; those that are open go on.
    pub fn drain(&mut self) {
        if core::mem::replace(&mut self.draining, true) {
            return;
        }
        for lane in keys_where(&self.lanes, |lane| lane.is_up) {
            self.send_control(lane, &Frame::Drain);
        }
    }

    /// Which end of the pair this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether the other end takes no new flows: it is about to stop.
    #[must_use]
    pub fn peer_is_draining(&self) -> bool {
        self.peer_draining
    }

    /// Whether no further flow may be opened. Those that are over count only where there are many of which the
    /// other end has not taken all.
    pub(super) fn is_full_of_flows(&self) -> bool {
        let (open, over) = (self.flows.len(), self.send_window.flows_over());
        open >= self.config.flows_max || open + over >= 2 * self.config.flows_max
    }

    /// Flows that are open.
    #[must_use]
    pub fn flows_open(&self) -> usize {
        self.flows.len()
    }

    /// Whether no flow was ever opened: there is no history to keep.
    #[must_use]
    pub fn was_never_used(&self) -> bool {
        self.counters.events.flows_opened == 0
    }

    /// Blocks on their way, of flows that are over here too.
    #[must_use]
    pub fn blocks_outstanding(&self) -> usize {
        self.caches.sender.outstanding_blocks()
    }

    pub(super) fn add_flow(&mut self, now: Moment, id: FlowId, flow: Flow) {
        if self.flows.is_empty() {
            // The link was idle, and its pings rare.
            for lane in self.lanes.values_mut() {
                lane.ping_due = lane.ping_due.min(now + PING_INTERVAL);
            }
        }
        self.flows.insert(id, Box::new(flow));
        self.predict(id);
        self.counters.events.flows_opened += 1;
    }

    /// Says that a flow is over, both ways, behind the last block of each of its strands. One
    /// whose end was said has no strand any more, and says so on its home lane.
    pub(super) fn say_reset(&mut self, id: FlowId, code: u8) {
        let Some(flow) = self.flows.get(&id) else {
            return;
        };
        let lanes: Vec<LaneId> = match flow.send.is_over {
            true => vec![flow.home],
            false => flow.send.strands.iter().map(|&(lane, _)| lane).collect(),
        };
        for lane in lanes {
            self.send_control(lane, &Frame::Reset { flow: id, code });
        }
    }

    /// The flow is over, and its application is to hear of it.
    pub(super) fn end_flow(&mut self, id: FlowId, reason: ResetReason) {
        if self.flows.contains_key(&id) {
            self.counters.events.flows_reset += 1;
            self.events.push_back(Event::FlowReset(id, reason));
            self.forget_flow(id);
        }
    }

    pub(super) fn forget_if_gone(&mut self, id: FlowId) {
        if self.flows.get(&id).is_some_and(|flow| flow.is_gone()) {
            self.forget_flow(id);
        }
    }

    pub(super) fn forget_flow(&mut self, id: FlowId) {
        if let Some(mut flow) = self.flows.remove(&id) {
            self.forget_predictions(&mut flow);
            let (now, round_trip) = (self.heard_at(), self.smoothed_round_trip());
            flow.send.limits.writer_came(now, round_trip);
            flow.count(&mut self.counters);
            let status = self.flow_status(now, id, &flow);
            self.events.push_back(Event::FlowEnded(Box::new(status)));
            self.pending_bytes -= flow.send.pending.len();
            self.early_runs -= flow.receive.bytes.early_runs();
            if let Some(seq) = flow.send.held_at {
                self.held_writers.remove(&seq);
            }
            if let Some(bytes) = flow.receive.credit.forget(&mut self.receive_window) {
                self.say_credit(flow.home, id, bytes, true);
            }
            let never_sent = flow.send.pending.len();
            self.send_window
                .forget(id, flow.home, flow.send.credit, never_sent);
            self.wake_for_window();
        }
    }
}
