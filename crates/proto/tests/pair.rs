//! Two links, joined by lanes that deliver at once: what users of the engine rely on.

use std::{collections::BTreeMap, time::Duration};

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    Event, Fault, FlowId, LaneFault, LaneId, Link, LinkConfig, Moment, ResetReason, Role,
    hello::Hello,
};

/// Both ends and a clock.
struct Pair {
    now: Moment,
    near: Link,
    far: Link,
    near_events: Vec<Event>,
    far_events: Vec<Event>,
    /// Bytes near → far and far → near, lane by lane.
    carried: BTreeMap<LaneId, (Vec<u8>, Vec<u8>)>,
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
            near_events: Vec::new(),
            far_events: Vec::new(),
            carried: BTreeMap::new(),
        };
        for _ in 0..lanes {
            pair.dial();
            pair.settle();
        }
        pair
    }

    fn dial(&mut self) -> LaneId {
        let lane = self.near.dial_lane(self.now).expect("a number is left");
        let mut bytes = Vec::new();
        self.near.poll_transmit(self.now, lane, &mut bytes);
        let (hello, read) = Hello::read(&bytes).expect("a hello").expect("whole");
        assert_eq!(self.far.accept_lane(self.now, &hello), Ok(lane));
        self.far
            .receive(self.now, lane, &bytes[read..])
            .expect("no fault");
        self.carried.insert(lane, Default::default());
        lane
    }

    /// Carries everything that either end has to say, until both are silent.
    fn settle(&mut self) {
        loop {
            let mut silent = true;
            let lanes: Vec<LaneId> = self.carried.keys().copied().collect();
            for lane in lanes {
                let mut bytes = Vec::new();
                self.near.poll_transmit(self.now, lane, &mut bytes);
                silent &= bytes.is_empty();
                self.far.receive(self.now, lane, &bytes).expect("no fault");
                self.carried.get_mut(&lane).expect("known").0.extend(&bytes);

                bytes.clear();
                self.far.poll_transmit(self.now, lane, &mut bytes);
                silent &= bytes.is_empty();
                self.near.receive(self.now, lane, &bytes).expect("no fault");
                self.carried.get_mut(&lane).expect("known").1.extend(&bytes);
            }
            self.near_events
                .extend(std::iter::from_fn(|| self.near.poll_event()));
            self.far_events
                .extend(std::iter::from_fn(|| self.far.poll_event()));
            if silent {
                let due = [self.near.poll_timeout(), self.far.poll_timeout()];
                let soon = self.now + Duration::from_millis(200);
                let Some(due) = due.into_iter().flatten().min().filter(|&due| due <= soon) else {
                    return;
                };
                self.now = self.now.max(due);
                self.near.handle_timeout(self.now);
                self.far.handle_timeout(self.now);
            }
        }
    }

    fn open(&mut self, target: &str) -> FlowId {
        let flow = self
            .near
            .open_flow(self.now, target, false)
            .expect("the link is up");
        self.settle();
        self.far.accept_flow(flow, false);
        self.settle();
        flow
    }

    /// Sends `bytes` near → far on `flow` and returns what arrived.
    fn send(&mut self, flow: FlowId, bytes: &[u8]) -> Vec<u8> {
        let (mut sent, mut arrived, mut buffer) = (0, Vec::new(), Vec::new());
        while sent < bytes.len() {
            sent += self.near.write(flow, &bytes[sent..]);
            self.settle();
            self.far.take_ready(flow, &mut buffer);
            self.far.taken(self.now, flow, buffer.len());
            arrived.extend_from_slice(&buffer);
            self.settle();
        }
        arrived
    }

    fn link_bytes_sent(&self) -> u64 {
        self.near.status(self.now).sent.link_bytes
    }
}

fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    (0..len)
        .map(|_| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        })
        .collect()
}

#[test]
fn a_flow_carries_bytes_and_ends_each_way() {
    let mut pair = Pair::new(2);
    let flow = pair.open("example.org:80");
    assert!(pair.near_events.contains(&Event::FlowAccepted(flow)));
    assert_eq!(pair.send(flow, b"ping"), b"ping");
    pair.near.finish(flow);
    pair.settle();
    assert!(pair.far.take_end(flow));
    assert!(!pair.near.take_end(flow), "half-closed");

    assert_eq!(pair.far.write(flow, b"pong"), 4);
    pair.far.finish(flow);
    pair.settle();
    let mut buffer = Vec::new();
    pair.near.take_ready(flow, &mut buffer);
    assert_eq!(buffer, b"pong");
    assert!(pair.near.take_end(flow));
    assert_eq!((pair.near.flows_open(), pair.far.flows_open()), (0, 0));
}

