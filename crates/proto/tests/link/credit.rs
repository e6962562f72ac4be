//! Credit over a link with a delay, in virtual time: how flows share the window, and what readers that stand
//! still cost the others.

use std::{collections::VecDeque, time::Duration};

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    Event, Fault, FlowId, LaneFault, LaneId, Link, LinkConfig, Mode, Moment, Role, Violation,
    effort::Written,
    frame::Frame,
    hello::Hello,
    limits::{CREDIT_FLOOR_BYTES, WINDOW_BYTES_MAX},
};

use crate::pair::{Pair, noise, of_version_1};

const LANE: LaneId = LaneId(0);
const ROUND_TRIP: Duration = Duration::from_millis(50);
const TICKS_PER_ROUND_TRIP: u32 = 20;

/// What an application writes at once.
const PIECE: &[u8] = &[0; 64 << 10];

/// An application at the near end that sends, and its reader at the far end.
#[derive(Debug)]
struct Flow {
    id: FlowId,
    /// Bytes to send.
    left: usize,
    /// Bytes that came and that the reader has not taken.
    held: usize,
    taken: usize,
    reads: bool,
    /// What kernels take of it although its reader does not read.
    kernels: usize,
    /// Its writer waits for [`Event::Writable`].
    waits: bool,
}

impl Flow {
    /// Writes what the link takes of its next bytes.
    fn write(&mut self, now: Moment, near: &mut Link) {
        self.waits = false;
        while self.left > 0 && !self.waits {
            let wanted = self.left.min(PIECE.len());
            let room = near.room(now, self.id).min(wanted);
            self.left -= near.write(self.id, &PIECE[..room]);
            self.waits = room == 0;
        }
    }
}

/// Two ends with a delay between them.
struct Way {
    now: Moment,
    near: Link,
    far: Link,
    up: VecDeque<(Moment, Vec<u8>)>,
    down: VecDeque<(Moment, Vec<u8>)>,
    /// Bytes that leave the near end in a tick.
    bytes_per_tick: usize,
    /// Whether they are so few since its processor makes no more.
    is_processor_slow: bool,
    flows: Vec<Flow>,
    /// Whether writers go on some time after they are told, in any order, as tasks of a busy machine do.
    are_writers_late: bool,
    told: Vec<FlowId>,
    /// Most bytes that waited at the far end.
    held_max: usize,
}

impl Way {
    /// A way that takes `rate` bytes a second.
    fn new(rate: f64) -> Self {
        Self::with_window(rate, WINDOW_BYTES_MAX)
    }

    fn with_window(rate: f64, window_bytes: u64) -> Self {
        let config = LinkConfig {
            mode: Mode::Off,
            flows_max: 2000,
            window_bytes,
            ..LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"))
        };
        let now = Moment::default();
        let mut near = Link::new(Role::Near, 1, config.clone());
        let mut far = Link::new(Role::Far, 2, config);
        near.dial_lane(now).expect("a first lane");
        let mut bytes = Vec::new();
        near.poll_transmit(now, LANE, &mut bytes);
        let (hello, _) = Hello::read(&bytes).expect("a hello").expect("whole");
        far.accept_lane(now, &hello).expect("a first lane");
        bytes.clear();
        far.poll_transmit(now, LANE, &mut bytes);
        near.receive(now, LANE, &bytes).expect("a hello");
        let tick = ROUND_TRIP.as_secs_f64() / f64::from(TICKS_PER_ROUND_TRIP);
        Self {
            now,
            near,
            far,
            up: VecDeque::new(),
            down: VecDeque::new(),
            bytes_per_tick: (rate * tick) as usize,
            is_processor_slow: false,
            flows: Vec::new(),
            are_writers_late: false,
            told: Vec::new(),
            held_max: 0,
        }
    }

    /// Opens `count` flows of `bytes` each, and waits until they are accepted.
    fn open(&mut self, count: usize, bytes: usize) {
        let first = self.flows.len();
        for _ in 0..count {
            let id = self.near.open_flow(self.now, "a:1", false).expect("up");
            self.flows.push(Flow {
                id,
                left: 0,
                held: 0,
                taken: 0,
                reads: true,
                kernels: 0,
                waits: false,
            });
        }
        self.run(2 * ROUND_TRIP);
        for flow in &mut self.flows[first..] {
            flow.left = bytes;
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.tick();
        }
    }

