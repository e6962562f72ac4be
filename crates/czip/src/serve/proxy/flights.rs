//! Which frames are on their way: nobody fetches what somebody else does, and not too many fetch.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Fetches at once. Each takes some connections and some memory.
const FLIGHTS_MAX: usize = 8;

/// A frame, by its archive's number and its own.
type FrameKey = (u64, u64);

#[derive(Default)]
pub(super) struct Flights {
    flying: Mutex<Flying>,
    landed: Condvar,
}

#[derive(Default)]
struct Flying {
    frames: HashSet<FrameKey>,
    flights: usize,
}

/// Frames that who holds this fetches. Others wait until it is gone.
pub(super) struct Flight<'a> {
    flights: &'a Flights,
    archive: u64,
    pub(super) frames: BTreeSet<u64>,
}

impl Flights {
    /// Those of `wanted` that nobody fetches. None after others have fetched something: who waits holds
    /// no flight, so there is no circle.
    pub(super) fn begin(&self, archive: u64, wanted: &BTreeSet<u64>) -> Option<Flight<'_>> {
        let mut flying = self.lock();
        loop {
            let free = wanted
                .iter()
                .filter(|&&frame| !flying.frames.contains(&(archive, frame)));
            let frames: BTreeSet<u64> = free.copied().collect();
            let is_mine = !frames.is_empty();
            if is_mine && flying.flights < FLIGHTS_MAX {
                flying.flights += 1;
                let keys = frames.iter().map(|&frame| (archive, frame));
                flying.frames.extend(keys);
                return Some(Flight {
                    flights: self,
                    archive,
                    frames,
                });
            }
            flying = (self.landed.wait(flying)).unwrap_or_else(PoisonError::into_inner);
            if !is_mine {
                return None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Flying> {
        self.flying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut flying = self.flights.lock();
        for &frame in &self.frames {
            flying.frames.remove(&(self.archive, frame));
        }
        flying.flights -= 1;
        self.flights.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_on_its_way_is_waited_for() {
        let flights = Flights::default();
        let set = |frames: &[u64]| frames.iter().copied().collect::<BTreeSet<u64>>();
        let first = flights.begin(1, &set(&[1, 2])).expect("nobody fetches");
        let second = flights.begin(1, &set(&[2, 3])).expect("3 is free");
        assert_eq!(second.frames, set(&[3]));
        let other = flights.begin(2, &set(&[1])).expect("of another archive");
        assert_eq!(other.frames, set(&[1]));
        drop(other);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| flights.begin(1, &set(&[1, 2])).is_none());
            // Whichever comes first: it waits, or finds them landed and takes them.
            drop(first);
            drop(second);
            let _ = waiting.join().expect("it returns");
        });
        let all = flights.begin(1, &set(&[1, 2, 3])).expect("all landed");
        assert_eq!(all.frames.len(), 3);
    }
}
