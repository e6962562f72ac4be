use super::*;
use crate::http_proxy::reference::{self, Framed};
use proptest::{prelude::*, sample::select};

/// A client of HTTP/1.1 that stays.
const GET: AnswerTerms = AnswerTerms {
    is_head: false,
    may_switch: false,
    client_minor: 1,
    client_stays: true,
};
const HEAD: AnswerTerms = AnswerTerms {
    is_head: true,
    ..GET
};
const UPGRADE: AnswerTerms = AnswerTerms {
    may_switch: true,
    ..GET
};
const OLD: AnswerTerms = AnswerTerms {
    client_minor: 0,
    ..GET
};

/// What the client gets of `text`, which comes at once.
fn passed(answer: &mut Answer, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    answer.pass(&mut bytes, true);
    String::from_utf8(bytes).unwrap()
}

/// The same for a whole answer, behind which the origin ends.
fn answered(terms: AnswerTerms, text: &str) -> (String, Answer) {
    let mut answer = Answer::new(terms);
    let passed = passed(&mut answer, text);
    answer.finish(&mut Vec::new());
    (passed, answer)
}

#[test]
fn the_connections_of_both_sides_have_lives_of_their_own() {
    let text = "HTTP/1.1 200 OK\r\n\
         Connection: close, X-Hop\r\n\
         Keep-Alive: timeout=5\r\n\
         X-Hop: 1\r\n\
         Content-Length: 4\r\n\r\nbody";
    let expected = "HTTP/1.1 200 OK\r\n\
         Via: 1.1 refrain\r\n\
         Content-Length: 4\r\n\r\nbody";
    let mut answer = Answer::new(GET);
    assert_eq!(passed(&mut answer, text), expected);
    assert_eq!(answer.progress(), Progress::Complete);
    assert!(answer.client_stays() && !answer.origin_stays());
    let leaving = AnswerTerms {
        client_stays: false,
        ..GET
    };
    let mut answer = Answer::new(leaving);
    let head = passed(&mut answer, &text.replace("close, ", ""));
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    assert!(!answer.client_stays() && answer.origin_stays());
}

#[test]
fn a_client_that_still_sends_is_told_that_its_connection_ends() {
    let mut answer = Answer::new(GET);
    let mut bytes = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
    answer.pass(&mut bytes, false);
    assert!(!bytes.is_empty() && answer.progress() == Progress::Awaited);
    let mut bytes = b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n".to_vec();
    answer.pass(&mut bytes, false);
    let head = String::from_utf8(bytes).unwrap();
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    assert!(!answer.client_stays());
}

#[test]
fn interim_answers_come_before_the_answer() {
    let text = "HTTP/1.1 100 Continue\r\n\r\n\
         HTTP/1.1 102 Processing\r\nContent-Length: 4\r\n\r\n\
         HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
         HTTP/1.1 204 No Content\r\n\r\n";
    let expected = "HTTP/1.1 100 Continue\r\nVia: 1.1 refrain\r\n\r\n\
         HTTP/1.1 102 Processing\r\nVia: 1.1 refrain\r\n\r\n\
         HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nVia: 1.1 refrain\r\n\r\n\
         HTTP/1.1 204 No Content\r\nVia: 1.1 refrain\r\n\r\n";
    let mut answer = Answer::new(GET);
    assert_eq!(passed(&mut answer, text), expected);
    assert!(answer.origin_stays() && answer.client_stays());
    // RFC 9110, section 15.2.
    let expected = "HTTP/1.1 204 No Content\r\nVia: 1.1 refrain\r\n\
         Connection: keep-alive\r\n\r\n";
    assert_eq!(passed(&mut Answer::new(OLD), text), expected);
}