    /// Runs until all flows of `which` are read to their end; says how long that took.
    fn finish(&mut self, which: std::ops::Range<usize>) -> Duration {
        let began = self.now;
        while self.flows[which.clone()]
            .iter()
            .any(|flow| flow.left + flow.held > 0)
            || !self.up.is_empty()
        {
            self.tick();
            assert!(
                self.now.since(began) < Duration::from_secs(60),
                "it stands still"
            );
        }
        self.now.since(began)
    }

    fn tick(&mut self) {
        self.now = self.now + ROUND_TRIP / TICKS_PER_ROUND_TRIP;
        let now = self.now;
        while let Some((_, bytes)) = self.up.pop_front_if(|(at, _)| *at <= now) {
            self.far.receive(now, LANE, &bytes).expect("no fault");
        }
        while let Some((_, bytes)) = self.down.pop_front_if(|(at, _)| *at <= now) {
            self.near.receive(now, LANE, &bytes).expect("no fault");
        }
        while let Some(event) = self.far.poll_event() {
            if let Event::FlowOffered { flow, .. } = event {
                self.far.accept_flow(flow, false);
            }
        }
        let mut buffer = Vec::new();
        for flow in &mut self.flows {
            loop {
                self.far.take_ready(flow.id, &mut buffer);
                flow.held += buffer.len();
                if buffer.is_empty() {
                    break;
                }
            }
        }
        self.held_max = self
            .held_max
            .max(self.flows.iter().map(|flow| flow.held).sum());
        for flow in &mut self.flows {
            let most = match flow.reads {
                true => usize::MAX,
                false => flow.kernels.saturating_sub(flow.taken),
            };
            let taken = flow.held.min(most);
            if taken > 0 {
                self.far.taken(flow.id, taken);
                flow.taken += taken;
                flow.held -= taken;
            }
        }
        for link in [&mut self.near, &mut self.far] {
            if link.poll_timeout().is_some_and(|due| due <= now) {
                link.handle_timeout(now);
            }
        }
        self.transmit();
    }

    fn write(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.iter_mut().find(|flow| flow.id == id) {
            flow.write(self.now, &mut self.near);
        }
    }

