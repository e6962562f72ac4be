//! When to try again, and when to give up.

use std::time::Duration;

use super::{
    error::RemoteError,
    options::RemoteOptions,
    retry::{OnRetry, Retry},
};

/// An attempt that brings so much was worth it: who cuts a connection after more than this is dealt
/// with for as long as it takes.
const WORTHWHILE_BYTES: u64 = 4 << 10;

/// The attempts at one range of a file.
pub struct Attempts {
    retries: u32,
    pause_min: Duration,
    pause_max: Duration,
    retry_after_max: Duration,
    on_retry: OnRetry,
    chance: fastrand::Rng,
    /// Attempts since the last that brought [`WORTHWHILE_BYTES`].
    fruitless: u32,
    gained_bytes: u64,
}

impl Attempts {
    pub(super) fn new(options: &RemoteOptions, chance: fastrand::Rng) -> Self {
        Self {
            retries: options.retries,
            pause_min: options.pause_min,
            pause_max: options.pause_max,
            retry_after_max: options.retry_after_max,
            on_retry: options.on_retry.clone(),
            chance,
            fruitless: 0,
            gained_bytes: 0,
        }
    }

    /// Bytes came.
    pub(super) fn gained(&mut self, bytes: u64) {
        self.gained_bytes = self.gained_bytes.saturating_add(bytes);
        if self.gained_bytes >= WORTHWHILE_BYTES {
            self.fruitless = 0;
        }
    }

    /// It went wrong: the pause before the next attempt, or the error if there is none.
    pub(super) fn failed(
        &mut self,
        error: RemoteError,
        was_reached: bool,
    ) -> Result<Duration, RemoteError> {
        self.gained_bytes = 0;
        let asked = error.retry_after().unwrap_or(Duration::ZERO);
        if !error.is_transient(was_reached) || asked > self.retry_after_max {
            return Err(error);
        }
        if self.fruitless >= self.retries {
            return Err(match self.retries {
                0 => error,
                retries => RemoteError::GaveUp {
                    attempts: retries + 1,
                    source: Box::new(error),
                },
            });
        }
        let doublings = 1u32.checked_shl(self.fruitless).unwrap_or(u32::MAX);
        self.fruitless += 1;
        let longest = self.pause_min.saturating_mul(doublings).min(self.pause_max);
        // Between half and all of it: who failed together does not come back together.
        let pause = longest.mul_f64(0.5 + self.chance.f64() / 2.0).max(asked);
        self.on_retry.tell(Retry {
            error: &error,
            attempt: self.fruitless + 1,
            attempts_max: self.retries.saturating_add(1),
            pause,
        });
        Ok(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, retry_after: Option<u64>) -> RemoteError {
        RemoteError::Status {
            url: String::new(),
            status,
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    fn attempts(seed: u64) -> Attempts {
        let options = RemoteOptions {
            retries: 9,
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(2),
            ..RemoteOptions::default()
        };
        Attempts::new(&options, fastrand::Rng::with_seed(seed))
    }

    fn pauses(attempts: &mut Attempts) -> Vec<Duration> {
        std::iter::from_fn(|| attempts.failed(status(503, None), true).ok()).collect()
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_then_it_is_enough() {
        let pauses = pauses(&mut attempts(1));
        let longest = [100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000];
        assert_eq!(pauses.len(), longest.len());
        for (pause, longest) in pauses.iter().zip(longest) {
            let (pause, longest) = (pause.as_secs_f64(), f64::from(longest) / 1000.0);
            assert!(
                pause >= longest / 2.0 && pause <= longest,
                "{pause} of {longest}"
            );
        }
    }

    #[test]
    fn a_seed_gives_the_same_pauses_again() {
        assert_eq!(pauses(&mut attempts(1)), pauses(&mut attempts(1)));
        assert_ne!(pauses(&mut attempts(1)), pauses(&mut attempts(2)));
    }

    #[test]
    fn who_brings_something_each_time_is_asked_for_ever() {
        let mut attempts = attempts(1);
        for _ in 0..100 {
            attempts.gained(WORTHWHILE_BYTES);
            assert!(attempts.failed(status(503, None), true).is_ok());
        }
        // Less does not count, whatever it adds up to.
        for _ in 0..8 {
            attempts.gained(WORTHWHILE_BYTES - 1);
            assert!(attempts.failed(status(503, None), true).is_ok());
        }
        attempts.gained(WORTHWHILE_BYTES - 1);
        assert!(attempts.failed(status(503, None), true).is_err());
    }

    #[test]
    fn a_server_may_ask_for_time_but_not_for_any() {
        let mut attempts = attempts(1);
        let pause = attempts.failed(status(429, Some(7)), true).unwrap();
        assert_eq!(pause, Duration::from_secs(7));
        let error = attempts.failed(status(429, Some(3600)), true).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("429, and wants the next request in 3600s"),
            "{error}"
        );
    }

    #[test]
    fn what_will_not_get_better_is_not_tried_again() {
        for number in [400, 401, 403, 404, 410, 416, 501] {
            assert!(
                attempts(1).failed(status(number, None), true).is_err(),
                "{number}"
            );
        }
    }
}
