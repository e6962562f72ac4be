//! Credit: how many plain bytes may be on their way to the readers at the other end.
//!
//! A receiver promises a *window* for all flows of a link's direction, and a *floor* for each of them. CREDIT says
//! how many bytes of a flow its reader has taken. So what waits at the receiver is bounded by the window and the
//! floors, and a slow reader stops its own flow and neither its lane nor the log (`docs/architecture.md`, 5).
//!
//! The sender shares the window out. What a flow has *outstanding*, written and not yet taken, beyond its floor is
//! its *excess*. A flow may send while its excess is less than what all flows together leave of the window: the
//! threshold of shared-memory switches (Choudhury and Hahne, *Dynamic Queue Length Thresholds*, 1998). One flow
//! takes half of the window at once, n flows an equal share each, and one that is idle takes nothing. Flows that are
//! not *proven* have at most half of the window together: without that, many readers that stand still would slow all
//! others down. A flow is proven while CREDIT comes, and not before its reader has taken more than kernels hold for a
//! reader that takes nothing. Until then it may have a multiple of what was taken, from a further eighth. The floor
//! keeps each flow moving, whatever the others hold.
//!
//! A peer of wire version 1 shares no window. It gives each flow a floor of its own with OPEN and ACCEPT, and its
//! CREDIT says how many more bytes may be sent: as many as were taken, or more, which widens the floor.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    fault::Violation,
    frame::{FlowId, LaneId},
    limits::{CREDIT_FLOOR_BYTES, FLOOR_BYTES_MAX},
    moment::Moment,
    planted::Bug,
};

/// What one flow of a peer that shares no window gets beyond the floor, at most: enough for 100 Mbit/s and 80 ms.
const LOAN_BYTES_MAX: u64 = 1 << 20;

/// A reader's bytes are reported in pieces of a quarter of what is outstanding, within these bounds. The lower one is
/// half of the floor, so that a flow that has nothing but the floor keeps moving; the upper one lets a slow reader
/// count as one that reads.
const REPORT_BYTES_MIN: u64 = CREDIT_FLOOR_BYTES / 2;
const REPORT_BYTES_MAX: u64 = 256 << 10;

/// The window allows a writer so much or nothing, and wakes it for no less.
const WAKE_BYTES: u64 = REPORT_BYTES_MIN;

/// A flow is proven for so many round trips after a CREDIT, within these bounds: threads of a machine that is busy
/// pause for longer than a round trip on loopback, and a peer that delays its answers must not make it long.
const PROVEN_ROUND_TRIPS: u32 = 3;
const PROVEN_MIN: Duration = Duration::from_millis(50);
const PROVEN_MAX: Duration = Duration::from_secs(2);

/// What a reader has taken before CREDIT proves its flow: more than the kernels of an application and of its gateway hold,
/// which count as taken. Measured for a client that reads nothing, with Linux's default buffers: 250 KB.
const PROVEN_BYTES: u64 = 512 << 10;

/// Where flows that are not proven have used up their half, each may have so many times what its reader has taken.
const EARNED: u64 = 4;

/// How long a CREDIT proves a flow.
fn proof_lasts(round_trip: Duration) -> Duration {
    (round_trip * PROVEN_ROUND_TRIPS).clamp(PROVEN_MIN, PROVEN_MAX)
}

/// The sender's side of one flow's credit.
#[derive(Debug)]
pub(crate) struct SendCredit {
    floor_bytes: u64,
    /// Plain bytes that the application wrote.
    written_bytes: u64,
    /// Those of them that the reader has taken, as far as it is known.
    taken_bytes: u64,
    /// When a CREDIT came last.
    heard_at: Moment,
    /// Whether one came within the last round trips, and the reader has taken enough.
    is_proven: bool,
    /// Where its writer stands among those that wait.
    waits_at: Option<u64>,
}

