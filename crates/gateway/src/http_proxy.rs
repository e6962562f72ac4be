//! An HTTP proxy's requests (RFC 9110 and 9112), without I/O: a request's head in, a target and
//! the bytes for it out.
//!
//! `CONNECT host:port` opens a tunnel. An absolute-form request (`GET http://host/path`) becomes
//! an origin-form one. Each such request gets a flow of its own: it is sent with
//! `Connection: close`, so that all that follows its head belongs to it, in both directions, and
//! neither bodies nor responses need to be parsed. WebSocket upgrades pass through.
//!
//! The head is written anew from what was parsed, so the origin sees exactly the request that was
//! judged here. What two parsers could read differently is refused: bare CR or LF, folded lines,
//! a body framed twice.

use httparse::{EMPTY_HEADER, Header, Status};

use crate::refusal::Refusal;
use crate::target::{Host, Target};

/// The greatest length of a request's head, in bytes.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// The answer to CONNECT once the flow is open.
pub const TUNNEL_OPEN: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A request to a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyRequest {
    /// A tunnel: answer with [`TUNNEL_OPEN`] once the flow is open, then pass all bytes.
    Connect {
        /// Where to.
        target: Target,
    },
    /// One request for an origin: send the head first, then pass all bytes both ways.
    Forward {
        /// The origin.
        target: Target,
        /// The request's head, as the origin is to see it.
        head: Vec<u8>,
    },
}

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HttpProxyError {
    /// Not HTTP/1, or malformed in a way that could hide another request.
    #[error("not a well-formed HTTP/1 request")]
    Malformed,
    /// More than [`HEAD_BYTES_MAX`] bytes or more header fields than are counted.
    #[error("the request's head is too large")]
    TooLarge,
    /// A request for this server itself.
    #[error(
        "this is a proxy, not a web server: name it as your client's HTTP proxy, \
         as in curl --proxy http://HOST:PORT http://example.org/"
    )]
    NotProxied,
    /// Another scheme than `http:`, which goes through CONNECT.
    #[error("only http: URLs are fetched here; for https: the client sends CONNECT")]
    Scheme,
    /// The request's target is not a host and a port.
    #[error("the request's target is not a host with a valid name and port")]
    Target,
    /// The body's length is given twice, or in a way that has no one reading.
    #[error("the length of the request's body is ambiguous")]
    BodyLength,
}

/// Reads a request's head from all bytes received so far: `Ok(None)` while it needs more, else
/// the request and the head's length in bytes; what follows belongs to the request.
pub fn parse_head(received: &[u8]) -> Result<Option<(ProxyRequest, usize)>, HttpProxyError> {
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let searched = &received[..received.len().min(HEAD_BYTES_MAX)];
    let head_bytes = match request.parse(searched) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if received.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(HttpProxyError::TooLarge);
        }
        Err(_) => return Err(HttpProxyError::Malformed),
    };
    if !has_strict_lines(&received[..head_bytes]) {
        return Err(HttpProxyError::Malformed);
    }
    let (Some(method), Some(uri), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(HttpProxyError::Malformed);
    };
    let request = if method == "CONNECT" {
        let target = uri.parse().map_err(|_| HttpProxyError::Target)?;
        ProxyRequest::Connect { target }
    } else {
        let (target, path) = split_absolute(uri)?;
        let path = match path {
            // RFC 9112, section 3.2.4.
            "" if method == "OPTIONS" => "*".into(),
            "" => "/".into(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.into(),
        };
        check_body_length(request.headers, minor)?;
        let line = format!("{method} {path} HTTP/1.{minor}");
        let head = origin_head(&line, &target, request.headers);
        ProxyRequest::Forward { target, head }
    };
    Ok(Some((request, head_bytes)))
}

impl HttpProxyError {
    /// The response to send before closing.
    pub fn response(&self) -> Vec<u8> {
        let status = match self {
            HttpProxyError::TooLarge => "431 Request Header Fields Too Large",
            _ => "400 Bad Request",
        };
        response(status, &self.to_string())
    }
}

