//! What goes into the mirrored caches, what stays out, and what it saves.

use std::time::Duration;

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{
    Exclusion, LaneId, LinkConfig, SecondStage, TrafficClass, effort::Written, frame::Frame,
    hello::Hello, targets::Carried,
};

use crate::pair::{Pair, noise, sent_on, take_all, transmit};

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
fn without_a_second_stage_repeats_are_replaced_and_the_rest_goes_as_it_is() {
    let geometry = CacheGeometry::new(4 << 20).expect("valid");
    let mut config = LinkConfig::with_cache(geometry);
    config.second_stage = SecondStage::Off;
    let mut pair = Pair::with_config(1, config);
    let data = text(1 << 18, 1);
    let costs = ["a:1", "b:2"].map(|target| {
        let before = pair.link_bytes_sent();
        let flow = pair.open(target);
        assert_eq!(pair.send(flow, &data), data);
        pair.link_bytes_sent() - before
    });
    let plain = data.len() as u64;
    assert!(
        costs[0] > plain / 2,
        "zstd alone makes it smaller: {costs:?}"
    );
    assert!(
        costs[1] < plain / 50,
        "{costs:?} bytes for a repeat of {plain}"
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
        take_all(&mut pair.far, flow, &mut buffer);
        pair.far.taken(flow, buffer.len());
        let mut back = Vec::new();
        pair.far.poll_transmit(pair.now, LaneId(0), &mut back);
        let credit_alone: Vec<u8> = credits(&back);
        pair.near
            .receive(pair.now, LaneId(0), &credit_alone)
            .expect("no fault");
    }
    assert!(waited);
}

