//! What goes out on a lane: control before data, short flows before long ones, each in
//! turn.

use super::{Event, Link, WindowWait, keys_where, lanes::Lane};
use crate::{
    counters::{Count, LayerCounters},
    effort::{Effort, Written},
    flow::{Flow, SendHalf, Verdict, strand_on},
    frame::{FlowId, Frame, LaneId, LaneList, end_check},
    limited::LaneClock,
    limits::{
        BLOCK_BYTES_MAX, CONTROL_BYTES_MAX, PENDING_BYTES_MAX, WINDOW_WAIT_MAX, WINDOW_WAIT_MIN,
    },
    matching::sender::{Counted, Passage},
    mode::SecondStage,
    moment::Moment,
    planted::Bug,
    predictions::sender::Step,
    traffic::TrafficClass,
};
use refrain_codec::{marker::SamplingPeriod, matching::MatchingAlgorithm};

/// A lane is given about this much at a time, so that control never waits long; less where
/// blocks are shorter.
const TRANSMIT_BYTES: usize = 48 << 10;

/// The longest first block of a flow whose blocks grow: less than a new connection sends at once.
const FIRST_BLOCK_BYTES: usize = 8 << 10;

/// Blocks of short flows that go before a long one gets its turn.
const SHORT_TURNS: u32 = 4;

/// Flows of full entropy are matched this sparsely.
const SPARSE_PERIOD: SamplingPeriod = SamplingPeriod::MAX;

/// What became of an attempt to send a block.
enum Turn {
    Sent,
    Nothing,
    /// The window is full.
    Wait,
}

