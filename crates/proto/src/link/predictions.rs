//! Predictions on a link: offers and confirmations, and what the history is asked.

use super::{Event, Fault, LaneFault, Link, ResetReason, Role};
use crate::{
    by_receiver::{
        history::{Found, FoundChunk, HistoryRequest},
        link_history::LinkHistory,
        offers::Unconfirmed,
        receiver::Predictions,
        sender::{Expectations, Step, Waiting},
        terms::{OfferKey, RunDigest},
    },
    flow::{Flow, SendHalf, strand_on},
    frame::{ConfirmFrame, FlowId, Frame, LaneId, OfferFrame, OfferList},
    hello::Hello,
    limits::{CREDIT_BYTES_MAX, OFFERS_LINK_MAX},
    moment::Moment,
    traffic::TrafficClass,
};

/// Above this dispersion a flow is better driven by its sender, and below the other by its
/// receiver.
const DISPERSION_HIGH: u8 = 96;
const DISPERSION_LOW: u8 = 24;

/// Confirmations that are written before the lane asks for them take no more than this.
const CONFIRMED_AHEAD_BYTES: usize = 16 << 10;

/// Code of the reset of a flow whose confirmation did not hold.
const RESET_MISCONFIRMED: u8 = 4;

impl Link {
    /// The next thing to ask of the history; poll after any call, as far as the history keeps
    /// up. Nothing ever comes if [`LinkConfig::history`](super::LinkConfig::history) is `None`.
    pub fn poll_history(&mut self) -> Option<HistoryRequest> {
        self.history.as_mut()?.poll()
    }

    /// The history answers a request of `flow`.
    pub fn history_answered(&mut self, flow: FlowId, request: u64, found: Found) {
        self.with_predictions(flow, |predictions, history| {
            predictions.answered(request, found, history);
        });
    }

    /// The hellos are exchanged: what both ends want of predictions.
    pub(super) fn agree_on_offers(&mut self, hello: &Hello) {
        let Some(peer) = self.peer_instance else {
            return;
        };
        let key = match self.role {
            Role::Near => OfferKey::agreed(self.instance, peer),
            Role::Far => OfferKey::agreed(peer, self.instance),
        };
        if let Some(history) = &mut self.history {
            history.agree(hello.takes_offers.then(|| key.clone()));
        }
        let terms = hello.offers.filter(|_| self.config.mode.predicts());
        self.offer_check = terms.map(|terms| (terms, key));
    }

    /// A flow begins that this end may predict.
    pub(super) fn predict(&mut self, id: FlowId) {
        if let (Some(history), Some(flow)) = (&self.history, self.flows.get_mut(&id))
            && flow.send.class != TrafficClass::Excluded
        {
            let predictions = Predictions::new(id, history.config.clone());
            flow.receive.predictions = Some(Box::new(predictions));
        }
    }

    /// What a flow will bring looks like `opening`.
    pub(super) fn opening_seen(&mut self, id: FlowId, opening: u64) {
        self.with_predictions(id, |predictions, history| {
            predictions.opens(opening, history);
        });
    }

    /// Bytes of a flow came in order: those from `from` on of what waits for its reader.
    pub(super) fn bytes_came(&mut self, id: FlowId, from: usize) {
        let (Some(history), Some(flow)) = (&mut self.history, self.flows.get_mut(&id)) else {
            return;
        };
        let receive = &mut flow.receive;
        if let Some(predictions) = &mut receive.predictions {
            let counted = predictions.counters;
            predictions.received(&receive.bytes.next()[from..], history);
            if receive.total_bytes == Some(receive.bytes.end()) {
                predictions.finish(history);
            }
            self.totals
                .offers_made
                .add(&predictions.counters.since(&counted));
            self.say_predictions(id);
        }
    }

    /// All bytes of a flow have come.
    pub(super) fn all_came(&mut self, id: FlowId) {
        self.with_predictions(id, |predictions, history| predictions.finish(history));
    }