/// The response to a request whose flow was refused.
pub fn refused_response(refusal: Refusal, target: &Target) -> Vec<u8> {
    let status = match refusal {
        Refusal::NotAllowed => "403 Forbidden",
        Refusal::TimedOut => "504 Gateway Timeout",
        Refusal::Limit | Refusal::Draining => "503 Service Unavailable",
        Refusal::Other
        | Refusal::NameNotResolved
        | Refusal::ConnectionRefused
        | Refusal::Unreachable
        | Refusal::LinkDown => "502 Bad Gateway",
    };
    response(status, &format!("{target}: {refusal}"))
}

/// More than browsers send, few enough for the stack.
const FIELDS_MAX: usize = 128;

/// Fields between a client and its proxy, which the origin must not see (RFC 9110, section 7.6.1).
/// `Host` is written anew from the target, `Transfer-Encoding` stays with the body.
const HOP_BY_HOP: [&str; 8] = [
    "Host",
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Proxy-Authorization",
    "Proxy-Authenticate",
    "TE",
    "Upgrade",
];

fn response(status: &str, reason: &str) -> Vec<u8> {
    let body = format!("refrain: {reason}\n");
    format!(
        "HTTP/1.1 {status}\r\n\
         Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Each CR is followed by LF and each LF preceded by CR. The parser alone would take a bare LF.
fn has_strict_lines(head: &[u8]) -> bool {
    let mut previous = 0;
    head.iter().all(|&byte| {
        let strict = (previous == b'\r') == (byte == b'\n');
        previous = byte;
        strict
    })
}

/// Splits `http://authority/path` into its target and the rest, which begins with `/` or `?`, or
/// is empty.
fn split_absolute(uri: &str) -> Result<(Target, &str), HttpProxyError> {
    const SCHEME: &str = "http://";
    if uri.starts_with('/') || uri == "*" {
        return Err(HttpProxyError::NotProxied);
    }
    let rest = match uri.split_at_checked(SCHEME.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => rest,
        _ => return Err(HttpProxyError::Scheme),
    };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    if path.contains('#') {
        return Err(HttpProxyError::Malformed);
    }
    Ok((parse_authority(authority)?, path))
}

/// `host` or `host:port`. Credentials before an `@` are refused with other bad names.
fn parse_authority(authority: &str) -> Result<Target, HttpProxyError> {
    const DEFAULT_PORT: u16 = 80;
    let has_port = match authority.rfind(']') {
        Some(bracket) => authority[bracket..].contains(':'),
        None => authority.contains(':'),
    };
    let target = match has_port && !authority.ends_with(':') {
        true => authority.parse(),
        false => {
            let host = authority.strip_suffix(':').unwrap_or(authority);
            host.parse::<Host>()
                .and_then(|host| Target::new(host, DEFAULT_PORT))
        }
    };
    target.map_err(|_| HttpProxyError::Target)
}

/// RFC 9112, section 6.3: where the body ends must have one reading.
fn check_body_length(fields: &[Header], minor: u8) -> Result<(), HttpProxyError> {
    let lengths = values(fields, "Content-Length").count();
    let encodings = values(fields, "Transfer-Encoding").count();
    let has_one_reading = match (lengths, encodings) {
        (0, 0) => true,
        (1, 0) => values(fields, "Content-Length").all(|value| {
            !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit)
        }),
        (0, 1) => {
            let is_chunked = |value: &[u8]| value.eq_ignore_ascii_case(b"chunked");
            minor == 1 && values(fields, "Transfer-Encoding").all(is_chunked)
        }
        _ => false,
    };
    match has_one_reading && values(fields, "Host").count() <= 1 {
        true => Ok(()),
        false => Err(HttpProxyError::BodyLength),
    }
}

/// The head for the origin: the client's fields, less those for the proxy.
fn origin_head(line: &str, target: &Target, fields: &[Header]) -> Vec<u8> {
    let is_websocket =
        lists(fields, "Connection", "upgrade") && lists(fields, "Upgrade", "websocket");
    let mut head = format!("{line}\r\nHost: {}\r\n", host_field(target)).into_bytes();
    for field in fields {
        let is_for_proxy = HOP_BY_HOP
            .iter()
            .any(|name| name.eq_ignore_ascii_case(field.name));
        if is_for_proxy || may_be_listed(field.name) && lists(fields, "Connection", field.name) {
            continue;
        }
        push_field(&mut head, field.name, field.value);
    }
    if is_websocket {
        push_field(&mut head, "Connection", b"Upgrade");
        push_field(&mut head, "Upgrade", b"websocket");
    } else {
        push_field(&mut head, "Connection", b"close");
    }
    head.extend(b"\r\n");
    head
}

/// Whether `Connection` can declare this field to be for the proxy. It must not take away what
/// frames the body.
fn may_be_listed(name: &str) -> bool {
    !name.eq_ignore_ascii_case("Content-Length") && !name.eq_ignore_ascii_case("Transfer-Encoding")
}

/// As browsers write it: without the port that `http:` implies.
fn host_field(target: &Target) -> String {
    match target.port {
        80 => target.host.to_string(),
        _ => target.to_string(),
    }
}

fn push_field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend(name.as_bytes());
    head.extend(b": ");
    head.extend(value);
    head.extend(b"\r\n");
}

