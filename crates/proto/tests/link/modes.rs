//! Each end has a mode, and perhaps a history: a direction does what both of its ends want.

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    FlowId, LaneId, LinkConfig, Mode, counters::LayerCounters, frame::Frame, hello::Hello,
    predictions::history::HistoryConfig,
};

use crate::pair::{Pair, noise, transmit};

fn config(mode: Mode, has_history: bool) -> LinkConfig {
    LinkConfig {
        mode,
        history: has_history.then(HistoryConfig::default),
        ..LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"))
    }
}

#[test]
fn a_direction_does_what_both_its_ends_want() {
    for near in Mode::ALL {
        for far in Mode::ALL {
            for histories in [[false; 2], [true, false], [false, true], [true; 2]] {
                carries_what_both_want(near, far, histories);
            }
        }
    }
}

/// A pair that has carried content twice in each direction.
fn carried(near: Mode, far: Mode, [near_history, far_history]: [bool; 2], content: &[u8]) -> Pair {
    let what = format!("{near} {near_history}, {far} {far_history}");
    let mut pair = Pair::between(1, config(near, near_history), config(far, far_history));
    for _ in 0..2 {
        assert!(pair.fetch("a:1", content) == content, "{what}");
    }
    for _ in 0..2 {
        let flow = pair.open("a:1");
        assert!(pair.send(flow, content) == content, "{what}");
    }
    pair
}

/// Text that zstd shrinks, and noise that it does not.
fn content() -> Vec<u8> {
    let text = b"what comes back need not be sent again; ".repeat(3000);
    [&text[..], &noise(100_000, 1)].concat()
}

/// What one end sent, in the words of the table in `docs/store.md`.
fn words(sent: &LayerCounters) -> String {
    let has = |saved: bool, what: &str| saved.then(|| what.to_owned());
    let layers = [
        has(sent.confirmed_bytes > 0, "predictions"),
        has(sent.region_bytes > 0, "matching"),
        has(sent.packed_bytes < sent.stream_bytes, "zstd"),
    ];
    let layers: Vec<String> = layers.into_iter().flatten().collect();
    match layers.is_empty() {
        true => "nothing".to_owned(),
        false => layers.join(", "),
    }
}

#[test]
fn the_table_of_modes_says_what_pairs_do() {
    let mut table = String::new();
    for near in Mode::ALL {
        for far in Mode::ALL {
            let pair = carried(near, far, [true, false], &content());
            let [down, up] = [&pair.far, &pair.near]
                .map(|end| words(&end.status(pair.now).counters.sent.layers));
            let learns = match pair.near_memory.chunks.is_empty() {
                true => "no",
                false => "yes",
            };
            table += &format!("| {near} | {far} | {down} | {up} | {learns} |\n");
        }
    }
    let page = include_str!("../../../../docs/store.md");
    assert!(page.contains(&table), "docs/store.md lacks\n{table}");
}

fn carries_what_both_want(near: Mode, far: Mode, histories: [bool; 2]) {
    let [near_history, far_history] = histories;
    let what = format!("{near} {near_history}, {far} {far_history}");
    let pair = carried(near, far, histories, &content());

    let status = pair.near.status(pair.now);
    let (down, up) = (status.counters.received.layers, status.counters.sent.layers);
    let both_predict = near.predicts() && far.predicts();
    let both_cache = near.keeps_caches() && far.keeps_caches();
    for (direction, has_history) in [(&down, near_history), (&up, far_history)] {
        let is_predicted = both_predict && has_history;
        assert_eq!(direction.confirmed_bytes > 0, is_predicted, "{what}");
    }
    for direction in [&status.sent, &status.received] {
        assert_eq!(direction.cache_bytes > 0, both_cache, "{what}");
    }
    assert_eq!(up.region_bytes > 0, both_cache, "{what}");
    let packs = up.packed_bytes < up.stream_bytes;
    assert_eq!(packs, near.compresses(), "{what}");
    // Without a history nothing is asked of one.
    for (mode, has_history, memory) in [
        (near, near_history, &pair.near_memory),
        (far, far_history, &pair.far_memory),
    ] {
        let learns = has_history && mode.predicts();
        assert_eq!(!memory.chunks.is_empty(), learns, "{what}");
    }
}

/// One in mode `receiver` has no cache that it could match against.
#[test]
fn a_sender_without_a_cache_drives_no_flow_however_its_chains_break() {
    for (mode, drives) in [(Mode::Receiver, false), (Mode::Auto, true)] {
        let mut pair = Pair::between(1, config(mode, true), config(mode, false));
        let flow = pair.open("a:1");
        let mut broken = Vec::new();
        Frame::Dispersion { flow, level: 255 }.write(&mut broken);
        pair.far
            .receive(pair.now, LaneId(0), &broken)
            .expect("no fault");
        let said = transmit(&mut pair.far, pair.now, LaneId(0));
        assert_eq!(is_driven(&said, flow), drives, "{mode}");
    }
}

fn is_driven(mut bytes: &[u8], flow: FlowId) -> bool {
    let driven = Frame::Driven {
        flow,
        by_sender: true,
    };
    while let Ok(Some((frame, read))) = Frame::read(bytes) {
        if frame == driven {
            return true;
        }
        bytes = &bytes[read..];
    }
    false
}

#[test]
fn an_end_of_before_offers_is_heard_out() {
    let mut pair = Pair::between(0, config(Mode::Auto, true), config(Mode::Auto, true));
    let lane = pair.near.dial_lane(pair.now).expect("a number is left");
    let mut bytes = Vec::new();
    pair.near.poll_transmit(pair.now, lane, &mut bytes);
    let (hello, _) = Hello::read(&bytes).expect("a hello").expect("whole");
    assert!(hello.takes_offers && hello.offers.is_some());
    // The same, as a gateway of before would say it: without features, terms, capabilities and window.
    let features = 1 + 1 + 1 + 4;
    bytes[9] = 1;
    bytes.truncate(bytes.len() - features);
    bytes[11] -= features as u8;
    let (hello, read) = Hello::read(&bytes).expect("a hello").expect("whole");
    assert!(read == bytes.len() && !hello.takes_offers && hello.offers.is_none());
    assert_eq!(pair.far.accept_lane(pair.now, &hello), Ok(lane));
    let mut answer = Vec::new();
    pair.far.poll_transmit(pair.now, lane, &mut answer);
    answer.truncate(answer.len() - features);
    answer[9] = 1;
    answer[11] -= features as u8;
    pair.near
        .receive(pair.now, LaneId(0), &answer)
        .expect("no fault");
    pair.carried.insert(lane, Default::default());
    pair.settle();
    let content = noise(100_000, 2);
    for _ in 0..2 {
        assert!(pair.fetch("a:1", &content) == content);
    }
    let status = pair.near.status(pair.now);
    assert_eq!(status.counters.received.predictions.offers, 0);
    assert!(
        !pair.near_memory.chunks.is_empty(),
        "it learns all the same"
    );
}