#[test]
fn answers_without_a_body_end_at_their_head() {
    for (terms, status, length) in [
        (GET, "204 No Content", None),
        (GET, "304 Not Modified", Some("Content-Length: 6\r\n")),
        (HEAD, "200 OK", Some("Content-Length: 6\r\n")),
        (
            HEAD,
            "404 Not Found",
            Some("Transfer-Encoding: chunked\r\n"),
        ),
    ] {
        let sent = length.unwrap_or("Content-Length: 6\r\n");
        let text = format!("HTTP/1.1 {status}\r\n{sent}\r\n");
        let mut answer = Answer::new(terms);
        let head = passed(&mut answer, &text);
        assert_eq!(answer.progress(), Progress::Complete);
        assert!(answer.origin_stays() && answer.client_stays());
        let end = format!("Via: 1.1 refrain\r\n{}\r\n", length.unwrap_or_default());
        let end = match length {
            Some("Transfer-Encoding: chunked\r\n") => "Via: 1.1 refrain\r\n\r\n",
            _ => &end,
        };
        assert!(head.ends_with(end), "{head}");
        // A body all the same, at once or later.
        let mut answer = Answer::new(terms);
        assert_eq!(passed(&mut answer, &(text + "secret")), head);
        assert!(!answer.origin_stays() && answer.client_stays());
        assert_eq!(passed(&mut answer, "more"), "");
    }
}

#[test]
fn what_follows_an_answer_ends_the_origins_connection() {
    let other = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret";
    for body in [
        "Content-Length: 4\r\n\r\nbody",
        "Content-Length: 0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX: 1\r\n\r\n",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{body}");
        for late in [false, true] {
            let mut answer = Answer::new(GET);
            let mut client = match late {
                true => passed(&mut answer, &text),
                false => passed(&mut answer, &format!("{text}{other}")),
            };
            assert_eq!(answer.origin_stays(), late);
            client += &passed(&mut answer, if late { other } else { "" });
            assert!(client.ends_with(body.split_once("\r\n\r\n").unwrap().1));
            assert!(!client.contains("secret"), "{client}");
            assert!(!answer.origin_stays() && answer.client_stays());
            assert_eq!(answer.progress(), Progress::Complete);
        }
    }
}

#[test]
fn an_answer_that_ends_too_early_is_not_complete() {
    for (framed, at_close, at_reset) in [
        ("Content-Length: 5\r\n\r\nbody", Some(true), Some(true)),
        (
            "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n",
            Some(true),
            Some(true),
        ),
        ("Transfer-Encoding: gzip\r\n\r\nbody", None, Some(false)),
        ("\r\nbody", None, Some(false)),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{framed}");
        let progress = |truncated: Option<bool>| match truncated {
            Some(is_visible) => Progress::Truncated { is_visible },
            None => Progress::Complete,
        };
        let (client, answer) = answered(GET, &text);
        assert_eq!(answer.progress(), progress(at_close), "{framed}");
        assert!(client.contains("body"));
        let mut answer = Answer::new(GET);
        passed(&mut answer, &text);
        assert_eq!(answer.broken(), progress(at_reset), "{framed}");
    }
}

#[test]
fn chunks_that_have_no_one_reading_break_off() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\nmore";
    let mut answer = Answer::new(GET);
    assert!(passed(&mut answer, text).ends_with("\r\n\r\n4\r\nbody"));
    let is_visible = true;
    assert_eq!(answer.progress(), Progress::Truncated { is_visible });
    let mut answer = Answer::new(OLD);
    assert!(passed(&mut answer, text).ends_with("\r\n\r\nbody"));
    let is_visible = false;
    assert_eq!(answer.progress(), Progress::Truncated { is_visible });
}

#[test]
fn an_http_1_0_client_gets_no_chunks() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         4;x=y\r\nbody\r\n1\r\n!\r\n0\r\nX: 1\r\n\r\n";
    let expected = "HTTP/1.1 200 OK\r\nVia: 1.1 refrain\r\nConnection: close\r\n\r\nbody!";
    let mut answer = Answer::new(OLD);
    assert_eq!(passed(&mut answer, text), expected);
    assert_eq!(answer.progress(), Progress::Complete);
    assert!(answer.origin_stays() && !answer.client_stays());
    let coded = text.replace(": chunked", ": gzip, chunked");
    let mut answer = Answer::new(OLD);
    passed(&mut answer, &coded);
    assert_eq!(answer.progress(), Progress::Failed(AnswerError::Malformed));
}

