//! A client's request: where it goes, and its head as the origin is to see it.

use std::sync::Arc;

use httparse::{Header, Status};

use super::service::Misrouted;
use super::{
    AcceptEncoding, AnswerTerms, Body, Exchange, HEAD_BYTES_MAX, HEAD_KIB_MAX, Origin, RequestHead,
    Served, Service, WEBSOCKET, accept_encoding, fields, response,
};
use crate::target::Target;

/// A request to a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRequest {
    /// Where to.
    pub origin: Origin,
    /// The value of `Proxy-Authorization`, which goes no further than here. Two of them are none.
    pub(crate) credentials: Option<Vec<u8>>,
    /// What is asked for there.
    pub purpose: Purpose,
}

/// What a request wants at its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A tunnel (CONNECT): answer with `TUNNEL_OPEN` once the flow is open,
    /// then pass all bytes.
    Tunnel,
    /// One answer.
    Exchange(Box<Exchange>),
}

/// How requests say where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addressing {
    /// Each names its host, as to a proxy.
    Proxy,
    /// By their path, to the hosts of a service.
    Service(Arc<Service>),
}

/// Why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpProxyError {
    /// Not HTTP/1, or malformed in a way that could hide another request.
    #[error("not a well-formed HTTP/1 request")]
    Malformed,
    /// Another protocol, by its first byte.
    #[error("not HTTP but {0}: use this port with http://HOST:PORT")]
    OtherProtocol(&'static str),
    /// More than [`HEAD_BYTES_MAX`] bytes.
    #[error("the request's head is too large (limit {HEAD_KIB_MAX} KiB)")]
    TooLarge,
    /// A request for this server itself.
    #[error(
        "this is a proxy, not a web server: name it as your client's HTTP proxy, \
         as in curl --proxy http://HOST:PORT http://example.org/"
    )]
    NotProxied,
    /// A request to a proxy.
    #[error(
        "this is the address of a web site, not of a proxy: use it instead of the site's own, as in http://HOST:PORT/"
    )]
    NotAProxy,
    /// A `Host` that is not the site's.
    #[error("the request's Host field does not name the site of this address")]
    Misdirected,
    /// A path of another host than those of the service.
    #[error("this service has no such host: --service lists its hosts after the site")]
    UnknownHost,
    /// Another scheme than `http:`, which goes through CONNECT.
    #[error("only http: URLs are fetched here; for https: URLs the client must send CONNECT")]
    Scheme,
    /// The request's target is not a host and a port.
    #[error("the request's target is not a host with a valid name and port")]
    Target,
    /// `Max-Forwards` says that this is the last that may see it.
    #[error("the request must not be forwarded any further (Max-Forwards)")]
    NoForwardsLeft,
    /// The body's length is given twice, or in a way that has no one reading.
    #[error("the end of the request's body is ambiguous")]
    BodyLength,
}

/// Reads a request's head from all bytes received so far: `Ok(None)` while it needs more, else
/// the request and the head's length in bytes. What follows is its body and other requests.
/// `asking` says what a target is asked for.
pub fn parse_head(
    received: &[u8],
    addressing: &Addressing,
    asking: impl FnOnce(&Target) -> AcceptEncoding,
) -> Result<Option<(ProxyRequest, usize)>, HttpProxyError> {
    let searched = &received[..received.len().min(HEAD_BYTES_MAX)];
    fields::with_room(searched, |room| {
        let mut request = httparse::Request::new(room);
        let head_bytes = match request.parse(searched) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if received.len() < HEAD_BYTES_MAX => return Ok(None),
            Ok(Status::Partial) => return Err(HttpProxyError::TooLarge),
            Err(_) => return Err(HttpProxyError::of_no_request(received)),
        };
        if !has_strict_lines(&received[..head_bytes]) {
            return Err(HttpProxyError::Malformed);
        }
        let (Some(method), Some(uri), Some(minor)) =
            (request.method, request.path, request.version)
        else {
            return Err(HttpProxyError::Malformed);
        };
        let (origin, purpose) = match (method, addressing) {
            ("CONNECT", Addressing::Service(_)) => return Err(HttpProxyError::NotAProxy),
            ("CONNECT", Addressing::Proxy) => {
                let target = uri.parse().map_err(|_| HttpProxyError::Target)?;
                (Origin::plain(target), Purpose::Tunnel)
            }
            _ => {
                let (origin, path, served) = match addressing {
                    Addressing::Proxy => {
                        let (target, path) = split_absolute(uri)?;
                        (Origin::plain(target), path, None)
                    }
                    Addressing::Service(service) => {
                        let (origin, path) = service.route(uri)?;
                        (origin.clone(), path, Some(Served::of(service, origin)))
                    }
                };
                let line = (method, path, minor);
                let exchange = exchange(line, &origin, served, request.headers, asking)?;
                (origin, Purpose::Exchange(Box::new(exchange)))
            }
        };
        let mut credentials = fields::values(request.headers, "Proxy-Authorization");
        let request = ProxyRequest {
            origin,
            credentials: match (credentials.next(), credentials.next()) {
                (Some(value), None) => Some(value.to_vec()),
                _ => None,
            },
            purpose,
        };
        Ok(Some((request, head_bytes)))
    })
}

