//! Effort: how hard a sender tries, between the encoder's speed and the link's.
//!
//! A slow link gets all the effort, a saturated processor sheds it (EndRE, section 5.1,
//! adapts p to the server's load; ours adapts zstd's level as well).
//!
//! The link is *hungry* while the processor works on a write and the lane's socket has nothing left to send, for as
//! much longer as that takes than the link needs for the bytes. While the socket is full, or the receiver is, the link
//! has *rest*. Each has a score that the other lowers (Page's cumulative sum, 1954). The score of hunger sheds a rung.
//! The score of rest climbs, at once to the highest rung that the encoder has time for, since each change ends a zstd
//! frame and its history. The cost of a rung is measured while it is used, and estimated from the one below before that.
//!
//! A lower rung saves zstd's time, not the matcher's. So hunger counts by zstd's share of the work, which follows from
//! plain bytes and written ones.
//!
//! The rate of each new connection doubles with each round trip, and says little of what the link can carry. While it
//! grows, half of the rest counts, and climbs end at the rung above the usual first one. It is left again as soon as the
//! rate leaves no time for it.
//!
//! The time of all lanes is counted on one clock: lanes share the processor and the way to the peer.

use core::time::Duration;

use refrain_codec::{marker::SamplingPeriod, names};

use crate::{moment::Moment, planted::Bug};

/// One rung: p and zstd's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Sampling period of the matcher, in bytes.
    pub period_bytes: u16,
    /// zstd's level; negative ones are its fast modes.
    pub level: i32,
}

/// From least to most.
pub(crate) const LADDER: [Effort; 7] = [
    Effort::new(256, -5),
    Effort::new(128, -1),
    Effort::new(64, 1),
    Effort::new(32, 3),
    Effort::new(32, 6),
    Effort::new(32, 9),
    Effort::new(32, 12),
];

/// Where `auto` begins, if nothing is known of the peer.
const FIRST_RUNG: usize = 3;

/// What a rung costs over the one below, before it was tried.
const COST_RATIOS: [f64; LADDER.len() - 1] = [1.15, 1.1, 1.5, 1.9, 1.4, 2.1];

/// What zstd costs for a byte that it writes, over what the matcher costs for a plain byte. Both from kernel tars and text,
/// with AVX-512.
const ZSTD_COSTS: [f64; LADDER.len()] = [5.0, 9.0, 13.0, 25.0, 65.0, 100.0, 230.0];

/// From this share of zstd's on, all of the time counts as hunger.
const ZSTD_SHARE: f64 = 0.4;

/// How much of the time that does not count as hunger is taken off it.
const UNSAVED_SHARE: f64 = 0.2;

/// What was measured on a rung above is believed within so many times what the present one suggests. The first blocks of
/// a link cost many times what later ones do, since the system clears memory for them, and other content, or a processor
/// that others use, changes the costs of all rungs. A rung that was shed is not measured again before.
const COST_BELIEVED: f64 = 2.0;

/// How long the link has to be hungry before a rung is shed, at least. A round trip, if that is longer: so long the
/// transport's window may be what leaves a socket empty.
const SHED_AFTER: Duration = Duration::from_millis(40);

/// How long it has to rest before one is climbed.
const CLIMB_AFTER: Duration = Duration::from_millis(100);

/// Shorter pauses between writes are not idle. A peer that answers so soon is near, or the processor is busy with
/// others: many small messages are as short of it as a long transfer.
const IDLE_MIN: Duration = Duration::from_millis(1);

/// The share of the time between bytes that the encoder may take on a rung that is climbed to.
const ENCODER_SHARE: f64 = 0.7;

/// That share while the transport's rate still grows: it doubles with the next round trip.
const ENCODER_SHARE_STARTING: f64 = ENCODER_SHARE / 2.0;

/// No higher rung is climbed to in that time: the encoder would soon hold the rate back itself.
const STARTING_RUNG_MAX: usize = FIRST_RUNG + 1;

