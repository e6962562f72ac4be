//! Transports: what carries a lane's bytes, and what becomes of them on the way.
//!
//! A transport keeps the order of its bytes, as TCP does, and takes its own time. It may
//! break at any moment, with word to both ends, to one, or to none. A *damaged* one also
//! changes what it carries, which TLS would stop; the engines must stand it all the same.

use std::{collections::VecDeque, time::Duration};

use fastrand::Rng;
use refrain_proto::{LaneId, Moment, frame::Frame, hello::Hello};

use crate::{End, kinds::Kind};

/// How long a piece stands still that was lost once.
pub(crate) const STALL: Duration = Duration::from_millis(200);

/// One transport, from both ends' view.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) ends: [TransportEnd; 2],
    /// Damage may hide what an end said, so a damaged transport cannot go on for ever.
    pub(crate) is_damaged: bool,
}

/// One end of a transport.
#[derive(Debug)]
pub(crate) struct TransportEnd {
    /// The link (by the near end's instance) and the lane that it carries there.
    pub(crate) lane: Option<(u64, LaneId)>,
    pub(crate) is_open: bool,
    /// What came before the lane was known.
    pub(crate) unread: Vec<u8>,
    pub(crate) out: Pipe,
}

/// What flows one way.
#[derive(Debug)]
pub(crate) struct Pipe {
    delay: Duration,
    jitter: Duration,
    bytes_per_ms: u64,
    /// One piece of so many stands still, as after a loss; 0 for none.
    stalls_one_of: u32,
    /// When the next bytes may be handed over; `None` when the pipe broke and is full.
    pub(crate) free_at: Option<Moment>,
    last_arrival: Moment,
    pub(crate) in_flight: VecDeque<Parcel>,
    /// Nothing arrives before.
    pub(crate) held_until: Moment,
    /// What is handed over is lost.
    pub(crate) is_broken: bool,
    /// What is done to the next frames.
    pub(crate) harm: Option<Kind>,
    is_first: bool,
}

/// Something in flight.
#[derive(Debug)]
pub(crate) struct Parcel {
    /// What left, or `None` for the word that the sender closed.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Counts all parcels of its sender, on whichever transport.
    pub(crate) number: u64,
}

impl Transport {
    pub(crate) fn new(rng: &mut Rng, delay_ms_max: u64, stalls_one_of: u32) -> Self {
        let mut end = || TransportEnd {
            lane: None,
            is_open: true,
            unread: Vec::new(),
            out: Pipe::new(rng, delay_ms_max, stalls_one_of),
        };
        Self {
            ends: [end(), end()],
            is_damaged: false,
        }
    }

    pub(crate) fn end(&mut self, end: End) -> &mut TransportEnd {
        &mut self.ends[end as usize]
    }

    /// It stalls, or it is of no more use and an end does not know that yet.
    pub(crate) fn is_troubled(&self, now: Moment) -> bool {
        let is_dead = |end: &TransportEnd| !end.is_open || end.out.is_broken;
        let is_half_dead = self.ends.iter().any(is_dead) && self.ends.iter().any(|end| end.is_open);
        is_half_dead
            || self
                .ends
                .iter()
                .any(|end| end.is_open && end.out.stalls(now))
    }
}

impl Pipe {
    fn new(rng: &mut Rng, delay_ms_max: u64, stalls_one_of: u32) -> Self {
        Self {
            stalls_one_of,
            delay: Duration::from_micros(rng.u64(20..=1000 * delay_ms_max)),
            jitter: Duration::from_micros(rng.u64(1..20_000)),
            bytes_per_ms: 1 << rng.u32(6..16),
            free_at: Some(Moment::default()),
            last_arrival: Moment::default(),
            in_flight: VecDeque::new(),
            held_until: Moment::default(),
            is_broken: false,
            harm: None,
            is_first: true,
        }
    }

    pub(crate) fn is_free(&self, now: Moment) -> bool {
        self.free_at.is_some_and(|at| at <= now)
    }

    fn stalls(&self, now: Moment) -> bool {
        self.held_until > now || self.free_at.is_none_or(|at| at > now)
    }

    /// Whatever is handed over takes so much longer to leave.
    pub(crate) fn stall(&mut self, now: Moment, pause: Duration) {
        self.free_at = self.free_at.map(|at| at.max(now) + pause);
        self.held_until = now + pause;
    }

