//! Flows on several lanes, where what waits, what dies and what is said of it happen in an
//! order that is not the usual one.

use std::time::Duration;

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    Event, FlowId, LaneFault, LaneId, Link, LinkConfig, Moment, ResetReason, Role, effort::Written,
    frame::Frame, hello::Hello, limits::CREDIT_FLOOR_BYTES,
};

use crate::pair::{noise, take_all, transmit};

/// Both ends, some lanes between them, and a clock.
struct Pair {
    now: Moment,
    near: Link,
    far: Link,
    lanes: Vec<LaneId>,
}

impl Pair {
    fn new(lanes: usize) -> Self {
        Self::with_config(
            lanes,
            LinkConfig::with_cache(CacheGeometry::new(4 << 20).expect("valid")),
        )
    }

    fn with_config(lanes: usize, config: LinkConfig) -> Self {
        let mut pair = Self {
            now: Moment::default(),
            near: Link::new(Role::Near, 1, config.clone()),
            far: Link::new(Role::Far, 2, config),
            lanes: Vec::new(),
        };
        for _ in 0..lanes {
            let lane = pair.near.dial_lane(pair.now).expect("a number is left");
            let hello = transmit(&mut pair.near, pair.now, lane);
            let (hello, _) = Hello::read(&hello).expect("a hello").expect("whole");
            assert_eq!(pair.far.accept_lane(pair.now, &hello), Ok(lane));
            pair.lanes.push(lane);
            pair.settle();
        }
        pair
    }

    /// Loss is seen at both ends.
    fn lose(&mut self) {
        let mut stalled = Vec::new();
        Frame::Stalled.write(&mut stalled);
        for link in [&mut self.near, &mut self.far] {
            link.receive(self.now, self.lanes[0], &stalled)
                .expect("no fault");
        }
        self.settle();
    }

    /// Carries everything that either end has to say, until both are silent.
    fn settle(&mut self) {
        loop {
            let mut silent = true;
            for &lane in &self.lanes {
                silent &= carry(&mut self.near, &mut self.far, self.now, lane);
                silent &= carry(&mut self.far, &mut self.near, self.now, lane);
            }
            if silent {
                return;
            }
        }
    }

    /// Lets time pass, and everything that is due with it.
    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.near.handle_timeout(self.now);
        self.far.handle_timeout(self.now);
        self.settle();
    }

    /// An open flow to a target that has the `home`th lane for its home.
    fn open_on(&mut self, home: LaneId) -> FlowId {
        let flow = self.offer_on(home);
        self.settle();
        self.far.accept_flow(flow, false);
        self.settle();
        flow
    }

    /// A flow on `home` that its opener has said, or will say, and nobody has accepted.
    fn offer_on(&mut self, home: LaneId) -> FlowId {
        for target in 0..1000 {
            let target = format!("{target}.example:80");
            let flow = self
                .near
                .open_flow(self.now, &target, false)
                .expect("the link is up");
            if lane_of(&self.near, self.now, flow) == home {
                return flow;
            }
            self.near.reset(flow, 1);
        }
        unreachable!("some target has the lane for its home");
    }
}

/// Carries what `from` has to say on `lane`; says whether that was nothing.
fn carry(from: &mut Link, to: &mut Link, now: Moment, lane: LaneId) -> bool {
    let bytes = transmit(from, now, lane);
    from.transmitted(now, lane, Written::default());
    to.receive(now, lane, &bytes).expect("no fault");
    bytes.is_empty()
}

fn lane_of(link: &Link, now: Moment, flow: FlowId) -> LaneId {
    let flows = link.status(now).flows;
    let row = flows.iter().find(|row| row.id == flow);
    row.expect("open").lane
}

fn events(link: &mut Link) -> Vec<Event> {
    std::iter::from_fn(|| link.poll_event()).collect()
}

const A: LaneId = LaneId(0);
const B: LaneId = LaneId(1);
const C: LaneId = LaneId(2);

