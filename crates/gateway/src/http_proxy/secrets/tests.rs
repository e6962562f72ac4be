use proptest::prelude::*;

use super::{
    PrivateAnswers::{Bypass, Cache, SecretSafe},
    *,
};

/// What is passed on of `answers` to `requests`, in pieces.
fn passed(requests: &str, answers: &str, private: PrivateAnswers, piece: usize) -> Vec<Part> {
    let mut exchanges = Exchanges::new(private);
    for piece in requests.as_bytes().chunks(piece) {
        exchanges.sent(piece);
    }
    let mut parts = Vec::new();
    for piece in answers.as_bytes().chunks(piece) {
        let mut came = Vec::new();
        exchanges.came(piece, &mut came);
        came.iter()
            .for_each(|part| push(&mut parts, &part.bytes, part.is_secret));
    }
    exchanges.finish(&mut parts);
    parts
}

/// The same as texts, of which the secret ones have brackets.
fn shown(requests: &str, answers: &str, private: PrivateAnswers) -> String {
    let mut shown = String::new();
    for part in passed(requests, answers, private, usize::MAX) {
        let text = String::from_utf8(part.bytes).expect("text");
        shown += &if part.is_secret {
            format!("[{text}]")
        } else {
            text
        };
    }
    for piece in [1, 7] {
        let pieces = passed(requests, answers, private, piece);
        assert_eq!(pieces, passed(requests, answers, private, usize::MAX));
    }
    shown
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn secret_fields_are_apart_and_the_last_of_their_head() {
    let answer = "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nContent-Length: 2\r\nset-cookie: b=2\r\nX: y\r\n\r\nok";
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n[Set-Cookie: a=1\r\nset-cookie: b=2\r\n\r\n]ok";
    assert_eq!(shown(GET, answer, Bypass), expected);
    assert_eq!(shown(GET, answer, Cache), expected);
    // A field on several lines; heads with one are not believed to have public bodies.
    let folded = "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\n b=2\r\nContent-Length: 2\r\n\r\nok";
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n[Set-Cookie: a=1\r\n b=2\r\n\r\n]ok";
    assert_eq!(shown(GET, folded, Cache), expected);
    assert_eq!(shown(GET, folded, Bypass), expected.replace("]ok", "ok]"));
    for name in ["WWW-Authenticate", "Authentication-Info", "X-Csrf-Token"] {
        let answer = format!("HTTP/1.1 204 x\r\n{name}: s\r\n\r\n");
        let expected = format!("HTTP/1.1 204 x\r\n[{name}: s\r\n\r\n]");
        assert_eq!(shown(GET, &answer, Bypass), expected);
    }
}

#[test]
fn a_body_is_secret_if_shared_caches_must_not_keep_it() {
    let authorized = "GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Basic x\r\n\r\n";
    let digest = format!(
        "GET /v2/x/blobs/sha256:{} HTTP/1.1\r\nauthorization: x\r\n\r\n",
        "0a".repeat(32)
    );
    for (request, cache_control, is_secret) in [
        (GET, "", false),
        (GET, "max-age=5, public", false),
        (GET, "no-cache", false),
        (GET, "no-store", true),
        (GET, "No-Store", true),
        (GET, "max-age=0, private", true),
        (GET, "private=\"x\"", true),
        (GET, "public, no-store", true),
        (authorized, "", true),
        (authorized, "max-age=5", true),
        (authorized, "public", false),
        (authorized, "s-maxage=5", false),
        (authorized, "max-age=5, immutable", false),
        (authorized, "public, private", true),
        (&digest, "", false),
        (&digest, "no-store", true),
    ] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: {cache_control}\r\nContent-Length: 4\r\n\r\n"
        );
        let answer = format!("{head}body");
        let expected = match is_secret {
            true => format!("{head}[body]"),
            false => answer.clone(),
        };
        assert_eq!(
            shown(request, &answer, Bypass),
            expected,
            "{request} {cache_control}"
        );
        assert_eq!(shown(request, &answer, Cache), answer);
    }
}