#[test]
fn a_second_time_costs_almost_nothing() {
    let mut pair = Pair::new(4);
    let data = noise(1 << 20, 1);
    let first = pair.open("a:1");
    assert_eq!(pair.send(first, &data), data);
    let before = pair.link_bytes_sent();
    let second = pair.open("b:2");
    assert_eq!(pair.send(second, &data), data);
    let cost = pair.link_bytes_sent() - before;
    assert!(
        cost < data.len() as u64 / 50,
        "{cost} bytes for a repeat of {}",
        data.len()
    );
}

#[test]
fn bytes_may_come_split_anywhere() {
    let mut pair = Pair::new(1);
    let flow = pair.near.open_flow(pair.now, "a:1", false).expect("up");
    let text = b"split anywhere, the result may not differ".repeat(20);
    assert_eq!(pair.near.write(flow, &text), text.len());
    let mut bytes = Vec::new();
    pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
    for byte in bytes {
        pair.far
            .receive(pair.now, LaneId(0), &[byte])
            .expect("no fault");
    }
    let mut buffer = Vec::new();
    pair.far.take_ready(flow, &mut buffer);
    assert_eq!(buffer, text);
}

#[test]
fn a_slow_reader_stops_its_own_flow_alone() {
    let mut pair = Pair::new(1);
    let (slow, quick) = (pair.open("a:1"), pair.open("a:1"));
    let mut sent = 0;
    loop {
        let taken = pair.near.write(slow, &[7; 10_000]);
        pair.settle();
        sent += taken;
        if taken == 0 {
            break;
        }
    }
    assert!(sent < 2 << 20, "credit bounds what waits at the other end");
    let data = noise(3 << 20, 2);
    assert_eq!(pair.send(quick, &data), data);
}

#[test]
fn refusals_and_resets_are_passed_on() {
    let mut pair = Pair::new(2);
    let refused = pair
        .near
        .open_flow(pair.now, "closed:1", false)
        .expect("up");
    pair.near.write(refused, b"early bytes");
    pair.settle();
    pair.far.refuse_flow(refused, 3, "connection refused");
    pair.settle();
    let text = "connection refused".to_owned();
    assert!(pair.near_events.contains(&Event::FlowRefused {
        flow: refused,
        code: 3,
        text
    }));

    let flow = pair.open("b:2");
    pair.far.write(flow, &noise(5000, 3));
    pair.near.reset(flow, 9);
    pair.settle();
    assert!(
        pair.far_events
            .contains(&Event::FlowReset(flow, ResetReason::ByPeer(9)))
    );
    assert_eq!((pair.near.flows_open(), pair.far.flows_open()), (0, 0));
}

#[test]
fn a_dead_lane_resets_its_flows_and_is_settled_on_another() {
    let mut pair = Pair::new(2);
    let flow = pair.open("a:1");
    let data = noise(40_000, 4);
    pair.send(flow, &data[..20_000]);
    // Blocks that leave and never arrive.
    let lane = pair.near.status(pair.now).flows[0].lane;
    pair.near.write(flow, &data[20_000..]);
    pair.near.poll_transmit(pair.now, lane, &mut Vec::new());
    assert!(pair.near.status(pair.now).sent.outstanding_bytes > 0);
    pair.near.close_lane(lane, LaneFault::TransportClosed);
    // They may still arrive, until the other end has said that it reads no more.
    let status = pair.near.status(pair.now);
    assert_eq!(status.holes, 0);
    assert!(status.sent.outstanding_bytes > 0);
    pair.carried.remove(&lane);
    pair.settle();
    assert!(
        pair.near_events
            .contains(&Event::FlowReset(flow, ResetReason::LaneLost))
    );
    assert!(
        pair.far_events
            .contains(&Event::FlowReset(flow, ResetReason::LaneLost))
    );
    let status = pair.near.status(pair.now);
    assert_eq!((status.holes, status.sent.outstanding_bytes), (1, 0));

    // History before the hole still serves, the lost bytes do not.
    let before = pair.link_bytes_sent();
    let again = pair.open("a:1");
    assert_eq!(pair.send(again, &data), data);
    let cost = pair.link_bytes_sent() - before;
    assert!((20_000..22_000).contains(&cost), "{cost}");
}

