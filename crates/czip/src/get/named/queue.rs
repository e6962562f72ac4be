//! Which chunk is to be asked for next, of which server. No I/O here.
//!
//! A chunk is claimed and then answered, or its server is left: then all that it was to be asked for goes
//! to others, and what nobody can be asked for is left over.
//!
//! Invariant: `held_bytes` is at most `bytes_max`, but for one chunk where nothing else is held.

use std::collections::VecDeque;

use super::rendezvous::Rendezvous;
use crate::archive::Chunk;

/// Chunks that are to be asked for.
pub(super) struct Queue<'a> {
    servers: &'a Rendezvous,
    /// None once a server was left.
    lines: Vec<Option<Line>>,
    /// Room for chunks that are claimed and were not answered.
    held_bytes: u64,
    bytes_max: u64,
}

/// What a server is to be asked for.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Chunk>,
    in_flight: usize,
    requests_max: usize,
}

/// The room that a chunk takes: as it is stored, and plain.
fn room(wanted: &Chunk) -> u64 {
    2 * u64::from(wanted.bytes)
}

impl<'a> Queue<'a> {
    /// Of those servers that are there, with how many requests may be in flight to each, and of the bytes that may be
    /// held.
    pub(super) fn new(
        servers: &'a Rendezvous,
        requests_max: impl Iterator<Item = Option<usize>>,
        bytes_max: u64,
    ) -> Self {
        let line = |requests_max| Line {
            requests_max,
            ..Line::default()
        };
        Self {
            servers,
            lines: requests_max.map(|most| most.map(line)).collect(),
            held_bytes: 0,
            bytes_max,
        }
    }

    /// A chunk is to be asked for, if anybody can be.
    pub(super) fn push(&mut self, wanted: Chunk) {
        let is_there = |server: usize| self.lines[server].is_some();
        let chosen = self.servers.choose(wanted.name, is_there);
        if let Some(line) = chosen.and_then(|server| self.lines[server].as_mut()) {
            line.waiting.push_back(wanted);
        }
    }

    /// The next chunk, and the server to ask for it: the one that has least to do. None if all that may be
    /// in flight is.
    pub(super) fn claim(&mut self) -> Option<(usize, Chunk)> {
        let lines = self.lines.iter_mut().enumerate();
        let lines = lines.filter_map(|(server, line)| Some((server, line.as_mut()?)));
        let (server, line) = lines
            .filter(|(_, line)| !line.waiting.is_empty() && line.in_flight < line.requests_max)
            .min_by_key(|(_, line)| line.in_flight)?;
        let needed = room(line.waiting.front()?);
        if self.held_bytes > 0 && self.held_bytes + needed > self.bytes_max {
            return None;
        }
        self.held_bytes += needed;
        line.in_flight += 1;
        Some((server, line.waiting.pop_front()?))
    }

    /// What was claimed is not in flight any more.
    pub(super) fn answered(&mut self, server: usize, wanted: &Chunk) {
        self.held_bytes -= room(wanted);
        if let Some(line) = &mut self.lines[server] {
            line.in_flight -= 1;
        }
    }