#[test]
fn no_deadline_comes_again_while_no_more_blocks_may_be_on_their_way() {
    const OUTSTANDING_BLOCKS_MAX: usize = 1 << 15;
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    pair.send(flow, &noise(300_000, 1));
    // Nothing comes back any more: first the window is full, then short blocks go past it.
    let (mut bytes, mut is_past, mut short) = (Vec::new(), false, 0);
    while short < OUTSTANDING_BLOCKS_MAX + 2 {
        is_past = is_past || sent_on(&pair.near, pair.now, flow).bypassed_blocks > 0;
        short += usize::from(is_past);
        let len = if is_past { 3 } else { 60_000 };
        pair.near.write(flow, &noise(len, short as u64));
        bytes.clear();
        pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
        pair.near
            .transmitted(pair.now, LaneId(0), Written::default());
        if bytes.is_empty() && !is_past {
            pair.now = pair.near.poll_timeout().expect("the wait ends");
            pair.near.handle_timeout(pair.now);
        }
    }
    assert!(bytes.is_empty(), "the cap is reached");
    for _ in 0..3 {
        let due = pair.near.poll_timeout().expect("pings");
        assert!(due > pair.now, "{due:?}");
        pair.now = due;
        pair.near.handle_timeout(pair.now);
        pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
    }
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
fn full_entropy_pushes_out_half_of_the_cache_until_something_refers_to_it() {
    // Blocks can refer to 3 of 4 MiB.
    let mut pair = Pair::new(1);
    let history = text(3 << 20, 7);
    let first = pair.open("a:1");
    assert_eq!(pair.send(first, &history), history);
    let data = noise(6 << 20, 8);
    let flow = pair.open("a:1");
    assert_eq!(pair.send(flow, &data[..3 << 20]), &data[..3 << 20]);
    let sent = sent_on(&pair.near, pair.now, flow);
    // The first blocks, which are shorter, enter.
    let entered = sent.app_bytes - sent.bypassed_blocks * (64 << 10);
    assert!(
        (1_300_000..=3 << 19).contains(&entered),
        "{entered} of {sent:?}"
    );

    // A second flow repeats some of it: the first is worth more now.
    let repeat = pair.open("a:1");
    assert_eq!(pair.send(repeat, &data[..200_000]), &data[..200_000]);
    let before = sent_on(&pair.near, pair.now, flow);
    assert_eq!(
        pair.send(flow, &data[3 << 20..4 << 20]),
        &data[3 << 20..4 << 20]
    );
    let after = sent_on(&pair.near, pair.now, flow);
    assert_eq!(after.bypassed_blocks, before.bypassed_blocks);
}

/// Whether its encryption is recognised or not, and however often it comes.
#[test]
fn encrypted_flows_leave_history_where_it_is() {
    let config = LinkConfig::with_cache(CacheGeometry::new(8 << 20).expect("valid"));
    // As 58 MB are to 128 MiB, nearly half of what blocks can refer to.
    let dump = text(3_400_000, 70);
    for begins_with in [&b""[..], b"EHLO a.example\r\nSTARTTLS\r\n"] {
        let mut pair = Pair::with_config(1, config.clone());
        let first = pair.open("db:5432");
        assert_eq!(pair.send(first, &dump), dump);
        for number in 0..3 {
            let encrypted = pair.open("db:5432");
            pair.send(encrypted, begins_with);
            let ciphertext = noise(7 << 19, 71 + number);
            assert_eq!(pair.send(encrypted, &ciphertext), ciphertext);
        }
        let before = pair.link_bytes_sent();
        let again = pair.open("db:5432");
        assert_eq!(pair.send(again, &dump), dump);
        let cost = pair.link_bytes_sent() - before;
        assert!(cost < dump.len() as u64 / 50, "{cost} of {}", dump.len());
    }
}

/// Where there is nothing else, what is new takes the place of what is old.
#[test]
fn a_cache_full_of_media_takes_further_media() {
    let mut pair = Pair::new(1);
    for number in 0..4 {
        let media = noise(2 << 20, 80 + number);
        for _ in 0..2 {
            let flow = pair.open("a:1");
            assert_eq!(pair.send(flow, &media), media);
        }
    }
    let layers = pair.near.status(pair.now).counters.sent.layers;
    assert_eq!(layers.bypassed_blocks, 0);
    assert!(layers.region_bytes > 4 * (2 << 20) * 98 / 100, "{layers:?}");
}

/// Both ends of a link, and all that they keep of what they sent and received.
#[track_caller]
fn assert_nothing_is_kept(pair: &Pair, why: Exclusion) {
    for status in [pair.near.status(pair.now), pair.far.status(pair.now)] {
        let counters = &status.counters;
        for (direction, layers) in [
            (&status.sent, &counters.sent.layers),
            (&status.received, &counters.received.layers),
        ] {
            assert_eq!(direction.cache_filled_bytes, 0);
            assert!(layers.blocks > 0 && layers.blocks == layers.bypassed_blocks);
            assert_eq!((layers.region_bytes, layers.confirmed_bytes), (0, 0));
            // Nothing is compressed with what others wrote, either.
            assert_eq!(layers.packed_bytes, layers.app_bytes);
        }
        let class = TrafficClass::Excluded(why);
        assert!(status.flows.iter().all(|flow| flow.class == class));
    }
}

const SECRET: &[u8] = b"secret-canary, secret-canary, secret-canary";

#[test]
fn encrypted_flows_stay_out_of_the_cache_at_both_ends() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:443");
    let handshake = [&[0x16, 3, 1, 2, 0][..], SECRET].concat();
    assert_eq!(pair.send(flow, &handshake), handshake);
    let answer = b"an answer that is plain text, but belongs to an encrypted flow";
    assert_eq!(pair.bring(flow, answer), answer);
    assert_nothing_is_kept(&pair, Exclusion::Tls);
}

