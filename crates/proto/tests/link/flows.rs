//! What a flow carries, how its reader holds it up, and how it ends.

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    Event, LaneFault, LaneId, LinkConfig, ResetReason,
    limits::{CREDIT_FLOOR_BYTES, WINDOW_BYTES_MAX},
};

use crate::pair::{Pair, noise, take_all};

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
    take_all(&mut pair.near, flow, &mut buffer);
    assert_eq!(buffer, b"pong");
    assert!(pair.near.take_end(flow));
    assert_eq!(pair.near.flows_open(), 1, "what was not passed on counts");
    pair.near.taken(flow, buffer.len());
    assert_eq!((pair.near.flows_open(), pair.far.flows_open()), (0, 0));
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
    take_all(&mut pair.far, flow, &mut buffer);
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
    let bound = WINDOW_BYTES_MAX / 2 + CREDIT_FLOOR_BYTES;
    // The window allows 8 KiB or nothing.
    let expected = bound - (8 << 10)..=bound;
    assert!(
        expected.contains(&(sent as u64)),
        "credit bounds what waits at the other end: {sent}"
    );
    let data = noise(3 << 20, 2);
    assert_eq!(pair.send(quick, &data), data);
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
    let data = noise(17_000, 8);
    let mut left = &data[..];
    loop {
        let taken = pair.near.write(waits, left);
        if taken == 0 {
            break;
        }
        left = &left[taken..];
        pair.settle();
    }
    assert!(!left.is_empty());
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
fn a_reset_is_not_taken_for_an_end() {
    let mut pair = Pair::new(1);
    let (reset, ended) = (pair.open("a:1"), pair.open("a:1"));
    pair.near.write(reset, b"half of what there");
    pair.near.write(ended, b"all of it");
    pair.near.finish(ended);
    pair.settle();
    pair.near.close_lane(LaneId(0), LaneFault::TransportClosed);
    let mut buffer = Vec::new();
    take_all(&mut pair.far, ended, &mut buffer);
    assert_eq!(buffer, b"all of it");
    assert!(pair.far.take_end(ended));
    pair.far.close_lane(LaneId(0), LaneFault::TransportClosed);
    take_all(&mut pair.far, reset, &mut buffer);
    assert!(!pair.far.take_end(reset), "whatever came before the events");
}
