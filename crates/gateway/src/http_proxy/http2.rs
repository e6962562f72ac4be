//! Messages of HTTP/2 in the form of HTTP/1.1, and back.
//!
//! Within the pair, an exchange has this form whatever its client and its origin speak: compressed fields would hide
//! repeats, and the rules for requests and answers are in one place. Names are in lower case, as HTTP/2 has them.
//!
//! What HTTP/2 does not have ends here: reasons behind a status, transfer codings, fields about the connection. A body
//! whose length is not declared is chunked. WebSocket by extended CONNECT (RFC 8441) has the form of an upgrade.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{CONTENT_LENGTH, COOKIE, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TE},
    request, response,
};
use httparse::{EMPTY_HEADER, Header, Status};

use super::{Body, WEBSOCKET, fields, request::framed_body};
use crate::random::random_number;

/// A message that has no form in the other version, or more than one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed HTTP")]
pub struct Malformed;

/// How the body behind a head is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// As it is: the head has its length, or it ends with the connection.
    Plain,
    /// In chunks, behind which trailers may follow.
    Chunked,
}

/// A request in the form of HTTP/1.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestText {
    /// Its head.
    pub head: Vec<u8>,
    /// How its body follows.
    pub framing: Framing,
    /// What its answer depends on.
    pub(crate) asks_for: AsksFor,
}

/// What a request asks for, as far as its answer depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AsksFor {
    /// A head and a body.
    All,
    /// Only a head.
    Head,
    /// A WebSocket, of which this is the key.
    WebSocket(String),
}

/// The head of an answer.
#[derive(Debug)]
pub enum AnswerHead {
    /// Another follows.
    Interim(Response<()>),
    /// WebSocket begins.
    Switched(Response<()>),
    /// The answer, whose body follows.
    Final(Response<()>, Body),
}

/// Fields about one connection, which neither version takes from the other.
const OF_CONNECTION: [&str; 6] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Names that no trailer has (RFC 9110, section 6.5.1), as far as proxies must know.
const NO_TRAILERS: [&str; 3] = ["content-length", "host", "trailer"];

impl RequestText {
    /// Writes a request of HTTP/2. `has_body` says whether anything follows its head.
    ///
    /// # Errors
    ///
    /// If it names two hosts or none, or has a length without a body.
    pub fn of(request: &request::Parts, has_body: bool) -> Result<RequestText, Malformed> {
        let protocol = request.extensions.get::<h2::ext::Protocol>();
        let asks_for = match (&request.method, protocol) {
            (&Method::CONNECT, Some(protocol)) if protocol.as_str() == WEBSOCKET => {
                AsksFor::WebSocket(new_key())
            }
            (_, Some(_)) => return Err(Malformed),
            (&Method::HEAD, None) => AsksFor::Head,
            (_, None) => AsksFor::All,
        };
        let is_websocket = matches!(asks_for, AsksFor::WebSocket(_));
        let method = match is_websocket {
            true => "GET",
            false => request.method.as_str(),
        };
        let authority = request.uri.authority().map(|authority| authority.as_str());
        let path = match request.uri.path_and_query() {
            Some(path) => path.as_str(),
            // CONNECT, which names a host.
            None => authority.ok_or(Malformed)?,
        };
        let mut hosts = request.headers.get_all(HOST).iter();
        let host = match (authority, hosts.next()) {
            (Some(authority), None) => authority.as_bytes(),
            (None, Some(host)) => host.as_bytes(),
            (Some(authority), Some(host))
                if host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) =>
            {
                host.as_bytes()
            }
            _ => return Err(Malformed),
        };
        if hosts.next().is_some() {
            return Err(Malformed);
        }
        let length = one_length(&request.headers)?;
        let may_have_body = has_body && !is_websocket;
        if length.is_some_and(|length| length > 0) && !may_have_body {
            return Err(Malformed);
        }
        let is_chunked = may_have_body && length.is_none();
        // RFC 9110, section 8.6: some servers want a length of these.
        let is_empty = !may_have_body && matches!(method, "POST" | "PUT" | "PATCH");