#[test]
fn a_link_outlives_all_its_lanes() {
    let mut pair = Pair::new(1);
    let data = noise(200_000, 5);
    let flow = pair.open("a:1");
    pair.send(flow, &data);
    pair.near.close_lane(LaneId(0), LaneFault::TransportClosed);
    pair.far.close_lane(LaneId(0), LaneFault::TransportClosed);
    pair.carried.clear();
    pair.dial();
    pair.settle();
    let before = pair.link_bytes_sent();
    let again = pair.open("a:1");
    assert_eq!(pair.send(again, &data), data);
    assert!(
        pair.link_bytes_sent() - before < 4000,
        "the caches survived"
    );
}

/// When the near end gives up lane 0, which goes silent at once; others may go on.
fn silence_found_after(lanes: usize, others_go_on: bool) -> Duration {
    let mut pair = Pair::new(lanes);
    pair.open("a:1");
    let silent_at = pair.now;
    loop {
        let due = [pair.near.poll_timeout(), pair.far.poll_timeout()];
        let due = due.into_iter().flatten().min().expect("pings are due");
        pair.now = pair.now.max(due);
        pair.near.handle_timeout(pair.now);
        pair.far.handle_timeout(pair.now);
        for lane in (0..lanes as u32).map(LaneId) {
            let said = transmit(&mut pair.near, pair.now, lane);
            let answered = transmit(&mut pair.far, pair.now, lane);
            if others_go_on && lane != LaneId(0) {
                pair.far.receive(pair.now, lane, &said).expect("no fault");
                pair.near
                    .receive(pair.now, lane, &answered)
                    .expect("no fault");
            }
        }
        while let Some(event) = pair.near.poll_event() {
            if event == Event::LaneDown(LaneId(0), LaneFault::Silent) {
                return pair.now.since(silent_at);
            }
        }
    }
}

#[test]
fn silence_kills_a_lane_later_while_others_are_not_silent() {
    let seconds = Duration::from_secs;
    for lanes in [1, 3] {
        let found = silence_found_after(lanes, false);
        assert!((seconds(3)..seconds(5)).contains(&found), "{found:?}");
    }
    let found = silence_found_after(3, true);
    assert!((seconds(15)..seconds(18)).contains(&found), "{found:?}");
}

#[test]
fn replayed_frames_are_refused() {
    let mut pair = Pair::new(2);
    let flow = pair.open("a:1");
    pair.near.write(flow, &noise(3000, 6));
    let lane = pair.near.status(pair.now).flows[0].lane;
    let mut bytes = Vec::new();
    pair.near.poll_transmit(pair.now, lane, &mut bytes);
    pair.far
        .receive(pair.now, lane, &bytes)
        .expect("the first time");
    let again = pair.far.receive(pair.now, lane, &bytes);
    assert!(again.is_err(), "a block twice in the same place");

    let mut pair = Pair::new(1);
    let open = |pair: &mut Pair| {
        pair.near.open_flow(pair.now, "a:1", false).expect("up");
        let mut bytes = Vec::new();
        pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
        bytes
    };
    let bytes = open(&mut pair);
    pair.far
        .receive(pair.now, LaneId(0), &bytes)
        .expect("the first time");
    let fault = pair
        .far
        .receive(pair.now, LaneId(0), &bytes)
        .expect_err("the second");
    assert!(matches!(fault, Fault::Lane(LaneFault::Protocol(_))));
}

#[test]
fn damaged_frames_cost_the_lane_or_the_link_and_never_a_wrong_byte() {
    let text =
        b"damage in the middle of a lane is found before anybody sees a byte of it; ".repeat(40);
    let mut pair = Pair::new(1);
    let flow = pair.near.open_flow(pair.now, "a:1", false).expect("up");
    pair.near.write(flow, &text);
    let mut bytes = Vec::new();
    pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
    for at in 0..bytes.len() {
        let mut pair = Pair::new(1);
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let result = pair.far.receive(pair.now, LaneId(0), &damaged);
        let mut buffer = Vec::new();
        pair.far.take_ready(flow, &mut buffer);
        assert!(text.starts_with(&buffer), "byte {at}: {result:?}");
    }
}

