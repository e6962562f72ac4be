//! What a receiver keeps in memory for its flows, how much at most, and when it lets go of it.

use refrain_codec::chunk::stream::ChunkBounds;
use refrain_proto::predictions::history::{HistoryConfig, HistoryRequest, Predict};

use crate::{
    pair::{Pair, noise},
    predictions::{made, predicting, sent_of},
};

const OFFERED_MAX: u64 = 400_000;

fn held(pair: &Pair) -> u64 {
    pair.near.status(pair.now).offered_bytes_held
}

/// A pair that holds little for its offers, and of which `a:1` brought `content`.
fn narrow(content: &[u8]) -> Pair {
    let history = HistoryConfig {
        offered_bytes_max: OFFERED_MAX,
        ..HistoryConfig::default()
    };
    let mut pair = Pair::with_history(1, history);
    sent_of(&mut pair, "a:1", content);
    pair
}

#[test]
fn what_was_withdrawn_is_held_no_more_while_its_flow_stays_open() {
    let content = noise(1_000_000, 1);
    for predict in [Predict::Window, Predict::Aligned] {
        let mut pair = predicting(1, predict);
        sent_of(&mut pair, "a:1", &content);
        let flow = pair.open("b:1");
        pair.bring(flow, &content[..100_000]);
        assert!(held(&pair) > 500_000, "{predict:?}: {}", held(&pair));
        // Never anything of it again.
        pair.bring(flow, &noise(6_000_000, 2));
        assert!(pair.near.is_open(flow));
        // The last few withdrawals are not worth a frame of their own.
        assert!(held(&pair) < 100_000, "{predict:?}: {}", held(&pair));
        assert!(pair.far.status(pair.now).offers_kept < 64, "{predict:?}");
        assert!(made(&pair).wasted_bytes > 500_000, "{predict:?}");
    }
}

#[test]
fn one_flow_leaves_room_for_the_offers_of_others() {
    let mut pair = narrow(&noise(300_000, 1));
    let mut before = 0;
    for _ in 0..2 {
        pair.open("a:1");
        let room = OFFERED_MAX - before;
        let more = held(&pair) - before;
        assert!(
            (room / 4..=room / 2).contains(&more),
            "{more} bytes of {room}"
        );
        before += more;
    }
}

/// Withdrawals go with offers, and where there is no room for offers they go alone.
#[test]
fn what_a_link_without_room_gave_up_makes_room() {
    let (left, taken) = (noise(300_000, 1), noise(6_000_000, 2));
    let mut pair = narrow(&left);
    sent_of(&mut pair, "b:1", &taken);
    let flow = pair.open("c:1");
    pair.bring(flow, &left[..10_000]);
    assert!(held(&pair) > OFFERED_MAX / 2, "{} bytes", held(&pair));
    let confirmed = made(&pair).confirmed_bytes;
    for piece in taken.chunks(100_000) {
        pair.bring(flow, piece);
    }
    let confirmed = made(&pair).confirmed_bytes - confirmed;
    assert!(confirmed > 500_000, "{confirmed}");
}

/// All of them are promised room before any of them takes it.
#[test]
fn flows_that_are_answered_at_once_hold_no_more_than_the_link_may() {
    let content = noise(300_000, 1);
    let mut pair = narrow(&content);
    pair.near_memory.is_slow = true;
    let flows: Vec<_> = (0..20).map(|_| pair.open("a:1")).collect();
    assert_eq!(held(&pair), 0);
    pair.near_memory.is_slow = false;
    pair.settle();
    let most = OFFERED_MAX - ChunkBounds::default().bytes_max()..=OFFERED_MAX;
    assert!(most.contains(&held(&pair)), "{} bytes", held(&pair));
    // Those with offers and those without are served alike.
    for flow in flows {
        assert!(pair.bring(flow, &content) == content, "the same bytes");
        assert!(held(&pair) <= OFFERED_MAX, "{} bytes", held(&pair));
        pair.end(flow);
    }
    assert_eq!(held(&pair), 0);
}

#[test]
fn what_a_history_does_not_take_is_not_kept_for_it() {
    let learning_bytes_max = 200_000;
    let history = HistoryConfig {
        learning_bytes_max,
        ..HistoryConfig::default()
    };
    let content = noise(600_000, 1);
    let mut pair = Pair::with_history(1, history);
    pair.near_memory.is_stuck = true;
    let flow = pair.open("a:1");
    assert!(pair.bring(flow, &content) == content, "the same bytes");
    assert!(pair.near.status(pair.now).counters.events.unlearnt_chunks > 0);
    let requests = core::iter::from_fn(|| pair.near.poll_history());
    let kept: usize = requests
        .map(|request| match request {
            HistoryRequest::Learn { bytes, .. } => bytes.len(),
            _ => 0,
        })
        .sum();
    let most = learning_bytes_max + ChunkBounds::default().bytes_max() as usize;
    assert!((learning_bytes_max / 2..most).contains(&kept), "{kept}");
}

/// The history did not keep up with the beginning of a response: what it learnt of the rest is no
/// opening.
#[test]
fn a_recipe_without_its_beginning_opens_nothing() {
    let learning_bytes_max = 200_000;
    let history = HistoryConfig {
        learning_bytes_max,
        ..HistoryConfig::default()
    };
    let content = noise(400_000, 1);
    let mut pair = Pair::with_history(1, history);
    let torn = pair.open("a:1");
    pair.near_memory.is_stuck = true;
    // Another flow takes all of the room.
    let other = pair.open("b:1");
    pair.bring(other, &noise(300_000, 2));
    pair.bring(torn, &content[..200_000]);
    pair.near_memory.is_stuck = false;
    pair.bring(torn, &content[200_000..]);
    pair.end(torn);
    pair.open("a:1");
    assert_eq!(made(&pair).offers, 0, "of the middle");
    // What was learnt is known by its content.
    let sent = sent_of(&mut pair, "c:1", &content);
    assert!((200_000..300_000).contains(&sent), "{sent}");
}
