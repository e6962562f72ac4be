//! Messages that become those of HTTP/2: requests of a peer, answers of an origin, and trailers. Written in the form of
//! HTTP/1.1 once more, they are the same messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use refrain_gateway::http_proxy::{
    Body,
    http2::{
        AnswerHead, AsksFor, Framing, RequestText, answer_text, request, trailer_lines, trailers,
    },
};

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else {
        return;
    };
    match kind % 4 {
        0 => of_request(bytes),
        1 => of_answer(bytes, false),
        2 => of_answer(bytes, true),
        _ => {
            if let Ok(parsed) = trailers(bytes.to_vec()) {
                assert_eq!(trailers(trailer_lines(&parsed)), Ok(parsed));
            }
        }
    }
});

fn of_request(bytes: &[u8]) {
    let Ok((parsed, body)) = request(bytes) else {
        return;
    };
    let (meant, ()) = parsed.into_parts();
    let Ok(text) = RequestText::of(&meant, !body.has_ended()) else {
        return;
    };
    let (again, framed) = request(&text.head).expect("its own text");
    let (again, ()) = again.into_parts();
    assert_eq!((&again.method, &again.uri), (&meant.method, &meant.uri));
    let is_chunked = matches!(framed, Body::Chunked(_));
    assert_eq!(is_chunked, text.framing == Framing::Chunked);
    assert_eq!(framed.has_ended(), body.has_ended());
}

fn of_answer(bytes: &[u8], is_head: bool) {
    let asks_for = if is_head { AsksFor::Head } else { AsksFor::All };
    let Ok(AnswerHead::Final(answer, _)) = AnswerHead::of(bytes, &asks_for) else {
        return;
    };
    let (meant, ()) = answer.into_parts();
    let Ok((text, framing)) = answer_text(&meant, is_head, false) else {
        return;
    };
    let Ok(AnswerHead::Final(again, body)) = AnswerHead::of(&text, &asks_for) else {
        panic!("its own text: {text:?}");
    };
    let (again, ()) = again.into_parts();
    assert_eq!(again.status, meant.status);
    assert_eq!(
        again.headers.len(),
        meant.headers.len() - repeated_lengths(&meant)
    );
    assert_eq!(
        matches!(body, Body::Chunked(_)),
        framing == Framing::Chunked
    );
}

/// A length that is there several times is written once.
fn repeated_lengths(answer: &http::response::Parts) -> usize {
    let lengths = answer.headers.get_all(http::header::CONTENT_LENGTH);
    lengths.iter().count().saturating_sub(1)
}