#[test]
fn a_lane_that_fills_with_flows_left_offers_them_to_one_that_looked_too_early() {
    let mut pair = Pair::new(2);
    let flows = [pair.open_on(A), pair.open_on(A)];
    pair.lose();
    events(&mut pair.near);
    for (flow, seed) in flows.into_iter().zip(1..) {
        assert_eq!(pair.near.write(flow, &noise(60_000, seed)), 60_000);
    }
    let woken = events(&mut pair.near);
    // Which of two tasks that were woken runs first is chance.
    if woken.contains(&Event::Transmit(B)) {
        assert!(transmit(&mut pair.near, pair.now, B).is_empty());
    }
    assert!(transmit(&mut pair.near, pair.now, A).len() > 8 << 10);
    // That lane stands still now. The second flow has nothing on it.
    assert!(events(&mut pair.near).contains(&Event::Transmit(B)));
    assert!(transmit(&mut pair.near, pair.now, B).len() > 8 << 10);
}

#[test]
fn a_flow_is_not_lost_with_a_lane_that_it_only_waited_for() {
    for way in ["queued", "ended there", "taken over"] {
        let mut pair = Pair::new(2);
        let (moved, heavy) = (pair.open_on(A), pair.open_on(A));
        pair.lose();
        // So much is on its way on the home lane that the next block had better not follow.
        assert_eq!(pair.near.write(heavy, &noise(64 << 10, 3)), 64 << 10);
        let on_home = transmit(&mut pair.near, pair.now, A);
        match way {
            "queued" => {
                assert_eq!(pair.near.write(moved, b"a few words"), 11);
            }
            "ended there" => {
                pair.near.finish(moved);
                transmit(&mut pair.near, pair.now, B);
            }
            _ => {}
        }
        pair.far.receive(pair.now, A, &on_home).expect("no fault");
        pair.lanes.retain(|&lane| lane != B);
        pair.near.close_lane(B, LaneFault::TransportClosed);
        pair.settle();
        let lost = Event::FlowReset(moved, ResetReason::LaneLost);
        assert!(!events(&mut pair.near).contains(&lost), "{way}");
        assert!(!events(&mut pair.far).contains(&lost), "{way}");
        if way == "queued" {
            let mut buffer = Vec::new();
            take_all(&mut pair.far, moved, &mut buffer);
            assert_eq!(buffer, b"a few words");
        }
    }
}

#[test]
fn an_accepted_flow_that_waits_for_a_busy_lane_is_offered_to_an_idle_one() {
    let mut pair = Pair::new(2);
    let heavy = pair.open_on(A);
    let flow = pair.offer_on(A);
    pair.settle();
    pair.lose();
    assert_eq!(pair.near.write(heavy, &noise(8_000, 5)), 8_000);
    transmit(&mut pair.near, pair.now, A);
    // The home lane stands still.
    assert_eq!(pair.near.write(flow, b"a request"), 9);
    transmit(&mut pair.near, pair.now, B);
    events(&mut pair.near);
    pair.far.accept_flow(flow, false);
    let accept = transmit(&mut pair.far, pair.now, A);
    pair.near.receive(pair.now, A, &accept).expect("no fault");
    assert!(events(&mut pair.near).contains(&Event::Transmit(B)));
    assert!(!transmit(&mut pair.near, pair.now, B).is_empty());
}

#[test]
fn flows_that_may_not_leave_their_lane_hide_none_that_may() {
    let mut pair = Pair::new(3);
    let heavy = [pair.open_on(A), pair.open_on(B)];
    let waits = pair.open_on(B);
    let offered: Vec<FlowId> = (0..3).map(|_| pair.offer_on(A)).collect();
    pair.settle();
    pair.lose();
    for (flow, lane) in heavy.into_iter().zip([A, B]) {
        assert_eq!(pair.near.write(flow, &noise(60_000, 6)), 60_000);
        transmit(&mut pair.near, pair.now, lane);
    }
    for flow in offered {
        assert_eq!(pair.near.write(flow, b"a request"), 9);
    }
    assert_eq!(pair.near.write(waits, b"an answer"), 9);
    assert!(!transmit(&mut pair.near, pair.now, C).is_empty());
}