    /// What the flow's sender shall do next: with the bytes that wait, or, if there are none, with
    /// `written`.
    pub(super) fn step(&mut self, now: Moment, id: FlowId, written: &[u8]) -> Step {
        let Some(flow) = self.flows.get_mut(&id) else {
            return Step::Send(0);
        };
        let SendHalf {
            expectations,
            pending,
            class,
            counters,
            ending,
            ..
        } = &mut flow.send;
        let bytes = match pending.is_empty() {
            true => written,
            false => pending,
        };
        let Some(expectations) = expectations
            .as_mut()
            .filter(|expectations| expectations.outstanding() > 0 && !bytes.is_empty())
        else {
            return Step::Send(bytes.len());
        };
        let (kept, counted) = (expectations.kept(), expectations.counters);
        let is_known = *class != TrafficClass::Unknown;
        if !is_known && class.after(bytes) == TrafficClass::Excluded {
            self.offers_kept -= expectations.drop_all();
            return Step::Send(bytes.len());
        }
        let step = expectations.step(
            now,
            Waiting {
                offset: counters.app_bytes,
                bytes,
                is_last: *ending,
            },
        );
        if let Step::Confirm { len, .. } = step
            && !is_known
        {
            // The flow's first bytes decide, and none of the later ones.
            *class = class.after(&bytes[..len]);
        }
        self.offers_kept -= kept - expectations.kept();
        self.totals
            .offers_taken
            .add(&expectations.counters.since(&counted));
        step
    }

