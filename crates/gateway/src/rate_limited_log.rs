//! Events that unknown peers and clients cause at will, in a few lines of the log: the first of a
//! kind at once, then at most one line per interval, with the number of events of this kind since.

use std::{
    any::TypeId,
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
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

/// A log of events that others cause at will: of each kind at most a line in ten seconds, with
/// the number of events that no line names. The last of a series are reported too.
#[derive(Debug, Clone)]
pub struct RateLimitedLog {
    /// By the hashes of their kinds.
    kinds: Arc<Mutex<HashMap<u64, Events>>>,
    write: fn(&str),
}

impl RateLimitedLog {
    /// A log whose lines go to `write`.
    pub fn new(write: fn(&str)) -> RateLimitedLog {
        RateLimitedLog {
            kinds: Arc::default(),
            write,
        }
    }

    /// Takes one more event. Each kind is kept for good, so there must be few, such as the variants of
    /// an error. Must be called in a Tokio runtime, which the rest of a series waits in.
    pub fn add<K: Hash + 'static>(&self, kind: K, event: String) {
        // Variants of two types may have the same number.
        let kind = (TypeId::of::<K>(), kind);
        let kind = BuildHasherDefault::<DefaultHasher>::default().hash_one(kind);
        let mut kinds = self.lock();
        let events = kinds.entry(kind).or_default();
        if let Some(line) = events.add(Instant::now(), event) {
            (self.write)(&line);
        } else if !events.flush_is_due {
            events.flush_is_due = true;
            let log = self.clone();
            tokio::spawn(async move { log.flush(kind).await });
        }
    }

    async fn flush(self, kind: u64) {
        loop {
            sleep(INTERVAL).await;
            let mut kinds = self.lock();
            let events = kinds.entry(kind).or_default();
            if let Some(line) = events.due(Instant::now()) {
                (self.write)(&line);
            }
            if events.waiting == 0 {
                events.flush_is_due = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Events>> {
        self.kinds.lock().expect("held for a moment")
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
            log.add((), format!("event {number}"));
        }
        sleep(INTERVAL * 2).await;
        let lines = LINES.lock().expect("free").clone();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0], "event 0");
        assert!(lines[1].starts_with("event 4 (and 3 more"), "{lines:?}");
        assert!(log.lock().values().all(|events| !events.flush_is_due));
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_one_kind_neither_hide_nor_count_those_of_another() {
        static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let log = RateLimitedLog::new(|line| LINES.lock().expect("free").push(line.to_owned()));
        let variants = [
            mem::discriminant(&Some(1)),
            mem::discriminant(&None),
            // Of the same kind as the first.
            mem::discriminant(&Some(2)),
        ];
        for (number, variant) in variants.into_iter().enumerate() {
            log.add(variant, format!("event {number}"));
        }
        log.add((), "another".to_owned());
        assert_eq!(
            *LINES.lock().expect("free"),
            ["event 0", "event 1", "another"]
        );
        sleep(INTERVAL * 2).await;
        assert_eq!(LINES.lock().expect("free")[3..], ["event 2"]);
    }
}
