//! What a writer confirms itself, ahead of its lane.

use refrain_codec::{chunk::stream::ChunkBounds, geometry::CacheGeometry, marker::PackMask};
use refrain_proto::{
    LaneId, LinkConfig, Mode,
    limits::BLOCK_BYTES_MAX,
    predictions::history::{HistoryConfig, Predict},
};

use crate::{
    pair::{Pair, noise, take_all, transmit},
    predictions::{predicting, sent_of},
};

const A: LaneId = LaneId(0);

#[test]
fn what_its_writer_confirms_takes_its_turn_with_the_rest() {
    let content = noise(400_000, 17);
    let edit = noise(30_000, 18);
    let edited = [&content[..200_000], &edit, &content[200_000..]].concat();
    for confirms_ahead in [true, false] {
        let mut pair = predicting(1, Predict::Window);
        sent_of(&mut pair, "a:1", &content);
        pair.confirms_ahead = confirms_ahead;
        let sent = sent_of(&mut pair, "a:1", &edited);
        assert!(sent < 60_000, "{confirms_ahead}: {sent}");
        // Ready before the lane asks, which then has nothing to look at.
        let flow = pair.open("a:1");
        let written = match confirms_ahead {
            true => pair.far.write_and_confirm(pair.now, flow, &edited),
            false => pair.far.write(flow, &edited),
        };
        let confirmed = pair.far_sent(flow).confirmed_bytes;
        let lane = transmit(&mut pair.far, pair.now, A);
        let later = pair.far_sent(flow).confirmed_bytes;
        assert_eq!(confirmed == later, confirms_ahead, "of {written}");
        assert!(!lane.is_empty() && lane.len() < 200, "{}", lane.len());
    }
}

/// However a writer's pieces lie to the chunks.
#[test]
fn what_is_confirmed_by_its_writer_does_not_wait() {
    let content = noise(300_000, 20);
    for piece in [1000, 10_007, 100_000] {
        let mut pair = predicting(1, Predict::Window);
        sent_of(&mut pair, "a:1", &content);
        let flow = pair.open("a:1");
        let (mut arrived, mut buffer) = (Vec::new(), Vec::new());
        for piece in content[..250_000].chunks(piece) {
            let mut written = 0;
            while written < piece.len() {
                let room = pair.far.room(pair.now, flow);
                assert!(room > 2 * BLOCK_BYTES_MAX, "no more than a chunk waits");
                written += pair
                    .far
                    .write_and_confirm(pair.now, flow, &piece[written..]);
                pair.carry();
                take_all(&mut pair.near, flow, &mut buffer);
                pair.near.taken(flow, buffer.len());
                arrived.extend_from_slice(&buffer);
            }
        }
        assert!(arrived == content[..arrived.len()], "the same bytes");
        let confirmed = pair.far_sent(flow).confirmed_bytes;
        assert!(confirmed > 230_000, "{piece}: {confirmed}");
    }
}

/// What is excluded once its opening was offered: by a rule at the target's end, or since the near
/// end's application begins TLS.
#[test]
fn what_is_excluded_is_not_confirmed_whatever_was_offered_before() {
    let content = noise(200_000, 21);
    let rule = (true, &b"x"[..]);
    let tls = (false, &[0x16, 3, 1, 0, 5][..]);
    let neither = (false, &b"x"[..]);
    for (is_excluded, request) in [rule, tls, neither] {
        let mut pair = predicting(1, Predict::Window);
        sent_of(&mut pair, "a:1", &content);
        let before = pair
            .far
            .status(pair.now)
            .counters
            .sent
            .layers
            .confirmed_bytes;
        let opened = pair.near.open_flow(pair.now, "a:1", false);
        let flow = opened.expect("there is room for flows");
        pair.settle();
        assert!(
            pair.near
                .status(pair.now)
                .counters
                .received
                .predictions
                .offers
                > 0
        );
        pair.far.accept_flow(flow, is_excluded);
        pair.settle();
        pair.send(flow, request);
        assert!(pair.bring(flow, &content) == content, "the same bytes");
        let confirmed = pair
            .far
            .status(pair.now)
            .counters
            .sent
            .layers
            .confirmed_bytes
            - before;
        let expects_some = !is_excluded && request == b"x";
        assert_eq!(confirmed > 0, expects_some, "{is_excluded} {request:?}");
    }
}

/// On a slow link a transmission is as short as a block.
#[test]
fn confirmations_ahead_leave_room_for_other_flows() {
    let history = HistoryConfig {
        mask: PackMask::with_bits(8).expect("6 to 15"),
        bounds: ChunkBounds::new(64, 1024).expect("valid bounds"),
        ..HistoryConfig::default()
    };
    let far = LinkConfig {
        mode: Mode::Receiver,
        block_bytes_max: 5000,
        ..LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"))
    };
    let near = LinkConfig {
        history: Some(history),
        ..far.clone()
    };
    let mut pair = Pair::between(1, near, far);
    let content = noise(1 << 20, 22);
    sent_of(&mut pair, "a:1", &content);
    let [known, new] = [pair.open("a:1"), pair.open("b:1")];
    let other = noise(10_000, 23);
    pair.far.write(new, &other);
    for piece in content[..200_000].chunks(500) {
        pair.far.write_and_confirm(pair.now, known, piece);
    }
    let sent = transmit(&mut pair.far, pair.now, A);
    pair.near.receive(pair.now, A, &sent).expect("frames");
    let mut buffer = Vec::new();
    take_all(&mut pair.near, new, &mut buffer);
    assert!(!buffer.is_empty(), "of {} bytes none is its", sent.len());
}

#[test]
fn confirmations_ahead_of_a_lane_that_stands_still_are_bounded() {
    let content = noise(400_000, 19);
    let history = HistoryConfig {
        mask: PackMask::with_bits(6).expect("6 to 15"),
        bounds: ChunkBounds::new(64, 128).expect("valid bounds"),
        ..HistoryConfig::default()
    };
    let mut pair = Pair::with_history(1, history);
    for _opening_that_is_to_hit in 0..2 {
        sent_of(&mut pair, "a:1", &content);
    }
    let flow = pair.open("a:1");
    let mut written = 0;
    for piece in content.chunks(64) {
        written += pair.far.write_and_confirm(pair.now, flow, piece);
    }
    let confirmed = pair.far_sent(flow).confirmed_bytes;
    assert!(confirmed > 10_000, "{confirmed} of {written}");
    let mut said = Vec::new();
    pair.far.poll_transmit(pair.now, A, &mut said);
    let frame_bytes = 40;
    assert!(said.len() < (16 << 10) + (64 << 10) + frame_bytes);
}