/// The sender's side of a direction: the window, shared out.
#[derive(Debug, Default)]
pub(crate) struct SendWindow {
    /// Whether the receiver has promised one.
    is_shared: bool,
    bytes: u64,
    /// The excess of all flows, those that are over here included.
    excess_bytes: u64,
    /// The excess of flows that are open and not proven.
    unproven_bytes: u64,
    /// Flows that are proven, and since when at least.
    proven: VecDeque<(Moment, FlowId)>,
    /// Writers that wait for the window, those with the least excess first.
    waiting: Waiting,
    /// Flows that are over here, of which the receiver may still hold more than the floor.
    over: BTreeMap<FlowId, (LaneId, SendCredit)>,
}

/// Writers by their flows' excess.
#[derive(Debug, Default)]
struct Waiting {
    proven: BTreeSet<(u64, FlowId)>,
    unproven: BTreeSet<(u64, FlowId)>,
}

/// The receiver's side of one flow's credit.
#[derive(Debug)]
pub(crate) struct ReceiveCredit {
    floor_bytes: u64,
    received_bytes: u64,
    /// Taken by the reader.
    taken_bytes: u64,
    /// Said to be taken.
    reported_bytes: u64,
    /// Said so on the flow's home lane, where it cannot be lost without the flow.
    reported_at_home_bytes: u64,
}

/// The receiver's side of a direction.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    /// What this end can hold beyond floors.
    bytes: u64,
    /// Whether the sender shares it out, by wire version 2, once that is known.
    is_shared: Option<bool>,
    excess_bytes: u64,
    /// What flows of a sender that does not have got of it.
    lent_bytes: u64,
}

impl Default for SendCredit {
    fn default() -> Self {
        Self {
            floor_bytes: CREDIT_FLOOR_BYTES,
            written_bytes: 0,
            taken_bytes: 0,
            heard_at: Moment::default(),
            is_proven: false,
            waits_at: None,
        }
    }
}

impl SendCredit {
    /// Plain bytes that were written, and that the reader has not taken, as far as it is known.
    pub(crate) fn outstanding(&self) -> u64 {
        self.written_bytes - self.taken_bytes
    }

    fn excess(&self) -> u64 {
        self.outstanding().saturating_sub(self.floor_bytes)
    }

    /// Plain bytes that the reader has taken, as far as it is known.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// How many bytes may be written whatever other flows have outstanding.
    pub(crate) fn floor_left(&self) -> u64 {
        let floor_bytes = match Bug::NoFloor.is_planted() {
            true => 0,
            false => self.floor_bytes,
        };
        floor_bytes.saturating_sub(self.outstanding())
    }

    /// The receiver widens the floor.
    pub(crate) fn widen(&mut self, bytes: u64) -> Result<(), Violation> {
        let floor = self.floor_bytes.saturating_add(bytes);
        if floor > FLOOR_BYTES_MAX {
            return Err(Violation::TooMuchCredit);
        }
        self.floor_bytes = floor;
        Ok(())
    }
}

impl Waiting {
    fn of(&mut self, is_proven: bool) -> &mut BTreeSet<(u64, FlowId)> {
        match is_proven {
            true => &mut self.proven,
            false => &mut self.unproven,
        }
    }
}

impl SendWindow {
    /// The receiver promises `bytes` for all flows.
    pub(crate) fn share(&mut self, bytes: u64) {
        self.is_shared = true;
        self.bytes = bytes;
    }

    /// Whether the receiver promised one: it speaks wire version 2.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// What all flows leave of the window.
    fn threshold(&self) -> u64 {
        self.bytes.saturating_sub(self.excess_bytes)
    }

    /// What flows that are not proven may still have together, whatever their readers took.
    fn unproven_left(&self) -> u64 {
        (self.bytes / 2).saturating_sub(self.unproven_bytes)
    }

    /// What a flow that is not proven may still have, since its reader took something.
    fn earned(&self, credit: &SendCredit) -> u64 {
        let earned = EARNED.saturating_mul(credit.taken_bytes);
        let left = (self.bytes / 8 * 5).saturating_sub(self.unproven_bytes);
        earned.saturating_sub(credit.excess()).min(left)
    }

