//! The other end's predictions: what it offers of the flows that this end sends on, and what is
//! confirmed of them.

use super::{Link, predictions::is_at_home};
use crate::{
    fault::{Fault, Violation},
    flow::{SendHalf, strand_on},
    frame::{ConfirmFrame, FlowId, Frame, LaneId, OfferFrame},
    limits::{OFFERS_LINK_MAX, PREDICTED_AHEAD_BYTES_MAX},
    matching::sender::{Counted, Outstanding},
    moment::Moment,
    predictions::sender::{Expectations, Step, Waiting},
    terms::RunDigest,
    traffic::TrafficClass,
};

/// Above this dispersion a flow is better driven by its sender, and below the other by its
/// receiver.
const DISPERSION_HIGH: u8 = 96;
const DISPERSION_LOW: u8 = 24;

/// Confirmations that are written before the lane asks for them take no more than this.
const CONFIRMED_AHEAD_BYTES: usize = 16 << 10;

impl Link {
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
        if pending.has_secrets() {
            return Step::Send(bytes.len());
        }
        let kept = expectations.kept();
        if class.exclusion_at(bytes).is_some() {
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
            && *class == TrafficClass::Unknown
        {
            // The next bytes are not the flow's first.
            *class = class.after(&bytes[..len]);
        }
        self.offers_kept -= kept - expectations.kept();
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
        let mut is_news = taken > 0;
        while self.confirm(now, id, &[]).is_some() {
            is_news = true;
        }
        // Bytes that are held back are not looked at again for nothing.
        if is_news {
            self.queue_flow(id);
            self.say_writable(id);
        }
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
        // On a slow link all that leaves at once may be a short block.
        let ahead_max = CONFIRMED_AHEAD_BYTES.min(self.config.block_bytes_max / 2);
        let is_full = !self.caches.sender.has_room_for_a_block();
        if !state.is_up || is_full || state.control.len() >= ahead_max || self.is_lossy() {
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
        self.send_confirm(now, (lane, id), (first, count, digest), len, &mut frame);
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
        now: Moment,
        (lane, id): (LaneId, FlowId),
        (first, count, digest): (u64, u64, RunDigest),
        len: usize,
        out: &mut Vec<u8>,
    ) {
        let caches = &mut self.caches;
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
        flow.send.drained_at = flow.send.pending.is_empty().then_some(now);
        flow.send.lane = lane;
        self.pending_bytes -= waited;
        flow.send.counters.count_confirmed(len as u64, frame_bytes);
        let counted = Counted {
            row: self.targets.row(&flow.target),
            class: flow.send.class,
        };
        let confirmation = Outstanding::confirmation(len as u64, frame_bytes, counted);
        match self.counts_confirmations {
            true => caches.sender.confirm(lane, confirmation),
            // The other end will not say that it came.
            false => caches.sender.count(&confirmation, &mut self.targets),
        }
    }

    /// The receiver of a flow that this end sends on offers what it expects.
    pub(super) fn offers_came(
        &mut self,
        lane: LaneId,
        frame: &OfferFrame<'_>,
    ) -> Result<(), Fault> {
        let Some((terms, key)) = self.offer_check.clone() else {
            return Err(Violation::OffersNotAgreedOn.into());
        };
        let has_cache = self.caches.sender.has_cache();
        let Some(flow) = self.flow_of(frame.flow)?.filter(|flow| !flow.send.is_over) else {
            return Ok(());
        };
        is_at_home(flow, lane)?;
        let home = flow.home;
        let send = &mut flow.send;
        // With a cache, bytes that no offer replaces cost too little to wait for offers.
        send.predicted_ahead_max = (!has_cache).then_some(PREDICTED_AHEAD_BYTES_MAX);
        let expectations = send
            .expectations
            .get_or_insert_with(|| Box::new(Expectations::new(terms, key)));
        let kept = expectations.kept();
        let taken = expectations.offered(frame);
        if send.by_sender || matches!(send.class, TrafficClass::Excluded(_)) {
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
        self.offers_kept = self.offers_kept + now_kept - kept;
        let withdrawn = taken?;
        if self.offers_kept > OFFERS_LINK_MAX {
            return Err(Violation::TooManyOffers.into());
        }
        if withdrawn {
            self.send_control(home, &answer);
        }
        Ok(())
    }

    /// The receiver of a flow that this end sends on expects elsewhere what it offered.
    pub(super) fn offers_moved(&mut self, lane: LaneId, id: FlowId, by: i64) -> Result<(), Fault> {
        if self.offer_check.is_none() {
            return Err(Violation::OffersNotAgreedOn.into());
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

    /// The receiver of a flow says how often its chains break. Its sender takes the flow over
    /// if it can afford that (PACK, section 4.2).
    pub(super) fn dispersion_came(
        &mut self,
        lane: LaneId,
        id: FlowId,
        level: u8,
    ) -> Result<(), Fault> {
        let can_drive = self.caches.sender.has_cache() && !self.effort.is_busy();
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
        self.counters.events.flows_driven += u64::from(by_sender);
        let frame = Frame::Driven {
            flow: id,
            by_sender,
        };
        self.send_control(home, &frame);
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
}