impl From<Misrouted> for HttpProxyError {
    fn from(misrouted: Misrouted) -> HttpProxyError {
        match misrouted {
            Misrouted::NotAProxy => HttpProxyError::NotAProxy,
            Misrouted::UnknownHost => HttpProxyError::UnknownHost,
        }
    }
}

impl HttpProxyError {
    /// What is wrong with bytes that do not begin a request.
    fn of_no_request(received: &[u8]) -> HttpProxyError {
        match received.first() {
            Some(4 | 5) => HttpProxyError::OtherProtocol("SOCKS"),
            // A handshake's record.
            Some(0x16) => HttpProxyError::OtherProtocol("TLS"),
            _ => HttpProxyError::Malformed,
        }
    }

    /// The response to send before closing.
    pub fn response(&self) -> Vec<u8> {
        let status = match self {
            HttpProxyError::TooLarge => "431 Request Header Fields Too Large",
            HttpProxyError::NoForwardsLeft => "501 Not Implemented",
            HttpProxyError::UnknownHost => "404 Not Found",
            HttpProxyError::Misdirected => "421 Misdirected Request",
            _ => "400 Bad Request",
        };
        response(status, &self.to_string())
    }
}

const MAX_FORWARDS: &str = "Max-Forwards";

/// A request that goes to an origin.
fn exchange(
    (method, path, minor): (&str, &str, u8),
    origin: &Origin,
    mut served: Option<Served>,
    received: &mut [Header],
    asking: impl FnOnce(&Target) -> AcceptEncoding,
) -> Result<Exchange, HttpProxyError> {
    let path = match path {
        // RFC 9112, section 3.2.4.
        "" if method == "OPTIONS" => "*".into(),
        "" => "/".into(),
        query if query.starts_with('?') => format!("/{query}"),
        path => path.into(),
    };
    let hosts: Vec<&[u8]> = fields::values(received, "Host").collect();
    if hosts.len() > 1 {
        return Err(HttpProxyError::Malformed);
    }
    if let Some(served) = &served
        && !served.service.is_addressed_by(&hosts.concat())
    {
        return Err(HttpProxyError::Misdirected);
    }
    let body = framed_body(received, minor)?;
    // RFC 9110, section 7.8: not in HTTP/1.0. RFC 6455, section 4.1: by GET.
    let may_switch = minor == 1
        && method == "GET"
        && body == Body::NONE
        && fields::lists(received, "Connection", "upgrade")
        && fields::lists(received, "Upgrade", WEBSOCKET);
    // An old proxy may pass on `Connection: keep-alive` without knowing it, and then waits for an
    // end of the connection (RFC 9112, appendix C.2.2). Those that say who they are can be spared.
    let client_stays = fields::keep_open(received, minor)
        && (minor == 1 || fields::values(received, "Via").next().is_none());
    // RFC 9110, section 10.1.4: the answer's chunks pass, and trailers with them.
    let wants_trailers = minor == 1 && fields::lists(received, "TE", "trailers");

    let mut head = Vec::with_capacity(512);
    for part in [method, " ", &path, " HTTP/1.1\r\n"] {
        head.extend(part.as_bytes());
    }
    fields::push(&mut head, "Host", origin.authority().as_bytes());
    let mut without = vec!["Host"];
    if let Some(served) = &mut served {
        without.extend(served.look_for_index((method, &path), received, &mut head));
    }
    let is_index = served.as_ref().is_some_and(Served::is_index);
    if !may_switch && (is_index || asking(&origin.target) == AcceptEncoding::Identity) {
        accept_encoding::lower(received);
    }
    if matches!(method, "TRACE" | "OPTIONS")
        && let Some(forwards) = forwards_left(received)?
    {
        fields::push(&mut head, MAX_FORWARDS, forwards.to_string().as_bytes());
        without.push(MAX_FORWARDS);
    }
    if minor == 0 {
        // RFC 9110, section 10.1.1: the client knows no interim answers.
        without.push("Expect");
    }
    let is_for_site = served.as_ref().is_none_or(Served::is_of_site);
    if !is_for_site {
        // The client meant all others for the site.
        let names = received.iter().map(|field| field.name);
        without.extend(names.filter(|name| !fields::is_of_content(name)));
    }
    let mut secret = fields::push_end_to_end(&mut head, received, &without, minor);
    if !is_for_site {
        secret.clear();
    }
    let options = [
        (may_switch, "Upgrade"),
        // Nobody will ask for more over this connection.
        (!may_switch && !client_stays, "close"),
        (wants_trailers, "TE"),
    ];
    let options: Vec<&str> = options
        .iter()
        .filter_map(|(is_there, option)| is_there.then_some(*option))
        .collect();
    if !options.is_empty() {
        fields::push(&mut head, "Connection", options.join(", ").as_bytes());
    }
    if may_switch {
        fields::push(&mut head, "Upgrade", WEBSOCKET.as_bytes());
    }
    if wants_trailers {
        fields::push(&mut head, "TE", b"trailers");
    }
    let secret_from = head.len();
    head.extend(secret);
    let secret_from = match secret_from == head.len() {
        true => secret_from + b"\r\n".len(),
        false => secret_from,
    };
    head.extend(b"\r\n");
    Ok(Exchange {
        head: RequestHead {
            bytes: head,
            secret_from,
        },
        may_repeat: body == Body::NONE && is_safe(method),
        body,
        terms: AnswerTerms {
            is_head: method == "HEAD",
            may_switch,
            client_minor: minor,
            client_stays,
        },
        served,
    })
}

