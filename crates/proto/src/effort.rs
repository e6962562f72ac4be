//! Effort: how hard a sender tries, between the encoder's speed and the link's.
//!
//! A slow link gets all the effort, a saturated processor sheds it (EndRE, section 5.1,
//! adapts p to the server's load; ours adapts zstd's level as well). The caller reports
//! for each write how long the processor worked and how long the link kept it waiting; the
//! balance of the two decides whether to climb or descend the ladder.
//!
//! What is shed too soon costs a few bytes, what is shed too late costs time: so a short press
//! of the processor is enough to descend, and climbing takes a long one of the link.

use core::time::Duration;

use refrain_codec::{marker::SamplingPeriod, names};

use crate::moment::Moment;

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

/// Where `auto` begins.
const FIRST_RUNG: usize = 3;

/// How often the balance is looked at, at most.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long the processor has to be what takes the time before a rung is shed; half as long for
/// the next one. Socket buffers that have room hide a slow link for less than that.
const SHED_AFTER: Duration = Duration::from_millis(40);

/// How long the link has to be before one is climbed: a changed level ends a zstd frame and its
/// history, so rungs are not climbed at whim.
const CLIMB_AFTER: Duration = Duration::from_millis(500);

names! {
    /// How the effort is chosen.
    #[derive(Default)]
    pub enum EffortMode {
        /// By the balance of encoder and link.
        #[default]
        Auto = "auto",
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
        Pinned = "pinned by --effort max",
        /// The link was what took the time.
        LinkIsSlow = "the link is slower than the encoder",
        /// The encoder was what took the time.
        ProcessorIsBusy = "the encoder is slower than the link",
        /// Neither was.
        Balanced = "encoder and link keep pace",
    }
}

/// Chooses the rung.
#[derive(Debug)]
pub(crate) struct EffortControl {
    mode: EffortMode,
    rung: usize,
    reason: EffortReason,
    interval_began: Moment,
    working: Duration,
    waiting: Duration,
    /// For how long `reason` has been the same.
    pressed: Duration,
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
    pub(crate) fn new(mode: EffortMode) -> Self {
        let (rung, reason) = match mode {
            EffortMode::Auto => (FIRST_RUNG, EffortReason::Start),
            EffortMode::Max => (LADDER.len() - 1, EffortReason::Pinned),
        };
        Self {
            mode,
            rung,
            reason,
            interval_began: Moment::default(),
            working: Duration::ZERO,
            waiting: Duration::ZERO,
            pressed: Duration::ZERO,
        }
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

    /// Takes one write's times; says the new effort if it changed.
    pub(crate) fn observe(
        &mut self,
        now: Moment,
        working: Duration,
        waiting: Duration,
    ) -> Option<Effort> {
        if self.mode == EffortMode::Max {
            return None;
        }
        self.working += working;
        self.waiting += waiting;
        let interval = now.since(self.interval_began);
        if interval < INTERVAL {
            return None;
        }
        let reason = self.judge(interval);
        (self.working, self.waiting, self.interval_began) = (Duration::ZERO, Duration::ZERO, now);
        if reason != self.reason {
            self.pressed = Duration::ZERO;
        }
        self.reason = reason;
        self.pressed += interval;
        let rung = match reason {
            EffortReason::ProcessorIsBusy if self.pressed >= SHED_AFTER => {
                self.rung.saturating_sub(1)
            }
            EffortReason::LinkIsSlow if self.pressed >= CLIMB_AFTER => {
                (self.rung + 1).min(LADDER.len() - 1)
            }
            _ => return None,
        };
        self.pressed = match reason {
            EffortReason::ProcessorIsBusy => SHED_AFTER / 2,
            _ => Duration::ZERO,
        };
        if rung == self.rung {
            return None;
        }
        self.rung = rung;
        Some(self.effort())
    }

    /// What took the time. An idle link is neither slow nor busy.
    fn judge(&self, interval: Duration) -> EffortReason {
        let (working, waiting) = (self.working, self.waiting);
        if waiting > 2 * working && working < interval / 3 && waiting > interval / 4 {
            EffortReason::LinkIsSlow
        } else if working > 2 * waiting && working > interval / 2 {
            EffortReason::ProcessorIsBusy
        } else {
            EffortReason::Balanced
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(working_ms: u64, waiting_ms: u64, writes: u32) -> (Effort, EffortReason) {
        let mut control = EffortControl::new(EffortMode::Auto);
        let mut now = Moment::default();
        for _ in 0..writes {
            let (working, waiting) = (
                Duration::from_millis(working_ms),
                Duration::from_millis(waiting_ms),
            );
            now = now + working + waiting;
            control.observe(now, working, waiting);
        }
        (control.effort(), control.reason())
    }

    #[test]
    fn a_slow_link_gets_all_the_effort() {
        assert_eq!(
            run(1, 49, 500),
            (LADDER[LADDER.len() - 1], EffortReason::LinkIsSlow)
        );
    }

    #[test]
    fn a_busy_processor_sheds_it() {
        assert_eq!(run(49, 1, 500), (LADDER[0], EffortReason::ProcessorIsBusy));
    }

    #[test]
    fn effort_is_shed_sooner_than_it_is_taken_up() {
        let (kept, _) = run(1, 0, 39);
        assert_eq!(kept, LADDER[FIRST_RUNG], "buffers may hide a slow link");
        let (shed, _) = run(1, 0, 70);
        assert_eq!(shed, LADDER[FIRST_RUNG - 2]);
        let (climbed, _) = run(0, 1, 499);
        assert_eq!(climbed, LADDER[FIRST_RUNG], "not within half a second");
    }

    #[test]
    fn writes_that_take_seconds_on_a_very_slow_link_count() {
        let (effort, reason) = run(1, 5_000, 4);
        assert_eq!(
            (effort, reason),
            (LADDER[LADDER.len() - 1], EffortReason::LinkIsSlow)
        );
    }

    #[test]
    fn an_idle_link_stays_where_it_is() {
        let mut control = EffortControl::new(EffortMode::Auto);
        for second in 0..100 {
            let now = Moment(Duration::from_secs(second));
            let (working, waiting) = (Duration::from_millis(5), Duration::from_millis(50));
            assert_eq!(control.observe(now, working, waiting), None);
        }
    }

    #[test]
    fn balance_stays() {
        assert_eq!(run(20, 20, 500).0, LADDER[FIRST_RUNG]);
    }

    #[test]
    fn a_pinned_effort_stays() {
        let mut control = EffortControl::new(EffortMode::Max);
        let second = Duration::from_secs(1);
        assert_eq!(
            control.observe(Moment(second), second, Duration::ZERO),
            None
        );
        assert_eq!(control.effort(), LADDER[LADDER.len() - 1]);
    }
}
