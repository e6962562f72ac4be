use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    http_proxy::{AcceptEncoding, Addressing, Purpose, Service, parse_head},
    target::Target,
};

/// A request as the decoder of HTTP/2 gives it.
fn received(method: &str, uri: &str, fields: &[(&str, &str)]) -> request::Parts {
    let mut builder = Request::builder().method(method).uri(uri);
    for (name, value) in fields {
        builder = builder.header(*name, *value);
    }
    builder.body(()).expect("a request").into_parts().0
}

fn text(request: &request::Parts, has_body: bool) -> Result<String, Malformed> {
    let text = RequestText::of(request, has_body)?;
    Ok(String::from_utf8(text.head).expect("text"))
}

const URI: &str = "https://example.org/a?b";

#[test]
fn a_request_has_one_form() {
    let request = received(
        "GET",
        URI,
        &[
            ("accept", "*/*"),
            ("cookie", "a=1"),
            ("te", "trailers"),
            ("cookie", "b=2"),
        ],
    );
    let expected = "GET /a?b HTTP/1.1\r\nhost: example.org\r\naccept: */*\r\ncookie: a=1; b=2\r\nte: trailers\r\n\r\n";
    assert_eq!(text(&request, false).as_deref(), Ok(expected));
}

#[test]
fn a_body_is_counted_or_in_chunks() {
    let framing = |fields: &[(&str, &str)], has_body| {
        let text = RequestText::of(&received("POST", URI, fields), has_body).ok()?;
        let head = String::from_utf8(text.head).expect("text");
        let (_, framed) = head.split_once("host: example.org\r\n")?;
        Some((framed.trim_end().to_owned(), text.framing))
    };
    let plain = |fields: &str| Some((fields.to_owned(), Framing::Plain));
    let length = [("content-length", "5")];
    assert_eq!(framing(&length, true), plain("content-length: 5"));
    assert_eq!(framing(&[], false), plain("content-length: 0"));
    let chunked = ("transfer-encoding: chunked".to_owned(), Framing::Chunked);
    assert_eq!(framing(&[], true), Some(chunked));
    // Each would be read in two ways.
    assert_eq!(framing(&length, false), None);
    for length in ["+5", "5 ", "5,5", "", "0x5", "-0", "18446744073709551616"] {
        assert_eq!(
            framing(&[("content-length", length)], true),
            None,
            "{length}"
        );
    }
    let two = [("content-length", "5"), ("content-length", "6")];
    assert_eq!(framing(&two, true), None);
}

#[test]
fn a_request_names_one_host() {
    let host = |uri: &str, hosts: &[&str]| {
        let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        let text = text(&received("GET", uri, &fields), false).ok()?;
        let host = text.lines().nth(1)?.strip_prefix("host: ")?.to_owned();
        assert_eq!(text.matches("host:").count(), 1, "{text}");
        Some(host)
    };
    let it_is = |host: &str| Some(host.to_owned());
    assert_eq!(host(URI, &[]), it_is("example.org"));
    assert_eq!(host(URI, &["Example.org"]), it_is("Example.org"));
    assert_eq!(host("/a", &["example.org"]), it_is("example.org"));
    assert_eq!(host(URI, &["other.org"]), None);
    assert_eq!(host(URI, &["example.org", "example.org"]), None);
    assert_eq!(host("/a", &[]), None);
}

