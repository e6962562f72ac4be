//! Flows that take further lanes where loss was seen (`docs/architecture.md`, 10).

use refrain_proto::{Event, FlowId, LaneFault, LaneId, ResetReason, effort::Written};

use crate::pair::{Pair, noise, take_all, transmit};

/// Opens two flows that share a lane, which loses segments.
fn two_flows_and_loss(pair: &mut Pair) -> ([FlowId; 2], LaneId) {
    let flows = [pair.open("a:1"), pair.open("a:1")];
    let rows = pair.near.status(pair.now).flows;
    let home = rows[0].lane;
    assert_eq!(home, rows[1].lane, "flows to one target share a lane");
    let written = Written {
        loses: true,
        ..Written::default()
    };
    pair.near.transmitted(pair.now, home, written);
    pair.settle();
    assert!(pair.near_events.contains(&Event::WantLanes));
    (flows, home)
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
    take_all(&mut pair.far, flows[1], &mut buffer);
    assert!(buffer.is_empty() && !pair.far.take_end(flows[1]));

    pair.far
        .receive(pair.now, home, &held_up)
        .expect("no fault");
    take_all(&mut pair.far, flows[1], &mut buffer);
    assert_eq!(buffer, data);
    assert!(pair.far.take_end(flows[1]));
    assert_eq!(pair.near.status(pair.now).counters.events.strands_added, 1);
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
