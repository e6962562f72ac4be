//! Protocols in which TLS begins after some plain messages: databases and mail. No I/O.
//!
//! Each end of the pair has a dialogue of its own: the near end as the server of its clients, and the far end as a
//! client of the target. So the flow only carries the content of TLS. This needs a protocol whose client starts again
//! inside TLS, as all of these do. (MySQL's does not: its server greets before TLS, and passwords depend on the greeting.)
//!
//! Bytes between the last plain message and TLS are an error: an attacker on the way could have put them there
//! (CVE-2011-0411, CVE-2021-23214).

mod imap;
mod ldap;
mod postgres;
mod smtp;

use std::borrow::Cow;

/// A protocol in which TLS begins: a file below here, and a line here.
#[derive(Debug)]
pub struct StartTls {
    /// In URLs, and on the wire.
    pub(crate) scheme: &'static str,
    /// The port that it has by custom.
    pub(crate) port: u16,
    /// The messages of a server.
    as_server: fn() -> Box<dyn Dialogue>,
    /// The messages of a client.
    as_client: fn() -> Box<dyn Dialogue>,
    /// How a server says why it serves no one, in place of its first message inside TLS. None if nothing would be shown.
    refusal: fn(reason: &str) -> Vec<u8>,
    /// What clients may name that begin with TLS (ALPN).
    pub(crate) alpn: &'static [&'static [u8]],
}

static PROTOCOLS: &[StartTls] = &[
    postgres::PROTOCOL,
    smtp::PROTOCOL,
    imap::PROTOCOL,
    ldap::PROTOCOL,
];

/// The longest message before TLS.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The most messages before TLS.
pub const MESSAGES_MAX: usize = 64;

/// One side of the messages before TLS.
pub trait Dialogue: Send {
    /// What it says first.
    fn greeting(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes a message from the front of the received bytes.
    fn next(&mut self, received: &mut Vec<u8>) -> Step;
}

/// What follows a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It is not whole yet.
    More,
    /// This answer, and further messages.
    Say(Vec<u8>),
    /// This answer, and then TLS.
    Begin(Vec<u8>),
    /// TLS, whose first bytes are those that came.
    Direct,
    /// The protocol itself, beginning with the bytes that came.
    Plain,
    /// This answer and the end, for a reason.
    Refuse(Vec<u8>, Cow<'static, str>),
}

impl StartTls {
    /// The protocol of a URL's scheme.
    pub(crate) fn of(scheme: &str) -> Option<&'static StartTls> {
        PROTOCOLS.iter().find(|protocol| protocol.scheme == scheme)
    }

    /// The last message to a client that cannot be served.
    pub(crate) fn refusal(&self, reason: &str) -> Vec<u8> {
        (self.refusal)(reason)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static StartTls> {
        PROTOCOLS.iter()
    }

    /// A server's side.
    pub fn as_server(&self) -> Box<dyn Dialogue> {
        (self.as_server)()
    }

    /// A client's side.
    pub fn as_client(&self) -> Box<dyn Dialogue> {
        (self.as_client)()
    }
}

impl PartialEq for StartTls {
    fn eq(&self, other: &StartTls) -> bool {
        self.scheme == other.scheme
    }
}

impl Eq for StartTls {}

/// Takes a complete line from the front of the received bytes, without its end.
fn take_line(received: &mut Vec<u8>) -> Option<String> {
    let end = received.iter().position(|&byte| byte == b'\n')?;
    let line: Vec<u8> = received.drain(..=end).collect();
    let line = String::from_utf8_lossy(&line);
    Some(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A target's own words, for people.
fn quoted(line: &str) -> String {
    const CHARS_MAX: usize = 100;
    let line: String = line.chars().take(CHARS_MAX).collect();
    line.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests;
