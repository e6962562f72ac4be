//! An HTTP proxy (RFC 9110 and 9112), without I/O: a request's head in, a target and the bytes
//! for it out; an origin's answer in, the client's out.
//!
//! `CONNECT host:port` opens a tunnel. An absolute-form request (`GET http://host/path`) becomes
//! an origin-form one. It and its answer are an *exchange*, of which both sides are framed here:
//! the client's connection carries one exchange after the other, each with another origin if it
//! likes, and a flow carries those that are with the same origin. Bodies pass as they are, chunks
//! included, so that what repeats is found.
//!
//! Neither side is trusted to end where it said. The origin hears nothing behind the request's body
//! ([`Body`]), and the client nothing behind the answer ([`Answer`]); the answer's head is written
//! anew, and says what becomes of the client's own connection.
//!
//! Origins are asked for plain content, in which the link finds repeats ([`AcceptEncoding`]).
//!
//! A [`Service`] is a web site that the listener stands for: requests have only a path, and go there. Indices of packages
//! then name the listener (module `links`).
//!
//! Exchanges of HTTP/2 have the form of HTTP/1.1 within the pair ([`http2`]).
//!
//! A WebSocket upgrade goes to the origin as one; its 101 turns the flow into a tunnel.
//!
//! Heads are written from what was parsed, so that the other side sees exactly what was judged
//! here. In requests, what two parsers could read differently is refused: bare CR or LF, folded
//! lines, a body framed twice. In answers it is mended where RFC 9112 says how
//! (`docs/decisions/0035-http-framing.md`).

mod accept_encoding;
mod answer;
mod body;
pub(crate) mod fields;
pub mod http2;
mod links;
#[cfg(test)]
mod reference;
mod request;
pub mod secrets;
mod service;

pub use accept_encoding::AcceptEncoding;
pub use answer::{Answer, AnswerError, AnswerTerms, Progress};
pub use body::{Body, Chunk};
pub use request::{Addressing, HttpProxyError, ProxyRequest, Purpose, parse_head};
pub use service::{Origin, Served, Service, ServiceError};

use std::fmt::Display;

use crate::refusal::Refusal;

const HEAD_KIB_MAX: usize = 64;

/// The greatest length of a head, in bytes.
pub const HEAD_BYTES_MAX: usize = HEAD_KIB_MAX << 10;

/// The one protocol that an upgrade may lead to.
const WEBSOCKET: &str = "websocket";

/// The answer to CONNECT once the flow is open.
pub(crate) const TUNNEL_OPEN: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// The head of a request for an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// All of it.
    pub bytes: Vec<u8>,
    /// Where the fields begin that are secret, such as `Cookie`. They are the last.
    pub secret_from: usize,
}

/// A request for an origin, and how its answer is framed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The request's head, as the origin is to see it.
    pub head: RequestHead,
    /// Where the request's body ends.
    pub body: Body,
    /// Whether the request may be sent again where no answer came.
    pub(crate) may_repeat: bool,
    /// What its answer depends on.
    pub terms: AnswerTerms,
    /// The host that answers, of a service.
    pub served: Option<Served>,
}

/// Where the first head in `received` ends: behind an empty line, of CRLF or of LF only, as sloppy
/// origins write it. The first `searched` bytes contain no end.
pub fn end_of_head(received: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(2);
    (from..received.len()).find_map(|at| match &received[at..] {
        [b'\n', b'\n', ..] => Some(at + 2),
        [b'\n', b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Whether a path has a digest in it. In a query, it may be anything.
fn names_digest(path: &str) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
    let path = path.split('?').next().unwrap_or_default();
    let mut runs = path.as_bytes().split(|byte| !is_digit(byte));
    runs.any(|run| run.len() >= DIGEST_DIGITS_MIN)
}

/// Hexadecimal digits in a row that are a digest: SHA-1 has as many. Shorter ones are names of accounts and the like too.
const DIGEST_DIGITS_MIN: usize = 40;

/// The response to a request whose flow was refused.
pub(crate) fn refused_response(refusal: Refusal, origin: &Origin) -> Vec<u8> {
    let status = match refusal {
        Refusal::NotAllowed
        | Refusal::OwnAddress
        | Refusal::ClientAddress
        | Refusal::AnswersElsewhere => "403 Forbidden",
        Refusal::TimedOut => "504 Gateway Timeout",
        Refusal::Limit(_) | Refusal::Draining | Refusal::OwnDraining => "503 Service Unavailable",
        Refusal::Other
        | Refusal::TargetReset
        | Refusal::LaneLost
        | Refusal::Misconfirmed
        | Refusal::NameNotResolved
        | Refusal::ConnectionRefused
        | Refusal::Unreachable
        | Refusal::Tls(_)
        | Refusal::TlsUnknown
        | Refusal::LinkDown => "502 Bad Gateway",
    };
    response(status, &format!("{origin}: {refusal}"))
}

/// The response to a client that has to sign in, or whose login was refused.
pub(crate) fn sign_in_response(refused: Option<impl Display>) -> Vec<u8> {
    let reason = match refused {
        None => "this proxy needs a user name and password".to_owned(),
        Some(error) => format!("this proxy refused the login: {error}"),
    };
    response(
        "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"refrain\"",
        &reason,
    )
}

/// The response to a request that is none.
pub(crate) fn malformed_response() -> Vec<u8> {
    HttpProxyError::Malformed.response()
}

/// The response to a client that speaks plain HTTP where TLS is spoken.
pub(crate) fn tls_response() -> Vec<u8> {
    response(
        "400 Bad Request",
        "this port speaks TLS: use https:// with it",
    )
}

/// A response with this status, which fields may follow.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_status_and_says_why() {
        let origin = Origin::plain("example.org:80".parse().unwrap());
        let text = |refusal| String::from_utf8(refused_response(refusal, &origin)).unwrap();
        assert!(text(Refusal::NotAllowed).starts_with("HTTP/1.1 403 "));
        assert!(text(Refusal::TimedOut).starts_with("HTTP/1.1 504 "));
        assert!(text(Refusal::ConnectionRefused).starts_with("HTTP/1.1 502 "));
        for refusal in Refusal::all() {
            let response = text(refusal.clone());
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            assert!(body.contains(&refusal.to_string()) && body.contains("example.org"));
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        }
    }
}