#[test]
fn a_switch_that_was_asked_for_makes_a_tunnel() {
    let text = "HTTP/1.1 101 Switching Protocols\r\n\
         Upgrade: WebSocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: x\r\n\r\n\x01\x02";
    let mut answer = Answer::new(UPGRADE);
    let expected = "HTTP/1.1 101 Switching Protocols\r\n\
         Sec-WebSocket-Accept: x\r\nVia: 1.1 refrain\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x01\x02";
    assert_eq!(passed(&mut answer, text), expected);
    assert_eq!(answer.progress(), Progress::Switched);
    assert_eq!(passed(&mut answer, "\x03"), "\x03");
    let other = text.replace("WebSocket\r", "h2c\r");
    for (terms, text) in [(GET, text), (UPGRADE, &other)] {
        let (client, answer) = answered(terms, text);
        assert_eq!(client, "");
        assert_eq!(answer.progress(), Progress::Failed(AnswerError::Malformed));
    }
    // Before the whole request was sent.
    let mut answer = Answer::new(UPGRADE);
    let mut bytes = text.as_bytes().to_vec();
    answer.pass(&mut bytes, false);
    assert_eq!(bytes, b"");
    assert_eq!(answer.progress(), Progress::Failed(AnswerError::Malformed));
}

#[test]
fn an_upgrade_may_be_refused() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut answer = Answer::new(UPGRADE);
    passed(&mut answer, text);
    assert_eq!(answer.progress(), Progress::Complete);
    assert!(answer.origin_stays() && answer.client_stays());
}

#[test]
fn sloppy_heads_are_mended() {
    let text = "HTTP/1.0 200\nContent-Length : 4\nX: 1\n  2\r\n\t3\n\nbody";
    let expected = "HTTP/1.1 200 \r\n\
         X: 1   2   3\r\n\
         Via: 1.0 refrain\r\nContent-Length: 4\r\n\r\nbody";
    let (client, _) = answered(GET, text);
    assert_eq!(client.replace('\t', " "), expected);
    let lengths = "HTTP/1.1 200 OK\r\nContent-Length: 4, 04\r\ncontent-length: 4\r\n\r\nbody";
    let (client, answer) = answered(GET, lengths);
    assert_eq!(
        client
            .to_lowercase()
            .matches("content-length: 4\r\n")
            .count(),
        1
    );
    assert_eq!(answer.progress(), Progress::Complete);
}

#[test]
fn a_length_beside_chunks_does_not_count() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (head, _) = answered(GET, text);
    assert!(head.contains("Transfer-Encoding: chunked") && !head.contains("Content-Length"));
}

#[test]
fn what_is_no_answer_fails() {
    let many = "X: 1\r\n".repeat(20_000);
    for (text, error) in [
        ("", AnswerError::Closed),
        ("HTTP/1.1 100 Continue\r\n\r\n", AnswerError::Closed),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n",
            AnswerError::ClosedInHead,
        ),
        ("HTT", AnswerError::ClosedInHead),
        ("SSH-2.0-other\r\n", AnswerError::NotHttp),
        ("SSH-2.0-other\r\n\r\n", AnswerError::NotHttp),
        ("HTTP/2.0 200 OK\r\n\r\n", AnswerError::NotHttp),
        ("\r\n\r\nSSH-2.0-other\r\n", AnswerError::Malformed),
        ("HTTP/1.1 099 OK\r\n\r\n", AnswerError::Malformed),
        ("HTTP/1.1 200 OK\r\n X: 1\r\n\r\n", AnswerError::Malformed),
        ("HTTP/1.1 200 OK\r\nX\r\n\r\n", AnswerError::Malformed),
        (
            "HTTP/1.1 200 OK\r\nX: 1\rY: 2\r\n\r\n",
            AnswerError::Malformed,
        ),
        (
            &format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
            AnswerError::HeadTooLarge,
        ),
    ] {
        let (_, answer) = answered(GET, text);
        assert_eq!(answer.progress(), Progress::Failed(error), "{text:.60?}");
    }
    for framing in [
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: 4, 5",
        "Content-Length: -1",
        "Content-Length: +4",
        "Content-Length:",
        "Content-Length: 4 4",
        "Content-Length: 18446744073709551616",
        "Transfer-Encoding:",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        for (terms, code) in [(GET, 200), (HEAD, 200), (GET, 204), (GET, 304)] {
            let (client, answer) = answered(
                terms,
                &format!("HTTP/1.1 {code} OK\r\n{framing}\r\n\r\nbody"),
            );
            assert_eq!(client, "");
            assert_eq!(
                answer.progress(),
                Progress::Failed(AnswerError::Malformed),
                "{framing}"
            );
        }
    }
}

