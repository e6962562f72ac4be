//! One flow: an application's connection as this end of the link sees it.
//!
//! A flow has a home lane, the one that its OPEN went over. What one direction sends on one
//! lane is a *strand*: mostly there is one, on the home lane; where that is held up or busy there
//! are several, and the receiver puts their bytes in order. A strand ends with the flow's last
//! word (END, RESET, REFUSE) on its lane. What still comes of it after the flow is over here
//! is decoded, to keep the caches equal, and dropped; only the lane remembers it then.

use core::time::Duration;

use refrain_codec::{MissedRepeats, SourceCursor};

use crate::{
    counters::{Count, LayerCounters, LinkCounters},
    credit::{ReceiveCredit, SendCredit, SendWindow},
    format::{Compressed, Format},
    frame::LaneId,
    in_order::InOrder,
    limited::Limits,
    limits::PENDING_BYTES_MAX,
    moment::Moment,
    pending::PendingBytes,
    predictions::{receiver::Predictions, sender::Expectations},
    traffic::{Exclusion, TrafficClass, asks_for_gssapi, consents_to_gssapi},
};

/// State of a flow at one end.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) target: String,
    pub(crate) opened_here: bool,
    /// The target was reached, and the other end knows the flow whatever lane speaks of it.
    pub(crate) accepted: bool,
    pub(crate) opened_at: Moment,
    /// Where its OPEN went. ACCEPT, REFUSE, and a RESET after the END, go there alone.
    pub(crate) home: LaneId,
    pub(crate) send: SendHalf,
    pub(crate) receive: ReceiveHalf,
}

/// What this end sends on a flow.
#[derive(Debug, Default)]
pub(crate) struct SendHalf {
    /// Where the last block went, and the next one goes unless another lane is better.
    pub(crate) lane: LaneId,
    /// Lanes that blocks were sent on, the home lane always among them.
    pub(crate) strands: Vec<(LaneId, Strand)>,
    /// Plain bytes that wait for their lane.
    pub(crate) pending: PendingBytes,
    /// What of it waits at the other end, or is on its way there.
    pub(crate) credit: SendCredit,
    /// The application has finished; the end frame follows the pending bytes.
    pub(crate) ending: bool,
    /// The end has been said.
    pub(crate) is_over: bool,
    /// Whether the flow stands in a lane's queue.
    pub(crate) queued: bool,
    /// Whether a writer was told to wait and wants to hear when it may go on.
    pub(crate) writer_waits: bool,
    /// Where its writer stands among those that wait for the whole link.
    pub(crate) held_at: Option<u64>,
    pub(crate) class: TrafficClass,
    /// What the other end offered.
    pub(crate) expectations: Option<Box<Expectations>>,
    /// Plain bytes that it may be ahead of its reader while there are offers for it.
    pub(crate) predicted_ahead_max: Option<u64>,
    /// Whether this end drives the flow by itself, by matching alone.
    pub(crate) by_sender: bool,
    /// Dispersion, as the other end sees it.
    pub(crate) dispersion: u8,
    /// It began with a request to encrypt by GSSAPI.
    pub(crate) asked_for_gssapi: bool,
    pub(crate) counters: LayerCounters,
    pub(crate) compressed: Compressed,
    /// Repeats that a larger cache would have found.
    pub(crate) missed: MissedRepeats,
    /// When the last of what it had to send was sent, or its writer, which waited, could go on, if nothing has come since.
    pub(crate) drained_at: Option<Moment>,
    /// What it had sent when it last rested.
    bytes_before_rest: u64,
    pub(crate) limits: Limits,
}

/// What this end receives on a flow.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    pub(crate) bytes: InOrder,
    /// Lanes that this direction is known to travel on, the home lane always among them.
    pub(crate) lanes: Vec<LaneId>,
    /// Where the last block came, and credit for further ones goes.
    pub(crate) latest_lane: LaneId,
    pub(crate) credit: ReceiveCredit,
    /// What came, as its sender judged it.
    pub(crate) class: TrafficClass,
    /// It began with a request to encrypt by GSSAPI.
    pub(crate) asked_for_gssapi: bool,
    /// What this end expects, if it predicts.
    pub(crate) predictions: Option<Box<Predictions>>,
    /// All plain bytes of the direction, once its end has come.
    pub(crate) total_bytes: Option<u64>,
    /// Strands whose end has not come, once one has.
    pub(crate) ends_awaited: usize,
    /// The application has heard of the end.
    pub(crate) end_taken: bool,
    pub(crate) counters: LayerCounters,
    pub(crate) compressed: Compressed,
}

