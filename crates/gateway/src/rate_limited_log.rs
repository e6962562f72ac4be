//! Events that unknown peers and clients cause at will, in a few lines of the log: the first at
//! once, then at most one line per interval, with the number of events since.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::{Instant, sleep};

/// At most one line of an event's kind in this time.
const INTERVAL: Duration = Duration::from_secs(10);

/// Events of one kind, and when they were last logged.
#[derive(Debug, Default)]
struct Events {
    said_at: Option<Instant>,
    /// Events that no line has told of, and the last of them.
    waiting: u64,
    last: String,
    /// Whether a task will log what waits.
    flush_is_due: bool,
}

impl Events {
    /// Takes one more event; returns the line that is due, if one is.
    fn add(&mut self, now: Instant, event: String) -> Option<String> {
        self.waiting += 1;
        self.last = event;
        self.due(now)
    }

    /// The line for what has waited long enough. To be asked now and then, so that the last
    /// events of a series are told of too.
    fn due(&mut self, now: Instant) -> Option<String> {
        let said_not_long_ago = self
            .said_at
            .is_some_and(|at| now.duration_since(at) < INTERVAL);
        if said_not_long_ago || self.waiting == 0 {
            return None;
        }
        self.said_at = Some(now);
        let last = mem::take(&mut self.last);
        Some(match mem::take(&mut self.waiting) - 1 {
            0 => last,
            more => format!("{last} (and {more} more like it since the last such line)"),
        })
    }
}

/// A log of events of one kind, which others cause at will: at most a line in ten seconds, with
/// the number of events that no line names. The last of a series are reported too.
#[derive(Debug, Clone)]
pub(crate) struct RateLimitedLog {
    events: Arc<Mutex<Events>>,
    write: fn(&str),
}

impl RateLimitedLog {
    /// A log whose lines go to `write`.
    pub(crate) fn new(write: fn(&str)) -> RateLimitedLog {
        RateLimitedLog {
            events: Arc::default(),
            write,
        }
    }

    /// Takes one more event. Must be called in a Tokio runtime, which the rest of a series waits
    /// in.
    pub(crate) fn add(&self, event: String) {
        let mut log = self.lock();
        if let Some(line) = log.add(Instant::now(), event) {
            (self.write)(&line);
        } else if !log.flush_is_due {
            log.flush_is_due = true;
            let log = self.clone();
            tokio::spawn(async move { log.flush().await });
        }
    }

    async fn flush(self) {
        loop {
            sleep(INTERVAL).await;
            let mut log = self.lock();
            if let Some(line) = log.due(Instant::now()) {
                (self.write)(&line);
            }
            if log.waiting == 0 {
                log.flush_is_due = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().expect("held for a moment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_are_counted() {
        let (began, mut events) = (Instant::now(), Events::default());
        let mut add =
            |second, event: &str| events.add(began + Duration::from_secs(second), event.to_owned());
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

    #[tokio::test(start_paused = true)]
    async fn the_last_of_a_series_are_reported_without_another_event() {
        static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let log = RateLimitedLog::new(|line| LINES.lock().expect("free").push(line.to_owned()));
        for number in 0..5 {
            log.add(format!("event {number}"));
        }
        sleep(INTERVAL * 2).await;
        let lines = LINES.lock().expect("free").clone();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0], "event 0");
        assert!(lines[1].starts_with("event 4 (and 3 more"), "{lines:?}");
        assert!(!log.lock().flush_is_due);
    }
}
