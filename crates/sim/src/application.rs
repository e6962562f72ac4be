//! An application: one end of one flow, writing and reading in its own manner.
//!
//! It goes on only when the engine told it to, as the gateway does: it writes again after
//! [`Event::Writable`](refrain_proto::Event::Writable) where fewer bytes were taken than
//! it gave, and looks for bytes after [`Event::Readable`](refrain_proto::Event::Readable).
//! A missing event is a flow that never ends.

use std::time::Duration;

use fastrand::Rng;
use refrain_proto::{FlowId, Link, Moment};

use crate::{
    End, Failure,
    kinds::{Kind, Kinds},
    ledger::{FlowKey, FlowRecord},
};

/// One end of one flow.
#[derive(Debug)]
pub(crate) struct Application {
    end: End,
    pub(crate) key: FlowKey,
    manner: Manner,
    /// Not decided yet whether the offered flow is taken.
    is_offer: bool,
    is_held_back: bool,
    has_finished: bool,
    has_heard: bool,
    is_readable: bool,
    saw_end: bool,
    /// Taken from the link, and not all passed on.
    buffer: Vec<u8>,
    passed_on: usize,
    turns: u32,
    /// Whether a turn is booked.
    pub(crate) is_booked: bool,
}

/// How an application behaves.
#[derive(Debug)]
struct Manner {
    write_bytes: usize,
    /// Asks for room before it writes, as a proxy does that reads no more than it can pass on.
    asks_for_room: bool,
    read_bytes: usize,
    pause: Duration,
    /// Reads nothing before.
    reads_from: Moment,
    /// An answer: writes nothing before it has read something.
    answers: bool,
    refuses: bool,
    resets_after_turns: u32,
}

/// What an application does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another turn, after a while.
    Again(Duration),
    /// Nothing, until the engine says so.
    Waits,
    /// Its flow is over.
    Over,
}

impl Manner {
    fn draw(rng: &mut Rng, now: Moment, bytes: usize, kinds: &mut Kinds) -> Self {
        let write_bytes = match rng.u8(..10) {
            0 if bytes < 300 => 1,
            0..3 => 1 + bytes / 100 + rng.usize(..500),
            3..6 => 4 << 10,
            6..8 => 20_000,
            _ => 64 << 10,
        };
        let is_slow = rng.u8(..8) == 0;
        let read_bytes = match is_slow {
            true => 100 + bytes / 50,
            false => usize::MAX,
        };
        kinds.note_many(Kind::SlowReader, u64::from(is_slow));
        let late = Duration::from_millis(rng.u64(..3000));
        Self {
            write_bytes,
            asks_for_room: rng.bool(),
            read_bytes,
            pause: Duration::from_micros(match rng.u8(..4) {
                0 => 20_000,
                1 => 2_000,
                _ => 50,
            }),
            reads_from: if rng.u8(..10) == 0 { now + late } else { now },
            answers: rng.bool(),
            refuses: rng.u8(..12) == 0,
            resets_after_turns: match rng.u8(..14) {
                0 => rng.u32(..40),
                _ => u32::MAX,
            },
        }
    }
}

impl Application {
    pub(crate) fn new(
        rng: &mut Rng,
        now: Moment,
        end: End,
        key: FlowKey,
        record: &FlowRecord,
        opened_here: bool,
        kinds: &mut Kinds,
    ) -> Self {
        let bytes = record
            .content_bytes(end)
            .max(record.content_bytes(end.other()));
        let mut manner = Manner::draw(rng, now, bytes, kinds);
        manner.answers &= !opened_here;
        Self {
            end,
            key,
            manner,
            is_offer: !opened_here,
            is_held_back: false,
            has_finished: false,
            has_heard: false,
            is_readable: false,
            saw_end: false,
            buffer: Vec::new(),
            passed_on: 0,
            turns: 0,
            is_booked: false,
        }
    }

    fn flow(&self) -> FlowId {
        self.key.flow
    }

    pub(crate) fn readable(&mut self) {
        self.is_readable = true;
    }

