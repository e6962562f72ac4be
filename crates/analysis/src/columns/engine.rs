//! The column of this program's own engine: both ends of a link in virtual time, over 100 Mbit/s and 10 ms.
//!
//! Each connection is a flow. Its bytes are written when they were captured, and read as soon as they arrive. The bytes that
//! TLS adds on lanes are counted, as they are in `link_bytes` of a gateway's status. The processor is never short here.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use refrain_capture::{Direction, FlowNumber, Time};
use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    Event, FlowId, LaneId, Link, LinkConfig, Moment, Role,
    effort::{EffortMode, Unsent, Written},
    hello::Hello,
    link::FlowStatus,
};

use super::{Column, Outcome};
use crate::blocks::{BlockFlow, GroupNumber, Step};

/// As by default in gateways.
const CACHE_BYTES: usize = 128 << 20;

/// Bytes a second, each way: 100 Mbit/s.
const RATE: f64 = 12.5e6;
/// One way.
const DELAY: Duration = Duration::from_millis(5);
/// Unsent bytes that a socket holds: 20 ms of the rate.
const UNSENT_BYTES: f64 = 0.02 * RATE;

/// Of TLS 1.3: a record's header, its kind and its tag; and the plain bytes that it holds.
const RECORD_BYTES: u64 = 5 + 1 + 16;
const RECORD_PLAIN_BYTES: u64 = 16 << 10;

/// Both messages of a lane's handshake, with raw keys at both ends, and the tickets that follow.
const HANDSHAKE_BYTES: u64 = 1_000;

/// As by default in gateways.
const LANES: usize = 4;

/// Longer pauses, in which nothing is open, are cut to this: several captures may lie years apart.
const PAUSE: Duration = Duration::from_secs(60);

/// From the arrival of bytes to their reading by the gateway, which then has all that came until then. Measured by replays:
/// without it, small segments cost up to 80 % more than over sockets, and with 1 ms up to 60 % less.
const WAKE_UP: Duration = Duration::from_micros(100);

/// Bytes that wait for the link. With more of them, the capture's clock stands still, as an application would wait.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Flows are over after this, even if one of them waits.
const LAST_WAIT: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct Engine {
    near: Link,
    far: Link,
    lanes: Vec<Lane>,
    /// The two directions of the link, for all lanes.
    up: Wire,
    down: Wire,
    now: Moment,
    /// The last time of the capture, and the moment that it was here.
    clock: Option<(Time, Moment)>,
    outcome: Outcome,
    waiting_bytes: usize,
    /// Flows with bytes that the gateways will read, in the order of time.
    wake_ups: VecDeque<(Moment, FlowId)>,
    /// Of flows beyond the link's limit.
    uncarried_bytes: u64,
    flows: HashMap<FlowNumber, Carried>,
    by_id: HashMap<FlowId, FlowNumber>,
    buffer: Vec<u8>,
}

/// A connection of the capture.
struct Carried {
    id: FlowId,
    /// The far end has it.
    is_accepted: bool,
    /// Bytes that the ends have not taken yet, by direction.
    waiting: [VecDeque<Vec<u8>>; 2],
    /// Whether `wake_ups` has it.
    is_woken: bool,
    /// Nothing more comes.
    is_closed: bool,
    /// Whether the end of each direction was said.
    has_ended: [bool; 2],
}

/// A lane, which is one connection.
struct Lane {
    id: LaneId,
    up: Pipe,
    down: Pipe,
}

/// One direction of a lane.
#[derive(Default)]
struct Pipe {
    carried: VecDeque<(Moment, Vec<u8>)>,
    wants: bool,
    written: Option<(Moment, Written)>,
}

/// One direction of the link, which all lanes share.
#[derive(Default)]
struct Wire {
    busy_until: Moment,
    bytes: u64,
}

impl Wire {
    fn takes_at(&self) -> Moment {
        let unsent = Duration::from_secs_f64(UNSENT_BYTES / RATE);
        Moment(self.busy_until.0.saturating_sub(unsent))
    }