    /// A quarter of those that were told go on.
    fn write_late(&mut self) {
        let tick = self.now.0.as_micros() as u64;
        let dice = |id: FlowId| (id.0 ^ tick << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut told = core::mem::take(&mut self.told);
        told.sort_by_key(|&id| dice(id));
        let quarter = told.len().div_ceil(4);
        self.told = told.split_off(quarter);
        told.into_iter().for_each(|id| self.write(id));
    }

    fn transmit(&mut self) {
        self.write_late();
        let arrives = self.now + ROUND_TRIP / 2;
        let mut room = self.bytes_per_tick;
        loop {
            while let Some(event) = self.near.poll_event() {
                match event {
                    Event::Writable(id) if self.are_writers_late => self.told.push(id),
                    Event::Writable(id) => self.write(id),
                    _ => {}
                }
            }
            for flow in self.flows.iter_mut().filter(|flow| !flow.waits) {
                flow.write(self.now, &mut self.near);
            }
            let mut bytes = Vec::new();
            self.near.poll_transmit(self.now, LANE, &mut bytes);
            room = room.saturating_sub(bytes.len());
            let busy = match room {
                0 => ROUND_TRIP / TICKS_PER_ROUND_TRIP,
                _ => Duration::ZERO,
            };
            let mut written = Written::default();
            match self.is_processor_slow {
                true => written.working = busy,
                false => written.waiting = busy,
            }
            self.near.transmitted(self.now, LANE, written);
            if bytes.is_empty() {
                break;
            }
            self.up.push_back((arrives, bytes));
            if room == 0 {
                break;
            }
        }
        let mut bytes = Vec::new();
        loop {
            let before = bytes.len();
            self.far.poll_transmit(self.now, LANE, &mut bytes);
            self.far.transmitted(self.now, LANE, Written::default());
            if bytes.len() == before {
                break;
            }
        }
        if !bytes.is_empty() {
            self.down.push_back((arrives, bytes));
        }
    }

    fn assert_bounded(&self) {
        let bound = WINDOW_BYTES_MAX + self.flows.len() as u64 * CREDIT_FLOOR_BYTES;
        assert!(self.held_max as u64 <= bound, "{} bytes", self.held_max);
    }
}

#[test]
fn one_flow_begins_with_half_of_the_window_and_waits_for_no_round_trip() {
    let mut way = Way::new(2e9);
    way.open(1, 46_000_000);
    let limit = ROUND_TRIP / 2 + Duration::from_secs_f64(46e6 / 2e9);
    let took = way.finish(0..1);
    assert!(took < limit.mul_f64(1.2), "{took:?}");
}

#[test]
fn flows_share_the_window_evenly() {
    for count in [10, 100, 1000] {
        let mut way = Way::new(1e9);
        way.open(count, 2_000_000_000 / count);
        way.run(Duration::from_secs(1));
        let taken = || way.flows.iter().map(|flow| flow.taken);
        let all: usize = taken().sum();
        let (least, most) = (taken().min().expect("some"), taken().max().expect("some"));
        assert!(all > 600_000_000, "{count} flows: {all} bytes in a second");
        assert!(2 * least > most, "{count} flows: {least} to {most} bytes");
        way.assert_bounded();
    }
}

#[test]
fn a_thousand_flows_share_a_thin_link_evenly_though_their_writers_are_late() {
    let mut way = Way::new(25e6);
    way.are_writers_late = true;
    way.open(1000, 2_000_000_000);
    way.run(Duration::from_secs(5));
    let before: Vec<usize> = way.flows.iter().map(|flow| flow.taken).collect();
    way.run(Duration::from_secs(20));
    let flows = way.flows.iter().zip(before);
    let took: Vec<usize> = flows.map(|(flow, before)| flow.taken - before).collect();
    let (least, most) = (took.iter().min(), took.iter().max());
    let (least, most) = (least.expect("some"), most.expect("some"));
    assert!(5 * least > 4 * most, "{least} to {most} bytes");
    assert!(took.iter().sum::<usize>() > 450_000_000);
}

#[test]
fn readers_that_stand_still_hold_nobody_up() {
    for count in [10, 100, 900] {
        let mut way = Way::new(1e9);
        way.open(count, 100_000_000);
        way.flows.iter_mut().for_each(|flow| flow.reads = false);
        way.run(2 * ROUND_TRIP);
        way.open(1, 2_000_000_000);
        way.run(Duration::from_secs(1));
        let quick = way.flows[count].taken;
        assert!(
            quick > 300_000_000,
            "{count} stand still: {quick} bytes in a second"
        );
        way.assert_bounded();
    }
}

/// Kernels take the first bytes of those that read nothing, which looks like readers.
#[test]
fn readers_that_stand_still_behind_their_kernels_hold_nobody_up() {
    const KERNELS_BYTES: usize = 250_000;
    for count in [10, 100, 900] {
        let mut way = Way::new(1e9);
        // One after the other, so that each could have half of what the others left.
        for _ in 0..10 {
            way.open(count / 10, 100_000_000);
            way.flows.iter_mut().for_each(|flow| {
                (flow.reads, flow.kernels) = (false, KERNELS_BYTES);
            });
            way.run(4 * ROUND_TRIP);
        }
        way.open(1, 4_000_000_000);
        // Its reader takes what shows that it reads, a floor a round trip.
        way.run(Duration::from_secs(2));
        let before = way.flows[count].taken;
        way.run(Duration::from_secs(1));
        let quick = way.flows[count].taken - before;
        assert!(
            quick > 300_000_000,
            "{count} stand still: {quick} bytes in a second"
        );
        way.assert_bounded();
    }
}

#[test]
fn connections_that_were_fast_and_are_idle_cost_the_next_one_nothing() {
    let mut way = Way::new(2e9);
    way.open(1000, 2_000_000);
    way.finish(0..1000);
    way.run(Duration::from_secs(1));
    way.open(1, 46_000_000);
    let took = way.finish(1000..1001);
    let limit = ROUND_TRIP / 2 + Duration::from_secs_f64(46e6 / 2e9);
    assert!(took < limit.mul_f64(1.2), "{took:?}");
}

#[test]
fn a_client_that_reads_one_of_forty_to_its_end_finishes() {
    let mut way = Way::new(1e9);
    way.open(40, 50_000_000);
    way.flows[1..]
        .iter_mut()
        .for_each(|flow| flow.reads = false);
    while way.flows[0].left + way.flows[0].held > 0 || way.flows[0].taken < 50_000_000 {
        way.tick();
        assert!(way.now.0 < Duration::from_secs(60), "it stands still");
    }
    way.flows.iter_mut().for_each(|flow| flow.reads = true);
    way.finish(0..40);
    way.assert_bounded();
}

/// What was sent on a flow counts until the other end is known to have dropped it.
#[test]
fn flows_that_are_reset_give_the_window_back() {
    let mut way = Way::new(1e9);
    for _ in 0..20 {
        way.open(10, 100_000_000);
        way.flows.iter_mut().for_each(|flow| flow.reads = false);
        way.run(3 * ROUND_TRIP);
        for flow in way.flows.drain(..) {
            way.near.reset(flow.id, 1);
        }
        way.run(2 * ROUND_TRIP);
    }
    way.open(1, 46_000_000);
    let limit = ROUND_TRIP / 2 + Duration::from_secs_f64(46e6 / 1e9);
    let took = way.finish(0..1);
    assert!(took < limit.mul_f64(1.2), "{took:?}");
}

fn refused(violation: Violation) -> Fault {
    Fault::Lane(LaneFault::Protocol(violation))
}

/// Plain bytes that leave the near end before any is acknowledged, with a far end that keeps `has_long_span`.
fn unacknowledged_bytes(has_long_span: bool) -> u64 {
    let config = LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"));
    let mut pair = Pair::between(0, config.clone(), config);
    let answers = |bytes: &mut Vec<u8>| {
        let (mut hello, _) = Hello::read(bytes).expect("a hello").expect("whole");
        assert!(hello.has_long_span);
        hello.has_long_span = has_long_span;
        bytes.clear();
        hello.write(bytes);
    };
    pair.greet(|_| (), answers);
    let flow = pair.open("a:1");
    let data = noise(900_000, 1);
    let (mut written, mut bytes) = (0, Vec::new());
    loop {
        let before = (written, bytes.len());
        written += pair.near.write(flow, &data[written..]);
        pair.near.poll_transmit(pair.now, LANE, &mut bytes);
        pair.near.transmitted(pair.now, LANE, Written::default());
        if (written, bytes.len()) == before {
            assert!(written < data.len(), "what is held back waits");
            return bytes.len() as u64;
        }
    }
}

#[test]
fn the_span_of_a_log_is_long_where_both_ends_keep_it() {
    let sent = unacknowledged_bytes(false);
    assert!((128 << 10..272 << 10).contains(&sent), "the window: {sent}");
    let sent = unacknowledged_bytes(true);
    assert!(
        (384 << 10..544 << 10).contains(&sent),
        "half of the cache: {sent}"
    );
}

#[test]
fn ends_of_version_1_get_a_floor_for_each_flow() {
    let config = LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"));
    let mut pair = Pair::between(0, config.clone(), config);
    pair.greet(of_version_1, of_version_1);
    let (slow, quick) = (pair.open("a:1"), pair.open("a:1"));
    let mut sent = 0;
    loop {
        let taken = pair.near.write(slow, &noise(64 << 10, 1));
        pair.settle();
        sent += taken as u64;
        if taken == 0 {
            break;
        }
    }
    assert_eq!(sent, CREDIT_FLOOR_BYTES + (1 << 20));
    let data = noise(5 << 20, 2);
    assert!(pair.send(quick, &data) == data);
}

#[test]
fn a_slow_reader_leaves_the_start_of_others_alone() {
    let mut way = Way::new(1e9);
    way.open(1, 500_000_000);
    way.flows[0].reads = false;
    // It takes 2 MB a second of all that has come.
    let slowly = |way: &mut Way, time: Duration| {
        let until = way.now + time;
        while way.now < until {
            way.tick();
            let flow = &mut way.flows[0];
            let taken = flow.held.min(5000);
            way.far.taken(flow.id, taken);
            flow.held -= taken;
        }
    };
    slowly(&mut way, Duration::from_secs(1));
    way.open(1, 10_000_000);
    slowly(&mut way, 2 * ROUND_TRIP);
    assert_eq!(way.flows[1].taken, 10_000_000, "it waits for no round trip");
}

#[test]
fn credit_for_what_was_not_sent_is_refused() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    pair.near.write(flow, &[7; 10_000]);
    let mut frame = Vec::new();
    Frame::Credit {
        flow,
        bytes: 10_001,
    }
    .write(&mut frame);
    let fault = pair.near.receive(pair.now, LANE, &frame);
    assert_eq!(fault, Err(refused(Violation::TooMuchCredit)));
}