/// A rung's cost is an average over about so many plain bytes.
const COST_BYTES: f64 = 512.0 * 1024.0;

/// A block that takes longer than so many times the usual waited for a processor, or for new memory. The rest of its
/// time does not count.
const COST_OUTLIER: f64 = 4.0;

/// A single write counts no more than this as hunger, or twice the usual if that is more.
const HUNGER_OF_WRITE_MAX: Duration = Duration::from_millis(10);

names! {
    /// How the effort is chosen.
    #[derive(Default)]
    pub enum EffortMode {
        /// By the balance of encoder and link.
        #[default]
        Auto = "auto",
        /// The least, whatever the link takes.
        Rung0 = "0",
        /// The second of seven, and so on.
        Rung1 = "1",
        /// See there.
        Rung2 = "2",
        /// See there.
        Rung3 = "3",
        /// See there.
        Rung4 = "4",
        /// See there.
        Rung5 = "5",
        /// The most, whatever it costs.
        Max = "max",
    }
}

names! {
    /// Why the effort is what it is.
    pub enum EffortReason {
        /// Nothing was measured yet.
        Start = "nothing measured yet",
        /// The user pinned it.
        Pinned = "pinned by --effort",
        /// The link was what took the time.
        LinkIsSlow = "the link is slower than the encoder",
        /// The encoder was what took the time.
        ProcessorIsBusy = "the encoder is slower than the link",
        /// Neither was.
        Balanced = "encoder and link keep pace",
    }
}

/// What a transport has left to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsent {
    /// Nothing.
    #[default]
    Nothing,
    /// Less than half of what it may hold: it says nothing of the link. Small messages leave some behind for a moment,
    /// however fast the link is.
    Little,
    /// Nothing, but packets wait on the path: the link is busy.
    OnPath,
    /// More.
    Plenty,
}

/// One write of a lane, as its task saw it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// How long the encoder took.
    pub encoding: Duration,
    /// How long the processor worked, encoding included.
    pub working: Duration,
    /// How long the transport kept it waiting after that.
    pub waiting: Duration,
    /// Bytes that it wrote.
    pub bytes: usize,
    /// What the transport had left to send before it got these bytes.
    pub unsent: Unsent,
    /// How long the link is busy with these bytes at least, as far as the rate of this lane is known.
    pub link_time: Duration,
    /// Whether the transport's rate still grows.
    pub is_starting: bool,
    /// Whether it is slow of late since segments were lost by chance.
    pub loses: bool,
    /// How many bytes the transport is best given at a time, at its rate, if that is known.
    pub write_bytes_max: Option<usize>,
}

/// Chooses the rung.
#[derive(Debug)]
pub(crate) struct EffortControl {
    mode: EffortMode,
    rung: usize,
    reason: EffortReason,
    /// Up to when time was counted.
    counted_until: Moment,
    hunger: Duration,
    rest: Duration,
    /// Plain bytes since `rest` began.
    rest_bytes: u64,
    /// While the transport's rate grows, the rung on which that began.
    starts_on: Option<usize>,
    /// Costs of rungs that were tried.
    costs: [Option<Cost>; LADDER.len()],
}

/// The measured cost of a rung.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Seconds of encoding for a plain byte.
    per_byte: f64,
    /// Plain bytes that this is the mean of, [`COST_BYTES`] at most.
    bytes: f64,
}

impl Effort {
    const fn new(period_bytes: u16, level: i32) -> Self {
        Self {
            period_bytes,
            level,
        }
    }

    /// The period as the codec wants it.
    #[must_use]
    pub fn period(self) -> SamplingPeriod {
        SamplingPeriod::new(self.period_bytes.into()).expect("the ladder's periods are valid")
    }
}

