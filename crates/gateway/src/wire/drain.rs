//! Empties the queue that a connection under BBR has made on the path.
//!
//! BBR (Cardwell et al., Queue 14-5, 2016) takes the highest rate of its last ten round trips for that of the path. An
//! acknowledgement that comes a millisecond late makes one of them seem 2 % too high: on the path of 10 Mbit/s on which
//! this was measured, 20 to 50 ms of packets then wait for good, and keystrokes on other lanes behind them. So a
//! connection that sees a queue sends more slowly until it is gone, for two round trips at most. Then it holds its rate
//! for four: BBR leaves its start, in which it sends 2.89 times as fast, once three round trips grew no further, and
//! those do not count in which it had too little to send. Where the kernel's buffer has less than 2.89 times what the
//! path holds (Linux: some 2.7 MB), it would never leave it. The next six round trips are its own. So it gives up a
//! twentieth of its rate at most, if others made the queue or the path has become longer.

use std::time::{Duration, Instant};

/// For how long it sends more slowly at most, until when it holds its rate, and when it may again, in the shortest round
/// trips.
const SLOW_ROUND_TRIPS: u32 = 2;
const BOUND_ROUND_TRIPS: u32 = 6;
const NEXT_ROUND_TRIPS: u32 = 12;

/// Where looks are further apart than that: so many times as long as it sent more slowly, up to this time. One that was
/// idle meanwhile did not send more slowly.
const NEXT: u32 = 5;
const SLOW_MAX: Duration = Duration::from_millis(200);

/// How much it sends meanwhile, of its rate: as BBR does after it has looked for more.
const SLOW_SHARE: f64 = 0.75;

#[derive(Debug, Default)]
pub(super) struct Drain {
    /// When it began to send more slowly, while its rate has a bound.
    began: Option<Instant>,
    is_slow: bool,
    /// Its rate then.
    rate: u64,
    /// When it may again.
    next: Option<Instant>,
}

impl Drain {
    /// The most bytes a second that the connection is to send from now on, if that changes: `u64::MAX` is no bound. It
    /// sends `rate` now, 0 if that is unknown, and `is_queued` says whether packets wait on the path, if that is known.
    pub(super) fn look(
        &mut self,
        now: Instant,
        round_trip: Duration,
        rate: u64,
        is_queued: Option<bool>,
    ) -> Option<u64> {
        if let Some(began) = self.began {
            let bound = now.duration_since(began);
            if self.is_slow {
                if bound < SLOW_ROUND_TRIPS * round_trip && is_queued != Some(false) {
                    return None;
                }
                self.is_slow = false;
                let next = began + NEXT_ROUND_TRIPS * round_trip;
                self.next = Some(next.max(now + NEXT * bound.min(SLOW_MAX)));
                if bound < BOUND_ROUND_TRIPS * round_trip {
                    return Some(self.rate.max(rate));
                }
            }
            if bound < BOUND_ROUND_TRIPS * round_trip {
                return None;
            }
            self.began = None;
            return Some(u64::MAX);
        }
        if is_queued != Some(true) || rate == 0 || self.next.is_some_and(|next| now < next) {
            return None;
        }
        (self.began, self.is_slow, self.rate) = (Some(now), true, rate);
        Some((rate as f64 * SLOW_SHARE) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    #[test]
    fn a_queue_that_stays_is_answered_for_a_sixth_of_the_time() {
        let cases = [(50, 1), (50, 20), (1, 20), (10, 80), (600, 20), (0, 20)];
        for (round_trip_ms, look_ms) in cases {
            let (began, mut drain) = (Instant::now(), Drain::default());
            let round_trip = Duration::from_millis(round_trip_ms);
            let (mut bound, mut slow_ms) = (u64::MAX, 0);
            for ms in (0..60_000).step_by(look_ms) {
                let now = began + Duration::from_millis(ms);
                let new_bound = drain.look(now, round_trip, 1_000_000, Some(true));
                bound = new_bound.unwrap_or(bound);
                assert!([750_000, 1_000_000, u64::MAX].contains(&bound));
                slow_ms += usize::from(bound == 750_000) * look_ms;
            }
            let share = slow_ms as f64 / 60e3;
            assert!(
                (0.1..0.19).contains(&share),
                "{round_trip_ms}, {look_ms}: {share}"
            );
        }
    }

    #[test]
    fn a_bound_ends_with_the_queue_or_its_time() {
        let (began, mut drain) = (Instant::now(), Drain::default());
        let mut look = |ms, rate, is_queued: bool| {
            let now = began + Duration::from_millis(ms);
            drain.look(now, ROUND_TRIP, rate, Some(is_queued))
        };
        assert_eq!(look(0, 1_000, false), None);
        assert_eq!(look(1, 0, true), None, "the rate is unknown");
        assert_eq!(look(2, 1_000, true), Some(750));
        assert_eq!(look(50, 1_000, true), None);
        assert_eq!(look(60, 1_010, false), Some(1_010), "its rate");
        assert_eq!(look(61, 1_000, true), None);
        assert_eq!(look(302, 1_000, true), Some(u64::MAX));
        assert_eq!(look(303, 1_000, true), None, "too early");
        assert_eq!(look(602, 2_000, true), Some(1_500));
        let idle = look(9_000, 1_000, true);
        assert_eq!(idle, Some(u64::MAX), "idle meanwhile");
        assert_eq!(look(10_001, 1_000, true), Some(750));
    }
}