        let mut head = Vec::with_capacity(512);
        for part in [method, " ", path, " HTTP/1.1\r\n"] {
            head.extend(part.as_bytes());
        }
        fields::push(&mut head, "host", host);
        let without = [HOST, COOKIE, CONTENT_LENGTH, TE, SEC_WEBSOCKET_KEY];
        push_fields(&mut head, &request.headers, &without);
        // RFC 9113, section 8.2.3.
        let cookies: Vec<&[u8]> = values(&request.headers, &COOKIE).collect();
        if !cookies.is_empty() {
            fields::push(&mut head, "cookie", &cookies.join(&b"; "[..]));
        }
        if let Some(length) = length.or(is_empty.then_some(0)) {
            fields::push(&mut head, "content-length", length.to_string().as_bytes());
        }
        if is_chunked {
            fields::push(&mut head, "transfer-encoding", b"chunked");
        }
        if values(&request.headers, &TE).any(|value| value == b"trailers") {
            fields::push(&mut head, "te", b"trailers");
        }
        if let AsksFor::WebSocket(key) = &asks_for {
            fields::push(&mut head, "connection", b"Upgrade");
            fields::push(&mut head, "upgrade", WEBSOCKET.as_bytes());
            fields::push(&mut head, "sec-websocket-key", key.as_bytes());
        }
        head.extend(b"\r\n");
        Ok(RequestText {
            head,
            framing: match is_chunked {
                true => Framing::Chunked,
                false => Framing::Plain,
            },
            asks_for,
        })
    }
}

/// Reads a request's head, for an origin that speaks HTTP/2 inside TLS, and where its body ends.
///
/// # Errors
///
/// If it is no request that HTTP/2 has.
pub fn request(head: &[u8]) -> Result<(Request<()>, Body), Malformed> {
    fields::with_room(head, |room| {
        let mut parsed = httparse::Request::new(room);
        match parsed.parse(head) {
            Ok(Status::Complete(length)) if length == head.len() => {}
            _ => return Err(Malformed),
        }
        let (Some(method), Some(path), Some(minor)) = (parsed.method, parsed.path, parsed.version)
        else {
            return Err(Malformed);
        };
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| Malformed)?;
        if method == Method::CONNECT {
            return Err(Malformed);
        }
        let mut hosts = fields::values(parsed.headers, "Host");
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(Malformed);
        };
        let uri = Uri::builder()
            .scheme("https")
            .authority(host)
            .path_and_query(path);
        let body = framed_body(parsed.headers, minor).map_err(|_| Malformed)?;
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri.build().map_err(|_| Malformed)?;
        *request.version_mut() = http::Version::HTTP_2;
        let wants_trailers = fields::lists(parsed.headers, "TE", "trailers");
        let headers = request.headers_mut();
        append_fields(headers, parsed.headers, &["host", "te"])?;
        if wants_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        Ok((request, body))
    })
}

