//! A pair over a link with a rate and a delay, in virtual time: what predictions are worth
//! where the round trip matters.
//!
//! Nothing is lost here, and applications are as fast as they may be: one at the far end that
//! writes, one at the near end that reads at once. The history answers at once.

use std::{collections::VecDeque, time::Duration};

use refrain_proto::{
    Event, FlowId, LaneId, Link, LinkConfig, Moment, Role,
    effort::{Unsent, Written},
    hello::Hello,
    link::LinkStatus,
    predictions::history::{Found, HistoryRequest, Wanted},
};

/// What answers a link's requests to its history.
pub trait History {
    /// Does what is asked; gives the answer to what wants one.
    fn handle(&mut self, request: HistoryRequest) -> Option<(Wanted, Found)>;
}

/// The way between two ends.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Bytes a second, each way.
    pub bytes_per_s: f64,
    /// There and back.
    pub round_trip: Duration,
    /// Bytes that a transport takes before it waits for the link.
    pub unsent_bytes: u64,
    /// What encoding takes. Without it no time, and links send what they encode.
    pub encoder: Option<Encoder>,
}

/// A pretended encoder, for links in mode `off`: what each rung of the effort costs and saves.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// Seconds for a plain byte.
    pub cost: [f64; RUNGS],
    /// Link bytes for a plain byte.
    pub ratio: [f64; RUNGS],
    /// Plain bytes that are encoded as if nothing were known, after a change of the rung.
    pub forgotten_bytes: f64,
}

/// What is longer has blocks, where an encoder is pretended.
const CONTROL_BYTES_MAX: usize = 4096;

/// Rungs of the effort.
pub const RUNGS: usize = 7;

/// Two ends, joined by one lane over a [`Way`].
pub struct PacedPair<H> {
    /// The end that reads, and predicts.
    pub near: Link,
    /// The end that writes.
    pub far: Link,
    /// What the near end asks.
    pub history: H,
    /// A real clock for what the far end does to send.
    pub clock: Option<fn() -> Duration>,
    /// What each of its calls took by that clock. The same content makes the same calls.
    pub sending: Vec<Duration>,
    now: Moment,
    lane: LaneId,
    up: Pipe,
    down: Pipe,
    progress: Vec<(Duration, usize)>,
}

/// One direction of a way.
#[derive(Debug)]
struct Pipe {
    way: Way,
    /// When all that was sent has left.
    busy_until: Moment,
    /// What is on its way, by when it arrives.
    carried: VecDeque<(Moment, Vec<u8>)>,
    wants: bool,
    /// The last write, without its wait, and when its encoding ended.
    written: Option<(Moment, Written)>,
    /// The link's rung at its last write.
    rung: usize,
    /// Link bytes so far.
    link_bytes: f64,
}

impl Pipe {
    fn new(way: Way) -> Self {
        Self {
            way,
            busy_until: Moment::default(),
            carried: VecDeque::new(),
            wants: true,
            written: None,
            rung: 0,
            link_bytes: 0.0,
        }
    }

    fn takes_at(&self) -> Moment {
        let unsent = Duration::from_secs_f64(self.way.unsent_bytes as f64 / self.way.bytes_per_s);
        let socket_at = Moment(self.busy_until.0.saturating_sub(unsent));
        self.written.map_or(socket_at, |(at, _)| socket_at.max(at))
    }

    /// What is left to send then.
    fn unsent(&self, at: Moment) -> Unsent {
        let bytes = self.busy_until.since(at).as_secs_f64() * self.way.bytes_per_s;
        match bytes {
            0.0 => Unsent::Nothing,
            bytes if bytes < self.way.unsent_bytes as f64 / 2.0 => Unsent::Little,
            _ => Unsent::Plenty,
        }
    }

