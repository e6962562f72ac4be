//! What an origin sends through the HTTP proxy, or to a service: however the bytes are split, the client gets the
//! same, and so it does of an index whose links are changed, but for the sizes of chunks. It begins with heads that are the proxy's own, and where the client keeps its connection,
//! a second reader finds the answer's end where the first one did, and nothing behind it.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use refrain_gateway::http_proxy::{
    AcceptEncoding, Addressing, Answer, AnswerTerms, HEAD_BYTES_MAX, Progress, Purpose, Served,
    end_of_head, parse_head,
};

fuzz_target!(|input: &[u8]| {
    let Some((&terms, origin)) = input.split_first() else {
        return;
    };
    let served = match terms >> 4 & 3 {
        0 => Some("/"),
        1 => Some("/_refrain/b.example/"),
        2 => Some("/simple/"),
        _ => None,
    };
    let is_index = served == Some("/simple/");
    let served = served.map(served_at);
    let terms = AnswerTerms {
        is_head: terms & 1 > 0,
        may_switch: terms & 2 > 0,
        client_minor: terms >> 2 & 1,
        client_stays: terms & 8 > 0,
    };
    let (client, answer) = passed(origin, terms, &served, origin.len().max(1));
    for piece_bytes in [1, 7] {
        let pieces = passed(origin, terms, &served, piece_bytes);
        match is_index {
            true => assert_eq!(content(&pieces.0), content(&client)),
            false => assert_eq!(pieces, (client.clone(), answer.clone())),
        }
    }
    assert!(
        client.is_empty() || client.starts_with(b"HTTP/1.1 "),
        "{client:?}"
    );
    // With the proxy's own fields a head may be longer than it takes.
    if answer.progress() != Progress::Complete || client.len() > HEAD_BYTES_MAX {
        return;
    }
    // To the client the proxy is an origin.
    let (again, second) = passed(&client, terms, &None, client.len());
    assert_eq!(second.progress(), Progress::Complete);
    assert_eq!(body(&again), body(&client));
    assert!(!answer.client_stays() || terms.client_stays && second.origin_stays());
});

/// What the client gets of `origin`, which comes in pieces, and ends if the answer needs that.
fn passed(
    origin: &[u8],
    terms: AnswerTerms,
    served: &Option<Served>,
    piece_bytes: usize,
) -> (Vec<u8>, Answer) {
    let mut answer = Answer::new(terms).served_from(served.clone());
    let mut out = Vec::new();
    for piece in origin.chunks(piece_bytes) {
        let mut piece = piece.to_vec();
        answer.pass(&mut piece, true);
        out.append(&mut piece);
    }
    if answer.progress() != Progress::Complete {
        answer.finish(&mut out);
    }
    (out, answer)
}

/// The head, and the body without chunks.
fn content(client: &[u8]) -> Vec<u8> {
    let terms = AnswerTerms {
        is_head: false,
        may_switch: true,
        client_minor: 0,
        client_stays: false,
    };
    passed(client, terms, &None, client.len().max(1)).0
}

/// The host of a service that answers at this path.
fn served_at(path: &str) -> Served {
    let service = "https://a.example,b.example".parse().expect("a service");
    let head = format!("GET {path} HTTP/1.1\r\nHost: near\r\n\r\n");
    let addressing = Addressing::Service(Arc::new(service));
    let request = parse_head(head.as_bytes(), &addressing, |_| AcceptEncoding::Keep);
    match request.expect("well-formed").expect("whole").0.purpose {
        Purpose::Exchange(exchange) => exchange.served.expect("a service's"),
        Purpose::Tunnel => unreachable!(),
    }
}

/// What stands behind the heads of an answer.
fn body(client: &[u8]) -> &[u8] {
    let mut rest = client;
    while rest.starts_with(b"HTTP/1.1 ") {
        let is_interim = rest[9] == b'1';
        rest = end_of_head(rest, 0).map_or(&[], |end| &rest[end..]);
        if !is_interim {
            break;
        }
    }
    rest
}