#[test]
fn fields_of_the_connection_do_not_pass() {
    let fields: Vec<_> = OF_CONNECTION.iter().map(|name| (*name, "x")).collect();
    let request = received("GET", URI, &fields);
    let expected = "GET /a?b HTTP/1.1\r\nhost: example.org\r\n\r\n";
    assert_eq!(text(&request, false).as_deref(), Ok(expected));
    let answer =
        "HTTP/1.1 200 OK\r\nConnection: close\r\nKeep-Alive: x\r\nUpgrade: h2c\r\nX: y\r\n\r\n";
    match AnswerHead::of(answer.as_bytes(), &AsksFor::All) {
        Ok(AnswerHead::Final(answer, Body::UntilClose)) => assert_eq!(answer.headers().len(), 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_comes_out_as_it_went_in() {
    let fields = [
        ("accept", "*/*"),
        ("te", "trailers"),
        ("x", "1"),
        ("x", "2"),
    ];
    let mut sent = received("POST", URI, &fields);
    let text = RequestText::of(&sent, true).expect("a request");
    let (came, body) = request(&text.head).expect("a request");
    let came = came.into_parts().0;
    assert_eq!((&came.method, &came.uri), (&sent.method, &sent.uri));
    sent.headers.remove("host");
    assert_eq!((came.headers, body), (sent.headers, Body::CHUNKED));
}

#[test]
fn what_is_no_request_of_http2_is_refused() {
    for head in [
        "",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET",
    ] {
        assert!(request(head.as_bytes()).is_err(), "{head:?}");
    }
}

#[test]
fn an_answer_s_body_has_the_end_that_its_head_says() {
    let body = |head: &str, asks_for: &AsksFor| match AnswerHead::of(head.as_bytes(), asks_for) {
        Ok(AnswerHead::Final(_, body)) => Some(body),
        _ => None,
    };
    let all = |fields: &str| body(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), &AsksFor::All);
    assert_eq!(all("Content-Length: 7\r\n"), Some(Body::Counted(7)));
    assert_eq!(all("Transfer-Encoding: chunked\r\n"), Some(Body::CHUNKED));
    assert_eq!(all(""), Some(Body::UntilClose));
    assert_eq!(all("Transfer-Encoding: gzip, chunked\r\n"), None);
    assert_eq!(all("Content-Length: 7\r\nContent-Length: 8\r\n"), None);
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(body(length, &AsksFor::Head), Some(Body::NONE));
    for code in [204, 304] {
        let head = format!("HTTP/1.1 {code} x\r\nContent-Length: 7\r\n\r\n");
        assert_eq!(body(&head, &AsksFor::All), Some(Body::NONE));
    }
    let interim = AnswerHead::of(b"HTTP/1.1 103 x\r\nLink: y\r\n\r\n", &AsksFor::All);
    assert!(matches!(interim, Ok(AnswerHead::Interim(_))));
}

#[test]
fn a_websocket_is_an_upgrade_whose_answer_is_verified() {
    let mut connect = received("CONNECT", URI, &[("sec-websocket-version", "13")]);
    let protocol = h2::ext::Protocol::from_static("websocket");
    connect.extensions.insert(protocol);
    let text = RequestText::of(&connect, true).expect("a request");
    let AsksFor::WebSocket(key) = &text.asks_for else {
        panic!("{text:?}");
    };
    let head = String::from_utf8(text.head.clone()).expect("text");
    assert!(head.starts_with("GET /a?b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("sec-websocket-key: {key}\r\n")));
    assert_eq!(text.framing, Framing::Plain);

    // The example of RFC 6455, section 1.3.
    let example = accept_of("dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(example, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let answer = |accept: &str| {
        let head = format!(
            "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        AnswerHead::of(head.as_bytes(), &text.asks_for)
    };
    match answer(&accept_of(key)) {
        Ok(AnswerHead::Switched(answer)) => {
            assert_eq!((answer.status().as_u16(), answer.headers().len()), (200, 0));
        }
        other => panic!("{other:?}"),
    }
    assert!(answer(&example).is_err());
    connect
        .extensions
        .insert(h2::ext::Protocol::from_static("other"));
    assert!(RequestText::of(&connect, true).is_err());
}

#[test]
fn trailers_come_out_as_they_went_in_but_for_those_that_frame() {
    let mut sent = HeaderMap::new();
    for (name, value) in [("grpc-status", "0"), ("x", "1"), ("x", "2")] {
        sent.append(name, HeaderValue::from_static(value));
    }
    assert_eq!(trailers(trailer_lines(&sent)), Ok(sent.clone()));
    assert_eq!(trailers(Vec::new()), Ok(HeaderMap::new()));
    let lines = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: a\r\nConnection: x\r\n";
    assert_eq!(trailers(lines.into()), Ok(HeaderMap::new()));
    for lines in ["x\r\n", " x: 1\r\n", "x: 1\r\n\r\ny: 2\r\n", "x : 1\r\n"] {
        assert!(trailers(lines.into()).is_err(), "{lines:?}");
    }
}

fn service() -> Addressing {
    let service: Service = "https://example.org".parse().expect("a site");
    let service = service.by_its_own_name().expect("one site");
    Addressing::Service(Arc::new(service))
}

proptest! {
    /// Whatever the decoder of HTTP/2 lets through: what the parser of HTTP/1.1 reads is what was meant.
    #[test]
    fn a_request_is_read_as_it_was_meant(
        method in "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,8}",
        path in "/[!-~]{0,20}",
        fields in prop::collection::vec(("[!#$%&'*+.^_`|~0-9a-z-]{1,12}", "[ -~\t]{0,20}"), 0..6),
        has_body: bool,
    ) {
        prop_assume!(method != "CONNECT");
        let uri = format!("https://example.org{path}");
        let mut builder = Request::builder().method(method.as_str()).uri(uri);
        for (name, value) in &fields {
            builder = builder.header(name.as_str(), value.as_str());
        }
        let Ok(sent) = builder.body(()) else {
            return Ok(());
        };
        let sent = sent.into_parts().0;
        let Ok(text) = RequestText::of(&sent, has_body) else {
            return Ok(());
        };
        let asking = |_: &Target| AcceptEncoding::Keep;
        let parsed = parse_head(&text.head, &service(), asking);
        let Ok(Some((parsed, length))) = parsed else {
            prop_assert!(parsed.is_err(), "it waits for more: {:?}", text.head);
            return Ok(());
        };
        // Nothing is left that could be another request.
        prop_assert_eq!(length, text.head.len());
        let Purpose::Exchange(exchange) = parsed.purpose else {
            panic!("{parsed:?}");
        };
        let (came, body) = request(&exchange.head.bytes).expect("a request");
        prop_assert_eq!(came.method(), &sent.method);
        let meant = sent.uri.path_and_query().map(|path| path.as_str());
        prop_assert_eq!(came.uri().path_and_query().map(|path| path.as_str()), meant);
        let is_chunked = text.framing == Framing::Chunked;
        prop_assert_eq!(is_chunked, body == Body::CHUNKED);
        for (name, _) in came.headers() {
            let is_own = matches!(name.as_str(), "via" | "content-length");
            prop_assert!(is_own || sent.headers.contains_key(name), "{}", name);
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = request(&bytes);
        let _ = AnswerHead::of(&bytes, &AsksFor::All);
        let _ = trailers(bytes);
    }
}