/// Whether a guess of a secret is right does not show in the length of what travels (CRIME).
#[test]
fn secret_bytes_neither_meet_others_nor_are_met() {
    let sent = |secret_first: bool, guess: &[u8]| {
        let mut pair = Pair::new(1);
        let flow = pair.open("a:80");
        let mut lengths = Vec::new();
        for is_secret in [secret_first, !secret_first, true] {
            let before = pair.link_bytes_sent();
            let bytes = if is_secret { SECRET } else { guess };
            let taken = match is_secret {
                true => pair.near.write_secret(flow, bytes),
                false => pair.near.write(flow, bytes),
            };
            assert_eq!(taken, bytes.len());
            pair.settle();
            let mut came = Vec::new();
            take_all(&mut pair.far, flow, &mut came);
            assert_eq!(came, bytes);
            lengths.push(pair.link_bytes_sent() - before);
        }
        lengths
    };
    let wrong = noise(SECRET.len(), 1);
    for secret_first in [true, false] {
        let of_right = sent(secret_first, SECRET);
        let secrets = match secret_first {
            true => [0, 2],
            false => [1, 2],
        };
        for index in secrets {
            assert!(of_right[index] > SECRET.len() as u64, "{of_right:?}");
            assert_eq!(of_right[index], sent(secret_first, &wrong)[index]);
        }
    }
    // The guess itself does not become shorter by the secret.
    let alone = sent(false, SECRET)[0];
    assert_eq!(sent(true, SECRET)[1], alone);

    // In the middle of a write, and for the cache.
    let mut pair = Pair::new(1);
    let flow = pair.open("a:80");
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n";
    let filled = |pair: &Pair| pair.near.status(pair.now).sent.cache_filled_bytes;
    for count in 1..=3 {
        assert_eq!(pair.near.write(flow, request), request.len());
        assert_eq!(pair.near.write_secret(flow, SECRET), SECRET.len());
        assert_eq!(pair.near.write(flow, b"\r\n"), 2);
        pair.settle();
        let mut came = Vec::new();
        take_all(&mut pair.far, flow, &mut came);
        assert_eq!(came, [&request[..], SECRET, b"\r\n"].concat());
        assert_eq!(filled(&pair), count * (request.len() as u64 + 2));
    }
}

/// Whether the near end marks a block as secret, for a far end that knows marks or not.
fn is_marked(is_known: bool) -> bool {
    let config = LinkConfig::with_cache(CacheGeometry::new(1 << 20).expect("valid"));
    let mut pair = Pair::between(0, config.clone(), config);
    let answers = |bytes: &mut Vec<u8>| {
        let (mut hello, _) = Hello::read(bytes).expect("a hello").expect("whole");
        assert!(hello.knows_secret_blocks);
        hello.knows_secret_blocks = is_known;
        bytes.clear();
        hello.write(bytes);
    };
    pair.greet(|_| (), answers);
    let flow = pair.open("a:80");
    pair.near.write_secret(flow, SECRET);
    let mut bytes = Vec::new();
    pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
    let mut rest = &bytes[..];
    while let Some((frame, read)) = Frame::read(rest).expect("frames") {
        if let Frame::Block(block) = frame {
            assert_eq!(block.literals.bytes, SECRET);
            return block.is_secret;
        }
        rest = &rest[read..];
    }
    panic!("no block in {bytes:?}");
}

#[test]
fn secret_blocks_are_marked_for_ends_that_know_marks() {
    assert!(is_marked(true));
    assert!(!is_marked(false));
}

/// By the end that opens a flow, and by the end that accepts it; whichever of them speaks first.
#[test]
fn flows_that_a_rule_names_stay_out_of_the_cache_at_both_ends() {
    for (opened_so, accepted_so) in [(true, false), (false, true), (true, true)] {
        let mut pair = Pair::new(1);
        let opened = pair.near.open_flow(pair.now, "vault:1", opened_so);
        let flow = opened.expect("the link is up");
        pair.settle();
        pair.far.accept_flow(flow, accepted_so);
        pair.settle();
        for _ in 0..2 {
            assert_eq!(pair.bring(flow, SECRET), SECRET);
            assert_eq!(pair.send(flow, SECRET), SECRET);
        }
        assert_nothing_is_kept(&pair, Exclusion::Rule);
    }
    // An opener does not wait for the answer to send, if only its own rule counts.
    let mut pair = Pair::new(1);
    let opened = pair.near.open_flow(pair.now, "vault:1", true);
    let flow = opened.expect("the link is up");
    assert_eq!(pair.near.write(flow, SECRET), SECRET.len());
    pair.settle();
    pair.far.accept_flow(flow, false);
    assert_eq!(pair.bring(flow, SECRET), SECRET);
    assert_nothing_is_kept(&pair, Exclusion::Rule);
}