impl EffortControl {
    /// Begins on `rung`, or where `auto` begins.
    pub(crate) fn new(mode: EffortMode, rung: Option<usize>) -> Self {
        let pinned = |rung| (rung, EffortReason::Pinned);
        let (rung, reason) = match mode {
            EffortMode::Auto => (
                rung.unwrap_or(FIRST_RUNG).min(LADDER.len() - 1),
                EffortReason::Start,
            ),
            EffortMode::Rung0 => pinned(0),
            EffortMode::Rung1 => pinned(1),
            EffortMode::Rung2 => pinned(2),
            EffortMode::Rung3 => pinned(3),
            EffortMode::Rung4 => pinned(4),
            EffortMode::Rung5 => pinned(5),
            EffortMode::Max => pinned(LADDER.len() - 1),
        };
        Self {
            mode,
            rung,
            reason,
            counted_until: Moment::default(),
            hunger: Duration::ZERO,
            rest: Duration::ZERO,
            rest_bytes: 0,
            starts_on: None,
            costs: [None; LADDER.len()],
        }
    }

    pub(crate) fn rung(&self) -> usize {
        self.rung
    }

    pub(crate) fn effort(&self) -> Effort {
        LADDER[self.rung]
    }

    pub(crate) fn reason(&self) -> EffortReason {
        self.reason
    }

    /// Whether the processor has nothing to spare.
    pub(crate) fn is_busy(&self) -> bool {
        self.reason == EffortReason::ProcessorIsBusy
    }

    /// A write of `plain_bytes` has just ended. Says the new effort if it changed.
    pub(crate) fn wrote(
        &mut self,
        now: Moment,
        written: Written,
        plain_bytes: usize,
        round_trip: Duration,
    ) -> Option<Effort> {
        let mut hunger_max = HUNGER_OF_WRITE_MAX;
        if plain_bytes > 0 {
            let bytes = plain_bytes as f64;
            let per_byte = written.encoding.as_secs_f64() / bytes;
            match &mut self.costs[self.rung] {
                Some(known) => {
                    let usual = Duration::from_secs_f64(known.per_byte * bytes);
                    hunger_max = hunger_max.max(2 * usual);
                    known.learn(per_byte, bytes);
                }
                unknown => *unknown = Some(Cost { per_byte, bytes }),
            }
            self.rest_bytes += plain_bytes as u64;
        }
        let took = written.working + written.waiting;
        let counted = self.count(now, took);
        // It worked first: what another write covers already is work.
        let waiting = written.waiting.min(counted);
        let worked = counted - waiting;
        match written.unsent {
            Unsent::Nothing => {
                let link_time = match Bug::LinkTimeIsHunger.is_planted() {
                    true => Duration::ZERO,
                    false => written.link_time,
                };
                let starved = worked.saturating_sub(link_time).min(hunger_max);
                let ahead = link_time.saturating_sub(worked).min(worked);
                let zstd = self.share_of_zstd(plain_bytes, written.bytes);
                let share = match Bug::MatcherIsHunger.is_planted() {
                    true => 1.0,
                    false => (zstd / ZSTD_SHARE).min(1.0),
                };
                let unsaved = starved.mul_f64(UNSAVED_SHARE * (1.0 - share));
                self.hunger =
                    (self.hunger + starved.mul_f64(share)).saturating_sub(ahead + unsaved);
                self.rest = self.rest.saturating_sub(2 * starved);
            }
            Unsent::Little => {}
            Unsent::OnPath => self.hunger = self.hunger.saturating_sub(worked),
            Unsent::Plenty => self.rested(worked),
        }
        self.rested(waiting);
        let is_starting = written.is_starting && !Bug::RestWhileStarting.is_planted();
        self.starts_on = is_starting.then(|| self.starts_on.unwrap_or(self.rung));
        self.judge(round_trip)
    }

    /// How much of the work on so many plain bytes was zstd's, which wrote so many, about.
    fn share_of_zstd(&self, plain_bytes: usize, bytes: usize) -> f64 {
        let zstd = ZSTD_COSTS[self.rung] * bytes as f64;
        zstd / (zstd + plain_bytes as f64).max(1.0)
    }