    /// `server` is left: what waits for it goes to others.
    pub(super) fn leave(&mut self, server: usize) {
        let line = self.lines[server].take().unwrap_or_default();
        line.waiting
            .into_iter()
            .for_each(|wanted| self.push(wanted));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::format::{ChunkName, Stream};

    fn wanted(lengths: &[u32]) -> Vec<Chunk> {
        let chunk = |(number, &bytes): (usize, &u32)| Chunk {
            stream: Stream::Content,
            number: number as u64,
            name: ChunkName::of(&number.to_le_bytes()),
            bytes,
            frame: 0,
            offset: 0,
            at: 0,
        };
        lengths.iter().enumerate().map(chunk).collect()
    }

    fn servers(count: usize) -> Rendezvous {
        Rendezvous::new((0..count).map(|number| format!("http://{number}/")))
    }

    fn queue<'a>(
        servers: &'a Rendezvous,
        is_there: &[bool],
        lengths: &[u32],
        (requests_max, bytes_max): (usize, u64),
    ) -> Queue<'a> {
        let limits = is_there
            .iter()
            .map(|is_there| is_there.then_some(requests_max));
        let mut queue = Queue::new(servers, limits, bytes_max);
        wanted(lengths)
            .into_iter()
            .for_each(|wanted| queue.push(wanted));
        queue
    }

    #[derive(Clone, Copy, Debug)]
    enum Outcome {
        Arrives,
        IsAbsent,
        IsLeft,
    }

    proptest! {
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
            requests_max in 1..5_usize,
            bytes_max in 1..5000_u64,
        ) {
            let servers = servers(count);
            let limits = (requests_max, bytes_max);
            let mut queue = queue(&servers, &vec![true; count], &lengths, limits);
            let mut outcomes = outcomes.into_iter().cycle();
            let mut in_flight: VecDeque<(usize, Chunk)> = VecDeque::new();
            let mut answered: HashMap<u64, usize> = HashMap::new();
            loop {
                in_flight.extend(std::iter::from_fn(|| queue.claim()));
                let held: u64 = in_flight.iter().map(|(_, wanted)| room(wanted)).sum();
                prop_assert!(held <= bytes_max || in_flight.len() == 1);
                for server in 0..count {
                    let to_it = in_flight.iter().filter(|(asked, _)| *asked == server);
                    prop_assert!(to_it.count() <= requests_max);
                }
                let Some((server, wanted)) = in_flight.pop_front() else {
                    break;
                };
                queue.answered(server, &wanted);
                match outcomes.next().expect("without end") {
                    Outcome::Arrives | Outcome::IsAbsent => {
                        *answered.entry(wanted.number).or_default() += 1;
                    }
                    Outcome::IsLeft => {
                        queue.leave(server);
                        queue.push(wanted);
                    }
                }
            }
            prop_assert!(answered.values().all(|&times| times == 1));
            prop_assert_eq!(queue.held_bytes, 0);
            let nobody_is_left = queue.lines.iter().all(Option::is_none);
            prop_assert!(answered.len() == lengths.len() || nobody_is_left);
        }
    }

    #[test]
    fn no_more_is_claimed_than_there_is_room_for() {
        let servers = servers(1);
        let mut queue = queue(&servers, &[true], &[100, 100, 900], (9, 400));
        let claim = |queue: &mut Queue<'_>| queue.claim().map(|(_, wanted)| wanted);
        let first = claim(&mut queue).expect("there is room");
        let second = claim(&mut queue).expect("there is room");
        assert_eq!((first.number, second.number), (0, 1));
        assert!(claim(&mut queue).is_none());
        queue.answered(0, &first);
        // The third alone is more than there is room for.
        assert!(claim(&mut queue).is_none());
        queue.answered(0, &second);
        assert_eq!(claim(&mut queue).map(|third| third.number), Some(2));
        assert_eq!(queue.held_bytes, 1800);
    }

    #[test]
    fn who_is_left_hands_on_what_waits() {
        let servers = servers(2);
        let mut queue = queue(&servers, &[true, true], &[1; 50], (100, u64::MAX));
        let (server, wanted) = queue.claim().expect("some");
        queue.answered(server, &wanted);
        queue.leave(server);
        queue.push(wanted);
        let claimed: Vec<_> = std::iter::from_fn(|| queue.claim()).collect();
        assert_eq!(claimed.len(), 50);
        assert!(claimed.iter().all(|(other, _)| *other != server));
    }

    #[test]
    fn without_anybody_to_ask_all_is_left_over() {
        let servers = servers(2);
        let mut queue = queue(&servers, &[false, false], &[1; 5], (1, u64::MAX));
        assert!(queue.claim().is_none());
    }
}
