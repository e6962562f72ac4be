//! Frames that come twice, damaged, or say what is not so.

use refrain_proto::{Fault, LaneFault, LaneId};

use crate::pair::{Pair, noise, take_all};

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
        take_all(&mut pair.far, flow, &mut buffer);
        assert!(text.starts_with(&buffer), "byte {at}: {result:?}");
    }
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