#[test]
fn a_full_window_waits_a_round_trip_and_then_bypasses() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    pair.send(flow, &noise(300_000, 1));
    // Acknowledgements no longer come back.
    let (mut bytes, mut sent, mut waited) = (Vec::new(), Vec::new(), false);
    while pair.near.status(pair.now).sent.layers.bypassed_blocks == 0 {
        pair.near.write(flow, &noise(20_000, sent.len() as u64));
        bytes.clear();
        pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
        if bytes.is_empty() {
            waited = true;
            pair.now = pair
                .near
                .poll_timeout()
                .expect("the wait ends")
                .max(pair.now);
            pair.near.handle_timeout(pair.now);
        }
        sent.extend_from_slice(&bytes);
        assert!(
            pair.now.0 < Duration::from_secs(5),
            "a round trip, not for ever"
        );
        pair.far
            .receive(pair.now, LaneId(0), &bytes)
            .expect("no fault");
        let mut buffer = Vec::new();
        pair.far.take_ready(flow, &mut buffer);
        pair.far.taken(pair.now, flow, buffer.len());
        let mut back = Vec::new();
        pair.far.poll_transmit(pair.now, LaneId(0), &mut back);
        let credit_alone: Vec<u8> = credits(&back);
        pair.near
            .receive(pair.now, LaneId(0), &credit_alone)
            .expect("no fault");
    }
    assert!(waited);
}

/// Of some frames, those that grant credit.
fn credits(mut bytes: &[u8]) -> Vec<u8> {
    use refrain_proto::frame::Frame;
    let mut kept = Vec::new();
    while let Some((frame, read)) = Frame::read(bytes).expect("frames") {
        if matches!(frame, Frame::Credit { .. }) {
            frame.write(&mut kept);
        }
        bytes = &bytes[read..];
    }
    kept
}

#[test]
fn an_idle_lane_outlives_its_pings() {
    let mut pair = Pair::new(1);
    while pair.now.0 < Duration::from_secs(100) {
        let due = [pair.near.poll_timeout(), pair.far.poll_timeout()];
        let due = due.into_iter().flatten().min().expect("pings are due");
        pair.now = pair.now.max(due);
        pair.near.handle_timeout(pair.now);
        pair.far.handle_timeout(pair.now);
        pair.settle();
    }
    assert_eq!((pair.near.lanes_up(), pair.far.lanes_up()), (1, 1));
}

#[test]
fn an_acknowledgement_that_waits_for_its_transport_asks_for_no_calls() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    pair.near.write(flow, b"to be acknowledged");
    let mut bytes = Vec::new();
    pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
    pair.far
        .receive(pair.now, LaneId(0), &bytes)
        .expect("no fault");
    pair.now = pair.far.poll_timeout().expect("an acknowledgement is due");
    pair.far.handle_timeout(pair.now);
    let events: Vec<Event> = std::iter::from_fn(|| pair.far.poll_event()).collect();
    assert!(events.contains(&Event::Transmit(LaneId(0))));
    assert!(pair.far.poll_timeout().expect("pings are due") > pair.now);
}

#[test]
fn a_reset_is_not_taken_for_an_end() {
    let mut pair = Pair::new(1);
    let (reset, ended) = (pair.open("a:1"), pair.open("a:1"));
    pair.near.write(reset, b"half of what there");
    pair.near.write(ended, b"all of it");
    pair.near.finish(ended);
    pair.settle();
    pair.near.close_lane(LaneId(0), LaneFault::TransportClosed);
    let mut buffer = Vec::new();
    pair.far.take_ready(ended, &mut buffer);
    assert_eq!(buffer, b"all of it");
    assert!(pair.far.take_end(ended));
    pair.far.close_lane(LaneId(0), LaneFault::TransportClosed);
    pair.far.take_ready(reset, &mut buffer);
    assert!(!pair.far.take_end(reset), "whatever came before the events");
}

