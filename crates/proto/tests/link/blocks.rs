//! How long blocks are, and how many wait for acknowledgements.

use std::time::Duration;

use refrain_codec::geometry::CacheGeometry;
use refrain_proto::{Event, LaneId, LinkConfig};

use crate::pair::{Pair, noise, take_all, transmit};

#[test]
fn what_is_sent_at_once_on_a_slow_link_is_short() {
    let config = LinkConfig {
        block_bytes_max: 5000,
        ..LinkConfig::with_cache(CacheGeometry::new(4 << 20).expect("valid"))
    };
    let mut pair = Pair::with_config(1, config);
    let (bulk, talk) = (pair.open("a:1"), pair.open("a:1"));
    pair.near.write(bulk, &noise(60_000, 80));
    pair.near.write(talk, b"a word");
    for turn in 0.. {
        let bytes = transmit(&mut pair.near, pair.now, LaneId(0));
        assert!(bytes.len() < 5100, "{}", bytes.len());
        pair.far
            .receive(pair.now, LaneId(0), &bytes)
            .expect("no fault");
        let mut heard = Vec::new();
        take_all(&mut pair.far, talk, &mut heard);
        if heard == b"a word" {
            break;
        }
        assert!(turn < 2, "a word waits for few blocks");
    }
}

#[test]
fn a_new_lane_is_given_short_blocks_that_its_first_flight_carries() {
    let answer = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &noise(200_000, 81)].concat();
    let text: Vec<u8> = (0..40_000_u32)
        .flat_map(|number| number.to_string().into_bytes())
        .collect();
    for content in [answer, text] {
        let mut pair = Pair::new(1);
        let flow = pair.open("a:1");
        let mut written = 0;
        let (mut came, mut heard) = (Vec::new(), Vec::new());
        // Bytes that were sent at once, and the application's that could be read then.
        let mut writes = Vec::new();
        while heard.len() < content.len() {
            written += pair.near.write(flow, &content[written..]);
            let bytes = transmit(&mut pair.near, pair.now, LaneId(0));
            pair.far
                .receive(pair.now, LaneId(0), &bytes)
                .expect("no fault");
            take_all(&mut pair.far, flow, &mut came);
            pair.far.taken(flow, came.len());
            writes.push((bytes.len(), came.len()));
            heard.append(&mut came);
            assert!(writes.len() < 100, "it stands still: {writes:?}");
            let answer = transmit(&mut pair.far, pair.now, LaneId(0));
            pair.near
                .receive(pair.now, LaneId(0), &answer)
                .expect("no fault");
        }
        assert_eq!(heard, content);
        let (first, brings) = writes[0];
        // Ten segments, less TLS and the hello.
        assert!((1..14_000).contains(&first) && brings > 0, "{writes:?}");
        let longest = writes.iter().map(|&(sent, _)| sent).max();
        assert!(longest > Some(40_000), "later ones are long: {writes:?}");
    }
}

#[test]
fn as_many_blocks_as_may_be_outstanding_wait_for_an_acknowledgement() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    let (mut sent, mut bytes) = (Vec::new(), Vec::new());
    loop {
        bytes.clear();
        assert_eq!(pair.near.write(flow, b"."), 1);
        pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
        if bytes.is_empty() {
            break;
        }
        sent.extend_from_slice(&bytes);
    }
    while pair.near.poll_event().is_some() {}
    pair.far
        .receive(pair.now, LaneId(0), &sent)
        .expect("no fault");
    pair.now = pair.far.poll_timeout().expect("an acknowledgement is due");
    bytes.clear();
    pair.far.poll_transmit(pair.now, LaneId(0), &mut bytes);
    pair.near
        .receive(pair.now, LaneId(0), &bytes)
        .expect("no fault");
    let events: Vec<Event> = std::iter::from_fn(|| pair.near.poll_event()).collect();
    assert!(events.contains(&Event::Transmit(LaneId(0))));
}

