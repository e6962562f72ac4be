//! The bytes of both directions of each connection, in order.
//!
//! Segments may be lost, repeated, out of order, overlapping or cut off; numbers wrap around; connections may have begun
//! before the capture, and ports are used again. Of bytes that come twice, the first ones count.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    net::SocketAddr,
    time::Duration,
};

use crate::{Segment, Time};

/// A gap is given up once its bytes were acknowledged and nothing filled it for so long.
const GAP: Duration = Duration::from_secs(1);

/// Numbers further ahead than this are of another connection, or none.
const AHEAD_MAX: i64 = 1 << 30;

/// The number of a connection in the order of their first packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowNumber(pub u64);

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The end that opened it, or seems to have done so: the other one has the lower port.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// When its first packet was captured.
    pub began: Time,
}

/// The sender of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// The receiver of the streams.
pub trait Sink {
    /// A connection's first packet.
    fn opened(&mut self, flow: FlowNumber, ends: &Flow);
    /// The time from its first packet to the first one that answers the server's: a round trip. It comes before bytes do.
    fn round_trip(&mut self, _flow: FlowNumber, _round_trip: Duration) {}
    /// Its next bytes of a direction. `at` is when their segment was captured.
    fn came(&mut self, flow: FlowNumber, direction: Direction, at: Time, bytes: &[u8]);
    /// Instead, so many bytes that the capture lacks.
    fn missed(&mut self, flow: FlowNumber, direction: Direction, bytes: u64);
    /// Nothing more comes.
    fn closed(&mut self, flow: FlowNumber);
}

/// Bounds of the memory of streams.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once. One more ends the one that was silent for longest.
    pub flows: usize,
    /// Bytes after gaps.
    pub waiting_bytes: usize,
    /// A connection that was silent for so long is over.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows: 1 << 18,
            waiting_bytes: 256 << 20,
            idle: Duration::from_secs(600),
        }
    }
}

/// Counts of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Segments of TCP.
    pub segments: u64,
    /// Connections.
    pub flows: u64,
    /// Those whose beginning the capture lacks.
    pub without_begin: u64,
    /// Those that were ended for want of room.
    pub ended_early: u64,
    /// Bytes in order.
    pub bytes: u64,
    /// Bytes that came again.
    pub repeated_bytes: u64,
    /// Bytes that the capture lacks: lost, or cut off.
    pub missed_bytes: u64,
    /// Segments with numbers far from all others of their connection.
    pub misplaced: u64,
}

/// All connections of a capture.
pub struct Streams {
    limits: Limits,
    flows: HashMap<(SocketAddr, SocketAddr), State>,
    /// Connections by when they were last looked at for silence.
    next: u64,
    waiting_bytes: usize,
    last_look: Time,
    counts: StreamCounts,
}

/// One connection.
struct State {
    number: FlowNumber,
    /// By `Direction`.
    halves: [Half; 2],
    last: Time,
    handshake: Handshake,
    /// Whether its lower end, by address and port, is the client.
    is_lower_client: bool,
    /// Both directions have ended. Repeated segments may still come.
    is_over: bool,
}

/// How far a connection's handshake is.
#[derive(Clone, Copy)]
enum Handshake {
    /// The client's first packet.
    Asked(Time),
    /// The server's, after it.
    Answered(Time),
    /// It is over, or its times say nothing.
    Over,
}

/// One direction. Positions count from its first byte; the number 0 is before it.
#[derive(Default)]
struct Half {
    /// The number of the next byte in order, and its position.
    next: Option<(u32, u64)>,
    /// The number with which it began.
    first: Option<u32>,
    waiting: BTreeMap<u64, Piece>,
    waiting_bytes: usize,
    /// When the first of `waiting` came.
    gap_since: Option<Time>,
    /// The other end has these.
    acknowledged: Option<u32>,
    /// Where it ends.
    end: Option<u64>,
}

/// A segment after a gap.
struct Piece {
    at: Time,
    bytes: Vec<u8>,
    length: u64,
}