/// RFC 9110, section 9.2.1: nothing changes at the origin, however often it is asked.
fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
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
    let target = match authority.strip_suffix(':') {
        // RFC 3986, section 3.2.3: an empty port is the default one.
        Some(host) => host
            .parse()
            .and_then(|host| Target::new(host, DEFAULT_PORT)),
        None => Target::with_default_port(authority, DEFAULT_PORT),
    };
    target.map_err(|_| HttpProxyError::Target)
}

/// RFC 9112, section 6.3: where the body ends must have one reading.
pub(super) fn framed_body(received: &[Header], minor: u8) -> Result<Body, HttpProxyError> {
    let mut lengths = fields::values(received, "Content-Length");
    let mut encodings = fields::values(received, "Transfer-Encoding");
    let length = (lengths.next(), lengths.next());
    let encoding = (encodings.next(), encodings.next());
    let body = match (length, encoding) {
        ((None, _), (None, _)) => Some(Body::NONE),
        ((Some(length), None), (None, _)) => fields::decimal(length).map(Body::Counted),
        ((None, _), (Some(encoding), None)) => {
            (minor == 1 && encoding.eq_ignore_ascii_case(b"chunked")).then_some(Body::CHUNKED)
        }
        _ => None,
    };
    body.ok_or(HttpProxyError::BodyLength)
}

/// RFC 9110, section 7.6.2: how often a TRACE or OPTIONS request may be forwarded from here on.
fn forwards_left(received: &[Header]) -> Result<Option<u64>, HttpProxyError> {
    let Some(value) = fields::values(received, MAX_FORWARDS).next() else {
        return Ok(None);
    };
    match fields::decimal(value) {
        Some(0) => Err(HttpProxyError::NoForwardsLeft),
        Some(forwards) => Ok(Some(forwards - 1)),
        None => Err(HttpProxyError::Malformed),
    }
}

#[cfg(test)]
mod tests;