#[test]
fn an_acknowledgement_that_waits_for_its_transport_asks_for_no_calls() {
    let mut pair = Pair::new(1);
    let flow = pair.open("a:1");
    pair.near.write(flow, b"to be acknowledged");
    let mut bytes = Vec::new();
    pair.near.poll_transmit(pair.now, LaneId(0), &mut bytes);
    pair.far
        .receive(pair.now, LaneId(0), &bytes)
        .expect("no fault");
    pair.now = pair.far.poll_timeout().expect("an acknowledgement is due");
    pair.far.handle_timeout(pair.now);
    let events: Vec<Event> = std::iter::from_fn(|| pair.far.poll_event()).collect();
    assert!(events.contains(&Event::Transmit(LaneId(0))));
    assert!(pair.far.poll_timeout().expect("pings are due") > pair.now);
}

#[test]
fn a_long_block_is_acknowledged_as_it_comes_and_a_short_one_with_what_follows() {
    // Of what comes every 12 ms and every 4 ms, in blocks of so many bytes, so many are answered as they come.
    let cases = [(12, 8000, 50), (4, 8000, 17), (12, 100, 0)];
    for (every_ms, len, asked) in cases {
        let mut pair = Pair::new(1);
        let flow = pair.open("a:1");
        pair.now = pair.now + Duration::from_secs(1);
        let mut answered = 0;
        for seed in 0..50 {
            assert_eq!(pair.near.write(flow, &noise(len, seed)), len);
            let bytes = transmit(&mut pair.near, pair.now, LaneId(0));
            pair.far
                .receive(pair.now, LaneId(0), &bytes)
                .expect("no fault");
            let answer = transmit(&mut pair.far, pair.now, LaneId(0));
            answered += i32::from(!answer.is_empty());
            pair.near
                .receive(pair.now, LaneId(0), &answer)
                .expect("no fault");
            let next = pair.now + Duration::from_millis(every_ms);
            while let Some(due) = pair.far.poll_timeout().filter(|&due| due < next) {
                pair.now = pair.now.max(due);
                pair.far.handle_timeout(pair.now);
                let answer = transmit(&mut pair.far, pair.now, LaneId(0));
                pair.near
                    .receive(pair.now, LaneId(0), &answer)
                    .expect("no fault");
            }
            pair.now = next;
            let mut heard = Vec::new();
            take_all(&mut pair.far, flow, &mut heard);
            assert_eq!(heard.len(), len);
        }
        assert_eq!(answered, asked, "{len} bytes every {every_ms} ms");
    }
}

#[test]
fn the_last_credit_of_a_flow_leaves_with_an_acknowledgement() {
    let mut pair = Pair::new(1);
    pair.now = pair.now + Duration::from_secs(1);
    for reads_before_end in [false, true] {
        let flow = pair.open("a:1");
        let content = noise(200_000, 82);
        let (mut written, mut heard) = (0, Vec::new());
        let mut take = |pair: &mut Pair| {
            let mut came = Vec::new();
            take_all(&mut pair.far, flow, &mut came);
            pair.far.taken(flow, came.len());
            heard.append(&mut came);
        };
        while written < content.len() {
            written += pair.near.write(flow, &content[written..]);
            if written == content.len() {
                pair.near.finish(flow);
            }
            let sent = transmit(&mut pair.near, pair.now, LaneId(0));
            pair.far
                .receive(pair.now, LaneId(0), &sent)
                .expect("no fault");
            if reads_before_end {
                take(&mut pair);
            }
            let answer = transmit(&mut pair.far, pair.now, LaneId(0));
            pair.near
                .receive(pair.now, LaneId(0), &answer)
                .expect("no fault");
        }
        loop {
            let sent = transmit(&mut pair.near, pair.now, LaneId(0));
            if sent.is_empty() {
                break;
            }
            pair.far
                .receive(pair.now, LaneId(0), &sent)
                .expect("no fault");
            // An acknowledgement of the latest blocks stays due.
            transmit(&mut pair.far, pair.now, LaneId(0));
        }
        while pair.far.poll_event().is_some() {}
        take(&mut pair);
        assert_eq!(heard, content);
        let asks = std::iter::from_fn(|| pair.far.poll_event())
            .any(|event| matches!(event, Event::Transmit(_)));
        assert!(
            !asks,
            "credit for which no writer waits is a write of its own"
        );
        pair.settle();
        pair.end(flow);
        pair.now = pair.now + Duration::from_secs(1);
    }
}
