//! Whether a lane is held up by loss rather than by the link's rate.
//!
//! A connection that fills a slow link moves on steadily, a few milliseconds at a time; a
//! connection that lost a segment stands still for a time-out and then moves a burst.
//! The lane's writes show which: a write that takes many times as long as usual, and
//! long in itself, is a stall.

use core::time::Duration;

use crate::moment::Moment;

/// Shorter waits are no stalls, whatever is usual.
const STALL_MIN: Duration = Duration::from_millis(80);

/// A stall takes so many times as long as a usual write.
const STALL_TIMES_USUAL: u32 = 6;

/// How often the balance is looked at.
const INTERVAL: Duration = Duration::from_millis(250);

/// A lane's stalls over the last interval.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    usual: Duration,
    interval_began: Moment,
    writing: Duration,
    stalled: Duration,
    held_up: bool,
}

impl Pressure {
    pub(crate) fn is_held_up(&self) -> bool {
        self.held_up
    }

    /// Takes the time of one write; says at the end of an interval whether the lane was held
    /// up in it, or as soon as it is.
    pub(crate) fn observe(&mut self, now: Moment, write: Duration) -> Option<bool> {
        self.writing += write;
        let is_stall = write >= STALL_MIN && write > self.usual * STALL_TIMES_USUAL;
        if is_stall {
            self.stalled += write;
            // What is always slow is no stall for long.
            self.usual = (self.usual * 31 + write) / 32;
        } else {
            self.usual = (self.usual * 7 + write) / 8;
        }
        let held_up = self.stalled > self.writing / 2 && self.stalled > INTERVAL / 4;
        // Flows that share a lane are not to wait for the end of an interval.
        let is_news = is_stall && held_up && !self.held_up;
        if now.since(self.interval_began) < INTERVAL && !is_news {
            return None;
        }
        (self.interval_began, self.writing, self.stalled) = (now, Duration::ZERO, Duration::ZERO);
        self.held_up = held_up;
        Some(held_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(writes: impl IntoIterator<Item = u64>) -> bool {
        let mut pressure = Pressure::default();
        let mut now = Moment::default();
        for milliseconds in writes {
            let write = Duration::from_millis(milliseconds);
            now = now + write + Duration::from_micros(100);
            pressure.observe(now, write);
        }
        pressure.is_held_up()
    }

    #[test]
    fn stalls_are_told_from_a_slow_link() {
        assert!(run((0..400).map(|write| if write % 10 == 0 {
            200
        } else {
            1
        })));
        assert!(!run((0..100).map(|_| 200)), "1 Mbit/s, 25 KB a write");
        assert!(!run((0..1000).map(|_| 2)));
    }
}