    /// Does as [`write`](Self::write) and confirms at once what it can, while the bytes are in the
    /// writer's processor; what is confirmed is not copied. What is left, the lane sees to.
    pub fn write_and_confirm(&mut self, now: Moment, id: FlowId, bytes: &[u8]) -> usize {
        let taken = self.admit(id, bytes);
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let rest_of_chunk = self.rest_of_expected_chunk(id).min(rest.len());
            rest = &rest[self.keep(id, &rest[..rest_of_chunk])..];
            match self.confirm(now, id, rest) {
                Some(len) => rest = &rest[len..],
                None => break,
            }
        }
        self.keep(id, rest);
        while self.confirm(now, id, &[]).is_some() {}
        self.queue_flow(id);
        self.say_writable(id);
        taken
    }
    /// Of the expected chunk that begins with the bytes that wait, what has not been written.
    fn rest_of_expected_chunk(&self, id: FlowId) -> usize {
        let send = self.flows.get(&id).map(|flow| &flow.send);
        send.and_then(|send| {
            let end = send.counters.app_bytes + send.pending.len() as u64;
            Some(send.expectations.as_ref()?.awaited(end))
        })
        .unwrap_or(0)
    }

    /// Confirms a run of offers, if the bytes that wait begin with one, or else `written`. Says
    /// how many of the latter it is.
    fn confirm(&mut self, now: Moment, id: FlowId, written: &[u8]) -> Option<usize> {
        let flow = self.flows.get(&id)?;
        let (lane, waited) = (flow.send.lane, !flow.send.pending.is_empty());
        let state = self.lanes.get(&lane)?;
        if !state.is_up || state.control.len() >= CONFIRMED_AHEAD_BYTES || self.is_lossy() {
            return None;
        }
        let Step::Confirm {
            first,
            count,
            len,
            digest,
        } = self.step(now, id, written)
        else {
            return None;
        };
        let mut frame = Vec::new();
        self.send_confirm(lane, id, (first, count, digest), len, &mut frame);
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.control.append(&mut frame);
        }
        self.say_transmit(lane);
        Some(if waited { 0 } else { len })
    }

    /// Confirms a run of offers in place of the flow's next `len` bytes, which wait, or were just
    /// written.
    pub(super) fn send_confirm(
        &mut self,
        lane: LaneId,
        id: FlowId,
        (first, count, digest): (u64, u64, RunDigest),
        len: usize,
        out: &mut Vec<u8>,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let offset = flow.send.counters.app_bytes;
        let strand = strand_on(&mut flow.send.strands, lane);
        let before = out.len();
        Frame::Confirm(ConfirmFrame {
            flow: id,
            first,
            count,
            len: len as u64,
            offset: strand.advance(offset, len),
            digest,
        })
        .write(out);
        let frame_bytes = out.len() - before;
        let waited = len.min(flow.send.pending.len());
        flow.send.pending.take(waited);
        flow.send.lane = lane;
        self.pending_bytes -= waited;
        flow.send.counters.count_confirmed(len as u64, frame_bytes);
        self.totals.sent.count_confirmed(len as u64, frame_bytes);
    }

    /// The receiver of a flow that this end sends on offers what it expects.
    pub(super) fn offers_came(
        &mut self,
        lane: LaneId,
        frame: &OfferFrame<'_>,
    ) -> Result<(), Fault> {
        let Some((terms, key)) = self.offer_check.clone() else {
            return Err(LaneFault::Protocol("offers that were not agreed on").into());
        };
        let Some(flow) = self.flow_of(frame.flow)?.filter(|flow| !flow.send.is_over) else {
            return Ok(());
        };
        is_at_home(flow, lane)?;
        let home = flow.home;
        let send = &mut flow.send;
        let expectations = send
            .expectations
            .get_or_insert_with(|| Box::new(Expectations::new(terms, key)));
        let (kept, counted) = (expectations.kept(), expectations.counters);
        let taken = expectations.offered(frame);
        if send.by_sender || send.class == TrafficClass::Excluded {
            expectations.drop_all();
        }
        expectations.begins_at(send.counters.app_bytes);
        let answer = Frame::Withdrawn {
            flow: frame.flow,
            below: frame.withdrawn_below,
            offset: send.counters.app_bytes,
        };
        // Whatever is kept of refused ones goes with the flow.
        let now_kept = expectations.kept();
        let counted = expectations.counters.since(&counted);
        self.offers_kept = self.offers_kept + now_kept - kept;
        self.totals.offers_taken.add(&counted);
        let withdrawn = taken.map_err(|_| LaneFault::Protocol("offers that cannot be"))?;
        if self.offers_kept > OFFERS_LINK_MAX {
            return Err(LaneFault::Protocol("more offers than may be made").into());
        }
        if withdrawn {
            self.send_control(home, &answer);
        }
        Ok(())
    }

    /// The receiver of a flow that this end sends on expects elsewhere what it offered.
    pub(super) fn offers_moved(&mut self, lane: LaneId, id: FlowId, by: i64) -> Result<(), Fault> {
        if self.offer_check.is_none() {
            return Err(LaneFault::Protocol("offers that were not agreed on").into());
        }
        let Some(flow) = self.flow_of(id)?.filter(|flow| !flow.send.is_over) else {
            return Ok(());
        };
        is_at_home(flow, lane)?;
        if let Some(expectations) = &mut flow.send.expectations {
            expectations.moved(by);
        }
        Ok(())
    }

    /// The sender of a flow confirms what this end offered.
    pub(super) fn confirmation_came(
        &mut self,
        lane: LaneId,
        frame: &ConfirmFrame,
    ) -> Result<(), Fault> {
        self.flow_of(frame.flow)?;
        let len = usize::try_from(frame.len)
            .ok()
            .filter(|&len| len as u64 <= 2 * CREDIT_BYTES_MAX)
            .ok_or(LaneFault::Protocol("a confirmation beyond any credit"))?;
        let Some(state) = self.lanes.get_mut(&lane) else {
            return Ok(());
        };
        let strand = state.strand(frame.flow, self.config.flows_max)?;
        let offset = strand.locate(frame.offset, len);
        let Some(flow) = self.flows.get_mut(&frame.flow) else {
            return Ok(());
        };
        let is_next = flow.receive.admit(lane, offset, len)?;
        let (Some(predictions), Some(history)) = (&mut flow.receive.predictions, &mut self.history)
        else {
            return Err(LaneFault::Protocol("a confirmation of nothing").into());
        };
        let counted = predictions.counters;
        let chunks = match predictions.confirmed(frame, offset, history) {
            Ok(chunks) => chunks,
            Err(Unconfirmed::NotOffered) => {
                return Err(LaneFault::Protocol("a confirmation of what was not offered").into());
            }
            Err(Unconfirmed::Mismatch) => {
                predictions.distrust(frame, history);
                self.misconfirmed(frame.flow);
                return Ok(());
            }
        };
        self.totals
            .offers_made
            .add(&predictions.counters.since(&counted));
        self.place_confirmed(frame, offset, is_next, chunks);
        Ok(())
    }

    /// Delivers the chunks of a confirmed run.
    fn place_confirmed(
        &mut self,
        frame: &ConfirmFrame,
        offset: u64,
        is_next: bool,
        chunks: Vec<FoundChunk>,
    ) {
        let Some(flow) = self.flows.get_mut(&frame.flow) else {
            return;
        };
        let receive = &mut flow.receive;
        let mut elsewhere = Vec::new();
        let plain = match is_next {
            true => receive.bytes.next(),
            false => &mut elsewhere,
        };
        let from = plain.len();
        chunks
            .iter()
            .for_each(|chunk| plain.extend_from_slice(&chunk.bytes));
        if let Some(predictions) = &mut receive.predictions {
            predictions.placed(offset, chunks);
        }
        let frame_bytes = frame.wire_bytes();
        receive.counters.count_confirmed(frame.len, frame_bytes);
        self.totals.received.count_confirmed(frame.len, frame_bytes);
        self.early_runs -= receive.bytes.early_runs();
        if is_next {
            receive.bytes.appended(frame.len as usize);
            if from == 0 {
                self.events.push_back(Event::Readable(frame.flow));
            }
        } else {
            receive.bytes.keep(offset, elsewhere);
        }
        self.early_runs += receive.bytes.early_runs();
        if is_next {
            self.bytes_came(frame.flow, from);
        }
    }

    /// The flow's sender forgot offers that were withdrawn.
    pub(super) fn withdrawal_came(
        &mut self,
        lane: LaneId,
        id: FlowId,
        below: u64,
        offset: u64,
    ) -> Result<(), Fault> {
        self.flow_of(id)?
            .map_or(Ok(()), |flow| is_at_home(flow, lane))?;
        self.with_predictions(id, |predictions, history| {
            predictions.forgotten(below, offset, history);
        });
        Ok(())
    }

    /// The receiver of a flow says how often its chains break. Its sender takes the flow over
    /// if it can afford that (PACK, section 4.2).
    pub(super) fn dispersion_came(
        &mut self,
        lane: LaneId,
        id: FlowId,
        level: u8,
    ) -> Result<(), Fault> {
        let can_drive = self
            .caches
            .as_ref()
            .is_some_and(|caches| caches.sender.has_cache())
            && !self.effort.is_busy();
        let Some(flow) = self.flow_of(id)?.filter(|flow| !flow.send.is_over) else {
            return Ok(());
        };
        is_at_home(flow, lane)?;
        flow.send.dispersion = level;
        let by_sender = match flow.send.by_sender {
            true => level > DISPERSION_LOW,
            false => level >= DISPERSION_HIGH && can_drive,
        };
        if by_sender == flow.send.by_sender {
            return Ok(());
        }
        flow.send.by_sender = by_sender;
        let home = flow.home;
        let dropped = match &mut flow.send.expectations {
            Some(expectations) if by_sender => expectations.drop_all(),
            _ => 0,
        };
        self.offers_kept -= dropped;
        self.totals.flows_driven += u64::from(by_sender);
        let frame = Frame::Driven {
            flow: id,
            by_sender,
        };
        self.send_control(home, &frame);
        Ok(())
    }

    /// The sender of a flow drives it from now on, or does so no more.
    pub(super) fn driver_came(
        &mut self,
        lane: LaneId,
        id: FlowId,
        by_sender: bool,
    ) -> Result<(), Fault> {
        self.flow_of(id)?
            .map_or(Ok(()), |flow| is_at_home(flow, lane))?;
        self.with_predictions(id, |predictions, history| {
            predictions.driven(by_sender, history);
        });
        Ok(())
    }

    /// A flow is to be looked at again at `at`.
    pub(super) fn wake_flow(&mut self, at: Moment, id: FlowId) {
        match self.wake_ups.iter_mut().find(|(_, known)| *known == id) {
            Some((known, _)) => *known = at,
            None => self.wake_ups.push((at, id)),
        }
    }

    pub(super) fn wake_flows(&mut self, now: Moment) {
        let due: Vec<(Moment, FlowId)> =
            self.wake_ups.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, id) in due {
            self.queue_flow(id);
        }
    }

    pub(super) fn forget_predictions(&mut self, flow: &mut Flow) {
        if let Some(expectations) = &mut flow.send.expectations {
            self.offers_kept -= expectations.drop_all();
        }
        if let (Some(predictions), Some(history)) =
            (&mut flow.receive.predictions, &mut self.history)
        {
            let counted = predictions.counters;
            predictions.release(history);
            self.totals
                .offers_made
                .add(&predictions.counters.since(&counted));
        }
    }

    /// A confirmation did not hold: nothing of it was delivered, and the flow ends.
    fn misconfirmed(&mut self, id: FlowId) {
        self.totals.misconfirmed += 1;
        self.say_reset(id, RESET_MISCONFIRMED);
        self.end_flow(id, ResetReason::Misconfirmed);
    }

    fn with_predictions(
        &mut self,
        id: FlowId,
        call: impl FnOnce(&mut Predictions, &mut LinkHistory),
    ) {
        let (Some(history), Some(flow)) = (&mut self.history, self.flows.get_mut(&id)) else {
            return;
        };
        if let Some(predictions) = &mut flow.receive.predictions {
            let counted = predictions.counters;
            call(predictions, history);
            self.totals
                .offers_made
                .add(&predictions.counters.since(&counted));
            self.say_predictions(id);
        }
    }

    /// Tells the flow's sender what there is to tell.
    fn say_predictions(&mut self, id: FlowId) {
        let (Some(history), Some(flow)) = (&self.history, self.flows.get_mut(&id)) else {
            return;
        };
        let (Some(predictions), Some(key)) = (&mut flow.receive.predictions, history.key()) else {
            return;
        };
        let home = flow.home;
        let (mut control, mut bytes) = (Vec::new(), Vec::new());
        if let Some(by) = predictions.say_moved() {
            Frame::Moved { flow: id, by }.write(&mut control);
        }
        while let Some(said) = predictions.say(key) {
            bytes.clear();
            let frame = Frame::Offer(OfferFrame {
                flow: id,
                withdrawn_below: said.withdrawn_below,
                start: said.start,
                offers: OfferList::write(said.offers.into_iter(), &mut bytes),
            });
            frame.write(&mut control);
        }
        predictions.counters.offer_frame_bytes += control.len() as u64;
        self.totals.offers_made.offer_frame_bytes += control.len() as u64;
        if let Some(level) = predictions.say_dispersion() {
            Frame::Dispersion { flow: id, level }.write(&mut control);
        }
        if !control.is_empty()
            && let Some(state) = self.lanes.get_mut(&home)
        {
            state.control.append(&mut control);
            self.say_transmit(home);
        }
    }
}

/// What is said of a flow's predictions is said on its home lane: there it keeps its order, and
/// who floods a lane with it fills that lane with the answers.
fn is_at_home(flow: &Flow, lane: LaneId) -> Result<(), LaneFault> {
    match flow.home == lane {
        true => Ok(()),
        false => Err(LaneFault::Protocol("predictions on another lane")),
    }
}
