//! An HTTP proxy (RFC 9110 and 9112), without I/O: a request's head in, a target and the bytes
//! for it out; an origin's answer in, the client's out.
//!
//! `CONNECT host:port` opens a tunnel. An absolute-form request (`GET http://host/path`) becomes
//! an origin-form one, in a flow of its own: it is sent with `Connection: close`, the answer
//! comes back with it, and the client's next request needs a new connection, which costs no
//! round trip of the link. So answers need no framing, and bodies pass as they are both ways.
//!
//! Neither side is trusted to keep to that. The origin hears nothing behind the request's body
//! ([`RequestBody`]), and the answer's head is written anew ([`Answer`]): whatever the origin
//! does with its connection, the client is told that its own ends.
//!
//! A WebSocket upgrade goes to the origin as one; its 101 turns the flow into a tunnel.
//!
//! Heads are written from what was parsed, so that the other side sees exactly what was judged
//! here. In requests, what two parsers could read differently is refused: bare CR or LF, folded
//! lines, a body framed twice. In answers it is mended where RFC 9112 says how.

mod answer;
mod body;
mod fields;
mod request;

pub use answer::Answer;
pub use body::{Chunk, MalformedBody, RequestBody};
pub use request::{HttpProxyError, ProxyRequest, parse_head};

use crate::refusal::Refusal;
use crate::target::Target;

/// The greatest length of a head, in bytes.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// The answer to CONNECT once the flow is open.
pub const TUNNEL_OPEN: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// What passes between a client and an origin once the flow is open, behind the request's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The client's bytes that are for the origin.
    pub body: RequestBody,
    /// The origin's bytes on their way to the client.
    pub answer: Answer,
}

impl Exchange {
    /// All bytes pass as they are, both ways.
    pub const TUNNEL: Exchange = Exchange {
        body: RequestBody::Endless,
        answer: Answer::TUNNELLED,
    };
}

/// The response to a request whose flow was refused.
pub fn refused_response(refusal: Refusal, target: &Target) -> Vec<u8> {
    let status = match refusal {
        Refusal::NotAllowed | Refusal::OwnAddress => "403 Forbidden",
        Refusal::TimedOut => "504 Gateway Timeout",
        Refusal::Limit(_) | Refusal::Draining => "503 Service Unavailable",
        Refusal::Other
        | Refusal::TargetReset
        | Refusal::LaneLost
        | Refusal::Misconfirmed
        | Refusal::NameNotResolved
        | Refusal::ConnectionRefused
        | Refusal::Unreachable
        | Refusal::LinkDown => "502 Bad Gateway",
    };
    response(status, &format!("{target}: {refusal}"))
}

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
        let target = "example.org:80".parse().unwrap();
        let text = |refusal| String::from_utf8(refused_response(refusal, &target)).unwrap();
        assert!(text(Refusal::NotAllowed).starts_with("HTTP/1.1 403 "));
        assert!(text(Refusal::TimedOut).starts_with("HTTP/1.1 504 "));
        assert!(text(Refusal::ConnectionRefused).starts_with("HTTP/1.1 502 "));
        for refusal in Refusal::ALL {
            let response = text(refusal.clone());
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            assert!(body.contains(&refusal.to_string()) && body.contains("example.org:80"));
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        }
    }
}
