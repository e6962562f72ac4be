//! Lanes through an HTTP proxy that makes tunnels (CONNECT, RFC 9110, section 9.3.6), where a site lets its machines
//! connect to others only so. The proxy resolves the peer's name. It sees the peer's address and the bytes of TLS.

use core::{fmt, str::FromStr};
use std::{io, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::target::{Target, TargetError};

/// The most bytes of an answer's head.
const ANSWER_BYTES_MAX: usize = 16 << 10;
const ANSWER_FIELDS_MAX: usize = 100;

/// The most characters of what a proxy says that an error repeats.
const REPEATED_MAX: usize = 60;

/// The port that every proxy makes tunnels to.
const PORT_OF_HTTPS: u16 = 443;

/// A proxy, and the user to sign in as there.
#[derive(Clone, PartialEq, Eq)]
pub struct ViaProxy {
    address: Target,
    /// The value of `Proxy-Authorization`.
    authorization: Option<String>,
}

/// Why a text names no proxy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViaProxyError {
    /// It is another kind of proxy.
    #[error("expected http://HOST:PORT: lanes go through HTTP proxies only, found {0}://")]
    Scheme(String),
    /// Something follows the port.
    #[error("expected http://HOST:PORT, found more after the port")]
    Path,
    /// A user without a password, or with characters that cannot be sent.
    #[error(
        "expected http://USER:PASSWORD@HOST:PORT, with other characters than letters, digits and -._~ written as %XX"
    )]
    User,
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] TargetError),
}

/// Why a proxy makes no tunnel. The text follows the names of both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelError {
    /// No connection to the proxy.
    #[error("{}", unreached(.0))]
    Unreached(io::Error),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// It said nothing.
    #[error("it did not answer within {0:?} (is it an HTTP proxy?)")]
    Silent(Duration),
    /// It ended before an answer.
    #[error("it closed the connection without an answer (is it an HTTP proxy?)")]
    Closed,
    /// The answer is not one of HTTP, or has a head without an end.
    #[error("its answer is not one of HTTP (is it an HTTP proxy?)")]
    NotHttp,
    /// It wants to know the user.
    #[error(
        "it asks for a user name and a password (use --via-proxy http://USER:PASSWORD@HOST:PORT)"
    )]
    User,
    /// It does not take this user.
    #[error(
        "it does not accept the user name and the password of --via-proxy (other characters than letters, digits and \
         -._~ are written as %XX)"
    )]
    WrongUser,
    /// It wants to know the user in another way.
    #[error("it asks for {0}, and this end can only send a user name and a password (Basic)")]
    Scheme(String),
    /// It does not make this tunnel.
    #[error("it answered {status} {reason}{}", hint(*status, *port))]
    Status {
        /// The answer.
        status: u16,
        /// Its words.
        reason: String,
        /// The port that the tunnel was to lead to.
        port: u16,
    },
}

fn unreached(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "it refused the connection (is its address right?)".to_owned()
        }
        _ => format!("it cannot be reached: {error}"),
    }
}

/// What to look at after such a status, for a tunnel to this port.
fn hint(status: u16, port: u16) -> &'static str {
    match status {
        405 | 501 => " (is this an HTTP proxy?)",
        500..=599 => " (is refrain far running, and does it listen there?)",
        400..=499 if port != PORT_OF_HTTPS => {
            " (many proxies allow only port 443: have the far end listen there with --listen '*:443', and use --peer \
             HOST:443)"
        }
        _ => "",
    }
}

impl TunnelError {
    /// Whether it says no more than that the far end does not run.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(
            self,
            TunnelError::Unreached(_)
                | TunnelError::Io(_)
                | TunnelError::Closed
                | TunnelError::Silent(_)
                | TunnelError::Status {
                    status: 500..=599,
                    ..
                }
        )
    }
}

impl FromStr for ViaProxy {
    type Err = ViaProxyError;

    /// Reads `http://[USER:PASSWORD@]HOST:PORT`.
    fn from_str(text: &str) -> Result<ViaProxy, ViaProxyError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(ViaProxyError::Scheme(scheme.to_owned()));
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, address) = match rest.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, rest),
        };
        if address.contains(['/', '?', '#']) {
            return Err(ViaProxyError::Path);
        }
        Ok(ViaProxy {
            address: address.parse()?,
            authorization: user.map(authorization).transpose()?,
        })
    }
}