#[test]
fn a_direction_that_has_ended_depends_on_no_further_lane() {
    for dead in [A, B] {
        let mut pair = Pair::new(2);
        let (flow, heavy) = (pair.open_on(A), pair.open_on(A));
        pair.lose();
        // One block on each lane, then the end.
        assert_eq!(pair.near.write(flow, b"one"), 3);
        pair.settle();
        assert_eq!(pair.near.write(heavy, &noise(60_000, 7)), 60_000);
        let held_up = transmit(&mut pair.near, pair.now, A);
        assert_eq!(pair.near.write(flow, b"two"), 3);
        let other = transmit(&mut pair.near, pair.now, B);
        assert!(!other.is_empty());
        pair.far.receive(pair.now, A, &held_up).expect("no fault");
        pair.far.receive(pair.now, B, &other).expect("no fault");
        pair.near.finish(flow);
        pair.settle();
        let mut buffer = Vec::new();
        take_all(&mut pair.far, flow, &mut buffer);
        assert!(buffer == b"onetwo" && pair.far.take_end(flow));

        pair.lanes.retain(|&lane| lane != dead);
        pair.near.close_lane(dead, LaneFault::TransportClosed);
        pair.settle();
        let lost = Event::FlowReset(flow, ResetReason::LaneLost);
        // With its home lane a flow is lost whatever else holds.
        assert_eq!(events(&mut pair.near).contains(&lost), dead == A);
        assert_eq!(events(&mut pair.far).contains(&lost), dead == A);
    }
}

#[test]
fn a_flow_that_was_fast_leaves_the_window_to_others() {
    let config = LinkConfig {
        window_bytes: 4 << 20,
        ..LinkConfig::with_cache(CacheGeometry::new(4 << 20).expect("valid"))
    };
    let mut pair = Pair::with_config(2, config);
    let greedy = pair.open_on(A);
    pair.lose();
    let mut buffer = Vec::new();
    for seed in 0..400 {
        pair.near.write(greedy, &noise(64 << 10, seed));
        pair.settle();
        take_all(&mut pair.far, greedy, &mut buffer);
        pair.far.taken(greedy, buffer.len());
        pair.settle();
        pair.pass(Duration::from_millis(20));
    }
    let late = pair.near.open_flow(pair.now, "late:80", false).expect("up");
    pair.settle();
    pair.far.accept_flow(late, false);
    pair.settle();
    let mut sent = 0;
    loop {
        let written = pair.near.write(late, &noise(64 << 10, 9));
        pair.pass(Duration::from_millis(20));
        if written == 0 {
            break;
        }
        sent += written;
    }
    let expected = (4 << 20) / 2 + CREDIT_FLOOR_BYTES;
    assert_eq!(sent as u64, expected);
}

/// Sends 128,000 bytes near → far: the flow is long then.
fn send_much(pair: &mut Pair, flow: FlowId) {
    for seed in 0..2 {
        assert_eq!(pair.near.write(flow, &noise(64_000, seed)), 64_000);
        pair.settle();
        take_all(&mut pair.far, flow, &mut Vec::new());
        pair.far.taken(flow, 64_000);
        pair.settle();
    }
}

/// What comes over the other lane of `talk`, while `bulk` keeps their home busy.
fn came_beside(pair: &mut Pair, bulk: FlowId, talk: FlowId) -> Vec<u8> {
    let written = pair.near.write(bulk, &noise(200_000, 3));
    assert!(written > 100_000, "more than one block: {written}");
    assert!(!transmit(&mut pair.near, pair.now, A).is_empty());
    assert_eq!(pair.near.write(talk, b"beside it"), 9);
    let beside = transmit(&mut pair.near, pair.now, B);
    pair.far.receive(pair.now, B, &beside).expect("no fault");
    let mut came = Vec::new();
    take_all(&mut pair.far, talk, &mut came);
    came
}