impl Link {
    /// Appends to `out` what `lane` shall send now; nothing if there is nothing.
    pub fn poll_transmit(&mut self, now: Moment, lane: LaneId, out: &mut Vec<u8>) {
        self.look_at_proven(now);
        let Some(state) = self.lanes.get_mut(&lane) else {
            return;
        };
        let start = out.len();
        state.transmit_said = false;
        out.append(&mut state.control);
        let carries = self
            .lanes
            .get(&lane)
            .is_some_and(|state| self.carries(state));
        if carries && self.fault.is_none() {
            self.acknowledge(now, lane, out);
            let lanes_own = self.lanes.get(&lane).and_then(|state| {
                // TLS makes one record of what is written at once, and nothing of a record is known before all of it came.
                let first = state.is_new().then_some(FIRST_BLOCK_BYTES);
                first.or(state.write_bytes_max)
            });
            let enough = TRANSMIT_BYTES
                .min(self.config.block_bytes_max)
                .min(lanes_own.unwrap_or(usize::MAX));
            while out.len() - start < enough {
                match self.send_next(now, lane, out) {
                    Turn::Sent => {}
                    Turn::Nothing | Turn::Wait => break,
                }
            }
            self.wake_writers(now);
        }
        let sent = (out.len() - start) as u64;
        self.counters.sent.link_bytes += sent;
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.sent_bytes += sent;
            state.is_writing = sent > 0;
        }
        let is_writing = self.lanes.values().any(|lane| lane.is_writing);
        self.look_at_held_up(now, !is_writing && self.send_window.holds_up_writers());
        // What is left waits for this lane now. Others may have looked before it was busy.
        self.offer_to_idle_lane(lane);
    }

    /// Reports that the transport took what [`poll_transmit`](Self::poll_transmit) gave, and how: effort is judged
    /// by it.
    pub fn transmitted(&mut self, now: Moment, lane: LaneId, mut written: Written) {
        // Each lane has its part of the link, and the time of all is counted once.
        written.link_time /= self.lanes_in_use();
        let Some(state) = self.lanes.get_mut(&lane) else {
            return;
        };
        state.is_writing = false;
        state.write_bytes_max = written.write_bytes_max;
        state.clock.waiting += written.waiting;
        state.clock.working += written.working;
        let plain_bytes = core::mem::take(&mut state.plain_bytes);
        let round_trip = self.smoothed_round_trip();
        let effort = self.effort.wrote(now, written, plain_bytes, round_trip);
        self.make(effort);
        if written.loses {
            self.send_control(lane, &Frame::Stalled);
            self.loss_seen(now, lane);
        }
        self.finish_if_spare(lane);
    }

    /// How many lanes send, at least one.
    fn lanes_in_use(&self) -> u32 {
        let sends = |lane: &&Lane| lane.is_writing || lane.has_queued_flows();
        (self.lanes.values().filter(sends).count() as u32).max(1)
    }

    /// Counts the time in which writers waited for the receiver, and no lane had anything to send.
    pub(super) fn look_at_held_up(&mut self, now: Moment, is_held_up: bool) {
        let since = match is_held_up {
            true => {
                self.held_up_since.get_or_insert(now);
                return;
            }
            false => self.held_up_since.take(),
        };
        if let Some(since) = since {
            let round_trip = self.smoothed_round_trip();
            let effort = self.effort.held_up(now, now.since(since), round_trip);
            self.make(effort);
        }
    }

    /// Makes another effort from here on.
    fn make(&mut self, effort: Option<Effort>) {
        if let Some(effort) = effort {
            self.caches.sender.set_level(effort.level);
        }
    }

    pub(super) fn send_control(&mut self, lane: LaneId, frame: &Frame<'_>) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            frame.write(&mut state.control);
            self.say_transmit(lane);
        }
    }

    pub(super) fn queue_flow(&mut self, id: FlowId) {
        // The latest moment that is known here. Where nothing is heard, nothing waits either.
        let now = self.heard_at();
        let Some(flow) = self
            .flows
            .get_mut(&id)
            .filter(|flow| !flow.send.queued && flow.wants_lane())
        else {
            return;
        };
        flow.stirs(now);
        let (home, present) = (flow.home, flow.send.lane);
        let (may_leave, is_short) = (flow.may_leave_home(), flow.is_short());
        let lane = match self.is_lossy() {
            true if may_leave => self.lightest_lane(present),
            true => present,
            false if may_leave && is_short => self.lane_without_long_flows(home),
            false => home,
        };
        if let (Some(state), Some(flow)) = (self.lanes.get_mut(&lane), self.flows.get_mut(&id)) {
            flow.send.queued = true;
            flow.send.limits.lane_waits(lane, state.clock);
            if is_short {
                state.short_flows.push_back(id);
            } else {
                state.long_flows.push_back(id);
            }
            self.offer_to_idle_lane(lane);
            self.say_transmit(lane);
        }
    }

    pub(super) fn say_transmit(&mut self, lane: LaneId) {
        if let Some(state) = self.lanes.get_mut(&lane)
            && !core::mem::replace(&mut state.transmit_said, true)
        {
            self.events.push_back(Event::Transmit(lane));
        }
    }

    pub(super) fn say_transmit_all(&mut self) {
        for lane in keys_where(&self.lanes, Lane::has_queued_flows) {
            self.say_transmit(lane);
        }
    }

    /// A flow's writer may go on, if it waits for no more than its turn.
    pub(super) fn say_writable(&mut self, id: FlowId) {
        let others_wait = !self.held_writers.is_empty() && self.pending_bytes > 0;
        if others_wait || self.has_no_share(id) {
            self.hold_writer(id);
        } else {
            self.wake_writer(self.heard_at(), id);
        }
    }

    /// A writer waits for the whole link's pending bytes to become fewer.
    pub(super) fn hold_writer(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id)
            && flow.send.writer_waits
            && flow.send.held_at.is_none()
        {
            self.send_window.stop_waiting(id, &mut flow.send.credit);
            flow.send.held_at = Some(self.writers_held);
            self.held_writers.insert(self.writers_held, id);
            self.writers_held += 1;
        }
    }

    /// A writer waits for the window, if that is what stops it: an answer to its OPEN, or a turn of its lane, wakes
    /// it by itself.
    pub(super) fn wait_for_window(&mut self, id: FlowId) {
        let stopped_by_window =
            |flow: &&mut Box<Flow>| flow.accepted && flow.send.pending.len() < PENDING_BYTES_MAX;
        if let Some(flow) = self.flows.get_mut(&id).filter(stopped_by_window) {
            self.send_window.wait(id, &mut flow.send.credit);
        }
    }

    /// A writer's turn has come.
    fn wake_writer(&mut self, now: Moment, id: FlowId) {
        let Some(flow) = self
            .flows
            .get_mut(&id)
            .filter(|flow| flow.send.writer_waits)
        else {
            return;
        };
        if flow.writable_bytes(&self.send_window) == 0 {
            self.wait_for_window(id);
        } else {
            flow.send.writer_waits = false;
            // It did not rest while its writer waited.
            flow.send.drained_at = flow.send.drained_at.map(|at| at.max(now));
            self.send_window.stop_waiting(id, &mut flow.send.credit);
            self.events.push_back(Event::Writable(id));
        }
    }

    /// Whether a peer's requests have piled up more answers than it reads.
    pub(super) fn is_flooded(&self, lane: LaneId) -> bool {
        self.lanes
            .get(&lane)
            .is_some_and(|state| state.control.len() > CONTROL_BYTES_MAX)
    }

    /// Finds out which flows' readers have not taken anything of late.
    pub(super) fn look_at_proven(&mut self, now: Moment) {
        let round_trip = self.smoothed_round_trip();
        while let Some(id) = self.send_window.next_stale(now, round_trip) {
            if let Some(flow) = self.flows.get_mut(&id) {
                let credit = &mut flow.send.credit;
                self.send_window.look_at_proof(now, round_trip, id, credit);
            }
        }
    }

    /// Writers that the window held back, now that some of it is free.
    pub(super) fn wake_for_window(&mut self) {
        let (flows, window) = (&self.flows, &self.send_window);
        let writable = |id| {
            let flow = flows.get(&id);
            flow.filter(|flow| flow.send.writer_waits)
                .map_or(0, |flow| flow.writable_bytes(window) as u64)
        };
        for id in window.to_wake(writable) {
            self.say_writable(id);
        }
    }

    /// Writers that the whole link's pending bytes held back, as far as there is room for their shares.
    fn wake_writers(&mut self, now: Moment) {
        // Where nothing is pending, nothing that leaves wakes anybody later.
        let wakes_all = self.pending_bytes == 0;
        let mut free = self.free_bytes();
        while (wakes_all || self.share_of(free, 0) > 0)
            && let Some((_, id)) = self.held_writers.pop_first()
        {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.send.held_at = None;
                free -= self.share_of(free, 0).min(BLOCK_BYTES_MAX);
                self.wake_writer(now, id);
            }
        }
    }

    fn acknowledge(&mut self, now: Moment, lane: LaneId, out: &mut Vec<u8>) {
        let Some(state) = self.lanes.get_mut(&lane) else {
            return;
        };
        let speaks_anyway = !out.is_empty() || state.has_queued_flows();
        if !(state.ack_due).is_some_and(|due| due <= now || speaks_anyway) {
            return;
        }
        state.ack_due = None;
        let blocks = self.caches.receiver.blocks_applied(lane);
        if blocks > state.acked_blocks {
            state.acked_blocks = blocks;
            state.acked_at = now;
            state.unacked_bytes = 0;
            Frame::Ack { blocks }.write(out);
        }
    }

    /// Sends the next flow's next block, or its end.
    fn send_next(&mut self, now: Moment, lane: LaneId, out: &mut Vec<u8>) -> Turn {
        let may_help = |state: &Lane| !state.has_queued_flows() && self.takes_flows(state);
        if self.lanes.get(&lane).is_some_and(may_help)
            && let Some(id) = self.take_over()
            && let Some(state) = self.lanes.get_mut(&lane)
        {
            state.long_flows.push_back(id);
        }
        let Some(state) = self.lanes.get_mut(&lane) else {
            return Turn::Nothing;
        };
        let short = !state.short_flows.is_empty()
            && (state.short_turns < SHORT_TURNS || state.long_flows.is_empty());
        let queue = if short {
            &mut state.short_flows
        } else {
            &mut state.long_flows
        };
        let Some(&id) = queue.front() else {
            return Turn::Nothing;
        };
        if !self.flows.get(&id).is_some_and(|flow| flow.wants_lane()) {
            queue.pop_front();
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.send.queued = false;
            }
            return Turn::Sent;
        }
        if !self.caches.sender.has_room_for_a_block()
            && self
                .flows
                .get(&id)
                .is_some_and(|flow| !flow.send.pending.is_empty())
        {
            return Turn::Wait;
        }
        let len = match self.step(now, id, &[]) {
            Step::Send(len) => len.min(self.config.block_bytes_max),
            Step::Wait(until) => {
                self.wake_flow(until, id);
                self.unqueue(now, lane, id, short);
                self.say_writable(id);
                return Turn::Sent;
            }
            Step::Confirm {
                first,
                count,
                len,
                digest,
            } => {
                self.send_confirm(now, (lane, id), (first, count, digest), len, out);
                0
            }
        };
        if len > 0
            && let Some(flow) = self.flows.get(&id)
        {
            let (len, is_secret) = flow.send.pending.alike(len);
            let (verdict, len) = self.next_block(lane, flow, len);
            let passage = match is_secret && !Bug::SecretsAreOrdinary.is_planted() {
                true => Some(Passage::Secret {
                    is_marked: self.peer_knows_secret_blocks,
                }),
                false => self.passage(now, lane, id, verdict.class, len),
            };
            let Some(passage) = passage else {
                return Turn::Wait;
            };
            self.send_block(now, (lane, id), verdict, passage, len, out);
        }
        self.unqueue(now, lane, id, short);
        if let Some(flow) = self.flows.get(&id)
            && flow.send.ending
            && flow.send.pending.is_empty()
            && !flow.send.is_over
        {
            self.say_end(id, lane, out);
        }
        self.queue_flow(id);
        self.say_writable(id);
        self.forget_if_gone(id);
        Turn::Sent
    }

    /// A flow's next block, of at most `len` bytes. A receiver has nothing of a block before it has all of it. So the
    /// blocks of a flow on a new lane double from a short one, and content that does not compress is not sent in
    /// blocks that are long for the lane, behind which others wait.
    fn next_block(&self, lane: LaneId, flow: &Flow, len: usize) -> (Verdict, usize) {
        let verdict = flow.judge_next(&flow.send.pending[..len]);
        let Some(state) = self.lanes.get(&lane) else {
            return (verdict, len);
        };
        let is_compressible = matches!(
            verdict.class,
            TrafficClass::Ordinary | TrafficClass::Unknown
        );
        if is_compressible && !state.is_new() {
            return (verdict, len);
        }
        let fits = state.write_bytes_max.unwrap_or(usize::MAX);
        let sent = usize::try_from(flow.send.counters.app_bytes).unwrap_or(usize::MAX);
        let longest = fits.min(sent).max(FIRST_BLOCK_BYTES);
        match len > longest {
            // The other end judges the block as it comes.
            true => (flow.judge_next(&flow.send.pending[..longest]), longest),
            false => (verdict, len),
        }
    }

    /// Takes `id`, which had its turn, from the front of its queue.
    fn unqueue(&mut self, now: Moment, lane: LaneId, id: FlowId, short: bool) {
        let mut clock = LaneClock::default();
        if let Some(state) = self.lanes.get_mut(&lane) {
            clock = state.clock;
            let queue = if short {
                &mut state.short_flows
            } else {
                &mut state.long_flows
            };
            queue.pop_front();
            state.short_turns = if short { state.short_turns + 1 } else { 0 };
        }
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.send.queued = false;
            flow.send.limits.lane_came(now, lane, clock);
        }
    }

    /// Says that a flow's direction is over, behind the last block of each of its strands.
    fn say_end(&mut self, id: FlowId, lane: LaneId, out: &mut Vec<u8>) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        flow.send.is_over = true;
        if let Some(expectations) = &mut flow.send.expectations {
            self.offers_kept -= expectations.drop_all();
        }
        let home = flow.home;
        let plain_bytes = flow.send.counters.app_bytes;
        let strands: Vec<LaneId> = flow.send.strands.iter().map(|&(on, _)| on).collect();
        let further = strands.iter().copied().filter(|&on| on != home);
        let mut listed = Vec::new();
        let end = Frame::End {
            flow: id,
            plain_bytes,
            check: end_check(id, plain_bytes),
            lanes: LaneList::write(further, &mut listed),
        };
        for on in strands {
            if on == lane {
                end.write(out);
            } else {
                self.send_control(on, &end);
            }
        }
    }

    /// How a block of `len` bytes may travel now; `None` while it shall wait.
    fn passage(
        &mut self,
        now: Moment,
        lane: LaneId,
        id: FlowId,
        class: TrafficClass,
        len: usize,
    ) -> Option<Passage> {
        let period = self.period_for(class);
        let caches = &mut self.caches;
        let compress = class == TrafficClass::Ordinary
            && self.config.mode.compresses()
            && self.config.second_stage == SecondStage::Zstd;
        let Some(geometry) = caches
            .send_geometry
            .filter(|_| !matches!(class, TrafficClass::Excluded(_)))
        else {
            return Some(Passage::Bypassed { compress });
        };
        let head = caches.sender.books().head();
        if class == TrafficClass::FullEntropy && !self.unproven.admits(head, len, geometry) {
            // It is not worth what it would push out, unless it repeats something.
            let plain = &self.flows.get(&id)?.send.pending[..len];
            caches.sender.set_period(period);
            if !caches.sender.repeats(lane, plain) {
                return Some(Passage::Bypassed { compress });
            }
        }
        let done = caches.sender.books().done();
        if caches.sender.books().has_room(len) {
            // A shorter block than the one that waits ends its wait only once something was applied.
            self.window_wait = self.window_wait.filter(|wait| wait.done == done);
            return Some(Passage::Logged { compress });
        }
        match self.window_wait {
            Some(wait) if wait.done == done => {
                (now >= self.window_wait_ends(wait)).then_some(Passage::Bypassed { compress })
            }
            _ => {
                self.window_wait = Some(WindowWait {
                    done,
                    since: now,
                    has_ended: false,
                });
                None
            }
        }
    }

    /// How densely a block is sampled.
    fn period_for(&self, class: TrafficClass) -> SamplingPeriod {
        // The configured period is the densest: it has sized the tables.
        let configured = self.config.markers.period();
        match self.config.matching {
            // Chunks are the same only while they are cut the same.
            MatchingAlgorithm::ChunkMatch => configured,
            MatchingAlgorithm::MaxMatch if class == TrafficClass::FullEntropy => {
                SPARSE_PERIOD.max(configured)
            }
            MatchingAlgorithm::MaxMatch => self.effort.effort().period().max(configured),
        }
    }

    /// When blocks stop waiting for a full window and go bypassed.
    pub(super) fn window_wait_ends(&self, wait: WindowWait) -> Moment {
        // An acknowledgement that waits behind blocks takes longer than a ping.
        let round_trips = 2 * self.smoothed_round_trip();
        wait.since + round_trips.clamp(WINDOW_WAIT_MIN, WINDOW_WAIT_MAX)
    }

    fn send_block(
        &mut self,
        now: Moment,
        (lane, id): (LaneId, FlowId),
        verdict: Verdict,
        passage: Passage,
        len: usize,
        out: &mut Vec<u8>,
    ) {
        let class = verdict.class;
        let period = self.period_for(class);
        let caches = &mut self.caches;
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        caches.sender.set_period(period);
        // What answers what is excluded is to be kept out as well.
        flow.sent(verdict, len);
        let row = self.targets.row(&flow.target);
        let mut counted = LayerCounters::default();
        let offset = flow.send.counters.app_bytes;
        let SendHalf {
            strands, pending, ..
        } = &mut flow.send;
        let known_strands = strands.len();
        let sent = caches.sender.send(
            lane,
            id,
            Counted { row, class },
            offset,
            &pending[..len],
            passage,
            strand_on(strands, lane),
            out,
            &mut counted,
        );
        self.counters.events.strands_added += (strands.len() - known_strands) as u64;
        flow.send.pending.take(len);
        flow.send.drained_at = flow.send.pending.is_empty().then_some(now);
        flow.send.lane = lane;
        self.pending_bytes -= len;
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.plain_bytes += len;
        }
        flow.send.counters.add(&counted);
        let cache = self.caches.send_geometry.map_or(0, |it| it.cache_bytes());
        flow.send.missed.add(&match class {
            // It may fill half of the cache.
            TrafficClass::FullEntropy => sent.missed.of_half_caches(),
            _ => sent.missed.beyond(cache as u64),
        });
        flow.send.limits.sent(now, flow.send.counters.app_bytes);
        if let (Some(at), TrafficClass::FullEntropy) = (sent.at, class) {
            let unproven_bytes = len as u64 - counted.region_bytes;
            self.unproven.add(id, at, len, unproven_bytes);
        }
        if let Some(source) = sent.longest_source {
            self.unproven.prove(source);
        }
    }
}
