//! Folds events that strangers cause at will into a few lines of the log: the first at once,
//! then at most one line an interval, with the number of those since.

use std::time::Duration;

use tokio::time::Instant;

/// At most one line of an event's kind in this time.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// Events of one kind, and when they were last logged.
#[derive(Debug, Default)]
pub struct Folded {
    said_at: Option<Instant>,
    waiting: Option<Waiting>,
}

/// Events that no line has told of.
#[derive(Debug)]
struct Waiting {
    count: u64,
    last: String,
}

impl Folded {
    /// Takes one more event; returns the line that is due, if one is.
    pub fn add(&mut self, now: Instant, event: String) -> Option<String> {
        let count = self.waiting.as_ref().map_or(0, |waiting| waiting.count) + 1;
        let last = event;
        self.waiting = Some(Waiting { count, last });
        self.due(now)
    }

    /// The line for what has waited long enough. To be asked now and then, so that the last
    /// events of a series are told of too.
    pub fn due(&mut self, now: Instant) -> Option<String> {
        let said_not_long_ago = self
            .said_at
            .is_some_and(|at| now.duration_since(at) < INTERVAL);
        if said_not_long_ago {
            return None;
        }
        let Waiting { count, last } = self.waiting.take()?;
        self.said_at = Some(now);
        Some(match count {
            1 => last,
            _ => format!(
                "{last} (and {} more like it since the last such line)",
                count - 1
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_are_counted() {
        let (began, mut folded) = (Instant::now(), Folded::default());
        let mut add =
            |second, event: &str| folded.add(began + Duration::from_secs(second), event.to_owned());
        assert_eq!(add(0, "one").as_deref(), Some("one"));
        assert_eq!(add(0, "two"), None);
        assert_eq!(add(9, "three"), None);
        let line = add(10, "four").expect("it is due");
        assert!(line.starts_with("four (and 2 more"), "{line}");
        assert_eq!(add(19, "five"), None);
        assert_eq!(
            add(40, "six").as_deref().map(|line| &line[..15]),
            Some("six (and 1 more")
        );
        assert_eq!(add(60, "seven").as_deref(), Some("seven"));
    }

    #[test]
    fn what_waits_is_told_once() {
        let (began, mut folded) = (Instant::now(), Folded::default());
        let later = began + INTERVAL;
        assert_eq!(folded.due(began), None);
        folded.add(began, "one".to_owned());
        folded.add(began, "two".to_owned());
        assert_eq!(folded.due(began), None);
        assert_eq!(folded.due(later).as_deref(), Some("two"));
        assert_eq!(folded.due(later + INTERVAL), None);
    }
}
