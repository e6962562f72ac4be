//! What predictions make of HTTP, whose responses begin with what is never twice the same.

use refrain_proto::predictions::history::Predict;

use crate::{
    pair::{Pair, noise},
    predictions::{predicting, sent_of},
};

fn head(seconds: u32, more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nDate: Sun, 22 Nov 2026 23:40:{seconds:02} GMT\r\n{more}\r\n")
        .into_bytes()
}

#[test]
fn a_short_response_is_known_but_for_its_head() {
    let body = noise(6000, 1);
    for more in ["Age: 1\r\n", "Age: 1234\r\n", ""] {
        let mut pair = predicting(1, Predict::Window);
        sent_of(
            &mut pair,
            "a:1",
            &[head(1, "Age: 7\r\n"), body.clone()].concat(),
        );
        let head = head(2, more);
        let sent = sent_of(&mut pair, "a:1", &[&head[..], &body].concat());
        assert_eq!(sent, head.len(), "{more:?}");
    }
}

#[test]
fn responses_one_after_the_other_are_known_but_for_their_heads() {
    let mut pair = predicting(1, Predict::Window);
    let bodies: Vec<Vec<u8>> = (1..6).map(|seed| noise(6000, seed)).collect();
    let mut sent = Vec::new();
    for turn in 0..2 {
        let flow = pair.open("a:1");
        for (number, body) in (0..).zip(&bodies) {
            // No two are alike.
            let path = "x".repeat(number as usize);
            let request = format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(pair.send(flow, request.as_bytes()), request.as_bytes());
            let more = format!("Age: {}\r\n", 7_u32.pow(turn * number));
            let response = [head(turn, &more), body.clone()].concat();
            let before = confirmed(&pair);
            assert!(pair.bring(flow, &response) == response, "the same bytes");
            sent.push(response.len() as u64 - (confirmed(&pair) - before));
        }
        pair.end(flow);
    }
    let (first, again) = sent.split_at(bodies.len());
    assert!(first.iter().all(|&sent| sent > 6000), "{first:?}");
    assert!(again.iter().all(|&sent| sent < 100), "{again:?}");
}

fn confirmed(pair: &Pair) -> u64 {
    pair.near
        .status(pair.now)
        .counters
        .received
        .predictions
        .confirmed_bytes
}

#[test]
fn heads_that_many_responses_have_lead_to_no_chain() {
    let head = b"HTTP/1.0 200 OK\r\nServer: constant\r\n\r\n";
    let mut pair = predicting(1, Predict::Window);
    for seed in 1..4 {
        let response = [&head[..], &noise(400_000, seed)].concat();
        let target = format!("{seed}:1");
        sent_of(&mut pair, &target, &response);
    }
    let made = pair.near.status(pair.now).counters.received.predictions;
    assert_eq!(made.offers, 0, "{made:?}");
}