#[test]
fn a_short_flow_leaves_a_lane_that_long_ones_keep_busy() {
    for (is_long, rest_ms, leaves) in [(false, 0, true), (true, 90, false), (true, 110, true)] {
        let mut pair = Pair::new(2);
        let (bulk, talk) = (pair.open_on(A), pair.open_on(A));
        send_much(&mut pair, bulk);
        if is_long {
            send_much(&mut pair, talk);
        }
        pair.now = pair.now + Duration::from_millis(rest_ms);
        // What it answers.
        assert_eq!(pair.far.write(talk, b"a key"), 5);
        pair.settle();

        let came = came_beside(&mut pair, bulk, talk);
        let expected: &[u8] = if leaves { b"beside it" } else { b"" };
        assert_eq!(came, expected, "after {rest_ms} ms");
    }
}

/// However long that takes: otherwise a download with a slow reader would go before others.
#[test]
fn a_flow_that_waits_for_its_reader_does_not_rest() {
    let config = LinkConfig {
        window_bytes: 1 << 20,
        ..LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"))
    };
    let mut pair = Pair::with_config(2, config);
    let (bulk, talk) = (pair.open_on(A), pair.open_on(A));
    send_much(&mut pair, bulk);
    send_much(&mut pair, talk);
    let content = noise(64_000, 4);
    while pair.near.write(talk, &content) > 0 {
        pair.settle();
    }
    let mut came = Vec::new();
    take_all(&mut pair.far, talk, &mut came);
    assert!(came.len() > 64_000);
    pair.now = pair.now + Duration::from_millis(300);
    pair.far.taken(talk, came.len());
    pair.settle();
    assert_eq!(came_beside(&mut pair, bulk, talk), b"");
}

#[test]
fn a_flow_that_gets_long_beside_a_long_one_comes_home() {
    let mut pair = Pair::new(2);
    let flows = [pair.open_on(A), pair.open_on(A)];
    let content = noise(4 << 20, 9);
    let mut sent = [0; 2];
    let mut elsewhere = 0;
    for _ in 0..2 {
        let end = sent[0] + 64_000;
        assert_eq!(pair.near.write(flows[0], &content[sent[0]..end]), 64_000);
        pair.settle();
        take_all(&mut pair.far, flows[0], &mut Vec::new());
        pair.far.taken(flows[0], 64_000);
        pair.settle();
        sent[0] = end;
    }
    sent[0] += pair.near.write(flows[0], &content[sent[0]..]);
    let on_home = transmit(&mut pair.near, pair.now, A);
    pair.far.receive(pair.now, A, &on_home).expect("no fault");
    for turn in 0.. {
        if sent.iter().all(|&sent| sent == content.len()) {
            break;
        }
        assert!(turn < 1000, "{sent:?} of {} bytes", content.len());
        for (&flow, sent) in flows.iter().zip(&mut sent) {
            *sent += pair.near.write(flow, &content[*sent..]);
        }
        // Both lanes' transports are busy while the other end hears nothing.
        for _ in 0..4 {
            let on_home = transmit(&mut pair.near, pair.now, A);
            let on_other = transmit(&mut pair.near, pair.now, B);
            elsewhere += on_other.len();
            pair.far.receive(pair.now, A, &on_home).expect("no fault");
            pair.far.receive(pair.now, B, &on_other).expect("no fault");
        }
        for (lane, flow) in [(A, flows[0]), (B, flows[1])] {
            pair.near.transmitted(pair.now, lane, Written::default());
            let mut came = Vec::new();
            take_all(&mut pair.far, flow, &mut came);
            pair.far.taken(flow, came.len());
        }
        pair.pass(Duration::from_millis(11));
    }
    assert!(elsewhere < 2 << 16, "{elsewhere} bytes left home");
    let regions = pair.near.status(pair.now).counters.sent.layers.region_bytes;
    let repeated = regions as f64 / content.len() as f64;
    assert!(repeated > 0.9, "{repeated} of what repeats was found");
}