    /// How many bytes of a flow may be written now, beside what is left of its floor.
    pub(crate) fn allowance(&self, credit: &SendCredit) -> u64 {
        // What it writes comes off what it may write, twice.
        let of_threshold = match Bug::WholeWindowForOne.is_planted() {
            true => self.threshold(),
            false => self.threshold().saturating_sub(credit.excess()) / 2,
        };
        let allowance = match credit.is_proven || Bug::UnprovenShareAll.is_planted() {
            true => of_threshold,
            false => of_threshold.min(self.unproven_left().max(self.earned(credit))),
        };
        // Half of what is left, again and again, would be many writes of a few bytes.
        match allowance {
            WAKE_BYTES.. => allowance,
            _ => 0,
        }
    }

    /// `bytes` of a flow were written.
    pub(crate) fn written(&mut self, credit: &mut SendCredit, bytes: usize) {
        self.change(credit, |credit| credit.written_bytes += bytes as u64);
    }

    /// CREDIT came for a flow, of which `unsent` bytes have not left. Returns whether it allows more than before.
    pub(crate) fn credited(
        &mut self,
        now: Moment,
        id: FlowId,
        credit: &mut SendCredit,
        bytes: u64,
        unsent: usize,
    ) -> Result<bool, Violation> {
        let floor_before = credit.floor_bytes;
        let sent_bytes = credit.written_bytes - unsent as u64;
        let taken_bytes = match self.is_shared {
            true if bytes > sent_bytes => return Err(Violation::TooMuchCredit),
            true => bytes,
            false => {
                let more = bytes.saturating_sub(sent_bytes - credit.taken_bytes);
                credit.widen(more)?;
                credit.taken_bytes + bytes - more
            }
        };
        // It may have overtaken a later one, on another lane.
        if taken_bytes <= credit.taken_bytes {
            return Ok(credit.floor_bytes > floor_before);
        }
        self.stop_waiting(id, credit);
        self.change(credit, |credit| credit.taken_bytes = taken_bytes);
        credit.heard_at = now;
        let is_enough = taken_bytes >= PROVEN_BYTES || Bug::OneCreditProves.is_planted();
        if !credit.is_proven && is_enough {
            self.unproven_bytes -= credit.excess();
            credit.is_proven = true;
            self.proven.push_back((now, id));
        }
        Ok(true)
    }

    /// CREDIT came for a flow that is over here.
    pub(crate) fn credited_over(&mut self, id: FlowId, bytes: u64) {
        let Some((_, credit)) = self.over.get_mut(&id) else {
            return;
        };
        let before = credit.excess();
        credit.taken_bytes = bytes.clamp(credit.taken_bytes, credit.written_bytes);
        let after = credit.excess();
        self.excess_bytes -= before - after;
        if after == 0 {
            self.over.remove(&id);
        }
    }

    /// A flow is over here; `unsent` bytes of it were written and never left. The receiver may hold the others
    /// until it says that it has let go of them.
    pub(crate) fn forget(
        &mut self,
        id: FlowId,
        home: LaneId,
        mut credit: SendCredit,
        unsent: usize,
    ) {
        self.stop_waiting(id, &mut credit);
        self.change(&mut credit, |credit| credit.written_bytes -= unsent as u64);
        if !credit.is_proven {
            self.unproven_bytes -= credit.excess();
        }
        if credit.excess() > 0 {
            self.over.insert(id, (home, credit));
        }
        if Bug::WindowFreedEarly.is_planted() {
            self.let_go(id);
        }
    }

    /// The receiver holds nothing more of a flow.
    pub(crate) fn let_go(&mut self, id: FlowId) {
        if let Some((_, credit)) = self.over.remove(&id) {
            self.excess_bytes -= credit.excess();
        }
    }

    /// The receiver has lost all flows whose home was `lane`.
    pub(crate) fn let_go_of_lane(&mut self, lane: LaneId) {
        let lost = self.over.extract_if(.., |_, (home, _)| *home == lane);
        self.excess_bytes -= lost.map(|(_, (_, credit))| credit.excess()).sum::<u64>();
    }

    /// Flows that are over here, of which the receiver may hold more than the floor.
    pub(crate) fn flows_over(&self) -> usize {
        self.over.len()
    }

