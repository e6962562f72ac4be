use super::*;
use proptest::prelude::*;

/// Parses, and changes nothing that clients accept.
fn parse_head(received: &[u8]) -> Result<Option<(ProxyRequest, usize)>, HttpProxyError> {
    super::parse_head(received, &Addressing::Proxy, |_| AcceptEncoding::Keep)
}

fn parsed(text: &str) -> (ProxyRequest, Exchange) {
    match parse_head(text.as_bytes()) {
        Ok(Some((request, _))) => match request.purpose.clone() {
            Purpose::Exchange(exchange) => (request, *exchange),
            Purpose::Tunnel => panic!("{request:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn forward(text: &str) -> (String, String) {
    let (request, exchange) = parsed(text);
    let head = String::from_utf8(exchange.head.bytes).unwrap();
    (request.origin.target.to_string(), head)
}

fn exchange(text: &str) -> Exchange {
    parsed(text).1
}

fn fault(text: &str) -> HttpProxyError {
    parse_head(text.as_bytes()).unwrap_err()
}

#[test]
fn connect_opens_a_tunnel_and_leaves_what_follows() {
    let head = "CONNECT Example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n";
    let text = format!("{head}\x16\x03\x01");
    let (request, length) = parse_head(text.as_bytes()).unwrap().unwrap();
    assert_eq!(request.origin.target, "example.org:443".parse().unwrap());
    assert_eq!(request.purpose, Purpose::Tunnel);
    assert_eq!(request.credentials, None);
    assert_eq!(length, head.len());
    assert_eq!(
        fault("CONNECT example.org HTTP/1.1\r\n\r\n"),
        HttpProxyError::Target
    );
}

#[test]
fn secret_fields_come_last_and_in_their_order() {
    let head = |fields: &str| {
        let text = format!("GET http://a/ HTTP/1.1\r\n{fields}\r\n");
        let head = exchange(&text).head;
        let (open, secret) = head.bytes.split_at(head.secret_from);
        let part = |part: &[u8]| String::from_utf8(part.to_vec()).expect("a text");
        (part(open), part(secret))
    };
    let (open, secret) = head(
        "Cookie: a=1\r\nAccept: */*\r\nauthorization: Bearer x\r\nPRIVATE-TOKEN: y\r\nCookie: b=2\r\n\
         X-Api-Key: z\r\nConnection: close\r\nKey: 1\r\n",
    );
    assert_eq!(
        secret,
        "Cookie: a=1\r\nauthorization: Bearer x\r\nPRIVATE-TOKEN: y\r\nCookie: b=2\r\nX-Api-Key: z\r\n\r\n"
    );
    assert_eq!(
        open,
        "GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nKey: 1\r\nVia: 1.1 refrain\r\nConnection: close\r\n"
    );
    let (open, secret) = head("Accept: */*\r\n");
    assert!(
        open.ends_with("refrain\r\n\r\n") && secret.is_empty(),
        "{open}"
    );
}

#[test]
fn an_absolute_request_becomes_an_origin_request() {
    // As curl and browsers send it.
    let (target, head) = forward(
        "GET http://example.org:8080/a?b=c HTTP/1.1\r\n\
         Host: elsewhere.example\r\n\
         Proxy-Connection: Keep-Alive\r\n\
         Proxy-Authorization: Basic c2VjcmV0\r\n\
         Connection: keep-alive, X-Hop\r\n\
         X-Hop: 1\r\n\
         TE: trailers\r\n\
         Accept: */*\r\n\r\n",
    );
    assert_eq!(target, "example.org:8080");
    let expected = "GET /a?b=c HTTP/1.1\r\n\
         Host: example.org:8080\r\n\
         Accept: */*\r\n\
         Via: 1.1 refrain\r\n\
         Connection: TE\r\n\
         TE: trailers\r\n\r\n";
    assert_eq!(head, expected);
}

#[test]
fn credentials_for_the_proxy_go_no_further() {
    let credentials = |fields: &str| {
        let (request, exchange) = parsed(&format!("GET http://a/ HTTP/1.1\r\n{fields}\r\n"));
        let head = String::from_utf8(exchange.head.bytes).unwrap();
        assert!(!head.to_ascii_lowercase().contains("proxy-"), "{head}");
        request.credentials
    };
    let basic = "proxy-authorization: Basic c2VjcmV0\r\n";
    assert_eq!(credentials(basic), Some(b"Basic c2VjcmV0".to_vec()));
    assert_eq!(credentials(""), None);
    assert_eq!(credentials(&basic.repeat(2)), None);
    let connect = format!("CONNECT a:1 HTTP/1.1\r\n{basic}\r\n");
    let (request, _) = parse_head(connect.as_bytes()).unwrap().unwrap();
    assert_eq!(request.credentials, Some(b"Basic c2VjcmV0".to_vec()));
}

#[test]
fn connections_stay_open_as_the_client_asks() {
    for (version, fields, stays) in [
        ("1.1", "", true),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: Close\r\n", false),
        (
            "1.1",
            "Connection: keep-alive\r\nConnection: x,, close\r\n",
            false,
        ),
        ("1.1", "Via: 1.0 other\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Proxy-Connection: Keep-Alive\r\n", false),
        ("1.0", "Connection: keep-alive\r\nVia: 1.0 other\r\n", false),
    ] {
        let exchange = exchange(&format!("GET http://a/ HTTP/{version}\r\n{fields}\r\n"));
        assert_eq!(exchange.terms.client_stays, stays, "{version} {fields}");
        let head = String::from_utf8(exchange.head.bytes).unwrap();
        assert_eq!(!head.contains("\r\nConnection: close\r\n"), stays, "{head}");
    }
}

#[test]
fn only_what_changes_nothing_may_be_asked_again() {
    let may_repeat = |method: &str, fields: &str| {
        exchange(&format!("{method} http://a/ HTTP/1.1\r\n{fields}\r\n")).may_repeat
    };
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        assert!(may_repeat(method, ""), "{method}");
        assert!(!may_repeat(method, "Content-Length: 1\r\n"), "{method}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "get", "OTHER"] {
        assert!(!may_repeat(method, ""), "{method}");
    }
}

#[test]
fn an_http_1_0_client_is_not_told_to_go_on() {
    let head = |minor: u8| {
        let fields = "Expect: 100-continue\r\nContent-Length: 4\r\n";
        forward(&format!("POST http://a/ HTTP/1.{minor}\r\n{fields}\r\n")).1
    };
    assert!(head(1).contains("\r\nExpect: 100-continue\r\n"));
    assert!(!head(0).contains("Expect"));
    // RFC 9112, section 2.3: the proxy's own version.
    assert!(head(0).starts_with("POST / HTTP/1.1\r\n"));
}

#[test]
fn the_target_has_the_default_port_and_the_path_its_slash() {
    let cases = [
        ("GET", "http://a", "a:80", "GET / HTTP/1.1\r\nHost: a\r\n"),
        (
            "GET",
            "HTTP://a:?x",
            "a:80",
            "GET /?x HTTP/1.1\r\nHost: a\r\n",
        ),
        (
            "OPTIONS",
            "http://a:81",
            "a:81",
            "OPTIONS * HTTP/1.1\r\nHost: a:81\r\n",
        ),
        (
            "GET",
            "http://[::1]/",
            "[::1]:80",
            "GET / HTTP/1.1\r\nHost: [::1]\r\n",
        ),
        (
            "GET",
            "http://[::1]:81/",
            "[::1]:81",
            "GET / HTTP/1.1\r\nHost: [::1]:81\r\n",
        ),
    ];
    for (method, uri, expected, start) in cases {
        let (target, head) = forward(&format!("{method} {uri} HTTP/1.1\r\n\r\n"));
        assert_eq!(target, expected);
        assert!(head.starts_with(start), "{head}");
    }
}

#[test]
fn a_body_streams_behind_the_head() {
    for (framing, body) in [
        ("Content-Length: 4\r\n", Body::Counted(4)),
        ("Transfer-Encoding: chunked\r\n", Body::CHUNKED),
        ("", Body::NONE),
    ] {
        let head = format!("POST http://a/ HTTP/1.1\r\n{framing}\r\n");
        let text = format!("{head}body");
        let (_, length) = parse_head(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, head.len());
        assert!(forward(&text).1.contains(framing));
        assert_eq!(exchange(&text).body, body);
    }
}

#[test]
fn a_websocket_upgrade_passes_and_others_do_not() {
    let upgrade = |protocol: &str| {
        forward(&format!(
            "GET http://a/ws HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\n\
             Upgrade: {protocol}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ))
        .1
    };
    let head = upgrade("websocket");
    assert!(head.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    assert!(head.contains("Sec-WebSocket-Version: 13"));
    let head = upgrade("h2c");
    assert!(!head.contains("Upgrade"), "{head}");
    let with_body = "GET http://a/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Content-Length: 1\r\n\r\n";
    assert!(!forward(with_body).1.contains("Upgrade"));
    let old = "GET http://a/ HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert!(!forward(old).1.contains("Upgrade"));
    assert!(!exchange(old).terms.may_switch);
}

#[test]
fn the_way_of_a_trace_is_counted_down() {
    let trace =
        |forwards: &str| format!("TRACE http://a/ HTTP/1.1\r\nMax-Forwards: {forwards}\r\n\r\n");
    assert!(forward(&trace("10")).1.contains("\r\nMax-Forwards: 9\r\n"));
    assert_eq!(fault(&trace("0")), HttpProxyError::NoForwardsLeft);
    assert_eq!(fault(&trace("x")), HttpProxyError::Malformed);
    let get = "GET http://a/ HTTP/1.1\r\nMax-Forwards: 0\r\n\r\n";
    assert!(forward(get).1.contains("\r\nMax-Forwards: 0\r\n"));
}

#[test]
fn those_who_passed_it_on_before_are_named_first() {
    let (_, head) = forward("GET http://a/ HTTP/1.0\r\nVia: 1.1 other\r\n\r\n");
    assert!(
        head.contains("Via: 1.1 other\r\nVia: 1.0 refrain\r\n"),
        "{head}"
    );
}

#[test]
fn a_request_for_this_server_is_told_how_to_use_a_proxy() {
    let error = fault("GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(error, HttpProxyError::NotProxied);
    let response = String::from_utf8(error.response()).unwrap();
    assert!(response.starts_with("HTTP/1.1 400 "));
    assert!(response.contains("curl --proxy"));
}

#[test]
fn nothing_can_be_smuggled() {
    let ambiguous = [
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: 4\r\nContent-Length: 4",
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Content-Length: +4",
        "Content-Length: 4, 4",
        "Content-Length:",
        "Content-Length: 99999999999999999999",
        "Content-Length: 4\r\nContent-Length:",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ];
    for fields in ambiguous {
        let text = format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n\r\n");
        assert_eq!(fault(&text), HttpProxyError::BodyLength, "{fields}");
    }
    let text = "POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(fault(text), HttpProxyError::BodyLength);
    let malformed = [
        "GET http://a/ HTTP/1.1\nHost: a\n\n",
        "GET http://a/ HTTP/1.1\r\nX: 1\nY: 2\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nX: 1\rY: 2\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nX : 1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nX: 1\r\n Y: 2\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nX: \0\r\n\r\n",
        "GET http://a/#b HTTP/1.1\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET http://a/ b HTTP/1.1\r\n\r\n",
        "GET http://a/ HTTP/2.0\r\n\r\n",
    ];
    for text in malformed {
        assert_eq!(fault(text), HttpProxyError::Malformed, "{text:?}");
    }
    for (text, protocol) in [
        ("\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        ("\x05\x01\x00", "SOCKS"),
        ("\x04\x01\x00\x50", "SOCKS"),
    ] {
        assert_eq!(fault(text), HttpProxyError::OtherProtocol(protocol));
    }
}

#[test]
fn the_connection_field_cannot_take_away_a_bodys_length() {
    let (_, head) = forward(
        "POST http://a/ HTTP/1.1\r\nConnection: content-length\r\nContent-Length: 4\r\n\r\n",
    );
    assert!(head.contains("Content-Length: 4"));
}

#[test]
fn other_targets_are_refused() {
    let error = |uri: &str| fault(&format!("GET {uri} HTTP/1.1\r\n\r\n"));
    assert_eq!(error("https://a/"), HttpProxyError::Scheme);
    assert_eq!(error("ftp://a/"), HttpProxyError::Scheme);
    for uri in [
        "http:///",
        "http://user@a/",
        "http://a:0/",
        "http://a:x/",
        "http://::1/",
        "http://a::/",
        "http://a:80:/",
        "http://[::1]:80:/",
        "http://[::1]80/",
    ] {
        assert_eq!(error(uri), HttpProxyError::Target, "{uri}");
    }
}

#[test]
fn a_head_without_end_is_too_large() {
    let mut text = String::from("GET http://a/ HTTP/1.1\r\nX: ");
    text.push_str(&"a".repeat(HEAD_BYTES_MAX - text.len() - 1));
    assert_eq!(parse_head(text.as_bytes()), Ok(None));
    text.push('a');
    assert_eq!(fault(&text), HttpProxyError::TooLarge);
    assert!(HttpProxyError::TooLarge.to_string().contains("64 KiB"));
}

#[test]
fn all_fields_that_fit_into_a_head_pass() {
    let line = "GET http://a/ HTTP/1.1\r\n";
    for field in ["X:\r\n", "X: 1\r\n"] {
        let fields = field.repeat((HEAD_BYTES_MAX - line.len() - 2) / field.len());
        let (_, head) = forward(&format!("{line}{fields}\r\n"));
        assert_eq!(head.matches("X: ").count(), fields.len() / field.len());
        assert_eq!(
            fault(&format!("{line}{fields}{field}\r\n")),
            HttpProxyError::TooLarge
        );
    }
}

/// As many as fit, of both: what is compared with each other must not be.
#[test]
fn fields_that_connection_lists_are_left_out_however_many() {
    let names = (0..4000).map(|number| format!("x{number}"));
    let fields: String = names.clone().map(|name| format!("{name}:\r\n")).collect();
    let list: Vec<String> = names.filter(|name| !name.ends_with('7')).collect();
    let text = format!(
        "GET http://a/ HTTP/1.1\r\n{fields}Connection: {}\r\n\r\n",
        list.join(",").to_ascii_uppercase()
    );
    let (_, head) = forward(&text);
    assert_eq!(head.matches("\r\nx").count(), 400);
}

const REQUEST: &str = "POST http://example.org:81/a HTTP/1.1\r\nHost: example.org:81\r\n\
     Connection: keep-alive\r\nContent-Length: 10\r\n\r\n";

proptest! {
    #[test]
    fn a_part_needs_more(end in 0..REQUEST.len()) {
        prop_assert_eq!(parse_head(&REQUEST.as_bytes()[..end]), Ok(None));
    }

    #[test]
    fn a_flipped_request_is_read_strictly_or_refused(at in 0..REQUEST.len(), byte in any::<u8>()) {
        let mut bytes = REQUEST.as_bytes().to_vec();
        bytes[at] = byte;
        if let Ok(Some((ProxyRequest { purpose: Purpose::Exchange(exchange), .. }, _))) =
            parse_head(&bytes)
        {
            let head = exchange.head.bytes;
            prop_assert!(has_strict_lines(&head));
            prop_assert!(head.ends_with(b"\r\n\r\n"));
            let ends = head.windows(4).filter(|four| four == b"\r\n\r\n").count();
            prop_assert_eq!(ends, 1);
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_head(&bytes);
        let _ = parse_head(&[b"GET http://".as_slice(), &bytes].concat());
    }
}
