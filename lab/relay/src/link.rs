//! One direction of the link in real time: a [`Shaper`] behind a lock, the clock that drives it,
//! and the ways by which its events reach the connections.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};

use crate::LinkConfig;
use crate::shaper::{Event, Shaper};

/// One direction, shared by all connections and by the thread in [`Link::drive`].
pub(crate) struct Link {
    started: Instant,
    state: Mutex<LinkState>,
    /// Wakes the driver when the deadline has moved forward.
    rearm: Condvar,
}

struct LinkState {
    shaper: Shaper,
    outlets: HashMap<u64, Outlet>,
    /// What the driver sleeps until; `None` means until it is woken.
    armed: Option<Duration>,
    stopped: bool,
}

/// By what a connection hears of its events.
struct Outlet {
    arrivals: mpsc::UnboundedSender<Arrival>,
    room: Arc<Notify>,
    reset: Arc<Notify>,
}

/// What the link hands on, in order. The shaper's window bounds how much of it can wait.
pub(crate) enum Arrival {
    Bytes(usize),
    Close,
}

impl Link {
    pub(crate) fn new(config: &LinkConfig) -> Link {
        Link {
            started: Instant::now(),
            state: Mutex::new(LinkState {
                shaper: Shaper::new(config),
                outlets: HashMap::new(),
                armed: None,
                stopped: false,
            }),
            rearm: Condvar::new(),
        }
    }

    /// Keeps the link's time until [`Link::stop`]. For a thread of its own: the runtime's timers
    /// are as coarse as a millisecond, which is a fifth of a delay of 5 ms.
    pub(crate) fn drive(&self) {
        let mut state = lock(&self.state);
        while !state.stopped {
            let now = self.started.elapsed();
            state.shaper.advance(now);
            state.dispatch();
            state.armed = state.shaper.deadline();
            state = match state.armed {
                Some(deadline) => {
                    let wait = deadline.saturating_sub(now).max(TICK);
                    self.rearm
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .rearm
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.rearm.notify_one();
    }

    /// Adds a connection. `reset` is notified when its reset has crossed this direction.
    pub(crate) fn open(&self, connection: u64, reset: Arc<Notify>) -> Ends<'_> {
        let (arrivals, receiver) = mpsc::unbounded_channel();
        let room = Arc::new(Notify::new());
        let mut state = lock(&self.state);
        state.shaper.open(connection);
        state.outlets.insert(
            connection,
            Outlet {
                arrivals,
                room: Arc::clone(&room),
                reset,
            },
        );
        (
            Inlet {
                link: self,
                connection,
                room,
            },
            receiver,
        )
    }

    pub(crate) fn freeze(&self) {
        self.update(|shaper, now| shaper.freeze(now));
    }

    pub(crate) fn thaw(&self) {
        self.update(|shaper, now| shaper.thaw(now));
    }

    /// Makes a call of the shaper, and all that follows from it at once.
    fn update(&self, call: impl FnOnce(&mut Shaper, Duration)) {
        let now = self.started.elapsed();
        let mut state = lock(&self.state);
        call(&mut state.shaper, now);
        state.shaper.advance(now);
        state.dispatch();
        let deadline = state.shaper.deadline();
        if deadline.is_some_and(|deadline| state.armed.is_none_or(|armed| deadline < armed)) {
            state.armed = deadline;
            self.rearm.notify_one();
        }
    }
}

/// A connection's two ends of a direction. Dropping the inlet takes the connection off the link.
pub(crate) type Ends<'a> = (Inlet<'a>, mpsc::UnboundedReceiver<Arrival>);

/// Where a connection's bytes enter a direction.
pub(crate) struct Inlet<'a> {
    link: &'a Link,
    connection: u64,
    room: Arc<Notify>,
}

impl Inlet<'_> {
    /// Waits until the link takes bytes, and says how many.
    pub(crate) async fn room(&self) -> usize {
        loop {
            let room = lock(&self.link.state).shaper.room(self.connection);
            if room > 0 {
                return room;
            }
            self.room.notified().await;
        }
    }

    pub(crate) fn enter(&self, bytes: usize) {
        self.link
            .update(|shaper, now| shaper.enter(self.connection, bytes, now));
    }

    pub(crate) fn close(&self) {
        self.link
            .update(|shaper, now| shaper.close(self.connection, now));
    }

    pub(crate) fn reset(&self) {
        self.link
            .update(|shaper, now| shaper.reset(self.connection, now));
    }

    pub(crate) fn taken(&self, bytes: usize) {
        self.link
            .update(|shaper, now| shaper.taken(self.connection, bytes, now));
    }
}

impl Drop for Inlet<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.link.state);
        state.outlets.remove(&self.connection);
        state.shaper.forget(self.connection);
    }
}

impl LinkState {
    fn dispatch(&mut self) {
        while let Some(event) = self.shaper.next_event() {
            let (Event::Arrived { connection, .. }
            | Event::Closed { connection }
            | Event::Reset { connection }
            | Event::Room { connection }) = event;
            let Some(outlet) = self.outlets.get(&connection) else {
                continue;
            };
            // A connection that no longer listens is about to leave the link.
            match event {
                Event::Arrived { bytes, .. } => drop(outlet.arrivals.send(Arrival::Bytes(bytes))),
                Event::Closed { .. } => drop(outlet.arrivals.send(Arrival::Close)),
                Event::Reset { .. } => outlet.reset.notify_one(),
                Event::Room { .. } => outlet.room.notify_one(),
            }
        }
    }
}

/// Locks; a panic elsewhere while it was locked is that task's failure and not a second one here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's shortest sleep: departures that are nearer than that are handled together, at no
/// cost to the rate, since the shaper counts in exact times.
const TICK: Duration = Duration::from_micros(200);