    pub(crate) fn writable(&mut self) {
        self.is_held_back = false;
    }

    pub(crate) fn turn(
        &mut self,
        now: Moment,
        link: &mut Link,
        record: &mut FlowRecord,
        kinds: &mut Kinds,
    ) -> Result<Next, Failure> {
        self.turns += 1;
        if core::mem::replace(&mut self.is_offer, false) {
            if self.manner.refuses {
                kinds.note(Kind::Refusal);
                record.was_cut_short = true;
                link.refuse_flow(self.flow(), 3, "connection refused");
                return Ok(Next::Over);
            }
            link.accept_flow(self.flow(), false);
        }
        if self.turns > self.manner.resets_after_turns {
            kinds.note(Kind::ResetByApplication);
            record.was_cut_short = true;
            link.reset(self.flow(), 9);
            return Ok(Next::Over);
        }
        let reads_on = self.read(now, link, record)?;
        let writes_on = self.write(now, link, record, kinds);
        let has_read_all = self.saw_end && self.passed_on == self.buffer.len();
        if has_read_all && self.has_finished {
            kinds.note(Kind::FlowCompleted);
            return Ok(Next::Over);
        }
        if now < self.manner.reads_from && !writes_on {
            return Ok(Next::Again(self.manner.reads_from.since(now)));
        }
        if reads_on || writes_on {
            return Ok(Next::Again(self.manner.pause));
        }
        Ok(Next::Waits)
    }

    /// Says whether there is more to read, without a further event.
    fn read(
        &mut self,
        now: Moment,
        link: &mut Link,
        record: &mut FlowRecord,
    ) -> Result<bool, Failure> {
        let has_all = self.saw_end && self.passed_on == self.buffer.len();
        if has_all || now < self.manner.reads_from {
            return Ok(false);
        }
        let (flow, from) = (self.flow(), self.end.other());
        if self.passed_on == self.buffer.len() && core::mem::take(&mut self.is_readable) {
            link.take_ready(flow, &mut self.buffer);
            self.passed_on = 0;
            self.has_heard = true;
            record.delivered(from, flow, &self.buffer)?;
            if link.take_end(flow) {
                record.ended(from, flow)?;
                self.saw_end = true;
            }
        }
        let bytes = (self.buffer.len() - self.passed_on).min(self.manner.read_bytes);
        if bytes > 0 {
            self.passed_on += bytes;
            link.taken(flow, bytes);
        }
        Ok(self.passed_on < self.buffer.len() || !self.saw_end && self.is_readable)
    }

    /// Says whether there is more to write, without a further event.
    fn write(
        &mut self,
        now: Moment,
        link: &mut Link,
        record: &mut FlowRecord,
        kinds: &mut Kinds,
    ) -> bool {
        if self.has_finished || self.is_held_back || (self.manner.answers && !self.has_heard) {
            return false;
        }
        let flow = self.flow();
        let unwritten = record.unwritten(self.end);
        let mut wanted = unwritten.len().min(self.manner.write_bytes);
        if wanted > 0 {
            if self.manner.asks_for_room {
                wanted = wanted.min(link.room(now, flow));
                if wanted == 0 {
                    self.is_held_back = true;
                    kinds.note(Kind::WriterHeldBack);
                    return false;
                }
            }
            // As a gateway's flows do; the others leave what was predicted to their lane.
            let taken = match self.manner.asks_for_room {
                true => link.write_and_confirm(now, flow, &unwritten[..wanted]),
                false if self.turns.is_multiple_of(5) => {
                    link.write_secret(flow, &unwritten[..wanted])
                }
                false => link.write(flow, &unwritten[..wanted]),
            };
            record.written(self.end, taken);
            if taken < wanted {
                self.is_held_back = true;
                kinds.note(Kind::WriterHeldBack);
                return false;
            }
        }
        if record.unwritten(self.end).is_empty() {
            self.has_finished = true;
            record.finished(self.end);
            link.finish(flow);
            kinds.note_many(Kind::HalfClose, u64::from(!self.saw_end));
            return false;
        }
        true
    }
}
