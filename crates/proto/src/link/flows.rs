//! The applications' side of a link: opening, writing, reading, ending flows.

use super::{Event, Link, ResetReason};
use crate::{
    counters::LayerCounters,
    credit::ReceiveCredit,
    flow::{Flow, Moving, ReceiveHalf, SendHalf},
    frame::{FlowId, Frame, LaneId},
    limits::{CREDIT_BYTES_INITIAL, PING_INTERVAL, REASON_BYTES_MAX, TARGET_BYTES_MAX},
    moment::Moment,
    traffic::TrafficClass,
};
use refrain_codec::SourceCursor;

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
    /// Opens a flow to `target` (`host:port`) at the other end. Its first bytes may be
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
        if self.flows.len() >= self.config.flows_max {
            return Err(OpenError::TooManyFlows);
        }
        let lane = self.lane_for(now, target).ok_or(OpenError::LinkDown)?;
        let id = self.next_flow;
        self.next_flow = FlowId(id.0 + 2);
        let mut flow = Flow::new(now, lane, target, true, excluded);
        let credit_bytes = flow.receive.credit.widen(&mut self.pool);
        self.add_flow(now, id, flow);
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
            flow.send.class = TrafficClass::Excluded;
        }
        let credit_bytes = flow.receive.credit.widen(&mut self.pool);
        let lane = flow.send.lane;
        self.send_control(
            lane,
            &Frame::Accept {
                flow: id,
                credit_bytes,
                excluded,
            },
        );
    }

    /// The target of a flow that the other end offered was not reached.
    pub fn refuse_flow(&mut self, id: FlowId, code: u8, text: &str) {
        let Some(flow) = self
            .flows
            .get_mut(&id)
            .filter(|flow| !flow.accepted && !flow.send.is_over)
        else {
            return;
        };
        let lane = flow.send.lane;
        let text = &text[..text.floor_char_boundary(REASON_BYTES_MAX)];
        self.send_control(
            lane,
            &Frame::Refuse {
                flow: id,
                code,
                text,
            },
        );
        self.abandon_flow(id);
    }

    /// How many bytes [`write`](Self::write) would take now.
    #[must_use]
    pub fn writable_bytes(&self, id: FlowId) -> usize {
        if self.pending_bytes >= self.config.pending_bytes_max {
            return 0;
        }
        self.flows.get(&id).map_or(0, Flow::writable_bytes)
    }

    /// Hands the next bytes of a flow over; says how many were taken. When that is fewer
    /// than given, [`Event::Writable`] says when to go on.
    pub fn write(&mut self, id: FlowId, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.writable_bytes(id));
        let Some(flow) = self.flows.get_mut(&id) else {
            return 0;
        };
        flow.send.writer_waits = taken < bytes.len();
        self.link_was_full |= self.pending_bytes >= self.config.pending_bytes_max;
        if taken == 0 {
            return 0;
        }
        flow.send.pending.extend_from_slice(&bytes[..taken]);
        flow.send.credit_bytes -= taken as u64;
        self.pending_bytes += taken;
        self.queue_flow(id);
        taken
    }

    /// Wants [`Event::Writable`] when the flow takes bytes again.
    pub fn wait_writable(&mut self, id: FlowId) {
        self.link_was_full |= self.pending_bytes >= self.config.pending_bytes_max;
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.send.writer_waits = true;
        }
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
        let Some(flow) = self.flows.get(&id).filter(|flow| !flow.abandoned) else {
            return;
        };
        if !flow.send.is_over || !flow.receive.is_over {
            self.say_reset(id, code);
        }
        self.totals.flows_reset += 1;
        self.abandon_flow(id);
    }

    /// Takes the bytes that came on a flow, in exchange for `buffer`, which is cleared.
    /// Call [`taken`](Self::taken) once they are passed on.
    pub fn take_ready(&mut self, id: FlowId, buffer: &mut Vec<u8>) {
        buffer.clear();
        if let Some(flow) = self.flows.get_mut(&id) {
            core::mem::swap(buffer, &mut flow.receive.ready);
        }
    }

    /// `bytes` of what was taken have reached the application: the other end may send more.
    pub fn taken(&mut self, now: Moment, id: FlowId, bytes: usize) {
        let round_trip = self.smoothed_round_trip();
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.receive.is_over) else {
            return;
        };
        let grant = flow
            .receive
            .credit
            .taken(bytes, now, round_trip, &mut self.pool);
        let lane = flow.send.lane;
        if let Some(bytes) = grant {
            self.send_control(lane, &Frame::Credit { flow: id, bytes });
        }
    }

    /// Whether the other end has sent its last byte and all were taken. A flow is remembered
    /// until it was asked for its end, so that one that was reset is never taken for one
    /// that ended; ask after each [`take_ready`](Self::take_ready).
    pub fn take_end(&mut self, id: FlowId) -> bool {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.abandoned) else {
            return false;
        };
        let ended = flow.receive.is_over && flow.receive.ready.is_empty();
        flow.receive.end_taken = ended;
        self.forget_if_gone(id);
        ended
    }

    /// Whether anything of the flow is still to be sent or received.
    #[must_use]
    pub fn is_open(&self, id: FlowId) -> bool {
        self.flows.get(&id).is_some_and(|flow| !flow.abandoned)
    }

    /// Takes no more flows, and tells the other end; those that are open go on.
    pub fn drain(&mut self) {
        if core::mem::replace(&mut self.draining, true) {
            return;
        }
        let lanes: Vec<LaneId> = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.is_up)
            .map(|(&id, _)| id)
            .collect();
        for lane in lanes {
            self.send_control(lane, &Frame::Drain);
        }
    }

    /// Flows that are open, those included whose application is gone and whose last
    /// blocks have not come.
    #[must_use]
    pub fn flows_open(&self) -> usize {
        self.flows.len()
    }

    /// Whether no flow was ever opened: there is no history to keep.
    #[must_use]
    pub fn was_never_used(&self) -> bool {
        self.totals.flows_opened == 0
    }

    /// Blocks on their way: those of a flow that this end has forgotten may be among them.
    #[must_use]
    pub fn blocks_outstanding(&self) -> usize {
        self.caches
            .as_ref()
            .map_or(0, |caches| caches.sender.outstanding_blocks())
    }

    pub(super) fn add_flow(&mut self, now: Moment, id: FlowId, flow: Flow) {
        if self.flows.is_empty() {
            // The link was idle, and its pings rare.
            for lane in self.lanes.values_mut() {
                lane.ping_due = lane.ping_due.min(now + PING_INTERVAL);
            }
        }
        self.flows.insert(id, flow);
        self.totals.flows_opened += 1;
    }

    /// The flow's application is gone; its number lives on until the other end's last word.
    pub(super) fn abandon_flow(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        flow.abandoned = true;
        flow.accepted = true;
        flow.send.is_over = true;
        self.pending_bytes -= flow.send.pending.len();
        flow.send.pending = Vec::new();
        flow.receive.ready = Vec::new();
        self.forget_if_gone(id);
    }

    /// Says that a flow is over, both ways, where the other end will read it behind the
    /// flow's last block.
    pub(super) fn say_reset(&mut self, id: FlowId, code: u8) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        match flow.send.moving {
            Some(Moving {
                said_at: Some(_), ..
            }) => flow.send.reset_after_move = Some(code),
            _ => {
                flow.send.moving = None;
                let lane = flow.send.lane;
                self.send_control(lane, &Frame::Reset { flow: id, code });
            }
        }
    }

    /// The flow is over, and its application is to hear of it; nothing more will come of it.
    pub(super) fn drop_flow(&mut self, id: FlowId, reason: ResetReason) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.receive.is_over = true;
        }
        self.end_flow(id, reason);
    }

    /// The flow is over, and its application is to hear of it; what still comes of it is
    /// decoded and dropped.
    pub(super) fn end_flow(&mut self, id: FlowId, reason: ResetReason) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if !flow.abandoned {
            self.totals.flows_reset += 1;
            self.events.push_back(Event::FlowReset(id, reason));
        }
        self.abandon_flow(id);
    }

    pub(super) fn forget_if_gone(&mut self, id: FlowId) {
        if self.flows.get(&id).is_some_and(Flow::is_gone)
            && let Some(mut flow) = self.flows.remove(&id)
        {
            flow.receive.credit.release(&mut self.pool);
            self.pending_bytes -= flow.send.pending.len();
            self.unproven_flows.retain(|&other| other != id);
        }
    }
}

impl Flow {
    pub(super) fn new(
        now: Moment,
        lane: LaneId,
        target: &str,
        opened_here: bool,
        excluded: bool,
    ) -> Self {
        let class = if excluded {
            TrafficClass::Excluded
        } else {
            TrafficClass::Unknown
        };
        Self {
            target: target.to_owned(),
            opened_here,
            accepted: false,
            abandoned: false,
            opened_at: now,
            send: SendHalf {
                lane,
                moving: None,
                reset_after_move: None,
                pending: Vec::new(),
                credit_bytes: CREDIT_BYTES_INITIAL,
                ending: false,
                is_over: false,
                queued: false,
                writer_waits: false,
                cursor: SourceCursor::default(),
                class,
                unproven: None,
                unproven_bytes: 0,
                counters: LayerCounters::default(),
            },
            receive: ReceiveHalf {
                lane,
                left_lane: None,
                ready: Vec::new(),
                credit: ReceiveCredit::new(now),
                is_over: false,
                is_lost: false,
                end_taken: false,
                cursor: SourceCursor::default(),
                counters: LayerCounters::default(),
            },
        }
    }
}
