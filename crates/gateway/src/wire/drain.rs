//! Empties the queue that a connection under BBR has made on the path.
//!
//! BBR (Cardwell et al., Queue 14-5, 2016) takes the highest rate of its last ten round trips for that of the path. An
//! acknowledgement that comes a millisecond late makes one of them seem 2 % too high: on the path of 10 Mbit/s on which
//! this was measured, 20 to 50 ms of packets then wait for good, and keystrokes on other lanes behind them. So a
//! connection that sees a queue sends more slowly until it is gone, for two round trips at most. The next ten are its
//! own. If others made the queue, it gives them no more than a twentieth of its rate.

use std::time::{Duration, Instant};

/// For how long it sends more slowly at most, and when it may again, in the shortest round trips.
const SLOW_ROUND_TRIPS: u32 = 2;
const NEXT_ROUND_TRIPS: u32 = 12;

/// How much it sends meanwhile, of its rate: as BBR does after it has looked for more.
const SLOW_SHARE: f64 = 0.75;

#[derive(Debug, Default)]
pub(super) struct Drain {
    /// When it is to send as it likes again. None while it does.
    until: Option<Instant>,
    /// When it last began.
    began: Option<Instant>,
}

impl Drain {
    /// The most bytes a second that the connection is to send from now on, if that changes: `u64::MAX` is no bound. It
    /// sends `rate` now, if that is known, and `is_queued` says whether packets wait on the path.
    pub(super) fn look(
        &mut self,
        now: Instant,
        round_trip: Duration,
        rate: Option<u64>,
        is_queued: bool,
    ) -> Option<u64> {
        if let Some(until) = self.until {
            if now < until && is_queued {
                return None;
            }
            self.until = None;
            return Some(u64::MAX);
        }
        let next = self
            .began
            .map(|began| began + NEXT_ROUND_TRIPS * round_trip);
        if !is_queued || next.is_some_and(|next| now < next) {
            return None;
        }
        let slow = rate? as f64 * SLOW_SHARE;
        self.began = Some(now);
        self.until = Some(now + SLOW_ROUND_TRIPS * round_trip);
        Some(slow as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    #[test]
    fn a_queue_is_answered_for_two_of_twelve_round_trips() {
        let (began, mut drain) = (Instant::now(), Drain::default());
        let mut bound = u64::MAX;
        let mut slow_ms = 0;
        for ms in 0..6_000 {
            let now = began + Duration::from_millis(ms);
            bound = drain
                .look(now, ROUND_TRIP, Some(1_000_000), true)
                .unwrap_or(bound);
            assert!(bound == 750_000 || bound == u64::MAX);
            slow_ms += u64::from(bound != u64::MAX);
        }
        assert_eq!(slow_ms, 1_000);
    }

    #[test]
    fn a_bound_ends_with_the_queue_or_its_time() {
        let (began, mut drain) = (Instant::now(), Drain::default());
        let mut look = |ms, rate, is_queued| {
            drain.look(
                began + Duration::from_millis(ms),
                ROUND_TRIP,
                rate,
                is_queued,
            )
        };
        assert_eq!(look(0, Some(1_000), false), None);
        assert_eq!(look(1, None, true), None);
        assert_eq!(look(2, Some(1_000), true), Some(750));
        assert_eq!(look(50, None, true), None);
        assert_eq!(look(60, None, false), Some(u64::MAX));
        assert_eq!(look(61, Some(1_000), true), None, "too early");
        assert_eq!(look(602, Some(2_000), true), Some(1_500));
        assert_eq!(look(9_000, Some(1), true), Some(u64::MAX));
        assert_eq!(look(9_001, None, false), None);
    }
}