#[test]
fn another_protocol_is_known_by_its_first_bytes_and_not_waited_for() {
    for text in ["S", "SSH-2.0-other\r\n", "HTTP/2", "220 mail\r\n", "\r\nX"] {
        let mut answer = Answer::new(GET);
        answer.pass(&mut text.as_bytes().to_vec(), true);
        let failed = Progress::Failed(AnswerError::NotHttp);
        assert_eq!(answer.progress(), failed, "{text:?}");
    }
    for text in ["", "H", "HTTP/1.", "HTTP/1.1 200", "\r\n", "\r\nHTTP/1.1 2"] {
        let mut answer = Answer::new(GET);
        answer.pass(&mut text.as_bytes().to_vec(), true);
        assert_eq!(answer.progress(), Progress::Awaited, "{text:?}");
    }
}

#[test]
fn a_head_without_end_is_not_waited_for() {
    let mut answer = Answer::new(GET);
    let mut bytes = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    bytes.resize(HEAD_BYTES_MAX - 1, b'a');
    answer.pass(&mut bytes, true);
    assert_eq!(answer.progress(), Progress::Awaited);
    answer.pass(&mut b"a".to_vec(), true);
    assert_eq!(
        answer.progress(),
        Progress::Failed(AnswerError::HeadTooLarge)
    );
    assert!(AnswerError::HeadTooLarge.to_string().contains("64 KiB"));
}

#[test]
fn all_fields_that_fit_into_a_head_pass() {
    let start = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n";
    let fields = "X: 1\r\n".repeat((HEAD_BYTES_MAX - start.len() - 2) / 6);
    let (client, answer) = answered(GET, &format!("{start}{fields}\r\n"));
    assert_eq!(answer.progress(), Progress::Complete);
    assert_eq!(client.matches("X: 1\r\n").count(), fields.len() / 6);
}

/// Answers of all kinds: heads that are well-formed, framings that may not be, and bodies that
/// may be framed otherwise.
fn origins() -> impl Strategy<Value = Vec<u8>> {
    let interim = select(vec![100, 102, 103, 150]);
    let code = select(vec![200, 200, 200, 204, 205, 304, 404, 599]);
    let framings = select(vec![
        "",
        "Content-Length: 0",
        "Content-Length: 4",
        "Content-Length: 10",
        "content-length: 4, 4",
        "Content-Length: 4, 5",
        "Content-Length: -4",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: chunked",
        "transfer-encoding: Chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: gzip",
        "Connection: close",
        "Connection: Keep-Alive",
        "Connection: content-length, transfer-encoding, x",
        "X: 1",
    ]);
    let piece = select(vec![
        "",
        "body",
        "4\r\nbody\r\n",
        "4\r\nbody\r\n",
        "a;x=y\r\n0123456789\r\n",
        "0\r\n\r\n",
        "0\r\n\r\n",
        "0\r\nX: 1\r\n\r\n",
        "0\n\n",
        "-1\r\n",
        "fffffffffffffffff\r\n",
        "\r\n",
        "4",
        " ",
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret",
    ]);
    (
        prop::collection::vec(interim, 0..2),
        code,
        0..2,
        prop::collection::vec(framings, 0..4),
        select(vec!["\r\n", "\r\n", "\n"]),
        prop::collection::vec(piece, 0..6),
    )
        .prop_map(|(interims, code, minor, fields, line_end, pieces)| {
            let mut text = String::new();
            for interim in interims {
                text += &format!("HTTP/1.1 {interim} Wait{line_end}X: 1{line_end}{line_end}");
            }
            text += &format!("HTTP/1.{minor} {code} OK{line_end}");
            for field in fields.iter().filter(|field| !field.is_empty()) {
                text += &format!("{field}{line_end}");
            }
            text += line_end;
            (text + &pieces.concat()).into_bytes()
        })
}

