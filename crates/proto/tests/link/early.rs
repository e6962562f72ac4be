//! Flows that the near end opens before the far end's hello has come.

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    Event, FlowId, LaneFault, LaneId, Link, LinkConfig, Moment, ResetReason, Role,
    hello::Hello,
    limits::CREDIT_FLOOR_BYTES,
    predictions::history::{HistoryConfig, HistoryRequest},
};

use crate::pair::{noise, take_all, transmit};

const LANE: LaneId = LaneId(0);

fn links() -> (Moment, Link, Link) {
    let config = LinkConfig::with_cache(CacheGeometry::new(4 << 20).expect("valid"));
    let mut near = Link::new(Role::Near, 1, config.clone());
    let now = Moment::default();
    assert_eq!(near.dial_lane(now), Some(LANE));
    (now, near, Link::new(Role::Far, 2, config))
}

/// What the near end says at first reaches the far end, whose hello may say that it is of version 1.
fn greet(now: Moment, near: &mut Link, far: &mut Link, is_version_1: bool) -> Vec<u8> {
    let bytes = transmit(near, now, LANE);
    let (mut hello, read) = Hello::read(&bytes).expect("a hello").expect("whole");
    if is_version_1 {
        hello.window_bytes = None;
    }
    far.accept_lane(now, &hello).expect("a lane");
    far.receive(now, LANE, &bytes[read..]).expect("no fault");
    let answer = transmit(far, now, LANE);
    if !is_version_1 {
        return answer;
    }
    let (mut hello, read) = Hello::read(&answer).expect("a hello").expect("whole");
    hello.window_bytes = None;
    let mut older = Vec::new();
    hello.write(&mut older);
    older.extend(&answer[read..]);
    older
}

/// Carries all that both ends have to say, and lets the far end accept.
fn settle(now: Moment, near: &mut Link, far: &mut Link) {
    loop {
        while let Some(event) = far.poll_event() {
            if let Event::FlowOffered { flow, .. } = event {
                far.accept_flow(flow, false);
            }
        }
        let (up, down) = (transmit(near, now, LANE), transmit(far, now, LANE));
        if up.is_empty() && down.is_empty() {
            return;
        }
        far.receive(now, LANE, &up).expect("no fault");
        near.receive(now, LANE, &down).expect("no fault");
    }
}

fn write_all(
    now: Moment,
    from: &mut Link,
    to: &mut Link,
    flow: FlowId,
    bytes: &[u8],
    near_writes: bool,
) {
    let (mut sent, mut came, mut buffer) = (0, Vec::new(), Vec::new());
    while came.len() < bytes.len() {
        sent += from.write(flow, &bytes[sent..]);
        match near_writes {
            true => settle(now, from, to),
            false => settle(now, to, from),
        }
        let before = came.len();
        take_all(to, flow, &mut buffer);
        came.append(&mut buffer);
        assert!(came.len() > before, "it stands still after {before} bytes");
        to.taken(flow, came.len() - before);
    }
    assert_eq!(came, bytes);
}

#[test]
fn a_request_goes_along_with_the_hello() {
    for is_version_1 in [false, true] {
        let (now, mut near, mut far) = links();
        let flow = near
            .open_flow(now, "a:1", false)
            .expect("a lane is dialled");
        assert_eq!(near.write(flow, b"request"), 7);
        let answer = greet(now, &mut near, &mut far, is_version_1);
        // The first flight brought all of it.
        assert!(std::iter::from_fn(|| far.poll_event()).any(
            |event| matches!(event, Event::FlowOffered { flow: offered, .. } if offered == flow)
        ));
        far.accept_flow(flow, false);
        let mut request = Vec::new();
        take_all(&mut far, flow, &mut request);
        assert_eq!(request, b"request");
        far.taken(flow, request.len());

        near.receive(now, LANE, &answer).expect("a hello");
        settle(now, &mut near, &mut far);
        // Both directions then carry what they like: caches, credit and all.
        let content = noise(1 << 20, 5);
        write_all(now, &mut near, &mut far, flow, &content, true);
        write_all(now, &mut far, &mut near, flow, &content, false);
        let again = far.counters().sent.layers.packed_bytes;
        write_all(now, &mut far, &mut near, flow, &content, false);
        let cost = far.counters().sent.layers.packed_bytes - again;
        assert!(
            cost * 20 < content.len() as u64,
            "{cost} bytes for a repeat"
        );
    }
}

#[test]
fn before_the_hello_a_flow_has_its_floor() {
    let (now, mut near, mut far) = links();
    let flow = near
        .open_flow(now, "a:1", false)
        .expect("a lane is dialled");
    let content = noise(100_000, 6);
    assert_eq!(near.write(flow, &content) as u64, CREDIT_FLOOR_BYTES);
    let answer = greet(now, &mut near, &mut far, false);
    near.receive(now, LANE, &answer).expect("a hello");
    settle(now, &mut near, &mut far);
    let writable =
        std::iter::from_fn(|| near.poll_event()).any(|event| event == Event::Writable(flow));
    assert!(writable, "the window is known");
}

#[test]
fn a_lane_that_is_refused_takes_early_flows_along() {
    let (now, mut near, _) = links();
    let flow = near
        .open_flow(now, "a:1", false)
        .expect("a lane is dialled");
    let before = near.status(now).allocated_bytes;
    near.write(flow, &noise(10_000, 7));
    transmit(&mut near, now, LANE);
    near.close_lane(LANE, LaneFault::TransportClosed);
    // A far end may refuse lanes for hours.
    assert_eq!(near.status(now).allocated_bytes, before);
    assert_eq!(near.blocks_outstanding(), 0);
    let lost = Event::FlowReset(flow, ResetReason::LaneLost);
    assert!(std::iter::from_fn(|| near.poll_event()).any(|event| event == lost));
    assert_eq!(near.flows_open(), 0);
}

#[test]
fn later_lanes_wait_for_their_hellos() {
    let (now, mut near, mut far) = links();
    let answer = greet(now, &mut near, &mut far, false);
    near.receive(now, LANE, &answer).expect("a hello");
    let second = near.dial_lane(now).expect("a number is left");
    for target in ["a:1", "b:1", "c:1", "d:1", "e:1", "f:1"] {
        let flow = near.open_flow(now, target, false).expect("a lane is up");
        near.write(flow, b"request");
    }
    let hello = transmit(&mut near, now, second);
    let (_, read) = Hello::read(&hello).expect("a hello").expect("whole");
    assert_eq!(read, hello.len(), "nothing follows it");
}

#[test]
fn what_an_early_flow_brings_is_asked_for_once_the_far_end_is_known() {
    let config = LinkConfig {
        history: Some(HistoryConfig::default()),
        ..LinkConfig::with_cache(CacheGeometry::new(4 << 20).expect("valid"))
    };
    let now = Moment::default();
    let mut near = Link::new(Role::Near, 1, config.clone());
    let mut far = Link::new(
        Role::Far,
        2,
        LinkConfig {
            history: None,
            ..config
        },
    );
    near.dial_lane(now).expect("a number is left");
    near.open_flow(now, "a:1", false)
        .expect("a lane is dialled");
    assert_eq!(near.poll_history(), None);
    let answer = greet(now, &mut near, &mut far, false);
    near.receive(now, LANE, &answer).expect("a hello");
    let asked = near.poll_history();
    assert!(
        matches!(asked, Some(HistoryRequest::Open { .. })),
        "{asked:?}"
    );
}
