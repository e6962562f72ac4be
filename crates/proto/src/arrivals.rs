//! Whether loss holds up what comes on a lane.
//!
//! A connection that fills a slow link brings something every few milliseconds. One that lost
//! a segment brings nothing for a time-out, then all that waited behind it. In the middle of
//! a frame the sender surely has more to send, so a pause there that is far longer than usual
//! and than a round trip (a connection that has just begun pauses for that long) is a stall. A
//! single one that is not very long may be chance: a busy machine, a moment of radio.

use core::time::Duration;

use crate::moment::Moment;

/// Shorter pauses are no stalls, whatever is usual.
const STALL_MIN: Duration = Duration::from_millis(80);

/// A stall takes so many times as long as a usual pause.
const STALL_TIMES_USUAL: u32 = 6;

/// A stall so long, and so many times as long as usual, is loss by itself.
const LONG_STALL_MIN: Duration = Duration::from_millis(150);
const LONG_STALL_TIMES_USUAL: u32 = 20;

/// Nothing is usual before so many pauses were seen.
const PAUSES_MIN: u32 = 8;

/// Two stalls within so long are loss.
const STALLS_WITHIN: Duration = Duration::from_secs(5);

/// What is known of one lane's arrivals.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Since when the rest of a frame is awaited.
    waits_since: Option<Moment>,
    usual: Duration,
    pauses: u32,
    stalled_at: Option<Moment>,
}

impl Arrivals {
    /// Something came, and ended in the middle of a frame or not. Says whether it came after
    /// a stall that is taken for loss.
    pub(crate) fn came(&mut self, now: Moment, in_mid_frame: bool, round_trip: Duration) -> bool {
        let waited_since = self.waits_since.take();
        self.waits_since = in_mid_frame.then_some(now);
        let Some(since) = waited_since else {
            return false;
        };
        let pause = now.since(since);
        let limit = STALL_MIN
            .max(round_trip * 3 / 2)
            .max(self.usual * STALL_TIMES_USUAL);
        let is_stall = self.pauses >= PAUSES_MIN && pause >= limit;
        let is_long = pause >= LONG_STALL_MIN && pause >= self.usual * LONG_STALL_TIMES_USUAL;
        self.pauses = self.pauses.saturating_add(1);
        // What is always slow is no stall for long.
        let weight = if is_stall { 32 } else { 8 };
        self.usual = (self.usual * (weight - 1) + pause) / weight;
        if !is_stall {
            return false;
        }
        let earlier = self.stalled_at.replace(now);
        is_long || earlier.is_some_and(|at| now.since(at) < STALLS_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether arrivals with these pauses, in milliseconds, look like loss.
    fn is_loss(round_trip_ms: u64, pauses: impl IntoIterator<Item = u64>) -> bool {
        let mut arrivals = Arrivals::default();
        let mut now = Moment::default();
        pauses.into_iter().any(|pause| {
            now = now + Duration::from_millis(pause);
            arrivals.came(now, true, Duration::from_millis(round_trip_ms))
        })
    }

    #[test]
    fn stalls_are_told_from_slow_and_from_distant_links() {
        let lossy = (1..200).map(|n| if n % 50 == 0 { 200 } else { 1 });
        assert!(is_loss(20, lossy));
        assert!(!is_loss(20, [130; 500]), "1 Mbit/s, 16 KiB at a time");
        let slow_start = (1..100).map(|n| if n % 10 == 0 { 550 } else { 1 });
        assert!(!is_loss(600, slow_start));
        let once = |pause| (1..500).map(move |n| if n == 100 { pause } else { 4 });
        assert!(!is_loss(20, once(100)), "a single pause");
        assert!(is_loss(20, once(200)), "one as TCP makes it");
    }

    #[test]
    fn a_sender_that_has_nothing_to_send_is_not_held_up() {
        let mut arrivals = Arrivals::default();
        let mut now = Moment::default();
        for _ in 0..100 {
            now = now + Duration::from_millis(1);
            arrivals.came(now, true, Duration::ZERO);
            now = now + Duration::from_millis(1);
            arrivals.came(now, false, Duration::ZERO);
            now = now + Duration::from_secs(1);
            assert!(!arrivals.came(now, false, Duration::ZERO));
        }
    }
}
