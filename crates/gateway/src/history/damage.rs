//! When to say that a store was found damaged: at once, and then not with every chunk of a disk that fails.

use std::time::{Duration, Instant};

/// At least this lies between two warnings.
const PAUSE: Duration = Duration::from_secs(600);

/// What was said of a store's damage.
#[derive(Default)]
pub(super) struct DamageTold {
    count: u64,
    quiet_until: Option<Instant>,
}

impl DamageTold {
    /// What was found since it was last said, if it is to be said now. To be asked again and again, as
    /// what comes in a pause is said after it.
    pub(super) fn news(&mut self, damaged: u64, now: Instant) -> Option<u64> {
        let new = damaged.saturating_sub(self.count);
        let is_quiet = self.quiet_until.is_some_and(|until| now < until);
        if new == 0 || is_quiet {
            return None;
        }
        self.count = damaged;
        self.quiet_until = Some(now + PAUSE);
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_at_once_and_what_follows_after_a_pause() {
        let mut told = DamageTold::default();
        let begin = Instant::now();
        let mut news = |damaged, seconds| told.news(damaged, begin + Duration::from_secs(seconds));
        assert_eq!(news(0, 0), None);
        assert_eq!(news(2, 10), Some(2));
        assert_eq!(news(2, 700), None, "it is told");
        assert_eq!(news(3, 701), Some(1));
        assert_eq!(news(5, 702), None);
        assert_eq!(news(6, 1300), None);
        assert_eq!(news(6, 1301), Some(3), "none is left out");
    }
}