impl Handshake {
    /// The time at which it began, if this segment completes it. Repeated packets make it worthless.
    fn step(&mut self, direction: Direction, at: Time, segment: &Segment<'_>) -> Option<Time> {
        let (next, began) = match (*self, direction, segment.is_syn) {
            (Self::Asked(began), Direction::Up, true) if began == at => (*self, None),
            (Self::Asked(began), Direction::Down, true) => (Self::Answered(began), None),
            (Self::Answered(began), Direction::Up, false) => (Self::Over, Some(began)),
            _ => (Self::Over, None),
        };
        *self = next;
        began
    }
}

impl Direction {
    fn other(self) -> Self {
        match self {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }
}

impl Streams {
    /// None yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            flows: HashMap::new(),
            next: 0,
            waiting_bytes: 0,
            last_look: Time(0),
            counts: StreamCounts::default(),
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> StreamCounts {
        self.counts
    }

    /// Takes the next segment of the capture.
    pub fn segment(&mut self, at: Time, segment: &Segment<'_>, sink: &mut impl Sink) {
        self.counts.segments += 1;
        self.look_for_silence(at, sink);
        let is_lower = segment.source <= segment.destination;
        let key = match is_lower {
            true => (segment.source, segment.destination),
            false => (segment.destination, segment.source),
        };
        if self.begins_anew(&key, is_lower, segment) {
            self.close(&key, sink);
        }
        if !self.flows.contains_key(&key) {
            self.open(key, at, is_lower, segment, sink);
        }
        let Entry::Occupied(mut entry) = self.flows.entry(key) else {
            return;
        };
        let state = entry.get_mut();
        state.last = state.last.max(at);
        let direction = match is_lower == state.is_lower_client {
            true => Direction::Up,
            false => Direction::Down,
        };
        if state.is_over {
            self.counts.repeated_bytes += u64::from(segment.length);
            return;
        }
        if let Some(began) = state.handshake.step(direction, at, segment) {
            let round_trip = Duration::from_nanos(at.0.saturating_sub(began.0));
            sink.round_trip(state.number, round_trip);
        }
        let mut reassembly = Reassembly {
            number: state.number,
            counts: &mut self.counts,
            waiting_bytes: &mut self.waiting_bytes,
            sink,
        };
        let half = &mut state.halves[direction as usize];
        reassembly.take(half, direction, at, segment);
        if let Some(acknowledgment) = segment.acknowledgment {
            let other = direction.other();
            let half = &mut state.halves[other as usize];
            half.acknowledged = Some(acknowledgment);
            reassembly.give_up_gap(half, other, at);
        }
        while *reassembly.waiting_bytes > self.limits.waiting_bytes {
            // This connection's, which is the one that grows.
            let mut gave = false;
            for direction in [Direction::Up, Direction::Down] {
                let half = &mut state.halves[direction as usize];
                gave |= reassembly.skip_gap(half, direction);
            }
            if !gave {
                break;
            }
        }
        if !state.is_over && state.halves.iter().all(Half::is_whole) {
            state.is_over = true;
            sink.closed(state.number);
        }
    }

    /// Ends all connections.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        let mut left: Vec<_> = self
            .flows
            .iter()
            .map(|(key, state)| (state.number, *key))
            .collect();
        left.sort_unstable_by_key(|(number, _)| *number);
        for (_, key) in left {
            self.close(&key, sink);
        }
    }

    /// Whether a SYN is of a further connection with the same addresses and ports.
    fn begins_anew(
        &self,
        key: &(SocketAddr, SocketAddr),
        is_lower: bool,
        segment: &Segment<'_>,
    ) -> bool {
        let Some(state) = self.flows.get(key) else {
            return false;
        };
        let half = &state.halves[usize::from(is_lower != state.is_lower_client)];
        segment.is_syn
            && segment.acknowledgment.is_none()
            && half.first.is_some_and(|first| first != segment.sequence)
    }

    fn open(
        &mut self,
        key: (SocketAddr, SocketAddr),
        at: Time,
        is_lower: bool,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) {
        if self.flows.len() >= self.limits.flows {
            self.make_room(sink);
        }
        let is_from_client = match (segment.is_syn, segment.acknowledgment) {
            (true, None) => true,
            (true, Some(_)) => false,
            // Servers have the lower port.
            _ => segment.source.port() >= segment.destination.port(),
        };
        let (client, server) = match is_from_client {
            true => (segment.source, segment.destination),
            false => (segment.destination, segment.source),
        };
        let number = FlowNumber(self.next);
        self.next += 1;
        self.counts.flows += 1;
        self.counts.without_begin += u64::from(!segment.is_syn);
        let flow = Flow {
            client,
            server,
            began: at,
        };
        sink.opened(number, &flow);
        let state = State {
            number,
            halves: Default::default(),
            last: at,
            handshake: match is_from_client && segment.is_syn {
                true => Handshake::Asked(at),
                false => Handshake::Over,
            },
            is_lower_client: is_lower == is_from_client,
            is_over: false,
        };
        self.flows.insert(key, state);
    }

