//! Which chunks are still to be asked for, of whom; and those that have arrived.
//!
//! Several threads ask each server, and one takes what comes. A chunk is claimed, and then arrives, or is
//! not there, or its server is left: then all that it was to be asked for goes to others, and what
//! nobody has is left over. No I/O here.
//!
//! Invariants: `open` counts the chunks in `waiting` and those that are claimed; `held_bytes` is at most
//! `bytes_max`, but for one claim where nothing else is held.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Wanted, rendezvous::Rendezvous};

/// Between who asks and who takes what came.
pub(super) struct Queue<'a> {
    wanted: &'a [Wanted],
    servers: &'a Rendezvous,
    bytes_max: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Of each server, the chunks that it is to be asked for. None once it was left.
    waiting: Vec<Option<VecDeque<usize>>>,
    open: usize,
    /// Room for chunks that are claimed, or have arrived and were not taken.
    held_bytes: u64,
    arrived: VecDeque<(usize, Vec<u8>)>,
    is_stopped: bool,
}

/// How much one claim takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimMax {
    pub(super) chunks: usize,
    /// Of plain bytes, but for a single chunk that has more.
    pub(super) bytes: u64,
}

/// The room that a chunk takes: as it is stored, and plain.
fn room(wanted: &Wanted) -> u64 {
    2 * u64::from(wanted.bytes)
}

impl<'a> Queue<'a> {
    /// All of `wanted`, to be asked for of those servers that `is_there`, holding about `bytes_max`.
    pub(super) fn new(
        wanted: &'a [Wanted],
        servers: &'a Rendezvous,
        is_there: &[bool],
        bytes_max: u64,
    ) -> Self {
        let waiting = is_there.iter().map(|is_there| is_there.then(VecDeque::new));
        let queue = Self {
            wanted,
            servers,
            bytes_max,
            state: Mutex::new(State {
                waiting: waiting.collect(),
                open: wanted.len(),
                held_bytes: 0,
                arrived: VecDeque::new(),
                is_stopped: false,
            }),
            changed: Condvar::new(),
        };
        queue.assign(&mut queue.lock(), 0..wanted.len());
        queue
    }

    /// Chunks for `server` to be asked for, once there are some and room for them. None if there will be
    /// none.
    pub(super) fn claim(&self, server: usize, max: ClaimMax) -> Option<Vec<usize>> {
        let mut state = self.lock();
        loop {
            if state.is_stopped || state.open == 0 {
                return None;
            }
            let claimed = self.first_of(state.waiting[server].as_ref()?, max);
            let needed: u64 = claimed
                .iter()
                .map(|&number| room(&self.wanted[number]))
                .sum();
            let has_room = state.held_bytes == 0 || state.held_bytes + needed <= self.bytes_max;
            if !claimed.is_empty() && has_room {
                state.held_bytes += needed;
                state.waiting[server].as_mut()?.drain(..claimed.len());
                return Some(claimed);
            }
            state = self.wait(state);
        }
    }

    fn first_of(&self, waiting: &VecDeque<usize>, max: ClaimMax) -> Vec<usize> {
        let mut bytes = 0;
        let mut claimed = Vec::new();
        for &number in waiting.iter().take(max.chunks) {
            bytes += u64::from(self.wanted[number].bytes);
            if bytes > max.bytes && !claimed.is_empty() {
                break;
            }
            claimed.push(number);
        }
        claimed
    }

    /// A claimed chunk came.
    pub(super) fn arrived(&self, number: usize, plain: Vec<u8>) {
        let mut state = self.lock();
        state.arrived.push_back((number, plain));
        state.open -= 1;
        self.changed.notify_all();
    }

    /// A claimed chunk is not at its server. It is left over.
    pub(super) fn absent(&self, number: usize) {
        let mut state = self.lock();
        state.held_bytes -= room(&self.wanted[number]);
        state.open -= 1;
        self.changed.notify_all();
    }

    /// `server` is left, with claimed chunks that did not come: they and those that it was still to be
    /// asked for go to others.
    pub(super) fn leave(&self, server: usize, claimed: &[usize]) {
        let mut state = self.lock();
        let needed = claimed.iter().map(|&number| room(&self.wanted[number]));
        state.held_bytes -= needed.sum::<u64>();
        let waiting = state.waiting[server].take().unwrap_or_default();
        self.assign(&mut state, claimed.iter().copied().chain(waiting));
        self.changed.notify_all();
    }