/// One direction of a flow on one lane, at either end.
#[derive(Debug, Default)]
pub(crate) struct Strand {
    /// Offset behind its last block, 0 before the first.
    end: u64,
    pub(crate) cursor: SourceCursor,
}

/// What a block is found to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) class: TrafficClass,
    asks_for_gssapi: bool,
    format: Option<Format>,
}

impl Verdict {
    /// Of a `block` after others of `class`. `is_asked` says that what came the other way asks for
    /// encryption by GSSAPI.
    fn of(class: TrafficClass, block: &[u8], is_first: bool, is_asked: bool) -> Self {
        let consents = is_first && is_asked && consents_to_gssapi(block);
        let class = match class {
            TrafficClass::Excluded(_) => class,
            _ if consents => TrafficClass::Excluded(Exclusion::Gssapi),
            _ => class.after(block),
        };
        Self {
            class,
            asks_for_gssapi: is_first && asks_for_gssapi(block),
            format: match class {
                TrafficClass::Excluded(_) => None,
                _ => Format::at(block),
            },
        }
    }

    /// Of a block whose flow is over here.
    pub(crate) fn without_flow(block: &[u8]) -> Self {
        Self::of(TrafficClass::Unknown, block, false, false)
    }
}

/// A flow counts as short until it has sent this much since it began, or last rested.
const SHORT_FLOW_BYTES: u64 = 64 << 10;

/// A flow has rested that had nothing to send for so long: a terminal, or a connection between two requests.
const REST: Duration = Duration::from_millis(100);

impl Flow {
    /// Whether blocks may go over other lanes than its home, where they may overtake ACCEPT. The opener would learn from
    /// those that it does not yet know to be excluded. Once it has taken some, it knows: they came behind the ACCEPT.
    pub(crate) fn may_leave_home(&self) -> bool {
        let excludes = self.send.class == TrafficClass::Excluded(Exclusion::Rule);
        let is_known = self.opened_here || !excludes || self.send.credit.taken_bytes() > 0;
        self.accepted && is_known
    }

    pub(crate) fn is_short(&self) -> bool {
        self.send.counters.app_bytes - self.send.bytes_before_rest < SHORT_FLOW_BYTES
    }

    /// It has something to send again.
    pub(crate) fn stirs(&mut self, now: Moment) {
        let drained_at = self.send.drained_at.take();
        if drained_at.is_some_and(|at| now.since(at) >= REST) {
            self.send.bytes_before_rest = self.send.counters.app_bytes;
        }
    }

    /// Adds what it counted to its link's counters. What it sent counts once it is delivered.
    pub(crate) fn count(&self, counters: &mut LinkCounters) {
        counters.received.layers.add(&self.receive.counters);
        counters.waits.add(&self.send.limits.waits());
        if let Some(expectations) = &self.send.expectations {
            counters.sent.predictions.add(&expectations.counters);
        }
        if let Some(predictions) = &self.receive.predictions {
            counters.received.predictions.add(&predictions.counters);
        }
    }

    pub(crate) fn new(
        now: Moment,
        home: LaneId,
        target: &str,
        opened_here: bool,
        excluded: bool,
    ) -> Self {
        let class = if excluded {
            TrafficClass::Excluded(Exclusion::Rule)
        } else {
            TrafficClass::Unknown
        };
        Self {
            target: target.to_owned(),
            opened_here,
            accepted: false,
            opened_at: now,
            home,
            send: SendHalf {
                lane: home,
                strands: vec![(home, Strand::default())],
                class,
                ..SendHalf::default()
            },
            receive: ReceiveHalf {
                bytes: InOrder::default(),
                lanes: vec![home],
                latest_lane: home,
                credit: ReceiveCredit::new(),
                class,
                asked_for_gssapi: false,
                predictions: None,
                total_bytes: None,
                ends_awaited: 0,
                end_taken: false,
                counters: LayerCounters::default(),
                compressed: Compressed::default(),
            },
        }
    }

    /// Keeps both directions out of caches and history from now on.
    pub(crate) fn exclude(&mut self, why: Exclusion) {
        for class in [&mut self.send.class, &mut self.receive.class] {
            if !matches!(class, TrafficClass::Excluded(_)) {
                *class = TrafficClass::Excluded(why);
            }
        }
        self.receive.stop_learning();
    }

    /// Judges the next `block` that this end sends.
    pub(crate) fn judge_next(&self, block: &[u8]) -> Verdict {
        let is_first = self.send.counters.app_bytes == 0;
        Verdict::of(
            self.send.class,
            block,
            is_first,
            self.receive.asked_for_gssapi,
        )
    }

    /// Judges a `block` that came, as its sender did; it lies at `offset`.
    pub(crate) fn judge_received(&self, offset: u64, block: &[u8]) -> Verdict {
        let asked = self.send.asked_for_gssapi;
        Verdict::of(self.receive.class, block, offset == 0, asked)
    }