    fn close(&mut self, key: &(SocketAddr, SocketAddr), sink: &mut impl Sink) {
        let Some(mut state) = self.flows.remove(key) else {
            return;
        };
        let mut reassembly = Reassembly {
            number: state.number,
            counts: &mut self.counts,
            waiting_bytes: &mut self.waiting_bytes,
            sink,
        };
        for direction in [Direction::Up, Direction::Down] {
            let half = &mut state.halves[direction as usize];
            while reassembly.skip_gap(half, direction) {}
        }
        if !state.is_over {
            sink.closed(state.number);
        }
    }

    fn look_for_silence(&mut self, at: Time, sink: &mut impl Sink) {
        let idle = self.limits.idle.as_nanos() as u64;
        if at.0 < self.last_look.0.saturating_add(idle / 4) {
            return;
        }
        self.last_look = at;
        let is_silent = |state: &State| state.last.0.saturating_add(idle) < at.0;
        let mut silent: Vec<_> = self
            .flows
            .iter()
            .filter(|(_, state)| is_silent(state))
            .map(|(key, state)| (state.number, *key))
            .collect();
        silent.sort_unstable_by_key(|(number, _)| *number);
        for (_, key) in silent {
            self.close(&key, sink);
        }
    }

    /// Ends the eighth of all connections that were silent for longest: one at a time would cost a search each.
    fn make_room(&mut self, sink: &mut impl Sink) {
        let mut all: Vec<_> = self
            .flows
            .iter()
            .map(|(key, state)| (state.last, state.number, *key))
            .collect();
        let count = (all.len() / 8).max(1);
        all.select_nth_unstable_by_key(count - 1, |(last, number, _)| (*last, *number));
        all.truncate(count);
        all.sort_unstable_by_key(|(_, number, _)| *number);
        for (_, _, key) in all {
            self.counts.ended_early += 1;
            self.close(&key, sink);
        }
    }
}

/// Puts a direction's segments in order.
struct Reassembly<'a, S> {
    number: FlowNumber,
    counts: &'a mut StreamCounts,
    waiting_bytes: &'a mut usize,
    sink: &'a mut S,
}