/// `Basic` (RFC 7617) for `USER:PASSWORD`, in which characters may be written as `%XX`.
fn authorization(user: &str) -> Result<String, ViaProxyError> {
    let decode = |part: &str| {
        let mut coded = part.split('%').skip(1);
        let is_coded = |text: &str| {
            let digits = text.as_bytes().get(..2);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        let is_plain =
            |char: char| char.is_ascii_alphanumeric() || "-._~%:!$&'()*+,;=".contains(char);
        if !coded.all(is_coded) || !part.chars().all(is_plain) {
            return Err(ViaProxyError::User);
        }
        let decoded = percent_decode_str(part).decode_utf8();
        let decoded = decoded.map_err(|_| ViaProxyError::User)?;
        match decoded.chars().any(char::is_control) {
            true => Err(ViaProxyError::User),
            false => Ok(decoded.into_owned()),
        }
    };
    let (name, password) = user.split_once(':').ok_or(ViaProxyError::User)?;
    let (name, password) = (decode(name)?, decode(password)?);
    if name.contains(':') || name.is_empty() {
        return Err(ViaProxyError::User);
    }
    let coded = BASE64_STANDARD.encode(format!("{name}:{password}"));
    Ok(format!("Basic {coded}"))
}

impl fmt::Display for ViaProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl fmt::Debug for ViaProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the password.
        write!(f, "ViaProxy({})", self.address)
    }
}

impl ViaProxy {
    /// Where the proxy is.
    pub fn address(&self) -> &Target {
        &self.address
    }

    /// Has the proxy at the other end of `stream` connect it to `peer`.
    pub(crate) async fn open<S>(&self, stream: &mut S, peer: &Target) -> Result<(), TunnelError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut request = format!("CONNECT {peer} HTTP/1.1\r\nHost: {peer}\r\n");
        if let Some(authorization) = &self.authorization {
            request += &format!("Proxy-Authorization: {authorization}\r\n");
        }
        request += "\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut received = Vec::new();
        loop {
            match Answer::read(&received).map_err(|_| TunnelError::NotHttp)? {
                // The peer says nothing before this end's hello.
                Some((answer, head)) if answer.status / 100 == 2 => {
                    return match received.len() == head {
                        true => Ok(()),
                        false => Err(TunnelError::NotHttp),
                    };
                }
                Some((answer, head)) if answer.status / 100 == 1 => {
                    received.drain(..head);
                    continue;
                }
                Some((answer, _)) => return Err(self.refused(answer, peer.port)),
                None if received.len() >= ANSWER_BYTES_MAX => return Err(TunnelError::NotHttp),
                None => {}
            }
            if stream.read_buf(&mut received).await? == 0 {
                return Err(match received.is_empty() {
                    true => TunnelError::Closed,
                    false => TunnelError::NotHttp,
                });
            }
        }
    }

    fn refused(&self, answer: Answer, port: u16) -> TunnelError {
        let takes_basic = |scheme: &String| scheme.eq_ignore_ascii_case("basic");
        match answer.status {
            // tinyproxy has 401 for a wrong password.
            401 | 407 if !answer.schemes.is_empty() && !answer.schemes.iter().any(takes_basic) => {
                TunnelError::Scheme(answer.schemes.join(", "))
            }
            401 | 407 if self.authorization.is_some() => TunnelError::WrongUser,
            401 | 407 => TunnelError::User,
            status => TunnelError::Status {
                status,
                reason: answer.reason,
                port,
            },
        }
    }
}

/// What a proxy answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    status: u16,
    reason: String,
    /// The ways in which it asks for the user.
    schemes: Vec<String>,
}

impl Answer {
    /// Reads an answer's head, and returns its length too; nothing before its end.
    ///
    /// # Errors
    ///
    /// If the bytes do not begin an answer of HTTP.
    pub fn read(received: &[u8]) -> Result<Option<(Answer, usize)>, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; ANSWER_FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(head) = response.parse(received)? else {
            return Ok(None);
        };
        let asked = response.headers.iter();
        let names = ["proxy-authenticate", "www-authenticate"];
        let asked = asked.filter(|field| {
            let mut names = names.iter();
            names.any(|name| field.name.eq_ignore_ascii_case(name))
        });
        let schemes = asked.filter_map(|field| {
            let value = str::from_utf8(field.value).ok()?;
            value.split_whitespace().next().map(printable)
        });
        let answer = Answer {
            status: response.code.unwrap_or_default(),
            reason: printable(response.reason.unwrap_or_default()),
            schemes: schemes.collect(),
        };
        Ok(Some((answer, head)))
    }
}

/// For the log: a proxy can say anything.
fn printable(text: &str) -> String {
    let printable = text.chars().filter(|char| matches!(char, ' '..='~'));
    printable.take(REPEATED_MAX).collect()
}

#[cfg(test)]
mod tests;