#[test]
fn blocks_beyond_the_window_are_refused() {
    let with_window = |window_bytes| LinkConfig {
        mode: Mode::Off,
        window_bytes,
        ..LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"))
    };
    let mut pair = Pair::between(0, with_window(1 << 20), with_window(1 << 20));
    // The far end can hold less than the near end hears.
    let widened = |bytes: &mut Vec<u8>| {
        let (mut hello, read) = Hello::read(bytes).expect("a hello").expect("whole");
        assert_eq!(read, bytes.len());
        hello.window_bytes = Some(4 << 20);
        bytes.clear();
        hello.write(bytes);
    };
    pair.greet(|_| (), widened);
    let flow = pair.open("a:1");
    let fault = loop {
        pair.near.write(flow, PIECE);
        let mut bytes = Vec::new();
        pair.near.poll_transmit(pair.now, LANE, &mut bytes);
        pair.near.transmitted(pair.now, LANE, Written::default());
        assert!(!bytes.is_empty(), "the far end takes all");
        if let Err(fault) = pair.far.receive(pair.now, LANE, &bytes) {
            break fault;
        }
    };
    assert_eq!(fault, refused(Violation::BlockBeyondCredit));
}

/// A way with one flow after two seconds, and the share of them that its sending waited for its reader, for credit,
/// for the link and for the processor.
fn limits_of(mut way: Way, reads: bool) -> [f64; 4] {
    way.open(1, 1 << 40);
    way.flows[0].reads = reads;
    let before = way.now;
    way.run(Duration::from_secs(2));
    // What it waits for at the end counts once it is over.
    way.flows[0].reads = true;
    way.run(2 * ROUND_TRIP);
    let time = way.now.since(before).as_secs_f64();
    let status = way.near.status(way.now);
    let limited_by = status.flows[0].limited_by;
    let waits = [
        limited_by.reader,
        limited_by.credit,
        limited_by.link,
        limited_by.processor,
    ];
    way.near.reset(way.flows[0].id, 1);
    let sum = way.near.counters().waits;
    let sum = [sum.reader_us, sum.credit_us, sum.link_us, sum.processor_us];
    // The present wait is over when something was heard last.
    let of_flow = waits.map(|wait| wait.saturating_sub(ROUND_TRIP).as_micros() as u64);
    let counts_all = sum.iter().zip(of_flow).all(|(sum, of)| *sum >= of);
    assert!(counts_all, "{sum:?} of {of_flow:?}");
    waits.map(|wait| wait.as_secs_f64() / time)
}

#[test]
fn a_flow_tells_apart_what_limits_it() {
    let limited_by = |way, reads, expected: usize| {
        let shares = limits_of(way, reads);
        assert!(shares[expected] > 0.8, "{expected}: {shares:?}");
        assert!(shares.iter().sum::<f64>() < 1.1, "{expected}: {shares:?}");
    };
    limited_by(Way::new(1e9), false, 0);
    limited_by(Way::with_window(1e9, 1 << 20), true, 1);
    limited_by(Way::new(1e6), true, 2);
    let mut way = Way::new(1e6);
    way.is_processor_slow = true;
    limited_by(way, true, 3);
}
