//! One direction of a link as arithmetic on a virtual clock: numbers of bytes and the time go in,
//! what has arrived comes out. No I/O, no clock, no payload.
//!
//! The way of a byte of one connection, among others:
//!
//! ```text
//!  source ─▶ queue ─▶ bottleneck ─▶ delay ─▶ arrived ─▶ taken by the other side
//!            own      one for all            ╰─ own window ─╯
//! ```
//!
//! - *Queue.* A drop-tail queue in front of a TCP sender turns into back-pressure: a connection
//!   may enter [`Shaper::room`] bytes. The bound is divided by the connections that compete at
//!   the moment; who holds more than the new share when another one joins enters nothing until
//!   the excess has left. Blocked connections do not compete, and keep what they hold.
//! - *Bottleneck.* Connections take turns, a segment or what there is of one at a time. A
//!   departure costs its bytes at the rate and begins when the one before it has ended, at the
//!   exact virtual time, however late [`Shaper::advance`] is called.
//! - *Delay.* The same for all, so the link never reorders. A close follows the bytes before it,
//!   as a FIN would; a reset throws away what is still in the queue and follows what is not.
//! - *Window.* A connection whose other side takes nothing stops at its window and does not keep
//!   the others from the bottleneck.
//!
//! The driver calls [`Shaper::advance`] after every other call and at [`Shaper::deadline`], and
//! then empties [`Shaper::next_event`]. Time is a [`Duration`] since any fixed moment; a call with
//! an earlier `now` than the last one counts as at the last one.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::{LinkConfig, Rate};

/// One direction of a link; see the module's documentation.
pub(crate) struct Shaper {
    rate: Option<Rate>,
    delay: Duration,
    queue_bytes: usize,
    window_bytes: usize,
    frozen: bool,
    /// The latest time that a call has named.
    now: Duration,
    /// When the bottleneck ends its last departure. After each call, unless frozen:
    /// `ready.is_empty() || now < free_at`.
    free_at: Duration,
    lines: HashMap<u64, Line>,
    /// The connections that compete for the bottleneck, in their turn.
    ready: VecDeque<u64>,
    /// What has left the bottleneck; times never decrease.
    in_flight: VecDeque<InFlight>,
    events: VecDeque<Event>,
}

/// What happened on the link. [`Event::Arrived`] is in the order of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// This many more bytes, never zero, are at the other side: hand them on, then say
    /// [`Shaper::taken`].
    Arrived { connection: u64, bytes: usize },
    /// The connection's close arrived, after all of its bytes.
    Closed { connection: u64 },
    /// The connection's reset arrived; nothing of it follows.
    Reset { connection: u64 },
    /// [`Shaper::room`] was zero for this connection and no longer is.
    Room { connection: u64 },
}