    /// Carries so many bytes of records. Returns when all of them have left.
    fn carry(&mut self, now: Moment, plain: usize) -> Moment {
        let plain = plain as u64;
        let bytes = plain + plain.div_ceil(RECORD_PLAIN_BYTES) * RECORD_BYTES;
        self.bytes += bytes;
        self.busy_until = self.busy_until.max(now) + Duration::from_secs_f64(bytes as f64 / RATE);
        self.busy_until
    }
}

impl Pipe {
    fn send_from(&mut self, now: Moment, link: &mut Link, lane: LaneId, wire: &mut Wire) {
        if let Some((at, mut written)) = self.written.take() {
            written.waiting = now.since(at);
            link.transmitted(now, lane, written);
        }
        let mut bytes = Vec::new();
        link.poll_transmit(now, lane, &mut bytes);
        self.wants = !bytes.is_empty();
        if bytes.is_empty() {
            return;
        }
        let backlog = wire.busy_until.since(now).as_secs_f64() * RATE;
        let unsent = match backlog {
            0.0 => Unsent::Nothing,
            bytes if bytes < UNSENT_BYTES / 2.0 => Unsent::Little,
            _ => Unsent::Plenty,
        };
        let left = wire.carry(now, bytes.len());
        let written = Written {
            bytes: bytes.len(),
            unsent,
            // As a kernel knows it where the sender limits the rate.
            link_time: Duration::from_secs_f64(bytes.len() as f64 / RATE) / 2,
            ..Written::default()
        };
        self.written = Some((now, written));
        self.carried.push_back((left + DELAY, bytes));
    }

    fn next_event(&self, wire: &Wire) -> Option<Moment> {
        let arrives = self.carried.front().map(|&(at, _)| at);
        let takes = self.wants.then(|| wire.takes_at());
        arrives.into_iter().chain(takes).min()
    }
}

impl Engine {
    pub(super) fn new(effort: EffortMode) -> Self {
        let geometry = CacheGeometry::new(CACHE_BYTES).expect("a valid size");
        let config = LinkConfig {
            effort,
            ..LinkConfig::with_cache(geometry)
        };
        let (mut near, mut far) = (
            Link::new(Role::Near, 1, config.clone()),
            Link::new(Role::Far, 2, config),
        );
        let now = Moment::default();
        let (mut up, mut down) = (Wire::default(), Wire::default());
        let lanes = (0..LANES).map(|_| {
            let id = near
                .dial_lane(now)
                .expect("fewer lanes than a link may have");
            let mut bytes = Vec::new();
            near.poll_transmit(now, id, &mut bytes);
            let (hello, _) = Hello::read(&bytes).expect("a hello").expect("whole");
            far.accept_lane(now, &hello)
                .expect("the lane of a peer that is known");
            up.carry(now, bytes.len());
            bytes.clear();
            far.poll_transmit(now, id, &mut bytes);
            down.carry(now, bytes.len());
            near.receive(now, id, &bytes).expect("a hello that answers");
            let (up, down) = (Pipe::default(), Pipe::default());
            Lane { id, up, down }
        });
        let lanes = lanes.collect();
        Self {
            near,
            far,
            lanes,
            up,
            down,
            now,
            clock: None,
            outcome: Outcome::default(),
            waiting_bytes: 0,
            wake_ups: VecDeque::new(),
            uncarried_bytes: 0,
            flows: HashMap::new(),
            by_id: HashMap::new(),
            buffer: Vec::new(),
        }
    }

    /// Lets everything happen up to this moment of the capture.
    fn run_until(&mut self, at: Time) {
        let (last, then) = *self.clock.get_or_insert((at, self.now));
        let until = then + Duration::from_nanos(at.0.saturating_sub(last.0));
        let mut reached = until;
        loop {
            self.turn();
            match self.next_event() {
                Some(next) if next > then + PAUSE && next <= until && self.flows.is_empty() => {
                    reached = self.now.max(then + PAUSE);
                    break;
                }
                Some(next) if next <= until => self.advance(next),
                _ => break,
            }
        }
        self.now = self.now.max(reached);
        self.clock = Some((at.max(last), self.now));
    }