    /// The next flow that may be proven no more: [`look_at_proof`](Self::look_at_proof) says whether it is.
    pub(crate) fn next_stale(&mut self, now: Moment, round_trip: Duration) -> Option<FlowId> {
        let lasts = match Bug::ProvenForEver.is_planted() {
            true => Duration::MAX,
            false => proof_lasts(round_trip),
        };
        let stale = self
            .proven
            .pop_front_if(|(since, _)| now.since(*since) >= lasts);
        stale.map(|(_, id)| id)
    }

    /// Finds out whether a flow is proven no more.
    pub(crate) fn look_at_proof(
        &mut self,
        now: Moment,
        round_trip: Duration,
        id: FlowId,
        credit: &mut SendCredit,
    ) {
        if now.since(credit.heard_at) < proof_lasts(round_trip) {
            self.proven.push_back((credit.heard_at, id));
            return;
        }
        let waited = credit.waits_at.is_some();
        self.stop_waiting(id, credit);
        credit.is_proven = false;
        self.unproven_bytes += credit.excess();
        if waited {
            self.wait(id, credit);
        }
    }

    /// Whether writers wait for readers that have taken something of late.
    pub(crate) fn holds_up_writers(&self) -> bool {
        !self.waiting.proven.is_empty()
    }

    /// A flow's writer waits until it may write more.
    pub(crate) fn wait(&mut self, id: FlowId, credit: &mut SendCredit) {
        self.stop_waiting(id, credit);
        let at = credit.excess();
        credit.waits_at = Some(at);
        self.waiting.of(credit.is_proven).insert((at, id));
    }

    /// A flow's writer waits no more.
    pub(crate) fn stop_waiting(&mut self, id: FlowId, credit: &mut SendCredit) {
        if let Some(at) = credit.waits_at.take() {
            self.waiting.of(credit.is_proven).remove(&(at, id));
        }
    }

    /// Writers that may go on, as far as what is free lasts. `writable` says how much a flow's writer may write, if it
    /// waits. One that may since its reader took something is woken by that CREDIT.
    pub(crate) fn to_wake(&self, writable: impl Fn(FlowId) -> u64) -> Vec<FlowId> {
        let threshold = self.threshold();
        let mut left = threshold;
        let (mut all_left, mut unproven_left) = (u64::MAX, self.unproven_left());
        let mut woken = Vec::new();
        for (waiting, class_left) in [
            (&self.waiting.proven, &mut all_left),
            (&self.waiting.unproven, &mut unproven_left),
        ] {
            for &(excess, id) in waiting {
                let may = threshold.saturating_sub(excess) / 2;
                if may.min(left).min(*class_left) < WAKE_BYTES {
                    break;
                }
                let writable = writable(id);
                if writable > 0 {
                    left = left.saturating_sub(writable);
                    *class_left = class_left.saturating_sub(writable);
                    woken.push(id);
                }
            }
        }
        woken
    }

    fn change(&mut self, credit: &mut SendCredit, change: impl FnOnce(&mut SendCredit)) {
        let before = credit.excess();
        change(credit);
        let after = credit.excess();
        self.excess_bytes = self.excess_bytes - before + after;
        if !credit.is_proven {
            self.unproven_bytes = self.unproven_bytes - before + after;
        }
    }
}

impl ReceiveWindow {
    /// A window of `bytes`, before the sender's hello.
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            is_shared: None,
            excess_bytes: 0,
            lent_bytes: 0,
        }
    }

    /// The sender's hello says whether it shares it out.
    pub(crate) fn is_shared(&mut self, is_shared: bool) {
        self.is_shared = Some(is_shared);
    }
}

impl ReceiveCredit {
    /// The credit of a new flow.
    pub(crate) fn new() -> Self {
        Self {
            floor_bytes: CREDIT_FLOOR_BYTES,
            received_bytes: 0,
            taken_bytes: 0,
            reported_bytes: 0,
            reported_at_home_bytes: 0,
        }
    }

    fn excess(&self) -> u64 {
        (self.received_bytes - self.reported_bytes).saturating_sub(self.floor_bytes)
    }