    /// Sends what `link` has, if this takes it now. Says whether there was anything.
    fn send_from(&mut self, now: Moment, link: &mut Link, lane: LaneId) -> bool {
        if let Some((encoded_at, mut written)) = self.written.take() {
            written.waiting = now.since(encoded_at);
            link.transmitted(now, lane, written);
        }
        let mut bytes = Vec::new();
        link.poll_transmit(now, lane, &mut bytes);
        self.wants = !bytes.is_empty();
        if self.wants {
            let (working, link_bytes) = self.encode(link, bytes.len());
            let at = now + working;
            let took = Duration::from_secs_f64(link_bytes / self.way.bytes_per_s);
            let written = Written {
                encoding: working,
                working,
                bytes: link_bytes as usize,
                unsent: self.unsent(at),
                // As a kernel knows it where the sender limits the rate.
                link_time: took / 2,
                ..Written::default()
            };
            self.written = Some((at, written));
            self.link_bytes += link_bytes;
            self.busy_until = self.busy_until.max(at) + took;
            let arrives = self.busy_until + self.way.round_trip / 2;
            self.carried.push_back((arrives, bytes));
        }
        self.wants
    }

    /// How long it took to encode the last `bytes`, and how many went over the link.
    fn encode(&mut self, link: &Link, bytes: usize) -> (Duration, f64) {
        let Some(encoder) = self.way.encoder else {
            return (Duration::ZERO, bytes as f64);
        };
        // Frames around blocks are next to nothing, and control is short.
        let plain = if bytes > CONTROL_BYTES_MAX {
            bytes as f64
        } else {
            0.0
        };
        let rung = link.effort_rung();
        let forgotten = match core::mem::replace(&mut self.rung, rung) == rung {
            true => 0.0,
            false => encoder.forgotten_bytes.min(plain),
        };
        let ratio = encoder.ratio[rung];
        let link_bytes = bytes as f64 - plain + plain * ratio + forgotten * (1.0 - ratio);
        (
            Duration::from_secs_f64(plain * encoder.cost[rung]),
            link_bytes,
        )
    }

    fn next_event(&self) -> Option<Moment> {
        let arrives = self.carried.front().map(|&(at, _)| at);
        let takes = self.wants.then(|| self.takes_at());
        arrives.into_iter().chain(takes).min()
    }
}

