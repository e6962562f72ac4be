//! One transfer of all objects, by a number of clients at the same time: how long it takes.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{content::Object, ways::Route};
use crate::progress;

/// How often the progress line changes.
const SHOW_INTERVAL: Duration = Duration::from_millis(100);

/// How all objects came by one way, or how long that would take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub seconds: f64,
    /// Whether the seconds are the least that the link's rate and delay allow, and nothing was transferred.
    pub is_calculated: bool,
    /// Whether all received bytes are identical to the sent ones.
    pub is_identical: bool,
    /// On the simulated link, both ways.
    pub link_bytes: Option<u64>,
}

impl Transfer {
    /// A transfer that was not made.
    pub(super) fn calculated(seconds: f64) -> Self {
        Self {
            seconds,
            is_calculated: true,
            is_identical: true,
            link_bytes: None,
        }
    }

    /// Fetches every object, `flows` at a time. Their bodies have `body_bytes`, as they are sent.
    pub(super) fn make(
        route: &Route,
        objects: &[Object],
        body_bytes: u64,
        flows: u8,
    ) -> anyhow::Result<Self> {
        let bar = &progress::of_bytes(Some(body_bytes));
        bar.set_message(route.way().title());
        let next = AtomicUsize::new(0);
        let fetch_some = || {
            let mut is_identical = true;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(object) = objects.get(index) else {
                    return anyhow::Ok(is_identical);
                };
                let received = route
                    .fetch(index)
                    .with_context(|| format!("cannot fetch \"{}\"", object.name))?;
                is_identical &= received == object.bytes;
            }
        };
        let began = Instant::now();
        let (fetched, took) = thread::scope(|scope| {
            // Dropped at the end of this block, which ends the thread of the bar.
            let (_running, end) = mpsc::channel::<()>();
            scope.spawn(move || {
                while end.recv_timeout(SHOW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    bar.set_position(route.received_bytes());
                }
            });
            let clients: Vec<_> = (0..flows).map(|_| scope.spawn(fetch_some)).collect();
            let fetched: anyhow::Result<bool> = clients
                .into_iter()
                .map(|client| client.join().expect("clients do not panic"))
                .try_fold(true, |all, is_identical| Ok(all & is_identical?));
            (fetched, began.elapsed())
        });
        bar.finish_and_clear();
        Ok(Self {
            seconds: took.as_secs_f64(),
            is_calculated: false,
            is_identical: fetched?,
            link_bytes: route.link_bytes(),
        })
    }
}
