//! Connections that are open when something fails, each in a state of its own.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

use super::{
    clients::{ASK, HANGS_AFTER, Outcome, Place, begin, end_of},
    origin::{BOTH, Content, LAST},
};

/// A stream that pauses for longer has been resumed.
const PAUSE: Duration = Duration::from_millis(500);

/// How often a stream looks whether the observation is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What an upload sends at a time, and the pause after it.
const UPLOAD_BYTES: usize = 8 << 10;
const UPLOAD_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Nothing moves.
    Idle,
    /// Streams in both directions.
    Transfer,
    /// The client has ended its side, and the origin still sends.
    HalfClosed,
}

pub(super) const STATES: [State; 3] = [State::Idle, State::Transfer, State::HalfClosed];

/// The times that all connections of an observation share.
#[derive(Default)]
pub(super) struct Clock {
    pub event: OnceLock<Instant>,
    is_over: AtomicBool,
}

impl Clock {
    /// Those that continue may end.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn since_event(&self) -> Duration {
        self.event.get().map(Instant::elapsed).unwrap_or_default()
    }
}

/// An open connection that is observed.
pub(super) struct Open {
    pub state: State,
    /// How the origin saw it at its beginning.
    pub way: Outcome,
    /// Its number at the origin, if it uploads.
    pub upload: Option<u64>,
    observing: JoinHandle<(Outcome, Duration)>,
}

impl Open {
    /// Opens it and brings it into its state.
    pub(super) fn start(place: &Place, state: State, clock: &Arc<Clock>) -> anyhow::Result<Open> {
        let (stream, way, number) = place
            .within(|| {
                let way = place.try_once();
                let mut stream = place.connect()?;
                let number = match state {
                    State::Idle => {
                        begin(&mut stream, ASK)?;
                        place.answer(&mut stream)?;
                        None
                    }
                    State::Transfer => Some(begin(&mut stream, BOTH)?),
                    State::HalfClosed => {
                        let number = begin(&mut stream, LAST)?;
                        stream.shutdown(Shutdown::Write)?;
                        Some(number)
                    }
                };
                // Streams have begun.
                if number.is_some() {
                    stream.peek(&mut [0])?;
                }
                Ok((stream, way, number))
            })
            .with_context(|| format!("cannot open a connection ({state:?})"))?;
        ensure!(!way.is_lost(), "a connection before the event was {way:?}");
        let (place, clock) = (place.clone(), Arc::clone(clock));
        let observing = thread::spawn(move || match number {
            None => idle(&place, stream, &clock),
            Some(number) => streaming(stream, number, state, &clock),
        });
        Ok(Open {
            state,
            way,
            upload: number.filter(|_| state == State::Transfer),
            observing,
        })
    }

    /// Whether its end is known.
    pub(super) fn has_ended(&self) -> bool {
        self.observing.is_finished()
    }

    /// Its end, and how long after the event, or its longest pause.
    pub(super) fn finish(self) -> (Outcome, Duration) {
        self.observing.join().expect("no panic")
    }
}

/// Waits for an end. At last, asks once more.
fn idle(place: &Place, mut stream: TcpStream, clock: &Clock) -> (Outcome, Duration) {
    let _ = stream.set_read_timeout(Some(LOOK_INTERVAL));
    let lost = loop {
        match stream.peek(&mut [0]) {
            Err(error) if is_pause(&error) && !clock.is_over() => {}
            Err(error) if is_pause(&error) => break None,
            Err(error) => break Some(Outcome::from(error)),
            Ok(0) => break Some(end_of(&stream)),
            Ok(_) => break Some(Outcome::WrongBytes),
        }
    };
    if let Some(lost) = lost {
        return (lost, clock.since_event());
    }
    let asked_at = Instant::now();
    let _ = stream.set_read_timeout(Some(HANGS_AFTER));
    let asked = stream
        .write_all(&ASK)
        .and_then(|()| place.answer(&mut stream));
    match asked {
        Ok(_) if asked_at.elapsed() < PAUSE => (Outcome::Continued, Duration::ZERO),
        Ok(_) => (Outcome::Resumed, asked_at.elapsed()),
        Err(error) => (error.into(), clock.since_event()),
    }
}

/// Reads a stream, and uploads one in the state of a transfer.
fn streaming(
    mut stream: TcpStream,
    number: u64,
    state: State,
    clock: &Clock,
) -> (Outcome, Duration) {
    let upload = stream.try_clone().ok().filter(|_| state == State::Transfer);
    let has_ended = &AtomicBool::new(false);
    thread::scope(|scope| {
        if let Some(upload) = upload {
            scope.spawn(move || {
                // The reader sees the same error.
                let _ = send(upload, number, has_ended);
            });
        }
        let end = receive(&mut stream, number, clock);
        has_ended.store(true, Ordering::Relaxed);
        // So that the origin sees no regular end.
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        end
    })
}

fn receive(stream: &mut TcpStream, number: u64, clock: &Clock) -> (Outcome, Duration) {
    let _ = stream.set_read_timeout(Some(LOOK_INTERVAL));
    let mut content = Content::of(number);
    let mut piece = vec![0; 64 << 10];
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return (end_of(stream), clock.since_event()),
            Ok(read) if content.is_next(&piece[..read]) => {
                // A pause that began before the event was not its effect.
                longest = longest.max(last.elapsed().min(clock.since_event()));
                last = Instant::now();
            }
            Ok(_) => return (Outcome::WrongBytes, clock.since_event()),
            Err(error) if is_pause(&error) => {}
            Err(error) => return (error.into(), clock.since_event()),
        }
        let silent = last.elapsed();
        if silent >= HANGS_AFTER {
            return (Outcome::Hung, clock.since_event());
        }
        if clock.is_over() && silent < PAUSE {
            return match longest < PAUSE {
                true => (Outcome::Continued, Duration::ZERO),
                false => (Outcome::Resumed, longest),
            };
        }
    }
}

fn send(mut stream: TcpStream, number: u64, has_ended: &AtomicBool) -> io::Result<()> {
    stream.set_write_timeout(Some(LOOK_INTERVAL))?;
    let mut content = Content::of(!number);
    let mut piece = vec![0; UPLOAD_BYTES];
    while !has_ended.load(Ordering::Relaxed) {
        content.fill(&mut piece);
        match stream.write(&piece) {
            Ok(written) => content.skip(written),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
        sleep(UPLOAD_PAUSE);
    }
    Ok(())
}

fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