    /// There was something to send in the last `time`, and nothing could be written: the receiver is slow.
    pub(crate) fn held_up(
        &mut self,
        now: Moment,
        time: Duration,
        round_trip: Duration,
    ) -> Option<Effort> {
        let counted = self.count(now, time);
        self.rested(counted);
        self.judge(round_trip)
    }

    /// How much of the last `time` was not counted before. Time between is idle, unless it is very short: a link that
    /// is hungry now and then is not short of anything.
    fn count(&mut self, now: Moment, time: Duration) -> Duration {
        let passed = now.since(self.counted_until);
        self.counted_until = self.counted_until.max(now);
        let idle = passed.saturating_sub(time);
        if idle >= IDLE_MIN {
            self.hunger = self.hunger.saturating_sub(idle);
        }
        match Bug::EachLaneHasAClock.is_planted() {
            true => time,
            false => passed.min(time),
        }
    }

    fn rested(&mut self, time: Duration) {
        self.rest += time;
        self.hunger = self.hunger.saturating_sub(time);
    }

    fn judge(&mut self, round_trip: Duration) -> Option<Effort> {
        if self.mode != EffortMode::Auto {
            return None;
        }
        let rung = if self.hunger >= SHED_AFTER.max(round_trip) {
            self.reason = EffortReason::ProcessorIsBusy;
            self.rung.saturating_sub(1)
        } else if self.rest >= CLIMB_AFTER {
            let rung = self.affordable();
            self.reason = if rung > self.rung || rung == LADDER.len() - 1 {
                EffortReason::LinkIsSlow
            } else {
                EffortReason::Balanced
            };
            rung
        } else {
            return None;
        };
        if self.reason == EffortReason::ProcessorIsBusy {
            self.hunger = Duration::ZERO;
        }
        (self.rest, self.rest_bytes) = (Duration::ZERO, 0);
        (core::mem::replace(&mut self.rung, rung) != rung).then(|| self.effort())
    }

    /// The highest rung for which the encoder has time: this one at least, or that on which the rate began to grow.
    fn affordable(&self) -> usize {
        let share = match self.starts_on {
            Some(_) => ENCODER_SHARE_STARTING,
            None => ENCODER_SHARE,
        };
        let cost_max = share * self.rest.as_secs_f64() / self.rest_bytes as f64;
        let mut cost = self.costs[self.rung].map_or(0.0, |cost| cost.per_byte);
        let mut rung = self.rung;
        let lowest = self.starts_on.unwrap_or(rung);
        while rung > lowest && cost > cost_max {
            rung -= 1;
            cost = self.costs[rung].map_or(cost / COST_RATIOS[rung], |known| known.per_byte);
        }
        if rung < self.rung {
            return rung;
        }
        let highest = match self.starts_on {
            Some(_) => STARTING_RUNG_MAX,
            None => LADDER.len() - 1,
        };
        while rung < highest {
            let expected = cost * COST_RATIOS[rung];
            let believed = |known: Cost| match Bug::FirstCostStays.is_planted() {
                true => known.per_byte,
                false => known
                    .per_byte
                    .clamp(expected / COST_BELIEVED, COST_BELIEVED * expected),
            };
            cost = self.costs[rung + 1].map_or(expected, believed);
            if cost > cost_max {
                break;
            }
            rung += 1;
        }
        rung
    }
}

impl Cost {
    /// Adds a block. The first ones are short, and take long for their bytes.
    fn learn(&mut self, per_byte: f64, bytes: f64) {
        let limited = per_byte.min(COST_OUTLIER * self.per_byte);
        self.bytes = (self.bytes + bytes).min(COST_BYTES);
        self.per_byte += (limited - self.per_byte) * (bytes / self.bytes).min(1.0);
    }
}

#[cfg(test)]
mod tests;