impl<S: Sink> Reassembly<'_, S> {
    fn take(&mut self, half: &mut Half, direction: Direction, at: Time, segment: &Segment<'_>) {
        let mut sequence = segment.sequence;
        if segment.is_syn {
            half.first.get_or_insert(sequence);
            sequence = sequence.wrapping_add(1);
        }
        // A reset has a number of its own, and no bytes of the stream.
        if segment.is_reset {
            return;
        }
        let is_empty = segment.length == 0 && !segment.is_fin && !segment.is_syn;
        if is_empty {
            return;
        }
        let (next, position) = *half.next.get_or_insert((sequence, 0));
        let ahead = i64::from(sequence.wrapping_sub(next) as i32);
        if ahead.abs() > AHEAD_MAX {
            self.counts.misplaced += 1;
            return;
        }
        let length = u64::from(segment.length);
        let begin = position as i64 + ahead;
        let end = begin + length as i64;
        if segment.is_fin && end >= 0 {
            half.end = Some(end as u64);
        }
        if length == 0 {
            return;
        }
        if end <= position as i64 {
            self.counts.repeated_bytes += length;
            return;
        }
        let repeated = (position as i64 - begin).max(0) as u64;
        self.counts.repeated_bytes += repeated;
        let begin = begin.max(position as i64) as u64;
        let bytes = segment.bytes.get(repeated as usize..).unwrap_or_default();
        let length = length - repeated;
        if begin == position {
            self.deliver(half, direction, at, bytes, length);
            return self.deliver_waiting(half, direction);
        }
        self.wait(half, at, begin, bytes, length);
        self.give_up_gap(half, direction, at);
    }

    /// Keeps the parts of a segment that nothing that waits has.
    fn wait(&mut self, half: &mut Half, at: Time, begin: u64, bytes: &[u8], length: u64) {
        half.gap_since.get_or_insert(at);
        let (mut begin, end) = (begin, begin + length);
        let mut bytes = bytes;
        let before = half.waiting.range(..=begin).next_back();
        if let Some((start, piece)) = before {
            let covered = (start + piece.length)
                .saturating_sub(begin)
                .min(end - begin);
            self.counts.repeated_bytes += covered;
            begin += covered;
            bytes = bytes.get(covered as usize..).unwrap_or_default();
        }
        while begin < end {
            let following = half.waiting.range(begin..end).next();
            let following = following.map(|(start, piece)| (*start, start + piece.length));
            let until = following.map_or(end, |(start, _)| start);
            if until > begin {
                let own = &bytes[..bytes.len().min((until - begin) as usize)];
                half.waiting_bytes += own.len();
                *self.waiting_bytes += own.len();
                let piece = Piece {
                    at,
                    bytes: own.to_vec(),
                    length: until - begin,
                };
                half.waiting.insert(begin, piece);
            }
            let reached = following.map_or(end, |(_, stop)| stop.min(end));
            self.counts.repeated_bytes += reached - until;
            bytes = bytes.get((reached - begin) as usize..).unwrap_or_default();
            begin = reached;
        }
    }

    fn deliver(
        &mut self,
        half: &mut Half,
        direction: Direction,
        at: Time,
        bytes: &[u8],
        length: u64,
    ) {
        if !bytes.is_empty() {
            self.counts.bytes += bytes.len() as u64;
            self.sink.came(self.number, direction, at, bytes);
        }
        let cut_off = length - bytes.len() as u64;
        if cut_off > 0 {
            self.miss(direction, cut_off);
        }
        half.advance(length);
    }

    fn miss(&mut self, direction: Direction, bytes: u64) {
        self.counts.missed_bytes += bytes;
        self.sink.missed(self.number, direction, bytes);
    }

    fn deliver_waiting(&mut self, half: &mut Half, direction: Direction) {
        while let Some(entry) = half.waiting.first_entry() {
            let (_, next) = half.next.expect("something came");
            if *entry.key() > next {
                half.gap_since = Some(entry.get().at);
                return;
            }
            let (start, piece) = entry.remove_entry();
            half.waiting_bytes -= piece.bytes.len();
            *self.waiting_bytes -= piece.bytes.len();
            let known = next - start;
            if known >= piece.length {
                self.counts.repeated_bytes += piece.length;
                continue;
            }
            self.counts.repeated_bytes += known;
            let bytes = piece.bytes.get(known as usize..).unwrap_or_default();
            self.deliver(half, direction, piece.at, bytes, piece.length - known);
        }
        half.gap_since = None;
    }

    /// Gives the first gap up if the other end has its bytes, which the capture lacks.
    fn give_up_gap(&mut self, half: &mut Half, direction: Direction, at: Time) {
        let (Some(since), Some(acknowledged), Some((next, position))) =
            (half.gap_since, half.acknowledged, half.next)
        else {
            return;
        };
        let Some((&start, _)) = half.waiting.first_key_value() else {
            return;
        };
        let has = i64::from(acknowledged.wrapping_sub(next) as i32) >= (start - position) as i64;
        if has && at.0.saturating_sub(since.0) >= GAP.as_nanos() as u64 {
            self.skip_gap(half, direction);
        }
    }

    /// Continues after the first gap, if there is one.
    fn skip_gap(&mut self, half: &mut Half, direction: Direction) -> bool {
        let (Some((&start, _)), Some((_, position))) = (half.waiting.first_key_value(), half.next)
        else {
            return false;
        };
        self.miss(direction, start - position);
        half.advance(start - position);
        self.deliver_waiting(half, direction);
        true
    }
}

impl Half {
    /// Whether all of it has come, its end included.
    fn is_whole(&self) -> bool {
        match (self.end, self.next) {
            (Some(end), Some((_, next))) => next >= end,
            _ => false,
        }
    }

    fn advance(&mut self, length: u64) {
        if let Some((next, position)) = &mut self.next {
            *next = next.wrapping_add(length as u32);
            *position += length;
        }
    }
}