fn terms() -> impl Strategy<Value = AnswerTerms> {
    (any::<bool>(), any::<bool>(), 0..2_u8, any::<bool>()).prop_map(
        |(is_head, may_switch, client_minor, client_stays)| AnswerTerms {
            is_head,
            may_switch,
            client_minor,
            client_stays,
        },
    )
}

/// What the client gets of `origin` in pieces, and what becomes of it at its end.
fn in_pieces(terms: AnswerTerms, origin: &[u8], cuts: &[f64]) -> (Vec<u8>, Answer) {
    let mut cuts: Vec<usize> = cuts
        .iter()
        .map(|cut| (origin.len() as f64 * cut) as usize)
        .collect();
    cuts.push(origin.len());
    cuts.sort_unstable();
    let (mut answer, mut client, mut from) = (Answer::new(terms), Vec::new(), 0);
    for to in cuts {
        let mut piece = origin[from..to].to_vec();
        answer.pass(&mut piece, true);
        client.extend(piece);
        from = to;
    }
    (client, answer)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn it_is_framed_as_the_reference_frames_it(
        origin in origins(),
        terms in terms(),
        cuts in prop::collection::vec(0.0..1.0, 0..5),
        ends in any::<bool>(),
    ) {
        let (client, mut answer) = in_pieces(terms, &origin, &cuts);
        if ends {
            answer.finish(&mut Vec::new());
        }
        let expected = reference::frame(&origin, terms, ends);
        let (heads, body) = reference::split_heads(&client, expected.heads);
        let framed = Framed {
            heads,
            body,
            progress: answer.progress(),
            origin_stays: answer.origin_stays() && answer.progress() == Progress::Complete,
            client_stays: answer.client_stays() && answer.progress() == Progress::Complete,
        };
        prop_assert_eq!(framed, expected);
    }

    #[test]
    fn pieces_make_no_difference(
        origin in origins(),
        garbage in prop::collection::vec(
            prop_oneof![any::<u8>(), select(b"\r\n \tH:".to_vec())],
            0..9,
        ),
        at in prop_oneof![Just(0.0), 0.0..1.0],
        terms in terms(),
        pieces in 1..32_u32,
    ) {
        let mut origin = origin;
        let at = (origin.len() as f64 * at) as usize;
        origin.splice(at..at, garbage);
        let whole = in_pieces(terms, &origin, &[]);
        // Of one byte each first: what differs may differ after any of them.
        for pieces in [origin.len() as u32, pieces] {
            let cuts: Vec<f64> = (1..pieces).map(|cut| f64::from(cut) / f64::from(pieces)).collect();
            prop_assert_eq!(&in_pieces(terms, &origin, &cuts), &whole);
        }
    }

    #[test]
    fn each_field_for_the_client_arrives(
        names in prop::collection::vec(
            prop_oneof![
                "x-[a-z-]{1,12}",
                "[a-z-]{0,4}(token|secret|password|api-key|apikey)[a-z-]{0,4}",
                select(vec!["authorization", "cookie", "set-cookie", "www-authenticate", "etag", "link"])
                    .prop_map(str::to_owned),
            ],
            0..8,
        )
    ) {
        let fields: Vec<String> = (names.iter().enumerate())
            .map(|(number, name)| format!("{name}: {number}"))
            .collect();
        let text = format!("HTTP/1.1 200 OK\r\n{}\r\nContent-Length: 0\r\n\r\n", fields.join("\r\n"));
        let (head, _) = answered(GET, &text.replace("OK\r\n\r\n", "OK\r\n"));
        for field in fields {
            prop_assert!(head.contains(&format!("\r\n{field}\r\n")), "{} of {}", field, head);
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for start in [&b"HTTP/1.1 200 "[..], b""] {
            let mut answer = Answer::new(UPGRADE);
            answer.pass(&mut [start, &bytes[..]].concat(), true);
            answer.finish(&mut Vec::new());
        }
    }
}
