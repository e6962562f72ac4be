//! A stream of small writes, read faster than it is written.
//!
//! A gateway that is faster than the application gets crumbs: each read finds one or two small
//! writes, each crumb becomes a block with a frame and a TLS record of its own, and the work for
//! those takes the processor from the application, so that the next crumb is no larger. What was
//! read is never held back; but after crumbs in quick succession the flow's task lets others have
//! the processor before it reads again. Where it is short, the application writes on meanwhile;
//! where it is not, nothing changes. No clock is waited for, and what comes alone goes at once.

use std::time::Duration;

use tokio::time::Instant;

/// A read of less is a crumb.
const CRUMB_BYTES: usize = 16 << 10;

/// Crumbs further apart than this are no stream: each goes its own way.
const APART: Duration = Duration::from_micros(100);

/// Turns that others get at most: the peer's gateway, what is behind it and the application may
/// all wait for the same processor. Where nobody does, they take a few microseconds.
const TURNS: usize = 8;

/// After a turn as long as this, the application has written or somebody else works as hard.
const LONG_TURN: Duration = Duration::from_micros(100);

/// What a flow's task has read of late.
#[derive(Debug, Default)]
pub(crate) struct Crumbs {
    last: Option<Instant>,
}

impl Crumbs {
    /// Lets others run if `bytes`, just read and handed on, are one crumb of a stream.
    pub(crate) async fn after_read(&mut self, bytes: usize) {
        if !self.is_stream(Instant::now(), bytes) {
            return;
        }
        // The lane's task may be next on this thread, and has what was read.
        tokio::task::yield_now().await;
        for _ in 0..TURNS {
            let began = Instant::now();
            std::thread::yield_now();
            if began.elapsed() >= LONG_TURN {
                break;
            }
        }
    }

    fn is_stream(&mut self, now: Instant, bytes: usize) -> bool {
        if bytes >= CRUMB_BYTES {
            self.last = None;
            return false;
        }
        let last = self.last.replace(now);
        last.is_some_and(|last| now.duration_since(last) < APART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_reads_in_quick_succession_are_a_stream() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        let mut crumbs = Crumbs::default();
        assert!(!crumbs.is_stream(at(0), 64), "one alone");
        assert!(crumbs.is_stream(at(20), 64));
        assert!(crumbs.is_stream(at(40), 1400));
        assert!(!crumbs.is_stream(at(500), 64), "long after");
        assert!(!crumbs.is_stream(at(510), 64 << 10), "a whole block");
        assert!(!crumbs.is_stream(at(520), 64), "the first after it");
    }
}
