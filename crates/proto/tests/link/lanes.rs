//! How lanes die, are settled, and outlive silence (`docs/architecture.md`, 6 and 7).

use std::time::Duration;

use refrain_proto::{Event, Fault, LaneFault, LaneId, Link, LinkFault, ResetReason, hello::Hello};

use crate::pair::{Pair, noise, transmit};

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

/// Writers that wait for something to send end the lanes.
#[test]
fn a_link_that_is_over_wakes_the_writers_of_all_lanes_at_both_ends() {
    let mut pair = Pair::new(4);
    let lanes: Vec<LaneId> = (0..4).map(LaneId).collect();
    let woken = |link: &mut Link| {
        let events = std::iter::from_fn(|| link.poll_event());
        let mut lanes: Vec<_> = events
            .filter_map(|event| match event {
                Event::Transmit(lane) => Some(lane),
                _ => None,
            })
            .collect();
        lanes.sort();
        lanes
    };
    pair.far.revoke();
    assert_eq!(woken(&mut pair.far), lanes);
    let words = transmit(&mut pair.far, pair.now, LaneId(2));
    let received = pair.near.receive(pair.now, LaneId(2), &words);
    assert_eq!(received, Err(Fault::Link(LinkFault::AbortedByPeer)));
    assert_eq!(woken(&mut pair.near), lanes);
}
