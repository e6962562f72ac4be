//! This end's predictions: what it offers of the flows that the other end sends on, what the
//! history is asked for them, and what comes of it.

use super::{Event, Link, ResetReason, Role, keys_where};
use crate::{
    codes::reset,
    fault::{Fault, Violation},
    flow::Flow,
    frame::{ConfirmFrame, FlowId, Frame, LaneId, OfferFrame, OfferList},
    hello::Hello,
    limits::{FLOOR_BYTES_MAX, WINDOW_BYTES_MAX},
    moment::Moment,
    predictions::{
        history::{Found, FoundChunk, HistoryRequest},
        link_history::LinkHistory,
        offers::Unconfirmed,
        receiver::Predictions,
    },
    targets::{Carried, CarriedBytes},
    terms::OfferKey,
    traffic::TrafficClass,
};

impl Link {
    /// The next thing to ask of the history; poll after any call, as far as the history keeps
    /// up. Nothing ever comes if [`LinkConfig::history`](super::LinkConfig::history) is `None`.
    pub fn poll_history(&mut self) -> Option<HistoryRequest> {
        let history = self.history.as_mut()?;
        loop {
            let mut request = history.poll()?;
            let asker = request.wanted().map(|wanted| wanted.flow);
            if asker.is_none_or(|flow| self.flows.contains_key(&flow)) {
                return Some(request);
            }
            // Who asked is gone, which is common where the history is slow.
            if let HistoryRequest::Learn { follow, .. } = &mut request {
                *follow = None;
                return Some(request);
            }
        }
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
        // Flows that were opened before this was known.
        for id in keys_where(&self.flows, |flow| flow.receive.predictions.is_some()) {
            self.with_predictions(id, Predictions::peer_known);
        }
        let terms = hello.offers.filter(|_| self.config.mode.predicts());
        self.offer_check = terms.map(|terms| (terms, key));
    }

    /// A flow begins that this end may predict.
    pub(super) fn predict(&mut self, id: FlowId) {
        if let (Some(history), Some(flow)) = (&self.history, self.flows.get_mut(&id))
            && !matches!(flow.send.class, TrafficClass::Excluded(_))
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
            predictions.received(&receive.bytes.latest()[from..], history);
            if receive.total_bytes == Some(receive.bytes.end()) {
                predictions.finish(history);
            }
            self.say_predictions(id);
        }
    }

    /// All bytes of a flow have come.
    pub(super) fn all_came(&mut self, id: FlowId) {
        self.with_predictions(id, |predictions, history| predictions.finish(history));
    }

    /// The sender of a flow confirms what this end offered.
    pub(super) fn confirmation_came(
        &mut self,
        now: Moment,
        lane: LaneId,
        frame: &ConfirmFrame,
    ) -> Result<(), Fault> {
        self.flow_of(frame.flow)?;
        let len = usize::try_from(frame.len)
            .ok()
            .filter(|&len| len as u64 <= WINDOW_BYTES_MAX + FLOOR_BYTES_MAX)
            .ok_or(Violation::ConfirmationBeyondCredit)?;
        let Some(state) = self.lanes.get_mut(&lane) else {
            return Ok(());
        };
        let strand = state.strand(frame.flow, self.config.flows_max)?;
        let offset = strand.locate(frame.offset, len);
        let Some(flow) = self.flows.get_mut(&frame.flow) else {
            // Its sender has not heard of the flow's end.
            self.count_confirmation(now, lane, frame);
            return Ok(());
        };
        let is_next = flow
            .receive
            .admit(lane, offset, len, &mut self.receive_window)?;
        let (Some(predictions), Some(history)) = (&mut flow.receive.predictions, &mut self.history)
        else {
            return Err(Violation::EmptyConfirmation.into());
        };
        let chunks = match predictions.confirmed(frame, offset, history) {
            Ok(chunks) => chunks,
            Err(Unconfirmed::NotOffered) => {
                return Err(Violation::ConfirmationWithoutOffer.into());
            }
            Err(Unconfirmed::Mismatch) => {
                predictions.distrust(frame, history);
                self.count_confirmation(now, lane, frame);
                self.misconfirmed(frame.flow);
                return Ok(());
            }
        };
        self.count_confirmation(now, lane, frame);
        self.place_confirmed(frame, offset, is_next, chunks);
        Ok(())
    }

    /// A confirmation is counted as its sender does, whatever becomes of it.
    fn count_confirmation(&mut self, now: Moment, lane: LaneId, frame: &ConfirmFrame) {
        let frame_bytes = frame.wire_bytes();
        let mut flow = self.flows.get_mut(&frame.flow);
        let layers = match &mut flow {
            Some(flow) => &mut flow.receive.counters,
            None => &mut self.counters.received.layers,
        };
        layers.count_confirmed(frame.len, frame_bytes);
        let class = flow
            .as_ref()
            .map_or(TrafficClass::Unknown, |flow| flow.receive.class);
        let row = flow.map(|flow| self.targets.row(&flow.target));
        let received = CarriedBytes {
            app_bytes: frame.len,
            link_bytes: frame_bytes as u64,
        };
        let sent = CarriedBytes::default();
        let carried = Carried { sent, received };
        self.targets.count(row, class, &carried);
        if self.counts_confirmations {
            self.caches.receiver.count_confirmation(lane);
            self.acknowledge_soon(now, lane, 0);
        }
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
        let was_ready = receive.bytes.is_ready();
        let mut elsewhere = Vec::new();
        let plain = match is_next {
            true => (receive.bytes).next(frame.len as usize, &mut self.spare_pieces),
            false => &mut elsewhere,
        };
        let from = plain.len();
        chunks
            .iter()
            .for_each(|chunk| plain.extend_from_slice(&chunk.bytes));
        if let Some(predictions) = &mut receive.predictions {
            predictions.placed(offset, chunks);
        }
        self.early_runs -= receive.bytes.early_runs();
        if is_next {
            receive.bytes.appended(frame.len as usize);
            if !was_ready {
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

    pub(super) fn forget_predictions(&mut self, flow: &mut Flow) {
        if let Some(expectations) = &mut flow.send.expectations {
            self.offers_kept -= expectations.drop_all();
        }
        if let (Some(predictions), Some(history)) =
            (&mut flow.receive.predictions, &mut self.history)
        {
            predictions.release(history);
        }
    }

    /// A confirmation did not hold: nothing of it was delivered, and the flow ends.
    fn misconfirmed(&mut self, id: FlowId) {
        self.counters.events.misconfirmed += 1;
        self.say_reset(id, reset::MISCONFIRMED);
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
            call(predictions, history);
            self.say_predictions(id);
        }
    }

    /// Tells the flow's sender what there is to tell.
    fn say_predictions(&mut self, id: FlowId) {
        let (Some(history), Some(flow)) = (&self.history, self.flows.get_mut(&id)) else {
            return;
        };
        let (Some(predictions), true) = (&mut flow.receive.predictions, history.has_peer()) else {
            return;
        };
        let home = flow.home;
        let (mut control, mut bytes) = (Vec::new(), Vec::new());
        if let Some(by) = predictions.say_moved() {
            Frame::Moved { flow: id, by }.write(&mut control);
        }
        while let Some(said) = predictions.say(history) {
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
pub(super) fn is_at_home(flow: &Flow, lane: LaneId) -> Result<(), Violation> {
    match flow.home == lane {
        true => Ok(()),
        false => Err(Violation::PredictionOnAnotherLane),
    }
}
