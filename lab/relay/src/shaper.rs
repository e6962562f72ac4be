//! One direction of a link as arithmetic on a virtual clock: numbers of bytes and the time go in,
//! what has arrived comes out. No I/O, no clock, no payload.
//!
//! The way of a byte of one connection, among others:
//!
//! ```text
//!  source ─▶ queue ─▶ [stall?] ─▶ bottleneck ─▶ delay ─▶ arrived ─▶ taken by the other side
//!            own        own        one for all            ╰─ own window ─╯
//! ```
//!
//! - *Queue.* A drop-tail queue in front of a TCP sender turns into back-pressure: a connection
//!   may enter [`Shaper::room`] bytes. The bound is divided by the connections that compete at
//!   the moment; who holds more than the new share when another one joins enters nothing until
//!   the excess has left. Stalled and blocked connections do not compete, and keep what they hold.
//! - *Stall.* Before each segment a draw ([`crate::stall`]) may hold back this connection, as a
//!   lost packet would. Segments are counted in the stream, `segment_bytes` each from its start,
//!   however the bytes were split on the way in: what stalls does not depend on timing.
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

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::stall::stalls;
use crate::{Direction, LinkConfig, Rate};

/// One direction of a link; see the module's documentation.
///
/// # Example
///
/// ```
/// use refrain_relay::shaper::{Event, Shaper};
/// use refrain_relay::{Direction, LinkConfig, Rate};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let link = LinkConfig { rate: Some(Rate::mbit(8)), delay: ms(20), ..LinkConfig::default() };
/// let mut shaper = Shaper::new(&link, Direction::Up);
/// shaper.open(0);
/// shaper.enter(0, 1000, ms(5));
/// // 1000 bytes take 1 ms at 8 Mbit/s.
/// shaper.advance(ms(26));
/// assert_eq!(shaper.next_event(), Some(Event::Arrived { connection: 0, bytes: 1000 }));
/// ```
#[derive(Debug)]
pub struct Shaper {
    link: LinkConfig,
    direction: Direction,
    rate: Option<Rate>,
    frozen: bool,
    /// The latest time that a call has named.
    now: Duration,
    /// When the bottleneck ends its last departure. After each call, unless frozen:
    /// `ready.is_empty() || now < free_at`.
    free_at: Duration,
    lines: HashMap<u64, Line>,
    /// The connections that compete for the bottleneck, in their turn.
    ready: VecDeque<u64>,
    /// The connections that stall, by the end of the stall.
    stalled: BTreeSet<(Duration, u64)>,
    /// What has left the bottleneck; times never decrease.
    in_flight: VecDeque<InFlight>,
    events: VecDeque<Event>,
    stalls: u64,
}

/// What happened on the link. [`Event::Arrived`] is in the order of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This many more bytes are at the other side: hand them on, then say [`Shaper::taken`].
    Arrived {
        /// Whose bytes.
        connection: u64,
        /// How many; never zero.
        bytes: usize,
    },
    /// The connection's close arrived, after all of its bytes.
    Closed {
        /// Whose close.
        connection: u64,
    },
    /// The connection's reset arrived; nothing of it follows.
    Reset {
        /// Whose reset.
        connection: u64,
    },
    /// [`Shaper::room`] was zero for this connection and no longer is.
    Room {
        /// Who may enter bytes again.
        connection: u64,
    },
}

impl Shaper {
    /// An idle direction of `link`.
    pub fn new(link: &LinkConfig, direction: Direction) -> Shaper {
        Shaper {
            link: link.clone(),
            direction,
            rate: link.rate,
            frozen: false,
            now: Duration::ZERO,
            free_at: Duration::ZERO,
            lines: HashMap::new(),
            ready: VecDeque::new(),
            stalled: BTreeSet::new(),
            in_flight: VecDeque::new(),
            events: VecDeque::new(),
            stalls: 0,
        }
    }

    /// Adds a connection; its number must be new. Calls that name any other connection do nothing.
    pub fn open(&mut self, connection: u64) {
        self.lines.insert(connection, Line::default());
    }

    /// Removes a connection. What it has in flight is lost, and yields no events.
    pub fn forget(&mut self, connection: u64) {
        self.withdraw(connection);
        self.lines.remove(&connection);
    }

    /// How many bytes the connection may enter. After a zero, [`Event::Room`] says when to ask
    /// again.
    pub fn room(&mut self, connection: u64) -> usize {
        let queue_bytes = self.link.queue_bytes(self.rate);
        let Some(line) = self.lines.get_mut(&connection) else {
            return 0;
        };
        let competitors = self.ready.len() + usize::from(line.state != State::Ready);
        let share = (queue_bytes / competitors).max(queue_bytes.min(self.link.segment_bytes));
        let room = share.saturating_sub(line.queued_bytes);
        line.wants_room = room == 0;
        room
    }

    /// Puts `bytes` more of the connection into its queue.
    pub fn enter(&mut self, connection: u64, bytes: usize, now: Duration) {
        self.advance(now);
        if let Some(line) = self.lines.get_mut(&connection) {
            line.queued_bytes += bytes;
            self.settle(connection, self.now);
        }
    }

