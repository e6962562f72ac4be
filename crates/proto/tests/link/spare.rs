//! Lanes that the near end leaves since the link needs fewer.

use refrain_proto::{Event, Fault, LaneFault, LaneId, Violation, frame::Frame};

use crate::pair::{Pair, of_version_1};

fn spare() -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame::Spare.write(&mut bytes);
    bytes
}

/// The lanes that ended at one end, and why.
fn ended(events: &[Event]) -> Vec<(LaneId, LaneFault)> {
    let downs = events.iter().filter_map(|event| match event {
        Event::LaneDown(lane, fault) => Some((*lane, *fault)),
        _ => None,
    });
    downs.collect()
}

#[test]
fn as_many_as_are_to_stay_take_flows_however_often_spare_ones_are_left() {
    for keep in 1..=4 {
        let mut pair = Pair::new(4);
        // The far end has not left the first when the near end looks again.
        let left: Vec<LaneId> = std::iter::from_fn(|| pair.near.leave_spare_lane(keep)).collect();
        assert_eq!(left.len(), 4 - keep);
        pair.open("a:1");
        pair.settle();
        assert_eq!(pair.near.leave_spare_lane(keep), None);
        let spared: Vec<_> = left.iter().map(|&lane| (lane, LaneFault::Spare)).collect();
        for events in [&pair.near_events, &pair.far_events] {
            let mut ended = ended(events);
            ended.sort_by_key(|(lane, _)| std::cmp::Reverse(*lane));
            assert_eq!(ended, spared);
        }
        assert_eq!(pair.near.spare_lanes(), 0);
        assert_eq!(pair.near.counters().events.lanes_lost, 0);
        assert_eq!(pair.near.counters().events.flows_reset, 0);
    }
}

#[test]
fn a_lane_that_a_flow_depends_on_is_kept_until_the_flow_ends() {
    let mut pair = Pair::new(2);
    // Flows to many targets use both lanes.
    let flows: Vec<_> = (0..8)
        .map(|number| pair.open(&format!("{number}:1")))
        .collect();
    assert_eq!(pair.near.leave_spare_lane(1), None, "both are used");
    flows.into_iter().for_each(|flow| pair.end(flow));

    assert_eq!(pair.near.leave_spare_lane(1), Some(LaneId(1)));
    // The far end opens some before it hears of that.
    let flows: Vec<_> = (0..8)
        .map(|number| {
            let flow = pair.far.open_flow(pair.now, &format!("{number}:1"), false);
            flow.expect("the link is up")
        })
        .collect();
    pair.settle();
    for &flow in &flows {
        pair.near.accept_flow(flow, false);
    }
    pair.settle();
    assert_eq!(ended(&pair.near_events), []);
    for flow in flows {
        assert_eq!(pair.send(flow, b"words"), b"words");
        pair.end(flow);
    }
    for _ in 0..2 {
        pair.now = pair.now + std::time::Duration::from_secs(15);
        pair.far.handle_timeout(pair.now);
        pair.near.handle_timeout(pair.now);
        pair.settle();
    }
    for events in [&pair.near_events, &pair.far_events] {
        assert_eq!(ended(events), [(LaneId(1), LaneFault::Spare)]);
    }
}

#[test]
fn the_last_lane_stays_whatever_is_said_of_it() {
    let mut pair = Pair::new(1);
    for _ in 0..1000 {
        pair.far
            .receive(pair.now, LaneId(0), &spare())
            .expect("no fault");
    }
    pair.settle();
    assert_eq!(ended(&pair.far_events), []);
    let flow = pair.open("a:1");
    assert_eq!(pair.send(flow, b"words"), b"words");
}

#[test]
fn the_far_end_leaves_no_lane_by_itself() {
    let mut pair = Pair::new(2);
    let fault = pair.near.receive(pair.now, LaneId(1), &spare());
    let refused = |fault| {
        matches!(
            fault,
            Fault::Lane(LaneFault::Protocol(Violation::SpareUnasked)) | Fault::Link(_)
        )
    };
    assert!(fault.is_err_and(refused));
}

#[test]
fn a_peer_of_version_1_is_sent_no_word_of_spare_lanes() {
    let mut pair = Pair::new(0);
    for _ in 0..2 {
        pair.greet(of_version_1, of_version_1);
    }
    assert_eq!(pair.near.lanes_up(), 2);
    assert_eq!(pair.near.leave_spare_lane(1), None);
}

#[test]
fn a_lane_that_dies_while_only_one_end_has_left_it_is_lost() {
    let mut pair = Pair::new(2);
    assert_eq!(pair.near.leave_spare_lane(1), Some(LaneId(1)));
    assert_eq!(pair.near.spare_lanes(), 1);
    pair.near.close_lane(LaneId(1), LaneFault::TransportClosed);
    pair.carried.remove(&LaneId(1));
    pair.settle();
    let lost = [(LaneId(1), LaneFault::TransportClosed)];
    assert_eq!(ended(&pair.near_events), lost);
    assert_eq!(pair.near.counters().events.lanes_lost, 1);
}