#[test]
fn an_end_after_fewer_bytes_is_refused() {
    use refrain_proto::frame::{Frame, LaneList, end_check};
    for (plain_bytes, checked_bytes) in [(5, 5), (3, 3), (4, 5)] {
        let mut pair = Pair::new(1);
        let flow = pair.open("a:1");
        pair.send(flow, b"four");
        let mut bytes = Vec::new();
        Frame::End {
            flow,
            plain_bytes,
            check: end_check(flow, checked_bytes),
            lanes: LaneList::write(std::iter::empty(), &mut Vec::new()),
        }
        .write(&mut bytes);
        let fault = pair.far.receive(pair.now, LaneId(0), &bytes);
        assert!(matches!(fault, Err(Fault::Lane(LaneFault::Protocol(_)))));
        assert!(!pair.far.take_end(flow));
    }
}

#[test]
fn an_open_is_refused_again_after_its_flow_ended() {
    let mut pair = Pair::new(1);
    let flow = pair.near.open_flow(pair.now, "a:1", false).expect("up");
    let mut open = Vec::new();
    pair.near.poll_transmit(pair.now, LaneId(0), &mut open);
    pair.far
        .receive(pair.now, LaneId(0), &open)
        .expect("the first time");
    pair.far.refuse_flow(flow, 3, "closed");
    pair.settle();
    assert_eq!(pair.far.flows_open(), 0);
    assert!(pair.far.receive(pair.now, LaneId(0), &open).is_err());
}

#[test]
fn a_writer_that_gets_credit_while_the_link_is_full_is_woken_later() {
    let config = LinkConfig {
        pending_bytes_max: 20_000,
        ..LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"))
    };
    let mut pair = Pair::with_config(1, config);
    let waits = pair.near.open_flow(pair.now, "a:1", false).expect("up");
    pair.settle();
    // All of the initial credit leaves, and more is wanted.
    assert!(pair.near.write(waits, &noise(17_000, 8)) < 17_000);
    pair.settle();
    // Another flow fills the link; then credit comes for the first.
    let other = pair.near.open_flow(pair.now, "a:1", false).expect("up");
    pair.far.accept_flow(waits, false);
    let mut credit = Vec::new();
    pair.far.poll_transmit(pair.now, LaneId(0), &mut credit);
    let third = pair.near.open_flow(pair.now, "a:1", false).expect("up");
    pair.near.write(other, &noise(16_000, 9));
    pair.near.write(third, &noise(16_000, 10));
    pair.near
        .receive(pair.now, LaneId(0), &credit)
        .expect("no fault");
    pair.near_events.clear();
    pair.settle();
    assert!(pair.near_events.contains(&Event::Writable(waits)));
}

#[test]
fn a_flow_of_full_entropy_takes_half_of_the_cache_until_something_refers_to_it() {
    let mut pair = Pair::new(1);
    let data = noise(6 << 20, 8);
    let flow = pair.open("a:1");
    assert_eq!(pair.send(flow, &data[..3 << 20]), &data[..3 << 20]);
    let sent = pair.near.status(pair.now).sent;
    assert!(sent.layers.bypassed_blocks > 0);
    assert!(
        (1 << 20..=2 << 20).contains(&sent.cache_filled_bytes),
        "{} of a cache of 4 MiB",
        sent.cache_filled_bytes
    );

    // A second flow repeats some of it: the first is worth more now.
    let repeat = pair.open("a:1");
    assert_eq!(pair.send(repeat, &data[..200_000]), &data[..200_000]);
    let before = pair.near.status(pair.now).sent;
    assert_eq!(
        pair.send(flow, &data[3 << 20..4 << 20]),
        &data[3 << 20..4 << 20]
    );
    let after = pair.near.status(pair.now).sent;
    assert_eq!(after.layers.bypassed_blocks, before.layers.bypassed_blocks);
}

#[test]
fn excluded_flows_stay_out_of_the_cache_at_both_ends() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:443");
    let handshake = [
        &[0x16, 3, 1, 2, 0][..],
        b"secret-canary, secret-canary, secret-canary",
    ]
    .concat();
    assert_eq!(pair.send(flow, &handshake), handshake);
    pair.far.write(
        flow,
        b"an answer that is plain text, but belongs to an encrypted flow",
    );
    pair.settle();
    for status in [pair.near.status(pair.now), pair.far.status(pair.now)] {
        assert_eq!(status.sent.cache_filled_bytes, 0);
        assert_eq!(status.received.cache_filled_bytes, 0);
        assert_eq!(
            status.sent.layers.blocks,
            status.sent.layers.bypassed_blocks
        );
        assert_eq!(status.flows[0].class, refrain_proto::TrafficClass::Excluded);
    }
}