/// Writes the head of an answer of HTTP/2 to a request that only asks for a head, or not, and says how its body follows. An
/// answer that has ended with its head has a length of 0: its other reader sees the end with the head too.
///
/// # Errors
///
/// If it has two lengths.
pub fn answer_text(
    answer: &response::Parts,
    is_head: bool,
    has_ended: bool,
) -> Result<(Vec<u8>, Framing), Malformed> {
    let mut length = one_length(&answer.headers)?;
    let code = answer.status;
    let has_no_body = is_head
        || code.is_informational()
        || matches!(code, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if has_ended && !has_no_body {
        length.get_or_insert(0);
    }
    let is_chunked = !has_no_body && length.is_none();
    let mut head = Vec::with_capacity(512);
    let reason = code.canonical_reason().unwrap_or_default();
    head.extend(format!("HTTP/1.1 {} {reason}\r\n", code.as_u16()).as_bytes());
    push_fields(&mut head, &answer.headers, &[CONTENT_LENGTH]);
    if let Some(length) = length {
        fields::push(&mut head, "content-length", length.to_string().as_bytes());
    }
    if is_chunked {
        fields::push(&mut head, "transfer-encoding", b"chunked");
    }
    head.extend(b"\r\n");
    let framing = match is_chunked {
        true => Framing::Chunked,
        false => Framing::Plain,
    };
    Ok((head, framing))
}

impl AnswerHead {
    /// Reads the head of an answer.
    ///
    /// # Errors
    ///
    /// If HTTP/2 does not have it.
    pub fn of(head: &[u8], asks_for: &AsksFor) -> Result<AnswerHead, Malformed> {
        fields::with_room(head, |room| {
            let mut parsed = httparse::Response::new(room);
            match parsed.parse(head) {
                Ok(Status::Complete(length)) if length == head.len() => {}
                _ => return Err(Malformed),
            }
            let code = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
            let code = code.ok_or(Malformed)?;
            let mut answer = Response::new(());
            *answer.status_mut() = code;
            *answer.version_mut() = http::Version::HTTP_2;
            append_fields(answer.headers_mut(), parsed.headers, &[])?;
            if code == StatusCode::SWITCHING_PROTOCOLS {
                let AsksFor::WebSocket(key) = asks_for else {
                    return Err(Malformed);
                };
                let accept = answer.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
                if accept.is_none_or(|accept| accept != accept_of(key)) {
                    return Err(Malformed);
                }
                *answer.status_mut() = StatusCode::OK;
                return Ok(AnswerHead::Switched(answer));
            }
            if code.is_informational() {
                return Ok(AnswerHead::Interim(answer));
            }
            if code.is_success() && matches!(asks_for, AsksFor::WebSocket(_)) {
                // It would say that WebSocket begins.
                return Err(Malformed);
            }
            let has_no_body = *asks_for == AsksFor::Head
                || matches!(code, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
            let mut codings = fields::values(parsed.headers, "Transfer-Encoding");
            let body = match (codings.next(), one_length(answer.headers())?) {
                _ if has_no_body => Body::NONE,
                (Some(coding), _) => match coding.eq_ignore_ascii_case(b"chunked") {
                    true => Body::CHUNKED,
                    // Nothing could tell the client what its body is coded in.
                    false => return Err(Malformed),
                },
                (None, Some(length)) => Body::Counted(length),
                (None, None) => Body::UntilClose,
            };
            if codings.next().is_some() {
                return Err(Malformed);
            }
            Ok(AnswerHead::Final(answer, body))
        })
    }
}

/// Writes trailers, each a line.
#[must_use]
pub fn trailer_lines(trailers: &HeaderMap) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in trailers {
        if !NO_TRAILERS.contains(&name.as_str()) && !OF_CONNECTION.contains(&name.as_str()) {
            fields::push(&mut lines, name.as_str(), value.as_bytes());
        }
    }
    lines
}

/// Reads trailers, each a line.
///
/// # Errors
///
/// If a line is no field.
pub fn trailers(mut lines: Vec<u8>) -> Result<HeaderMap, Malformed> {
    lines.extend(b"\r\n");
    let count = lines.iter().filter(|&&byte| byte == b'\n').count();
    let mut room = vec![EMPTY_HEADER; count];
    let mut trailers = HeaderMap::new();
    match httparse::parse_headers(&lines, &mut room) {
        Ok(Status::Complete((length, parsed))) if length == lines.len() => {
            append_fields(&mut trailers, parsed, &NO_TRAILERS)?;
        }
        _ => return Err(Malformed),
    }
    Ok(trailers)
}

/// Appends all fields but those of connections and those named.
fn push_fields(head: &mut Vec<u8>, received: &HeaderMap, without: &[HeaderName]) {
    for (name, value) in received {
        if !without.contains(name) && !OF_CONNECTION.contains(&name.as_str()) {
            fields::push(head, name.as_str(), value.as_bytes());
        }
    }
}

/// The same in the other direction.
fn append_fields(
    headers: &mut HeaderMap,
    received: &[Header],
    without: &[&str],
) -> Result<(), Malformed> {
    for field in received {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed)?;
        if without.contains(&name.as_str()) || OF_CONNECTION.contains(&name.as_str()) {
            continue;
        }
        let value = HeaderValue::from_bytes(field.value).map_err(|_| Malformed)?;
        headers.try_append(name, value).map_err(|_| Malformed)?;
    }
    Ok(())
}

fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes)
}

/// The one length that all `Content-Length` give.
fn one_length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut one = None;
    for value in values(headers, &CONTENT_LENGTH) {
        let length = fields::decimal(value).ok_or(Malformed)?;
        if one.replace(length).is_some_and(|other| other != length) {
            return Err(Malformed);
        }
    }
    Ok(one)
}

/// A new key of a WebSocket (RFC 6455, section 4.1).
fn new_key() -> String {
    let bytes = [random_number(), random_number()].map(u64::to_le_bytes);
    STANDARD.encode(bytes.concat())
}

/// The answer to it (RFC 6455, section 4.2.2).
fn accept_of(key: &str) -> String {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let text = format!("{key}{GUID}");
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    STANDARD.encode(digest)
}

#[cfg(test)]
mod tests;
