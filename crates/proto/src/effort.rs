//! Effort: how hard a sender tries, between the encoder's speed and the link's.
//!
//! A slow link gets all the effort, a saturated processor sheds it (EndRE, section 5.1,
//! adapts p to the server's load; ours adapts zstd's level as well). The caller reports
//! for each write how long encoding and sending took; once an interval the balance of
//! the two decides whether to climb or descend the [`LADDER`].

use core::{fmt, time::Duration};

use refrain_codec::marker::SamplingPeriod;

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
pub const LADDER: [Effort; 7] = [
    Effort {
        period_bytes: 256,
        level: -5,
    },
    Effort {
        period_bytes: 128,
        level: -1,
    },
    Effort {
        period_bytes: 64,
        level: 1,
    },
    Effort {
        period_bytes: 32,
        level: 3,
    },
    Effort {
        period_bytes: 32,
        level: 6,
    },
    Effort {
        period_bytes: 32,
        level: 9,
    },
    Effort {
        period_bytes: 32,
        level: 12,
    },
];

/// Where `auto` begins.
const FIRST_RUNG: usize = 3;

/// How often the balance is looked at.
const INTERVAL: Duration = Duration::from_millis(250);

/// A changed level ends a zstd frame and its history, so rungs are not climbed at whim.
const INTERVALS_BEFORE_CHANGE: u32 = 2;

/// How the effort is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EffortMode {
    /// By the balance of encoder and link.
    #[default]
    Auto,
    /// The most, whatever it costs.
    Max,
}

/// Why the effort is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffortReason {
    /// Nothing was measured yet.
    Start,
    /// The user pinned it.
    Pinned,
    /// The link was what took the time.
    LinkIsSlow,
    /// The encoder was what took the time.
    ProcessorIsBusy,
    /// Neither was.
    Balanced,
}

/// Chooses the rung.
#[derive(Debug)]
pub(crate) struct EffortControl {
    mode: EffortMode,
    rung: usize,
    reason: EffortReason,
    interval_began: Moment,
    encoding: Duration,
    sending: Duration,
    pressed: i32,
}

impl Effort {
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
            encoding: Duration::ZERO,
            sending: Duration::ZERO,
            pressed: 0,
        }
    }

    pub(crate) fn effort(&self) -> Effort {
        LADDER[self.rung]
    }

    pub(crate) fn reason(&self) -> EffortReason {
        self.reason
    }

    /// Takes one write's times; says the new effort if it changed.
    pub(crate) fn observe(
        &mut self,
        now: Moment,
        encoding: Duration,
        sending: Duration,
    ) -> Option<Effort> {
        if self.mode == EffortMode::Max {
            return None;
        }
        self.encoding += encoding;
        self.sending += sending;
        let interval = now.since(self.interval_began);
        if interval < INTERVAL {
            return None;
        }
        let (encoding, sending) = (self.encoding, self.sending);
        (self.encoding, self.sending, self.interval_began) = (Duration::ZERO, Duration::ZERO, now);
        if interval > 4 * INTERVAL {
            // The link was idle for most of it.
            return None;
        }
        let direction =
            if sending > 2 * encoding && encoding < interval / 3 && sending > interval / 4 {
                self.reason = EffortReason::LinkIsSlow;
                1
            } else if encoding > 2 * sending && encoding > interval / 2 {
                self.reason = EffortReason::ProcessorIsBusy;
                -1
            } else {
                self.reason = EffortReason::Balanced;
                0
            };
        self.pressed = if direction == 0 || direction != self.pressed.signum() {
            direction
        } else {
            self.pressed + direction
        };
        if self.pressed.unsigned_abs() < INTERVALS_BEFORE_CHANGE {
            return None;
        }
        self.pressed = 0;
        let rung = self
            .rung
            .saturating_add_signed(direction as isize)
            .min(LADDER.len() - 1);
        if rung == self.rung {
            return None;
        }
        self.rung = rung;
        Some(self.effort())
    }
}

impl fmt::Display for EffortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "nothing measured yet",
            Self::Pinned => "pinned by --effort max",
            Self::LinkIsSlow => "the link is slower than the encoder",
            Self::ProcessorIsBusy => "the encoder is slower than the link",
            Self::Balanced => "encoder and link keep pace",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(encoding_ms: u64, sending_ms: u64, writes: u32) -> (Effort, EffortReason) {
        let mut control = EffortControl::new(EffortMode::Auto);
        let mut now = Moment::default();
        for _ in 0..writes {
            let (encoding, sending) = (
                Duration::from_millis(encoding_ms),
                Duration::from_millis(sending_ms),
            );
            now = now + encoding + sending;
            control.observe(now, encoding, sending);
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