    fn assign(&self, state: &mut State, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            let name = self.wanted[number].name;
            let is_there = |server: usize| state.waiting[server].is_some();
            let chosen = self.servers.choose(name, is_there);
            match chosen.and_then(|server| state.waiting[server].as_mut()) {
                Some(waiting) => waiting.push_back(number),
                None => state.open -= 1,
            }
        }
    }

    /// Waits. False if `server` is not to be asked any more.
    pub(super) fn pause(&self, server: usize, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        while !state.is_stopped && state.waiting[server].is_some() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// The next chunk that came. None if no more will.
    pub(super) fn next(&self) -> Option<(usize, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some((number, plain)) = state.arrived.pop_front() {
                // Who took it holds it for a moment longer, and asks for no other meanwhile.
                state.held_bytes -= room(&self.wanted[number]);
                self.changed.notify_all();
                return Some((number, plain));
            }
            if state.open == 0 {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// Nobody claims, pauses or takes any more.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::format::{ChunkName, Stream};

    const ONE: ClaimMax = ClaimMax {
        chunks: 1,
        bytes: u64::MAX,
    };

    fn wanted(lengths: &[u32]) -> Vec<Wanted> {
        let chunk = |(number, &bytes): (usize, &u32)| Wanted {
            stream: Stream::Content,
            chunk: number as u64,
            name: ChunkName::of(&number.to_le_bytes()),
            bytes,
            at: 0,
        };
        lengths.iter().enumerate().map(chunk).collect()
    }

    fn servers(count: usize) -> Rendezvous {
        Rendezvous::new((0..count).map(|number| format!("http://{number}/")))
    }

    #[derive(Clone, Copy, Debug)]
    enum Outcome {
        Arrives,
        IsAbsent,
        IsLeft,
    }

    proptest! {
        /// Played by one thread, so that it never waits: a claim of nothing would.
        #[test]
        fn each_chunk_arrives_once_or_is_left_over(
            lengths in proptest::collection::vec(1..1000_u32, 1..60),
            count in 1..5_usize,
            outcomes in proptest::collection::vec(
                prop_oneof![
                    6 => Just(Outcome::Arrives),
                    2 => Just(Outcome::IsAbsent),
                    1 => Just(Outcome::IsLeft),
                ],
                200,
            ),
            chunks in 1..5_usize,
        ) {
            let (wanted, servers) = (wanted(&lengths), servers(count));
            let queue = Queue::new(&wanted, &servers, &vec![true; count], u64::MAX);
            let max = ClaimMax { chunks, bytes: 2000 };
            let mut outcomes = outcomes.into_iter().cycle();
            let mut taken: HashMap<usize, usize> = HashMap::new();
            let mut absent = 0;
            loop {
                let waits = |server: &usize| {
                    let state = queue.lock();
                    state.waiting[*server].as_ref().is_some_and(|waiting| !waiting.is_empty())
                };
                let Some(server) = (0..count).find(waits) else {
                    break;
                };
                let claimed = queue.claim(server, max).expect("some wait");
                prop_assert!(claimed.len() <= chunks);
                let bytes: u32 = claimed.iter().map(|&number| lengths[number]).sum();
                prop_assert!(bytes <= 2000 || claimed.len() == 1);
                for (at, &number) in claimed.iter().enumerate() {
                    match outcomes.next().expect("without end") {
                        Outcome::Arrives => queue.arrived(number, vec![0; number]),
                        Outcome::IsAbsent => {
                            queue.absent(number);
                            absent += 1;
                        }
                        Outcome::IsLeft => {
                            queue.leave(server, &claimed[at..]);
                            prop_assert!(!queue.pause(server, Duration::from_secs(3600)));
                            break;
                        }
                    }
                }
            }
            while let Some((number, plain)) = queue.next() {
                prop_assert_eq!(plain.len(), number);
                *taken.entry(number).or_default() += 1;
            }
            prop_assert!(taken.values().all(|&times| times == 1));
            let state = queue.lock();
            prop_assert_eq!((state.open, state.held_bytes), (0, 0));
            let nobody_is_left = state.waiting.iter().all(Option::is_none);
            prop_assert!(taken.len() + absent == wanted.len() || nobody_is_left);
        }
    }

    #[test]
    fn no_more_is_claimed_than_there_is_room_for() {
        let wanted = wanted(&[100, 100, 900]);
        let servers = servers(1);
        let queue = Queue::new(&wanted, &servers, &[true], 400);
        assert_eq!(queue.claim(0, ONE), Some(vec![0]));
        assert_eq!(queue.claim(0, ONE), Some(vec![1]));
        std::thread::scope(|threads| {
            // It waits, for it alone is more than there is room for.
            let third = threads.spawn(|| queue.claim(0, ONE));
            queue.arrived(0, vec![0; 100]);
            assert_eq!(queue.next().map(|(number, _)| number), Some(0));
            assert_eq!(queue.lock().held_bytes, 200);
            queue.absent(1);
            assert_eq!(third.join().expect("no panic"), Some(vec![2]));
        });
        assert_eq!(queue.lock().held_bytes, 1800);
    }

    #[test]
    fn who_is_left_hands_on_what_waits_and_who_waits_is_told() {
        let wanted = wanted(&[1; 50]);
        let servers = servers(2);
        let queue = Queue::new(&wanted, &servers, &[true, true], u64::MAX);
        std::thread::scope(|threads| {
            let pausing = threads.spawn(|| queue.pause(1, Duration::from_secs(3600)));
            let claimed = queue.claim(1, ONE).expect("half of them");
            queue.leave(1, &claimed);
            assert!(!pausing.join().expect("no panic"));
        });
        assert_eq!(queue.claim(1, ONE), None);
        let all = ClaimMax {
            chunks: 100,
            bytes: u64::MAX,
        };
        assert_eq!(queue.claim(0, all).map(|claimed| claimed.len()), Some(50));
        queue.stop();
        assert_eq!(queue.claim(0, ONE), None);
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn without_anybody_to_ask_all_is_left_over() {
        let wanted = wanted(&[1; 5]);
        let servers = servers(2);
        let queue = Queue::new(&wanted, &servers, &[false, false], u64::MAX);
        assert_eq!(queue.next(), None);
        assert_eq!(queue.claim(0, ONE), None);
    }
}