#[test]
fn final_counts_are_not_said_again_for_ever() {
    use refrain_proto::frame::Frame;
    let mut pair = Pair::new(2);
    for _ in 0..3 {
        let lane = pair.dial();
        pair.settle();
        pair.near.close_lane(lane, LaneFault::TransportClosed);
        pair.carried.remove(&lane);
        pair.settle();
    }
    let lane = pair.dial();
    pair.settle();
    for bytes in [&pair.carried[&lane].0[..], &pair.carried[&lane].1] {
        let mut rest = bytes;
        if let Ok(Some((_, read))) = Hello::read(rest) {
            rest = &rest[read..];
        }
        while let Some((frame, read)) = Frame::read(rest).expect("frames") {
            assert!(!matches!(frame, Frame::LaneClosed { .. }), "{frame:?}");
            rest = &rest[read..];
        }
    }
}

#[test]
fn what_is_sent_at_once_on_a_slow_link_is_short() {
    let config = LinkConfig {
        block_bytes_max: 5000,
        ..LinkConfig::with_cache(CacheGeometry::new(4 << 20).expect("valid"))
    };
    let mut pair = Pair::with_config(1, config);
    let (bulk, talk) = (pair.open("a:1"), pair.open("a:1"));
    pair.near.write(bulk, &noise(60_000, 80));
    pair.near.write(talk, b"a word");
    for turn in 0.. {
        let bytes = transmit(&mut pair.near, pair.now, LaneId(0));
        assert!(bytes.len() < 5100, "{}", bytes.len());
        pair.far
            .receive(pair.now, LaneId(0), &bytes)
            .expect("no fault");
        let mut heard = Vec::new();
        pair.far.take_ready(talk, &mut heard);
        if heard == b"a word" {
            break;
        }
        assert!(turn < 2, "a word waits for few blocks");
    }
}

#[test]
fn as_many_blocks_as_may_be_outstanding_wait_for_an_acknowledgement() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    let (mut sent, mut bytes) = (Vec::new(), Vec::new());
    loop {
        bytes.clear();
        assert_eq!(pair.near.write(flow, b"."), 1);
        pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
        if bytes.is_empty() {
            break;
        }
        sent.extend_from_slice(&bytes);
    }
    while pair.near.poll_event().is_some() {}
    pair.far
        .receive(pair.now, LaneId(0), &sent)
        .expect("no fault");
    pair.now = pair.far.poll_timeout().expect("an acknowledgement is due");
    bytes.clear();
    pair.far.poll_transmit(pair.now, LaneId(0), &mut bytes);
    pair.near
        .receive(pair.now, LaneId(0), &bytes)
        .expect("no fault");
    let events: Vec<Event> = std::iter::from_fn(|| pair.near.poll_event()).collect();
    assert!(events.contains(&Event::Transmit(LaneId(0))));
}

/// Opens two flows that share a lane, and lets loss be seen: what the home lane brings stops
/// twice in the middle of a frame.
fn two_flows_and_loss(pair: &mut Pair) -> ([FlowId; 2], LaneId) {
    let flows = [pair.open("a:1"), pair.open("a:1")];
    let rows = pair.near.status(pair.now).flows;
    let home = rows[0].lane;
    assert_eq!(home, rows[1].lane, "flows to one target share a lane");
    for (seed, pause) in (70..).zip([1, 1, 1, 1, 1, 1, 1, 1, 1, 300, 1, 300]) {
        pair.near.write(flows[0], &noise(1000, seed));
        let bytes = transmit(&mut pair.near, pair.now, home);
        let (first, rest) = bytes.split_at(500);
        pair.far.receive(pair.now, home, first).expect("no fault");
        pair.now = pair.now + Duration::from_millis(pause);
        pair.far.receive(pair.now, home, rest).expect("no fault");
        pair.near
            .transmitted(pair.now, home, Duration::ZERO, Duration::ZERO);
    }
    pair.settle();
    assert!(pair.near_events.contains(&Event::WantLanes));
    let mut buffer = Vec::new();
    pair.far.take_ready(flows[0], &mut buffer);
    pair.far.taken(pair.now, flows[0], buffer.len());
    pair.settle();
    (flows, home)
}