impl Shaper {
    /// An idle direction of `link`.
    pub(crate) fn new(link: &LinkConfig) -> Shaper {
        Shaper {
            rate: link.rate,
            delay: link.delay,
            queue_bytes: link.queue_bytes(),
            window_bytes: link.window_bytes(),
            frozen: false,
            now: Duration::ZERO,
            free_at: Duration::ZERO,
            lines: HashMap::new(),
            ready: VecDeque::new(),
            in_flight: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Adds a connection; its number must be new. Calls that name any other connection do nothing.
    pub(crate) fn open(&mut self, connection: u64) {
        self.lines.insert(connection, Line::default());
    }

    /// Removes a connection. What it has in flight is lost, and yields no events.
    pub(crate) fn forget(&mut self, connection: u64) {
        self.withdraw(connection);
        self.lines.remove(&connection);
    }

    /// How many bytes the connection may enter. After a zero, [`Event::Room`] says when to ask
    /// again.
    pub(crate) fn room(&mut self, connection: u64) -> usize {
        let Some(line) = self.lines.get_mut(&connection) else {
            return 0;
        };
        let competitors = self.ready.len() + usize::from(!line.is_ready);
        let share = (self.queue_bytes / competitors).max(SEGMENT_BYTES);
        let room = share.saturating_sub(line.queued_bytes);
        line.wants_room = room == 0;
        room
    }

    /// Puts `bytes` more of the connection into its queue.
    pub(crate) fn enter(&mut self, connection: u64, bytes: usize, now: Duration) {
        self.advance(now);
        if let Some(line) = self.lines.get_mut(&connection) {
            line.queued_bytes += bytes;
            self.settle(connection, self.now);
        }
    }

    /// No more bytes will enter.
    pub(crate) fn close(&mut self, connection: u64, now: Duration) {
        self.advance(now);
        let Some(line) = self.lines.get_mut(&connection) else {
            return;
        };
        if line.queued_bytes > 0 {
            line.closing = true;
        } else {
            self.send_off(connection, self.now, Cargo::Close);
        }
    }

    /// The source has reset the connection: nothing that is still queued leaves any more. Does
    /// nothing the second time.
    pub(crate) fn reset(&mut self, connection: u64, now: Duration) {
        self.advance(now);
        self.withdraw(connection);
        if let Some(line) = self.lines.get_mut(&connection)
            && !line.reset
        {
            line.reset = true;
            line.queued_bytes = 0;
            self.send_off(connection, self.now, Cargo::Reset);
        }
    }

    /// The other side has taken `bytes` of what arrived.
    pub(crate) fn taken(&mut self, connection: u64, bytes: usize, now: Duration) {
        self.advance(now);
        if let Some(line) = self.lines.get_mut(&connection) {
            line.under_way_bytes = line.under_way_bytes.saturating_sub(bytes);
            self.settle(connection, self.now);
        }
    }

    /// Stops everything where it is, as pulling the cable would, until [`Shaper::thaw`].
    pub(crate) fn freeze(&mut self, now: Duration) {
        self.advance(now);
        self.frozen = true;
    }

    /// Goes on after [`Shaper::freeze`]. What was in flight arrives when it would have, or now.
    pub(crate) fn thaw(&mut self, now: Duration) {
        self.advance(now);
        if self.frozen {
            self.frozen = false;
            self.free_at = self.free_at.max(self.now);
        }
    }

    /// Brings the link to `now`.
    pub(crate) fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        if self.frozen {
            return;
        }
        while self.free_at <= self.now
            && let Some(connection) = self.ready.pop_front()
        {
            self.serve(connection);
        }
        while let Some(next) = self.in_flight.front()
            && next.arrives_at <= self.now
        {
            let InFlight {
                connection, cargo, ..
            } = *next;
            self.in_flight.pop_front();
            self.arrive(connection, cargo);
        }
    }

    /// When [`Shaper::advance`] next has something to do; later than the last `now`. `None` means
    /// not before another call.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.frozen {
            return None;
        }
        let departure = self.ready.front().map(|_| self.free_at);
        let arrival = self.in_flight.front().map(|next| next.arrives_at);
        departure.into_iter().chain(arrival).min()
    }

    /// What has happened and was not asked for yet, oldest first.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Gives the bottleneck, which is free, to `connection`, whose turn it was.
    fn serve(&mut self, connection: u64) {
        let Some(line) = self.lines.get_mut(&connection) else {
            return;
        };
        line.is_ready = false;
        let bytes = line.queued_bytes.min(SEGMENT_BYTES);
        line.queued_bytes -= bytes;
        line.under_way_bytes += bytes;
        let is_last = line.closing && line.queued_bytes == 0;
        if std::mem::take(&mut line.wants_room) {
            self.events.push_back(Event::Room { connection });
        }
        let start = self.free_at;
        self.free_at += self
            .rate
            .map_or(Duration::ZERO, |rate| rate.time_for(bytes as u64));
        self.send_off(connection, self.free_at, Cargo::Bytes(bytes));
        if is_last {
            self.send_off(connection, self.free_at, Cargo::Close);
        }
        self.settle(connection, start);
    }

    /// Puts `cargo`, which leaves the bottleneck at `departure`, on its way.
    fn send_off(&mut self, connection: u64, departure: Duration, cargo: Cargo) {
        // A close or a reset passes through an idle bottleneck, but not past what left before it.
        let last_arrival = self
            .in_flight
            .back()
            .map_or(Duration::ZERO, |last| last.arrives_at);
        let arrives_at = (departure + self.delay).max(last_arrival);
        match (self.in_flight.back_mut(), cargo) {
            (
                Some(InFlight {
                    arrives_at: at,
                    connection: same,
                    cargo: Cargo::Bytes(before),
                }),
                Cargo::Bytes(bytes),
            ) if *at == arrives_at && *same == connection => *before += bytes,
            _ => self.in_flight.push_back(InFlight {
                arrives_at,
                connection,
                cargo,
            }),
        }
    }

    fn arrive(&mut self, connection: u64, cargo: Cargo) {
        if !self.lines.contains_key(&connection) {
            return;
        }
        match (cargo, self.events.back_mut()) {
            (
                Cargo::Bytes(more),
                Some(Event::Arrived {
                    connection: same,
                    bytes,
                }),
            ) if *same == connection => {
                *bytes += more;
            }
            (Cargo::Bytes(bytes), _) => {
                self.events.push_back(Event::Arrived { connection, bytes });
            }
            (Cargo::Close, _) => self.events.push_back(Event::Closed { connection }),
            (Cargo::Reset, _) => self.events.push_back(Event::Reset { connection }),
        }
    }

    /// Lets an idle connection compete from `time` on if it has bytes and window to do so.
    fn settle(&mut self, connection: u64, time: Duration) {
        let Some(line) = self.lines.get_mut(&connection) else {
            return;
        };
        let can_depart = line.queued_bytes > 0 && line.under_way_bytes < self.window_bytes;
        if can_depart && !line.is_ready && !line.reset {
            line.is_ready = true;
            self.ready.push_back(connection);
            self.free_at = self.free_at.max(time);
        }
    }

    /// Takes the connection out of the competition.
    fn withdraw(&mut self, connection: u64) {
        if let Some(line) = self.lines.get_mut(&connection)
            && std::mem::take(&mut line.is_ready)
        {
            self.ready.retain(|ready| *ready != connection);
        }
    }
}

/// One connection's place on the link.
#[derive(Default)]
struct Line {
    queued_bytes: usize,
    /// Left the bottleneck and not taken by the other side yet.
    under_way_bytes: usize,
    /// Stands in [`Shaper::ready`].
    is_ready: bool,
    wants_room: bool,
    /// A close waits behind the queued bytes.
    closing: bool,
    reset: bool,
}

struct InFlight {
    arrives_at: Duration,
    connection: u64,
    cargo: Cargo,
}

#[derive(Clone, Copy)]
enum Cargo {
    Bytes(usize),
    Close,
    Reset,
}

/// The unit in which connections take turns: what a packet of Ethernet carries.
const SEGMENT_BYTES: usize = 1460;

#[cfg(test)]
mod tests;