fn values<'a>(fields: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let named = move |field: &&Header| field.name.eq_ignore_ascii_case(name);
    fields.iter().filter(named).map(|field| field.value)
}

/// Whether a field's comma-separated list has this element.
fn lists(fields: &[Header], name: &str, element: &str) -> bool {
    let is_element = |item: &[u8]| item.trim_ascii().eq_ignore_ascii_case(element.as_bytes());
    values(fields, name).any(|value| value.split(|&byte| byte == b',').any(is_element))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn forward(text: &str) -> (String, String) {
        match parse_head(text.as_bytes()) {
            Ok(Some((ProxyRequest::Forward { target, head }, _))) => {
                (target.to_string(), String::from_utf8(head).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    fn fault(text: &str) -> HttpProxyError {
        parse_head(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn connect_opens_a_tunnel_and_leaves_what_follows() {
        let head = "CONNECT Example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n";
        let text = format!("{head}\x16\x03\x01");
        let (request, length) = parse_head(text.as_bytes()).unwrap().unwrap();
        let target = "example.org:443".parse().unwrap();
        assert_eq!(request, ProxyRequest::Connect { target });
        assert_eq!(length, head.len());
        assert_eq!(
            fault("CONNECT example.org HTTP/1.1\r\n\r\n"),
            HttpProxyError::Target
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
             Connection: close\r\n\r\n";
        assert_eq!(head, expected);
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
        for framing in ["Content-Length: 4", "Transfer-Encoding: chunked"] {
            let head = format!("POST http://a/ HTTP/1.1\r\n{framing}\r\n\r\n");
            let text = format!("{head}body");
            let (_, length) = parse_head(text.as_bytes()).unwrap().unwrap();
            assert_eq!(length, head.len());
            assert!(forward(&text).1.contains(framing));
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
        assert!(!head.contains("Upgrade") && head.contains("Connection: close"));
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
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Host: a\r\nHost: b",
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
            "GET http://a/ b HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/2.0\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01\x00",
        ];
        for text in malformed {
            assert_eq!(fault(text), HttpProxyError::Malformed, "{text:?}");
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
        let fields = "X: 1\r\n".repeat(FIELDS_MAX + 1);
        let text = format!("GET http://a/ HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(fault(&text), HttpProxyError::TooLarge);
    }

    #[test]
    fn a_refusal_has_a_status_and_says_why() {
        let target = "example.org:80".parse().unwrap();
        let text = |refusal| String::from_utf8(refused_response(refusal, &target)).unwrap();
        assert!(text(Refusal::NotAllowed).starts_with("HTTP/1.1 403 "));
        assert!(text(Refusal::TimedOut).starts_with("HTTP/1.1 504 "));
        assert!(text(Refusal::ConnectionRefused).starts_with("HTTP/1.1 502 "));
        for refusal in Refusal::ALL {
            let response = text(refusal);
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            assert!(body.contains(&refusal.to_string()) && body.contains("example.org:80"));
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        }
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
            if let Ok(Some((ProxyRequest::Forward { head, .. }, _))) = parse_head(&bytes) {
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
}