    /// Bytes that were reported as taken.
    pub(crate) fn reported_bytes(&self) -> u64 {
        self.reported_bytes
    }

    /// What OPEN or ACCEPT grants a new flow beyond its floor.
    pub(crate) fn lend(&mut self, window: &mut ReceiveWindow) -> u64 {
        if window.is_shared != Some(false) {
            return 0;
        }
        let loan = ((window.bytes - window.lent_bytes) / 32).min(LOAN_BYTES_MAX);
        window.lent_bytes += loan;
        self.floor_bytes += loan;
        loan
    }

    /// `bytes` came.
    pub(crate) fn received(
        &mut self,
        window: &mut ReceiveWindow,
        bytes: usize,
    ) -> Result<(), Violation> {
        let before = self.excess();
        let outstanding = self.received_bytes + bytes as u64 - self.reported_bytes;
        let after = outstanding.saturating_sub(self.floor_bytes);
        let excess_bytes = window.excess_bytes - before + after;
        let most = match window.is_shared {
            Some(true) => window.bytes,
            _ => 0,
        };
        if excess_bytes > most && !Bug::WindowWithoutBound.is_planted() {
            return Err(Violation::BlockBeyondCredit);
        }
        window.excess_bytes = excess_bytes;
        self.received_bytes += bytes as u64;
        Ok(())
    }

    /// Whether the reader has taken all that came.
    pub(crate) fn is_all_taken(&self) -> bool {
        self.taken_bytes == self.received_bytes
    }

    /// The reader took `bytes`. Says what CREDIT to send, if it is worth a frame: over the flow's home lane, or not.
    /// `is_last` says that nothing follows what has come, so that the sender waits for the window alone.
    pub(crate) fn taken(
        &mut self,
        window: &mut ReceiveWindow,
        bytes: usize,
        is_last: bool,
        is_home: bool,
    ) -> Option<u64> {
        let leak = if Bug::CreditLeak.is_planted() {
            bytes as u64 / 8
        } else {
            0
        };
        self.taken_bytes += bytes as u64 - leak;
        let outstanding = self.received_bytes - self.reported_bytes;
        let enough = (outstanding / 4).clamp(REPORT_BYTES_MIN, REPORT_BYTES_MAX);
        let is_awaited = !is_last || self.is_awaited_at_home();
        let news = self.taken_bytes - self.reported_bytes;
        (is_awaited && news >= enough).then(|| self.report(window, self.taken_bytes, is_home))
    }

    /// The flow is over here. Says what CREDIT to send over its home lane, if the sender may wait for it.
    pub(crate) fn forget(mut self, window: &mut ReceiveWindow) -> Option<u64> {
        let is_awaited = self.is_awaited_at_home();
        let report = self.report(window, self.received_bytes, true);
        window.lent_bytes -= self.floor_bytes - CREDIT_FLOOR_BYTES;
        is_awaited.then_some(report)
    }

    /// The last report, if it did not go over the flow's home lane.
    pub(crate) fn repeat_at_home(&mut self, window: &ReceiveWindow) -> Option<u64> {
        if window.is_shared != Some(true) {
            return None;
        }
        let before = core::mem::replace(&mut self.reported_at_home_bytes, self.reported_bytes);
        (before < self.reported_bytes).then_some(self.reported_bytes)
    }

    /// Whether the sender has excess, as far as it is sure to know.
    fn is_awaited_at_home(&self) -> bool {
        self.received_bytes - self.reported_at_home_bytes > self.floor_bytes
    }

    /// The CREDIT that says that `taken_bytes` were taken.
    fn report(&mut self, window: &mut ReceiveWindow, taken_bytes: u64, is_home: bool) -> u64 {
        let before = self.excess();
        let news = taken_bytes - self.reported_bytes;
        self.reported_bytes = taken_bytes;
        if is_home {
            self.reported_at_home_bytes = taken_bytes;
        }
        window.excess_bytes = window.excess_bytes - before + self.excess();
        match window.is_shared {
            Some(true) => taken_bytes,
            _ => news,
        }
    }
}

#[cfg(test)]
mod tests;