#[test]
fn each_answer_of_a_flow_is_judged_by_its_own_request() {
    let head = "HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = "POST /a HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                5\r\nGET /\r\n0\r\n\r\n";
    let requests = [head, post, GET].concat();
    let of_head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    let hints = "HTTP/1.1 103 x\r\n\r\n";
    let of_post = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = "3\r\nabc\r\n0\r\nX: y\r\n\r\n";
    let of_get = "HTTP/1.1 200 OK\r\n\r\nuntil the end";
    let answers = [of_head, hints, of_post, chunks, of_get].concat();
    let expected = format!("{of_head}{hints}{of_post}[{chunks}]{of_get}");
    assert_eq!(shown(&requests, &answers, Bypass), expected);
}

#[test]
fn what_has_no_one_reading_is_secret_from_there_on() {
    let plain = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
    for (requests, answers, expected) in [
        ("", plain.to_owned(), format!("[{plain}]")),
        ("nonsense\r\n\r\n", plain.to_owned(), format!("[{plain}]")),
        (GET, format!("{plain}{plain}"), format!("{plain}[{plain}]")),
        (
            GET,
            "220 ready\r\n".to_owned(),
            "[220 ready\r\n]".to_owned(),
        ),
        (
            GET,
            "220 ready\r\n\r\nx".to_owned(),
            "[220 ready\r\n\r\nx]".to_owned(),
        ),
        (
            GET,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx".to_owned(),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n[x]".to_owned(),
        ),
    ] {
        assert_eq!(shown(requests, &answers, Bypass), expected);
    }
    let many = GET.repeat(ASKED_MAX + 1);
    assert_eq!(shown(&many, plain, Bypass), format!("[{plain}]"));
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(HEAD_BYTES_MAX));
    assert_eq!(shown(GET, &long, Bypass), format!("[{long}]"));
}

#[test]
fn under_the_policy_only_answers_for_all_clients_are_public() {
    let answer = |field: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{field}\r\nok");
    for field in [
        "",
        "ETag: a\r\n",
        "Cache-Control: max-age=9\r\n",
        "Cache-Control: public, no-store\r\n",
    ] {
        let answer = answer(field);
        assert_eq!(shown(GET, &answer, SecretSafe), format!("[{answer}]"));
    }
    let public = answer("Cache-Control: immutable\r\n");
    assert_eq!(shown(GET, &public, SecretSafe), public);
    let digest = format!("GET /sha256:{} HTTP/1.1\r\nHost: a\r\n\r\n", "0".repeat(64));
    assert_eq!(shown(&digest, &answer(""), SecretSafe), answer(""));
    // Its cookie is not.
    let cookie = answer("Cache-Control: public\r\nSet-Cookie: a\r\n");
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nCache-Control: public\r\n[Set-Cookie: a\r\n\r\n]ok";
    assert_eq!(shown(GET, &cookie, SecretSafe), expected);
    let upgrade = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let switched = "HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\nframes";
    assert_eq!(
        shown(upgrade, switched, SecretSafe),
        format!("[{switched}]")
    );
}

#[test]
fn another_protocol_follows_a_switch() {
    let upgrade = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let answer = "HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n\x01frames";
    assert_eq!(shown(upgrade, answer, Bypass), answer);
}

proptest! {
    /// Nothing is lost or added, whatever comes.
    #[test]
    fn bytes_stay_the_same_but_for_the_order_of_fields(
        requests in "(GET /a HTTP/1.1\r\n(Authorization: x\r\n)?\r\n|[ -~\r\n]{0,20}){0,4}",
        answers in "(HTTP/1.1 200 OK\r\n((Set-Cookie: a|Cache-Control: private|Content-Length: 3|X: y)\r\n){0,4}\r\n|[ -~\r\n]{0,20}){0,4}",
        piece in 1..40_usize,
        is_safe: bool,
    ) {
        let policy = [Bypass, SecretSafe][usize::from(is_safe)];
        let parts = passed(&requests, &answers, policy, piece);
        let mut came: Vec<u8> = parts.iter().flat_map(|part| part.bytes.clone()).collect();
        prop_assert_eq!(&parts, &passed(&requests, &answers, policy, usize::MAX));
        let mut expected = answers.into_bytes();
        came.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(came, expected);
    }
}