    /// The pipe breaks: some of what is in flight may still come, soon or late.
    pub(crate) fn break_off(&mut self, rng: &mut Rng, now: Moment) {
        if rng.bool() {
            self.held_until = now + Duration::from_millis(rng.u64(..3000));
        }
        let kept = rng.usize(..=self.in_flight.len());
        if let Some(cut) = self.in_flight.get_mut(kept).and_then(|p| p.bytes.as_mut()) {
            cut.truncate(rng.usize(..=cut.len()));
        }
        for parcel in self.in_flight.iter_mut().skip(kept + 1) {
            parcel.bytes = Some(Vec::new());
        }
        self.is_broken = true;
        if rng.bool() {
            self.free_at = None;
        }
    }

    /// Hands `bytes` over; says what harm was done to them and when their pieces arrive,
    /// unless they are lost.
    pub(crate) fn send(
        &mut self,
        rng: &mut Rng,
        now: Moment,
        number: u64,
        mut bytes: Vec<u8>,
    ) -> (Option<Kind>, Vec<Moment>) {
        let harm = match self.is_broken {
            true => None,
            false => {
                let is_first = core::mem::replace(&mut self.is_first, false);
                self.harm
                    .filter(|&harm| damage(rng, harm, &mut bytes, is_first))
            }
        };
        if harm.is_some() {
            self.harm = None;
        }
        let mut leaves = now;
        let mut arrivals = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(rng.usize(1..=rest.len()));
            rest = others;
            leaves = leaves + Duration::from_micros(1000 * piece.len() as u64 / self.bytes_per_ms);
            if self.stalls_one_of > 0 && rng.u32(..self.stalls_one_of) == 0 {
                leaves = leaves + STALL;
            }
            if !self.is_broken {
                arrivals.push(self.arrival(rng, leaves));
                self.in_flight.push_back(Parcel {
                    bytes: Some(piece.to_vec()),
                    number,
                });
            }
        }
        self.free_at = self.free_at.map(|_| leaves);
        (harm, arrivals)
    }

    /// The sender closes; says when the other end hears of it, unless it never does.
    pub(crate) fn close(&mut self, rng: &mut Rng, now: Moment, number: u64) -> Option<Moment> {
        if self.is_broken {
            return None;
        }
        let arrival = self.arrival(rng, now);
        self.in_flight.push_back(Parcel {
            bytes: None,
            number,
        });
        Some(arrival)
    }

    fn arrival(&mut self, rng: &mut Rng, leaves: Moment) -> Moment {
        let jitter = Duration::from_micros(rng.u64(..self.jitter.as_micros() as u64 + 1));
        self.last_arrival = self.last_arrival.max(leaves + self.delay + jitter);
        self.last_arrival
    }
}

/// Does `harm` to `bytes`, whole frames with a hello before them if they are a pipe's
/// first. Says whether it could.
fn damage(rng: &mut Rng, harm: Kind, bytes: &mut Vec<u8>, is_first: bool) -> bool {
    /// Where a hello names its sender's instance. The simulator tells flows apart by it, so
    /// it alone stays as it is.
    const HELLO_INSTANCE: core::ops::Range<usize> = 12..20;

    let mut frames = Vec::new();
    let hello_bytes = match Hello::read(bytes) {
        Ok(Some((_, read))) if is_first => read,
        _ => 0,
    };
    let mut at = hello_bytes;
    while let Ok(Some((frame, read))) = Frame::read(&bytes[at..]) {
        let is_meant = match harm {
            Kind::AlteredConfirmation => matches!(frame, Frame::Confirm(_)),
            Kind::AlteredOffer => matches!(frame, Frame::Offer(_)),
            _ => true,
        };
        if is_meant {
            frames.push(at..at + read);
        }
        at += read;
    }
    if harm == Kind::FlippedBit {
        let at = rng.usize(..bytes.len());
        if is_first && HELLO_INSTANCE.contains(&at) {
            return false;
        }
        let flip = 1 << rng.u8(..8);
        bytes[at] ^= flip;
        // Ends that were told different terms cannot know it, and one may wait for ever for what the other never says. TLS
        // lets no such hello through.
        let is_other_hello = at < hello_bytes && matches!(Hello::read(bytes), Ok(Some(_)));
        if is_other_hello {
            bytes[at] ^= flip;
        }
        return !is_other_hello;
    }
    let Some(frame) = rng.choice(frames) else {
        return false;
    };
    match harm {
        Kind::AlteredConfirmation | Kind::AlteredOffer => {
            bytes[rng.usize(frame)] ^= 1 << rng.u8(..8)
        }
        Kind::TruncatedFrame => {
            let cut = rng.usize(frame.start + 1..=frame.end - 1);
            bytes.drain(cut..frame.end);
        }
        Kind::DuplicatedFrame => {
            let copy = bytes[frame.clone()].to_vec();
            bytes.splice(frame.end..frame.end, copy);
        }
        _ => {
            bytes.drain(frame);
        }
    }
    true
}