impl<H: History> PacedPair<H> {
    /// A pair whose hellos are exchanged.
    ///
    /// # Panics
    /// If two links of this version do not agree.
    pub fn new(way: Way, near: LinkConfig, far: LinkConfig, history: H) -> Self {
        let mut near = Link::new(Role::Near, 1, near);
        let mut far = Link::new(Role::Far, 2, far);
        let now = Moment::default();
        let lane = near.dial_lane(now).expect("a first lane");
        let mut bytes = Vec::new();
        near.poll_transmit(now, lane, &mut bytes);
        let (hello, _) = Hello::read(&bytes).expect("a hello").expect("whole");
        far.accept_lane(now, &hello).expect("a first lane");
        bytes.clear();
        far.poll_transmit(now, lane, &mut bytes);
        near.receive(now, lane, &bytes)
            .expect("a hello that answers");
        Self {
            near,
            far,
            history,
            clock: None,
            sending: Vec::new(),
            now,
            lane,
            up: Pipe::new(way),
            down: Pipe::new(way),
            progress: Vec::new(),
        }
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// The near end's status.
    pub fn near_status(&self) -> LinkStatus {
        self.near.status(self.now)
    }

    /// The far end's status.
    pub fn far_status(&self) -> LinkStatus {
        self.far.status(self.now)
    }

    /// Bytes that went from the far end to the near one.
    pub fn link_bytes(&self) -> f64 {
        self.down.link_bytes
    }

    /// Bytes of the last fetch that had come when so much of its time was over.
    pub fn progress(&self) -> &[(Duration, usize)] {
        &self.progress
    }

    /// Opens a flow to `target`, says `request`, and moves `content` from the far end to the
    /// near one; gives how long that took.
    ///
    /// # Panics
    /// If other bytes arrive, or none do.
    pub fn fetch(&mut self, target: &str, request: &[u8], content: &[u8]) -> Duration {
        let began = self.now;
        self.progress.clear();
        let flow = self
            .near
            .open_flow(self.now, target, false)
            .expect("the link is up");
        if !request.is_empty() {
            self.near.write(flow, request);
        }
        let mut fetch = Fetch {
            flow,
            began,
            content,
            request_bytes: request.len(),
            accepted: false,
            sent: 0,
            came: 0,
            ended: false,
        };
        while !fetch.ended {
            self.turn(&mut fetch);
            if !fetch.ended {
                self.advance();
            }
        }
        assert_eq!(fetch.came, content.len(), "all bytes came");
        self.near.finish(flow);
        self.turn(&mut fetch);
        self.now.since(began)
    }

    /// Lets applications and the history do what they can at this moment.
    fn turn(&mut self, fetch: &mut Fetch<'_>) {
        let mut buffer = Vec::new();
        loop {
            let mut idle = true;
            while let Some(event) = self.far.poll_event() {
                idle = false;
                match event {
                    Event::FlowOffered { flow, .. } => {
                        self.far.accept_flow(flow, false);
                        fetch.accepted = true;
                    }
                    Event::Transmit(_) => self.down.wants = true,
                    Event::Readable(flow) => {
                        self.far.take_ready(flow, &mut buffer);
                        fetch.request_bytes -= buffer.len();
                        self.far.taken(flow, buffer.len());
                        self.far.take_end(flow);
                    }
                    _ => {}
                }
            }
            while let Some(event) = self.near.poll_event() {
                idle = false;
                match event {
                    Event::Transmit(_) => self.up.wants = true,
                    Event::Readable(flow) => {
                        self.near.take_ready(flow, &mut buffer);
                        let end = fetch.came + buffer.len();
                        assert!(
                            fetch.content.get(fetch.came..end) == Some(&buffer[..]),
                            "the same bytes"
                        );
                        fetch.came = end;
                        self.progress.push((self.now.since(fetch.began), end));
                        self.near.taken(flow, buffer.len());
                        fetch.ended |= self.near.take_end(flow);
                    }
                    Event::FlowReset(_, reason) => panic!("a flow was reset: {reason:?}"),
                    _ => {}
                }
            }
            if fetch.accepted && fetch.request_bytes == 0 && fetch.sent < fetch.content.len() {
                let rest = &fetch.content[fetch.sent..];
                let (now, flow) = (self.now, fetch.flow);
                let taken = self.clocked(|pair| pair.far.write_and_confirm(now, flow, rest));
                fetch.sent += taken;
                idle &= taken == 0;
                if fetch.sent == fetch.content.len() {
                    self.far.finish(fetch.flow);
                }
            }
            while let Some(request) = self.near.poll_history() {
                idle = false;
                if let Some((wanted, found)) = self.history.handle(request) {
                    self.near
                        .history_answered(wanted.flow, wanted.request, found);
                }
            }
            while self.up.wants && self.up.takes_at() <= self.now {
                idle &= !self.up.send_from(self.now, &mut self.near, self.lane);
            }
            while self.down.wants && self.down.takes_at() <= self.now {
                idle &=
                    !self.clocked(|pair| pair.down.send_from(pair.now, &mut pair.far, pair.lane));
            }
            if idle {
                return;
            }
        }
    }

    fn clocked<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        let Some(clock) = self.clock else {
            return call(self);
        };
        let before = clock();
        let result = call(self);
        self.sending.push(clock() - before);
        result
    }

    /// Goes on to the next moment at which something happens.
    fn advance(&mut self) {
        let due = [
            self.up.next_event(),
            self.down.next_event(),
            self.near.poll_timeout(),
            self.far.poll_timeout(),
        ];
        let next = due.into_iter().flatten().min().expect("something is due");
        self.now = self.now.max(next);
        let now = self.now;
        for (pipe, link) in [
            (&mut self.up, &mut self.far),
            (&mut self.down, &mut self.near),
        ] {
            while let Some((_, bytes)) = pipe.carried.pop_front_if(|(at, _)| *at <= now) {
                link.receive(now, self.lane, &bytes).expect("no fault");
            }
        }
        for link in [&mut self.near, &mut self.far] {
            if link.poll_timeout().is_some_and(|due| due <= now) {
                link.handle_timeout(now);
            }
        }
    }
}

/// A flow under way.
struct Fetch<'a> {
    flow: FlowId,
    began: Moment,
    content: &'a [u8],
    /// Of the request, those that have not come.
    request_bytes: usize,
    accepted: bool,
    sent: usize,
    came: usize,
    ended: bool,
}
