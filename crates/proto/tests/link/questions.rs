//! What a link asks its history: as much as there is use for, and no more than it can answer.

use std::time::Duration;

use refrain_codec::{chunk::stream::ChunkBounds, marker::PackMask};
use refrain_proto::{
    limits::{OFFERS_LINK_MAX, QUESTIONS_LINK_MAX},
    predictions::history::HistoryConfig,
};

use crate::pair::{Pair, noise};

/// A recipe that is still written has no more yet: who reads it asks again when something came.
#[test]
fn a_recipe_that_is_still_written_is_read_once_for_all_that_comes() {
    let content = noise(300_000, 1);
    let mut pair = Pair::with_history(1, HistoryConfig::default());
    let first = pair.open("a:1");
    pair.bring(first, &content);
    assert!(pair.near.is_open(first), "its recipe is still written");
    let second = pair.open("a:1");
    let mut served = 0;
    while pair.near_memory.serve(&mut pair.near) {
        served += 1;
        assert!(served < 10, "nothing came, and it asks again");
    }
    // What the first brings is predicted for the second all the same.
    pair.bring(second, &content[..250_000]);
    pair.bring(first, &noise(100_000, 2));
    let before = pair
        .far
        .status(pair.now)
        .counters
        .sent
        .layers
        .confirmed_bytes;
    pair.bring(second, &content[250_000..]);
    pair.bring(second, &noise(100_000, 2));
    let confirmed = pair
        .far
        .status(pair.now)
        .counters
        .sent
        .layers
        .confirmed_bytes
        - before;
    assert!(confirmed > 80_000, "{confirmed}");
}

/// Content that repeats itself within reads its own recipe.
#[test]
fn a_flow_that_reads_its_own_recipe_comes_to_rest() {
    let mut pair = Pair::with_history(1, HistoryConfig::default());
    let flow = pair.open("a:1");
    let content = noise(100_000, 3);
    pair.bring(flow, &[&content[..], &vec![0; 1 << 20], &content].concat());
    let mut served = 0;
    while pair.near_memory.serve(&mut pair.near) {
        served += 1;
        assert!(served < 10, "nothing came, and it asks again");
    }
}

#[test]
fn a_history_that_hangs_is_asked_for_flows_that_live_and_not_without_end() {
    let mut pair = Pair::with_history(1, HistoryConfig::default());
    let open = |pair: &mut Pair, number: usize| {
        let target = format!("a:{number}");
        let opened = pair.near.open_flow(pair.now, &target, false);
        opened.expect("there is room for flows")
    };
    for number in 0..2 * QUESTIONS_LINK_MAX {
        let flow = open(&mut pair, number);
        pair.near.reset(flow, 1);
    }
    let living = open(&mut pair, 0);
    assert_eq!(pair.near.poll_history(), None, "all who asked are gone");
    assert!(pair.near.is_open(living));
    // It has caught up, and is asked again.
    open(&mut pair, 1);
    assert!(pair.near.poll_history().is_some());
}

#[test]
fn without_offers_left_the_history_is_not_read_for_nothing() {
    let mut pair = Pair::with_history(
        1,
        HistoryConfig {
            mask: PackMask::with_bits(8).expect("6 to 15"),
            bounds: ChunkBounds::new(64, 2048).expect("valid bounds"),
            ..HistoryConfig::default()
        },
    );
    let content = noise(6 << 20, 7);
    assert!(pair.fetch("a:1", &content) == content);
    let mut served_last = 0;
    while pair
        .near
        .status(pair.now)
        .counters
        .received
        .predictions
        .offers
        < OFFERS_LINK_MAX as u64 / 2
    {
        let opened = pair.near.open_flow(pair.now, "a:1", false);
        opened.expect("there is room for flows");
        while pair.near_memory.serve(&mut pair.near) {}
        pair.now = pair.now + Duration::from_millis(1);
    }
    for _ in 0..3 {
        let opened = pair.near.open_flow(pair.now, "a:1", false);
        opened.expect("there is room for flows");
        while pair.near_memory.serve(&mut pair.near) {
            served_last += 1;
        }
    }
    assert!(served_last < 10, "{served_last}");
}