    /// A block of `len` bytes was sent.
    pub(crate) fn sent(&mut self, verdict: Verdict, len: usize) {
        let compressed = &mut self.send.compressed;
        compressed.count(len, verdict.class, verdict.format);
        self.send.asked_for_gssapi |= verdict.asks_for_gssapi;
        self.send.class = verdict.class;
        if let TrafficClass::Excluded(why) = verdict.class {
            self.exclude(why);
        }
    }

    /// A block of `len` bytes came.
    pub(crate) fn received(&mut self, verdict: Verdict, len: usize) {
        let compressed = &mut self.receive.compressed;
        compressed.count(len, verdict.class, verdict.format);
        self.receive.asked_for_gssapi |= verdict.asks_for_gssapi;
        self.receive.class = verdict.class;
        if let TrafficClass::Excluded(why) = verdict.class {
            self.exclude(why);
        }
    }

    /// Both directions have ended, and its application knows and has taken all.
    pub(crate) fn is_gone(&self) -> bool {
        let receive = &self.receive;
        self.send.is_over && receive.is_over() && receive.end_taken && receive.credit.is_all_taken()
    }

    /// Plain bytes that a writer may hand over now.
    pub(crate) fn writable_bytes(&self, window: &SendWindow) -> usize {
        if self.send.ending || self.send.is_over {
            return 0;
        }
        // A target that is refused is not worth more than the floor.
        let of_window = match self.accepted {
            true => window.allowance(&self.send.credit),
            false => 0,
        };
        let of_window = match (&self.send.expectations, self.send.predicted_ahead_max) {
            (Some(expectations), Some(most)) if expectations.outstanding() > 0 => {
                of_window.min(most.saturating_sub(self.send.credit.outstanding()))
            }
            _ => of_window,
        };
        let allowance = self.send.credit.floor_left() + of_window;
        let allowance = usize::try_from(allowance).unwrap_or(usize::MAX);
        allowance.min(PENDING_BYTES_MAX.saturating_sub(self.send.pending.len()))
    }

    /// Whether the lane has something to send for it.
    pub(crate) fn wants_lane(&self) -> bool {
        let has_something = !self.send.pending.is_empty() || self.send.ending;
        has_something && !self.send.is_over
    }

    /// Whether anything of it depends on `lane`. Once a direction has ended, its receiver alone
    /// knows what is missing.
    pub(crate) fn travels_on(&self, lane: LaneId) -> bool {
        let (send, receive) = (&self.send, &self.receive);
        let sends_there = send.strands.iter().any(|&(on, _)| on == lane);
        self.home == lane
            || !send.is_over && sends_there
            || !receive.is_over() && receive.lanes.contains(&lane)
    }
}

/// The strand on `lane` among those of a direction, a new one if there is none.
pub(crate) fn strand_on(strands: &mut Vec<(LaneId, Strand)>, lane: LaneId) -> &mut Strand {
    let known = strands.iter().position(|&(on, _)| on == lane);
    let index = known.unwrap_or_else(|| {
        strands.push((lane, Strand::default()));
        strands.len() - 1
    });
    &mut strands[index].1
}

impl ReceiveHalf {
    /// All that the other end sent has come.
    pub(crate) fn is_over(&self) -> bool {
        self.total_bytes == Some(self.bytes.end())
    }

    /// What comes is to be kept out of the history.
    pub(crate) fn stop_learning(&mut self) {
        if let Some(predictions) = &mut self.predictions {
            predictions.stop();
        }
    }

    /// No more of it comes on `lane`.
    pub(crate) fn leaves(&mut self, lane: LaneId, home: LaneId) {
        self.lanes.retain(|&on| on != lane);
        if self.latest_lane == lane {
            self.latest_lane = home;
        }
    }

    pub(crate) fn travels_on_too(&mut self, lane: LaneId) {
        if !self.lanes.contains(&lane) {
            self.lanes.push(lane);
        }
    }
}

impl Strand {
    /// A block of `len` bytes at `offset` is sent; gives the offset if its frame has to name it.
    pub(crate) fn advance(&mut self, offset: u64, len: usize) -> Option<u64> {
        let end = core::mem::replace(&mut self.end, offset + len as u64);
        (end != offset).then_some(offset)
    }

    /// A block came whose frame names `offset` or does not; gives where it lies.
    pub(crate) fn locate(&mut self, offset: Option<u64>, len: usize) -> u64 {
        let offset = offset.unwrap_or(self.end);
        self.end = offset.saturating_add(len as u64);
        offset
    }
}