    /// Lets the link carry until no more than this waits.
    fn drain_to(&mut self, waiting_bytes: usize, at: Time) {
        while self.waiting_bytes > waiting_bytes {
            self.turn();
            let Some(next) = self.next_event() else {
                break;
            };
            self.advance(next);
            self.clock = Some((at, self.now));
        }
    }

    fn next_event(&self) -> Option<Moment> {
        let lanes = self.lanes.iter();
        let pipes = lanes.flat_map(|lane| {
            [
                lane.up.next_event(&self.up),
                lane.down.next_event(&self.down),
            ]
        });
        let timers = [self.near.poll_timeout(), self.far.poll_timeout()];
        let wake_up = self.wake_ups.front().map(|&(at, _)| at);
        pipes.chain(timers).chain([wake_up]).flatten().min()
    }

    /// Continues at a moment at which something happens.
    fn advance(&mut self, next: Moment) {
        self.now = self.now.max(next);
        let now = self.now;
        for lane in &mut self.lanes {
            for (pipe, link) in [
                (&mut lane.up, &mut self.far),
                (&mut lane.down, &mut self.near),
            ] {
                while let Some((_, bytes)) = pipe.carried.pop_front_if(|(at, _)| *at <= now) {
                    link.receive(now, lane.id, &bytes)
                        .expect("the other end is ours");
                }
            }
        }
        while let Some((_, flow)) = self.wake_ups.pop_front_if(|(at, _)| *at <= now) {
            self.write(flow);
        }
        for link in [&mut self.near, &mut self.far] {
            if link.poll_timeout().is_some_and(|due| due <= now) {
                link.handle_timeout(now);
            }
        }
    }

    /// Lets both ends do what they can at this moment.
    fn turn(&mut self) {
        loop {
            let mut is_idle = true;
            while let Some(event) = self.far.poll_event() {
                is_idle = false;
                match event {
                    Event::FlowOffered { flow, .. } => {
                        self.far.accept_flow(flow, false);
                        if let Some(carried) = self
                            .by_id
                            .get(&flow)
                            .and_then(|number| self.flows.get_mut(number))
                        {
                            carried.is_accepted = true;
                        }
                        self.write(flow);
                    }
                    Event::Transmit(lane) => self.lane(lane).down.wants = true,
                    Event::Readable(flow) => read(&mut self.far, flow, &mut self.buffer),
                    Event::Writable(flow) => self.write(flow),
                    _ => {}
                }
            }
            while let Some(event) = self.near.poll_event() {
                is_idle = false;
                match event {
                    Event::Transmit(lane) => self.lane(lane).up.wants = true,
                    Event::FlowEnded(flow) => self.ended(&flow),
                    Event::Readable(flow) => read(&mut self.near, flow, &mut self.buffer),
                    Event::Writable(flow) => self.write(flow),
                    _ => {}
                }
            }
            for lane in &mut self.lanes {
                for (pipe, wire, link) in [
                    (&mut lane.up, &mut self.up, &mut self.near),
                    (&mut lane.down, &mut self.down, &mut self.far),
                ] {
                    if pipe.wants && wire.takes_at() <= self.now {
                        pipe.send_from(self.now, link, lane.id, wire);
                        is_idle &= !pipe.wants;
                    }
                }
            }
            if is_idle {
                return;
            }
        }
    }

    fn lane(&mut self, id: LaneId) -> &mut Lane {
        let lane = self.lanes.iter_mut().find(|lane| lane.id == id);
        lane.expect("no lane is closed here")
    }

    /// Counts the link bytes of a flow, as the near end has them.
    fn ended(&mut self, flow: &FlowStatus) {
        let group = flow
            .target
            .split(':')
            .next()
            .and_then(|group| group.parse().ok());
        if let Some(group) = group {
            let bytes = flow.sent.block_bytes + flow.received.block_bytes;
            self.outcome.add(GroupNumber(group), bytes);
        }
    }