    /// No more bytes will enter.
    pub fn close(&mut self, connection: u64, now: Duration) {
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
    pub fn reset(&mut self, connection: u64, now: Duration) {
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
    pub fn taken(&mut self, connection: u64, bytes: usize, now: Duration) {
        self.advance(now);
        if let Some(line) = self.lines.get_mut(&connection) {
            line.under_way_bytes = line.under_way_bytes.saturating_sub(bytes);
            self.settle(connection, self.now);
        }
    }

    /// Changes the rate for all that has not begun to depart.
    pub fn set_rate(&mut self, rate: Option<Rate>, now: Duration) {
        self.advance(now);
        self.rate = rate;
    }

    /// Stops everything where it is, as pulling the cable would, until [`Shaper::thaw`].
    pub fn freeze(&mut self, now: Duration) {
        self.advance(now);
        self.frozen = true;
    }

    /// Goes on after [`Shaper::freeze`]. What was in flight arrives when it would have, or now.
    pub fn thaw(&mut self, now: Duration) {
        self.advance(now);
        if self.frozen {
            self.frozen = false;
            self.free_at = self.free_at.max(self.now);
        }
    }

    /// Brings the link to `now`.
    pub fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        if self.frozen {
            return;
        }
        while let Some(start) = self.next_start().filter(|start| *start <= self.now) {
            self.end_stalls(start);
            self.serve(start);
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
    pub fn deadline(&self) -> Option<Duration> {
        if self.frozen {
            return None;
        }
        let arrival = self.in_flight.front().map(|next| next.arrives_at);
        self.next_start().into_iter().chain(arrival).min()
    }

    /// What has happened and was not asked for yet, oldest first.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How many stalls there were.
    pub fn stalls(&self) -> u64 {
        self.stalls
    }

    /// When the bottleneck next has somebody to serve, if somebody waits.
    fn next_start(&self) -> Option<Duration> {
        if self.ready.is_empty() {
            self.stalled.first().map(|(end, _)| self.free_at.max(*end))
        } else {
            Some(self.free_at)
        }
    }

    fn end_stalls(&mut self, time: Duration) {
        while let Some(&(end, connection)) = self.stalled.first()
            && end <= time
        {
            self.stalled.pop_first();
            self.ready.push_back(connection);
            if let Some(line) = self.lines.get_mut(&connection) {
                line.state = State::Ready;
            }
        }
    }

    /// Gives the bottleneck at `start` to whose turn it is: a departure, or a stall.
    fn serve(&mut self, start: Duration) {
        self.free_at = start;
        let Some(connection) = self.ready.pop_front() else {
            return;
        };
        let Some(line) = self.lines.get_mut(&connection) else {
            return;
        };
        line.state = State::Idle;

        let segment_bytes = self.link.segment_bytes as u64;
        let segment = line.departed_bytes / segment_bytes;
        let of_segment = (line.departed_bytes % segment_bytes) as usize;
        if of_segment == 0 && line.segments_drawn <= segment {
            line.segments_drawn = segment + 1;
            let probability = self.link.stall_probability;
            if stalls(
                self.link.seed,
                connection,
                self.direction,
                segment,
                probability,
            ) {
                self.stalls += 1;
                line.state = State::Stalled {
                    end: start + self.link.stall,
                };
                self.stalled.insert((start + self.link.stall, connection));
                return;
            }
        }

        let bytes = line.queued_bytes.min(self.link.segment_bytes - of_segment);
        line.queued_bytes -= bytes;
        line.departed_bytes += bytes as u64;
        line.under_way_bytes += bytes;
        let is_last = line.closing && line.queued_bytes == 0;
        if std::mem::take(&mut line.wants_room) {
            self.events.push_back(Event::Room { connection });
        }
        self.free_at = start
            + self
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
        let arrives_at = (departure + self.link.delay).max(last_arrival);
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
        let window_bytes = self.link.window_bytes(self.rate);
        let Some(line) = self.lines.get_mut(&connection) else {
            return;
        };
        let can_depart = line.queued_bytes > 0 && line.under_way_bytes < window_bytes;
        if line.state == State::Idle && can_depart && !line.reset {
            line.state = State::Ready;
            self.ready.push_back(connection);
            self.free_at = self.free_at.max(time);
        }
    }

    /// Takes the connection out of the competition.
    fn withdraw(&mut self, connection: u64) {
        let Some(line) = self.lines.get_mut(&connection) else {
            return;
        };
        match std::mem::replace(&mut line.state, State::Idle) {
            State::Idle => {}
            State::Ready => self.ready.retain(|ready| *ready != connection),
            State::Stalled { end } => {
                self.stalled.remove(&(end, connection));
            }
        }
    }
}

/// One connection's place on the link.
#[derive(Debug, Default)]
struct Line {
    state: State,
    queued_bytes: usize,
    /// Left the bottleneck since the connection began.
    departed_bytes: u64,
    /// Left the bottleneck and not taken by the other side yet.
    under_way_bytes: usize,
    /// Segments before this one have had their draw.
    segments_drawn: u64,
    wants_room: bool,
    /// A close waits behind the queued bytes.
    closing: bool,
    reset: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing queued, or no window.
    #[default]
    Idle,
    /// In `Shaper::ready`.
    Ready,
    /// In `Shaper::stalled`.
    Stalled { end: Duration },
}

#[derive(Debug)]
struct InFlight {
    arrives_at: Duration,
    connection: u64,
    cargo: Cargo,
}

#[derive(Clone, Copy, Debug)]
enum Cargo {
    Bytes(usize),
    Close,
    Reset,
}

#[cfg(test)]
mod tests;