fn transmit(link: &mut Link, now: Moment, lane: LaneId) -> Vec<u8> {
    let mut bytes = Vec::new();
    link.poll_transmit(now, lane, &mut bytes);
    bytes
}

#[test]
fn a_free_lane_takes_flows_over_where_loss_was_seen_and_their_bytes_stay_in_order() {
    let mut pair = Pair::new(2);
    let (flows, home) = two_flows_and_loss(&mut pair);
    let other = LaneId(1 - home.0);
    let data = noise(9000, 40);
    // The home lane takes the first block and stands still; the others go over the free one.
    assert_eq!(pair.near.write(flows[1], &data[..3000]), 3000);
    let held_up = transmit(&mut pair.near, pair.now, home);
    for part in data[3000..].chunks(3000) {
        assert_eq!(pair.near.write(flows[1], part), 3000);
        let bytes = transmit(&mut pair.near, pair.now, other);
        assert!(bytes.len() > 3000);
        pair.far.receive(pair.now, other, &bytes).expect("no fault");
    }
    pair.near.finish(flows[1]);
    let end = transmit(&mut pair.near, pair.now, other);
    pair.far.receive(pair.now, other, &end).expect("no fault");
    let mut buffer = Vec::new();
    pair.far.take_ready(flows[1], &mut buffer);
    assert!(buffer.is_empty() && !pair.far.take_end(flows[1]));

    pair.far
        .receive(pair.now, home, &held_up)
        .expect("no fault");
    pair.far.take_ready(flows[1], &mut buffer);
    assert_eq!(buffer, data);
    assert!(pair.far.take_end(flows[1]));
    assert_eq!(pair.near.status(pair.now).strands_added, 1);
    pair.settle();
}

#[test]
fn a_flow_on_two_lanes_is_lost_with_either_at_both_ends() {
    for (dies_at_home, told) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut pair = Pair::new(2);
        let (flows, home) = two_flows_and_loss(&mut pair);
        let other = LaneId(1 - home.0);
        let data = noise(6000, 50);
        assert_eq!(pair.near.write(flows[1], &data[..3000]), 3000);
        let on_home = transmit(&mut pair.near, pair.now, home);
        assert_eq!(pair.near.write(flows[1], &data[3000..]), 3000);
        pair.near.finish(flows[1]);
        let on_other = transmit(&mut pair.near, pair.now, other);
        if told && dies_at_home {
            pair.far
                .receive(pair.now, other, &on_other)
                .expect("no fault");
        } else if told {
            pair.far
                .receive(pair.now, home, &on_home)
                .expect("no fault");
        }
        let dead = if dies_at_home { home } else { other };
        pair.carried.remove(&dead);
        pair.near.close_lane(dead, LaneFault::TransportClosed);
        pair.settle();
        let lost = Event::FlowReset(flows[1], ResetReason::LaneLost);
        assert!(pair.near_events.contains(&lost), "{dies_at_home} {told}");
        assert!(pair.far_events.contains(&lost), "{dies_at_home} {told}");
        let kept = usize::from(!dies_at_home);
        assert_eq!(
            (pair.near.flows_open(), pair.far.flows_open()),
            (kept, kept)
        );
    }
}

#[test]
fn blocks_of_a_flow_that_is_over_here_keep_the_caches_equal() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    let data = noise(12_000, 60);
    pair.far.reset(flow, 1);
    // The near end has not heard of it.
    assert_eq!(pair.near.write(flow, &data), data.len());
    let bytes = transmit(&mut pair.near, pair.now, LaneId(0));
    pair.far
        .receive(pair.now, LaneId(0), &bytes)
        .expect("no fault");
    assert_eq!(pair.far.flows_open(), 0);
    pair.settle();
    assert_eq!(pair.near.flows_open(), 0);
    let before = pair.link_bytes_sent();
    let again = pair.open("a:1");
    assert_eq!(pair.send(again, &data), data);
    assert!(pair.link_bytes_sent() - before < 500);
}
