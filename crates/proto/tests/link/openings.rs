//! What is offered before anything came: what flows that looked alike began with, a little of it
//! at first and more once it was right.

use refrain_proto::predictions::history::Predict;

use crate::{
    pair::{Pair, noise},
    predictions::{made, predicting, short_chunks},
};

/// What answers a request for `path`, and how many of its bytes were not confirmed.
fn sent_of_answer(pair: &mut Pair, path: &str, answer: &[u8]) -> usize {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let flow = pair.open("a:1");
    assert_eq!(pair.send(flow, request.as_bytes()), request.as_bytes());
    let before = made(pair).confirmed_bytes;
    assert!(pair.bring(flow, answer) == answer, "the same bytes");
    pair.end(flow);
    answer.len() - (made(pair).confirmed_bytes - before) as usize
}

#[test]
fn each_request_to_a_target_is_predicted_from_its_own_answer() {
    let mut pair = predicting(1, Predict::Window);
    // Shorter than what a chunk could lead to before they are over.
    let answers = [("/one", noise(6000, 1)), ("/two", noise(6000, 2))];
    for (path, answer) in &answers {
        let sent = sent_of_answer(&mut pair, path, answer);
        assert_eq!(sent, answer.len(), "{path} for the first time");
    }
    for (path, answer) in &answers {
        assert_eq!(sent_of_answer(&mut pair, path, answer), 0, "{path} again");
    }
    let made = made(&pair);
    assert_eq!(made.wasted_bytes, 0, "of another's answer: {made:?}");
}

#[test]
fn an_opening_is_a_kib_of_offers_and_eight_once_its_key_hit() {
    let content = noise(400_000, 1);
    let mut pair = Pair::with_history(1, short_chunks(Predict::Window));
    pair.fetch("a:1", &content);
    pair.near_memory.is_frozen = true;
    let mut before = made(&pair);
    for (offers, wire_bytes) in [(78, 1 << 10), (630, 8 << 10)] {
        let flow = pair.open("a:1");
        let opened = made(&pair);
        assert_eq!(opened.offers - before.offers, offers);
        let frame_bytes = opened.offer_frame_bytes - before.offer_frame_bytes;
        let with_header = wire_bytes + 16;
        assert!(frame_bytes <= with_header, "{frame_bytes} bytes");
        // Its first chunk or so is right; the rest of what was offered goes with the flow.
        assert!(pair.bring(flow, &content[..1000]) == content[..1000]);
        pair.end(flow);
        before = made(&pair);
        assert!(before.confirmed > 0);
    }
}

#[test]
fn the_next_version_of_an_answer_is_predicted_from_the_one_before() {
    let mut pair = predicting(1, Predict::Window);
    let first = noise(6000, 1);
    let next = [noise(500, 2), first[500..].to_vec()].concat();
    let path = |version: &str| format!("/app-5.4.{version}.js");
    assert_eq!(sent_of_answer(&mut pair, &path("9"), &first), first.len());
    let sent = sent_of_answer(&mut pair, &path("10"), &next);
    assert!(sent < 5000, "{sent} bytes of the next version");
    // Its own answer comes before that of another version.
    sent_of_answer(&mut pair, &path("11"), &noise(6000, 3));
    assert_eq!(sent_of_answer(&mut pair, &path("10"), &next), 0);
}

#[test]
fn answers_that_are_not_like_those_before_are_offered_less_and_less_often() {
    let mut pair = predicting(1, Predict::Window);
    let mut tried = Vec::new();
    for number in 0..40 {
        let before = made(&pair).offers;
        let image = noise(6000, 100 + number);
        sent_of_answer(&mut pair, &format!("/image-{number}.png"), &image);
        if made(&pair).offers > before {
            tried.push(number);
        }
    }
    assert_eq!(tried, [1, 6, 15, 32]);
}
