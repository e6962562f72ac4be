//! What limits a flow: how long its sending waited, and for what.
//!
//! A flow's sender waits for one of four: for its reader, which takes slowly what has come; for credit, while the
//! reader keeps up and the window is too small for the path, or other flows have it; for the link, whose sockets are
//! full; for the processor, which matches, compresses and encrypts. The rest of its age it had nothing to send.

use core::time::Duration;

use crate::{counters::WaitCounters, frame::LaneId, moment::Moment};

/// How long a flow waited for each. Bytes that wait for their lane count as waiting for the link or the processor,
/// as the lane spent its time meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitedBy {
    /// Its reader at the other end.
    pub reader: Duration,
    /// Credit of the link's window.
    pub credit: Duration,
    /// The sockets of its lanes.
    pub link: Duration,
    /// This end's processor.
    pub processor: Duration,
}

/// How long a lane has waited for its socket, and worked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneClock {
    pub(crate) waiting: Duration,
    pub(crate) working: Duration,
}

/// A reader is slow if it takes bytes so many round trips after they were sent, and not sooner than this.
const SLOW_READER_ROUND_TRIPS: u32 = 2;
const SLOW_READER_MIN: Duration = Duration::from_millis(50);

/// Finds out what limits one flow's sending.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    counted: LimitedBy,
    /// When its writer began to wait for the window.
    writer_waits: Option<Moment>,
    /// The lane that its bytes wait for, and its clock when that began.
    lane_waits: Option<(LaneId, LaneClock)>,
    /// When its lane had all of its bytes.
    all_sent_at: Moment,
    /// The end of a block that was sent then, until the reader has taken it.
    probe: Option<(u64, Moment)>,
    /// How long it took for the last such block.
    reader_took: Duration,
}

impl Limits {
    /// What was counted up to now, the present wait for the window included.
    pub(crate) fn counted(&self, now: Moment, round_trip: Duration) -> LimitedBy {
        let mut counted = self.counted;
        self.count_writer(now, round_trip, &mut counted);
        counted
    }

    /// What was counted, without a present wait.
    pub(crate) fn waits(&self) -> WaitCounters {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        WaitCounters {
            reader_us: us(self.counted.reader),
            credit_us: us(self.counted.credit),
            link_us: us(self.counted.link),
            processor_us: us(self.counted.processor),
        }
    }

    /// Bytes wait for `lane`, whose clock says this.
    pub(crate) fn lane_waits(&mut self, lane: LaneId, clock: LaneClock) {
        self.lane_waits.get_or_insert((lane, clock));
    }

    /// `lane` took them. What they waited for another is not counted.
    pub(crate) fn lane_came(&mut self, now: Moment, lane: LaneId, clock: LaneClock) {
        if let Some((_, before)) = self
            .lane_waits
            .take_if(|(waited_for, _)| *waited_for == lane)
        {
            self.counted.link += clock.waiting.saturating_sub(before.waiting);
            self.counted.processor += clock.working.saturating_sub(before.working);
        }
        self.lane_waits = None;
        self.all_sent_at = now;
    }

    /// No bytes wait for a lane any more, or they wait for another.
    pub(crate) fn no_lane_waits(&mut self) {
        self.lane_waits = None;
    }

    /// A block that ends at the offset `end` was sent.
    pub(crate) fn sent(&mut self, now: Moment, end: u64) {
        self.probe.get_or_insert((end, now));
    }

    /// The reader has taken all before the offset `taken`.
    pub(crate) fn reader_took(&mut self, now: Moment, taken: u64) {
        if let Some((_, sent_at)) = self.probe.take_if(|(end, _)| *end <= taken) {
            self.reader_took = now.since(sent_at);
        }
    }

    /// The writer waits for the window.
    pub(crate) fn writer_waits(&mut self, now: Moment) {
        self.writer_waits.get_or_insert(now);
    }

    /// The writer may go on.
    pub(crate) fn writer_came(&mut self, now: Moment, round_trip: Duration) {
        let mut counted = self.counted;
        self.count_writer(now, round_trip, &mut counted);
        self.counted = counted;
        self.writer_waits = None;
    }

    fn count_writer(&self, now: Moment, round_trip: Duration, counted: &mut LimitedBy) {
        let Some(since) = self.writer_waits else {
            return;
        };
        if self.lane_waits.is_some() {
            // It waits for no longer than its bytes.
            return;
        }
        let waited = now.since(since.max(self.all_sent_at));
        let unread = self.probe.map_or(Duration::ZERO, |(_, at)| now.since(at));
        let is_slow = self.reader_took.max(unread)
            > (round_trip * SLOW_READER_ROUND_TRIPS).max(SLOW_READER_MIN);
        match is_slow {
            true => counted.reader += waited,
            false => counted.credit += waited,
        }
    }
}