    /// Writes the waiting bytes of a flow, as far as its ends take them.
    fn write(&mut self, id: FlowId) {
        let Some(number) = self.by_id.get(&id).copied() else {
            return;
        };
        let Some(carried) = self.flows.get_mut(&number) else {
            return;
        };
        carried.is_woken = false;
        for direction in [Direction::Up, Direction::Down] {
            let link = match direction {
                Direction::Up => &mut self.near,
                Direction::Down if carried.is_accepted => &mut self.far,
                Direction::Down => continue,
            };
            let waiting = &mut carried.waiting[direction as usize];
            while let Some(bytes) = waiting.front_mut() {
                let taken = link.write(id, bytes);
                self.waiting_bytes -= taken;
                if taken < bytes.len() {
                    bytes.drain(..taken);
                    break;
                }
                waiting.pop_front();
            }
            let has_ended = &mut carried.has_ended[direction as usize];
            if carried.is_closed && waiting.is_empty() && !*has_ended {
                link.finish(id);
                *has_ended = true;
            }
        }
        if carried.has_ended == [true; 2] {
            self.flows.remove(&number);
            self.by_id.remove(&id);
        }
    }

    fn open(&mut self, flow: BlockFlow) {
        // The name of the row where the link counts it.
        let target = format!("{}:1", flow.group.0);
        let Ok(id) = self.near.open_flow(self.now, &target, false) else {
            // A link has a limit of flows. Further ones are counted as they are.
            return;
        };
        self.by_id.insert(id, flow.number);
        let carried = Carried {
            id,
            is_accepted: false,
            waiting: Default::default(),
            is_woken: false,
            is_closed: false,
            has_ended: [false; 2],
        };
        self.flows.insert(flow.number, carried);
    }
}

/// Takes all bytes that have come, as an application that waits for them.
fn read(link: &mut Link, flow: FlowId, buffer: &mut Vec<u8>) {
    link.take_ready(flow, buffer);
    link.taken(flow, buffer.len());
    link.take_end(flow);
}

impl Column for Engine {
    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Block { .. } => {}
            Step::Bytes {
                flow,
                direction,
                at,
                bytes,
            } => {
                self.run_until(at);
                // Not before, as pauses without a connection are cut.
                if !self.flows.contains_key(&flow.number) {
                    self.open(flow);
                }
                match self.flows.get_mut(&flow.number) {
                    Some(carried) => {
                        carried.waiting[direction as usize].push_back(bytes.to_vec());
                        self.waiting_bytes += bytes.len();
                        if !std::mem::replace(&mut carried.is_woken, true) {
                            self.wake_ups.push_back((self.now + WAKE_UP, carried.id));
                        }
                        self.drain_to(WAITING_BYTES_MAX, at);
                    }
                    None => {
                        self.outcome.add(flow.group, bytes.len() as u64);
                        self.uncarried_bytes += bytes.len() as u64;
                    }
                }
            }
            Step::Closed(flow, at) => {
                self.run_until(at);
                if let Some(carried) = self.flows.get_mut(&flow.number) {
                    carried.is_closed = true;
                    if !std::mem::replace(&mut carried.is_woken, true) {
                        self.wake_ups.push_back((self.now + WAKE_UP, carried.id));
                    }
                }
            }
        }
        self.turn();
    }

    fn finish(mut self: Box<Self>) -> Outcome {
        let end = self.now + LAST_WAIT;
        loop {
            self.turn();
            let is_done = self.near.flows_open() == 0 && self.near.blocks_outstanding() == 0;
            match self.next_event() {
                Some(next) if next <= end && !is_done => self.advance(next),
                _ => break,
            }
        }
        for flow in self.near.status(self.now).flows {
            self.ended(&flow);
        }
        let handshakes = LANES as u64 * HANDSHAKE_BYTES;
        let total = self.up.bytes + self.down.bytes + handshakes + self.uncarried_bytes;
        // Control, records and handshakes.
        self.outcome.others = total.saturating_sub(self.outcome.total());
        let status = [self.near.status(self.now), self.far.status(self.now)];
        self.outcome.memory_bytes = status
            .iter()
            .map(|status| status.allocated_bytes as u64)
            .sum();
        self.outcome
    }
}
