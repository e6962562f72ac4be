//! What goes into the mirrored caches, what stays out, and what it saves.

use std::time::Duration;

use refrain_proto::LaneId;

use crate::pair::{Pair, noise, sent_on, transmit};

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
fn a_full_window_waits_a_round_trip_and_then_bypasses() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    pair.send(flow, &noise(300_000, 1));
    // Acknowledgements no longer come back.
    let (mut bytes, mut sent, mut waited) = (Vec::new(), Vec::new(), false);
    while sent_on(&pair.near, pair.now, flow).bypassed_blocks == 0 {
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