/// What came before stays, and both ends know it from then on, whichever of them sees it first.
#[test]
fn what_follows_an_upgrade_stays_out_of_the_cache_at_both_ends() {
    let hello = [
        &[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3][..],
        &noise(194, 1),
    ]
    .concat();
    let tls: (&[u8], &[u8], &[u8], _) = (b"STARTTLS\r\n", b"220 Ready\r\n", &hello, Exclusion::Tls);
    let request: &[u8] = &[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30];
    let gssapi = (request, &b"G"[..], SECRET, Exclusion::Gssapi);
    for (asks, answers, first, why) in [tls, gssapi] {
        let mut pair = Pair::new(1);
        let flow = pair.open("a:1");
        assert_eq!(pair.send(flow, asks), asks);
        assert_eq!(pair.bring(flow, answers), answers);
        let filled = |pair: &Pair| {
            let ends = [&pair.near, &pair.far].map(|end| end.status(pair.now));
            let of_end = |end: &refrain_proto::link::LinkStatus| {
                end.sent.cache_filled_bytes + end.received.cache_filled_bytes
            };
            ends.iter().map(of_end).sum::<u64>()
        };
        let before = filled(&pair);
        assert_eq!(pair.send(flow, first), first);
        assert_eq!(pair.bring(flow, SECRET), SECRET);
        assert_eq!(pair.send(flow, SECRET), SECRET);
        assert_eq!(filled(&pair), before);
        for end in [&pair.near, &pair.far] {
            let status = end.status(pair.now);
            assert_eq!(status.flows[0].class, TrafficClass::Excluded(why));
        }
    }
}

/// By target and class, at both ends, while flows are open and when they are over.
#[test]
fn what_was_carried_is_counted_by_target_and_class_at_both_ends() {
    let mut pair = Pair::new(1);
    let hello = [&[0x16, 3, 1, 2, 0][..], &noise(50_000, 2)].concat();
    let page = text(40_000, 3);
    for (target, up, down) in [("db:5432", &hello, &hello), ("web:80", &page, &page)] {
        let flow = pair.open(target);
        assert_eq!(pair.send(flow, up), *up);
        assert_eq!(pair.bring(flow, down), *down);
        pair.near.reset(flow, 1);
        pair.settle();
    }
    let counted = |end: &refrain_proto::Link| {
        let status = end.status(pair.now);
        let rows = status.targets.iter();
        rows.map(|(target, class, carried)| (target.map(str::to_owned), class, carried))
            .collect::<Vec<_>>()
    };
    let (near, far) = (counted(&pair.near), counted(&pair.far));
    let [(db, tls, of_db), (web, ordinary, of_web)] = &near[..] else {
        panic!("{near:?}");
    };
    assert_eq!(
        (db.as_deref(), web.as_deref()),
        (Some("db:5432"), Some("web:80"))
    );
    assert_eq!(*tls, TrafficClass::Excluded(Exclusion::Tls));
    assert_eq!(*ordinary, TrafficClass::Ordinary);
    let bytes = |carried: &Carried| (carried.sent.app_bytes, carried.received.app_bytes);
    assert_eq!(bytes(of_db), (hello.len() as u64, hello.len() as u64));
    assert_eq!(bytes(of_web), (page.len() as u64, page.len() as u64));
    assert!(of_db.sent.link_bytes > hello.len() as u64, "nothing saved");
    assert!(of_web.sent.link_bytes < page.len() as u64 / 2, "{of_web:?}");
    // The other end counts the same, the other way.
    for ((target, class, near), (of_target, of_class, far)) in near.iter().zip(&far) {
        assert_eq!((target, class), (of_target, of_class));
        let other_way = Carried {
            sent: near.received,
            received: near.sent,
        };
        assert_eq!(*far, other_way);
    }
}

/// Lines that have nothing in common but their form.
fn text(len: usize, seed: u64) -> Vec<u8> {
    let lines = noise(len, seed);
    let mut text: Vec<u8> = lines
        .chunks(4)
        .flat_map(|number| format!("{} row {number:02x?}\n", number[0]).into_bytes())
        .take(len)
        .collect();
    text.truncate(len);
    text
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