#[test]
fn what_a_rule_excludes_stays_behind_its_accept() {
    for is_lossy in [false, true] {
        let mut pair = Pair::new(2);
        let bulk = pair.open_on(A);
        for seed in 0..2 {
            assert_eq!(pair.far.write(bulk, &noise(64_000, seed)), 64_000);
            pair.settle();
            take_all(&mut pair.near, bulk, &mut Vec::new());
            pair.near.taken(bulk, 64_000);
            pair.settle();
        }
        if is_lossy {
            pair.lose();
        }
        pair.far.write(bulk, &noise(200_000, 3));
        let on_home = transmit(&mut pair.far, pair.now, A);
        assert!(!on_home.is_empty());
        let flow = pair.offer_on(A);
        let open = transmit(&mut pair.near, pair.now, A);
        pair.far.receive(pair.now, A, &open).expect("no fault");
        pair.far.accept_flow(flow, true);
        assert_eq!(pair.far.write(flow, b"a secret"), 8);
        let beside = transmit(&mut pair.far, pair.now, B);
        pair.near.receive(pair.now, B, &beside).expect("no fault");
        let mut came = Vec::new();
        take_all(&mut pair.near, flow, &mut came);
        assert!(came.is_empty(), "before it is known to be excluded");

        if is_lossy {
            continue;
        }
        // Then it may go where others do.
        pair.near.receive(pair.now, A, &on_home).expect("no fault");
        pair.far.transmitted(pair.now, A, Written::default());
        pair.settle();
        let mut read = |pair: &mut Pair, flow| {
            came.clear();
            take_all(&mut pair.near, flow, &mut came);
            pair.near.taken(flow, came.len());
            came.len()
        };
        assert_eq!(read(&mut pair, flow), 8);
        read(&mut pair, bulk);
        assert_eq!(pair.far.write(flow, &noise(16_000, 4)), 16_000);
        pair.settle();
        assert_eq!(read(&mut pair, flow), 16_000);
        pair.pass(Duration::from_millis(20));
        assert!(pair.far.write(bulk, &noise(200_000, 5)) > 100_000);
        let on_home = transmit(&mut pair.far, pair.now, A);
        assert!(!on_home.is_empty());
        assert_eq!(pair.far.write(flow, b"more"), 4);
        let beside = transmit(&mut pair.far, pair.now, B);
        pair.near.receive(pair.now, B, &beside).expect("no fault");
        assert_eq!(read(&mut pair, flow), 4);
    }
}

#[test]
fn a_flow_survives_a_spare_lane_on_which_all_of_it_has_come() {
    let mut pair = Pair::new(2);
    let flow = pair.open_on(A);
    pair.lose();
    // The far end does not know it yet, and uses the lane.
    assert_eq!(pair.near.leave_spare_lane(1), Some(B));
    let content = noise(120_000, 5);
    assert_eq!(pair.far.write(flow, &content), content.len());
    pair.far.finish(flow);
    let mut on_home = Vec::new();
    loop {
        let bytes = transmit(&mut pair.far, pair.now, A);
        let is_silent = bytes.is_empty() & carry(&mut pair.far, &mut pair.near, pair.now, B);
        pair.far.transmitted(pair.now, A, Written::default());
        on_home.extend(bytes);
        if is_silent {
            break;
        }
    }
    assert!(on_home.len() > 8_000);
    assert!(
        on_home.len() < 100_000,
        "some of it travelled on the other lane"
    );
    for _ in 0..3 {
        pair.now = pair.now + Duration::from_millis(50);
        pair.near.handle_timeout(pair.now);
        carry(&mut pair.near, &mut pair.far, pair.now, B);
        carry(&mut pair.far, &mut pair.near, pair.now, B);
    }
    let spared = Event::LaneDown(B, LaneFault::Spare);
    assert!(events(&mut pair.near).contains(&spared));
    assert!(pair.near.is_open(flow));

    pair.near.receive(pair.now, A, &on_home).expect("no fault");
    let mut came = Vec::new();
    take_all(&mut pair.near, flow, &mut came);
    assert_eq!(came, content);
    pair.near.taken(flow, came.len());
    pair.near.finish(flow);
    pair.settle();
    assert!(pair.near.take_end(flow) && pair.far.take_end(flow));
    pair.settle();
    assert!(events(&mut pair.far).contains(&spared));
    for end in [&pair.near, &pair.far] {
        assert_eq!(end.counters().events.flows_reset, 0);
        assert_eq!(end.counters().events.lanes_lost, 0);
    }
}
