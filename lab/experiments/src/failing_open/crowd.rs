//! New connections, one after the other, whatever becomes of those before.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use super::clients::{Place, Tried, enter};

/// Clients that connect until they are stopped.
pub(super) struct Crowd {
    is_over: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
    opener: JoinHandle<anyhow::Result<()>>,
    tried: mpsc::Receiver<Tried>,
}

impl Crowd {
    /// Starts it: a connection on a thread of its own in each interval.
    pub(super) fn start(place: Place, interval: Duration) -> Crowd {
        let is_over = Arc::<AtomicBool>::default();
        let begun = Arc::<AtomicUsize>::default();
        let (send, tried) = mpsc::channel();
        let (ends, counts) = (Arc::clone(&is_over), Arc::clone(&begun));
        let opener = thread::spawn(move || {
            enter(&place.namespace)?;
            while !ends.load(Ordering::Relaxed) {
                counts.fetch_add(1, Ordering::Relaxed);
                let (place, send) = (place.clone(), send.clone());
                thread::spawn(move || {
                    // Nobody asks for it after an error.
                    let _ = send.send(Tried::once(&place));
                });
                sleep(interval);
            }
            Ok(())
        });
        Crowd {
            is_over,
            begun,
            opener,
            tried,
        }
    }

    /// How many connections it began so far.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Begins no further ones, and waits for the others: all in the order of their beginnings.
    pub(super) fn finish(self) -> anyhow::Result<Vec<Tried>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.opener.join().expect("no panic")?;
        let mut tried: Vec<_> = self.tried.into_iter().collect();
        tried.sort_by_key(|tried| tried.began);
        Ok(tried)
    }
}
