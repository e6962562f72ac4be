//! SOCKS5 (RFC 1928), the server's side, without I/O: bytes in, a request or a reply out.
//!
//! The method is "no authentication", or user name and password (RFC 1929) where the listener asks
//! for them; the command is CONNECT; a name stays a name, for the far end to resolve. A client
//! sends a greeting, takes the [`Method`], sends its login if it is asked, takes
//! `LOGIN_ACCEPTED`, sends its request, and takes one reply.
//!
//! Each parser takes all bytes received so far and answers `Ok(None)` while it needs more, which
//! ends after at most [`MESSAGE_BYTES_MAX`] bytes; else the message and its length in bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::access::Login;
use crate::refusal::Refusal;
use crate::target::{Host, Target};

/// No message of a client is longer than this: a request with a name of 255 bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 + 1 + 255 + 2;

/// No login of a client is longer than this: two lengths with 255 bytes each.
pub const LOGIN_BYTES_MAX: usize = 1 + 2 * (1 + 255);

/// The answer to a client of HTTP.
const NO_HTTP: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    refrain: this port is a SOCKS proxy: use socks5h://HOST:PORT (--http-proxy serves HTTP clients)\n";

/// The answer to a login that is right.
pub(crate) const LOGIN_ACCEPTED: [u8; 2] = [LOGIN_VERSION, GRANTED];

/// How a listener has its clients prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    NoAuthentication,
    /// By a user name and a password.
    Password,
}

/// What a client did that ends its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Socks5Error {
    /// The first byte is not SOCKS5's.
    #[error(
        "not SOCKS{}: use socks5:// or socks5h:// (--http-proxy serves HTTP clients)",
        protocol_of(*.0)
    )]
    Version(u8),
    /// The client insists on authentication.
    #[error("the client does not offer SOCKS5 without authentication")]
    NoMethod,
    /// The client cannot sign in, and has to.
    #[error("the client does not offer a user name and password, but --proxy-auth requires them")]
    NoPassword,
    /// A wrong user name or password, or a malformed message with them.
    #[error("wrong user name or password")]
    Login,
    /// BIND, UDP ASSOCIATE, or a command that SOCKS5 does not have.
    #[error("unsupported SOCKS5 command {0}: only CONNECT (1) is served")]
    Command(u8),
    /// A kind of address that SOCKS5 does not have.
    #[error("unknown SOCKS5 address type {0}")]
    AddressType(u8),
    /// A part of the request that cannot be.
    #[error("malformed SOCKS5 request: {0}")]
    Malformed(#[from] RequestFault),
}

/// Which part of a request cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestFault {
    /// Another version than the greeting's.
    #[error("its version is {0}, not 5")]
    Version(u8),
    /// A reserved byte that is set.
    #[error("its reserved byte is {0}, not 0")]
    Reserved(u8),
    /// A name of no bytes.
    #[error("its name is empty")]
    EmptyName,
    /// A name that no host has.
    #[error("its name (length {0}) is not a host name: expected letters, digits, '-', '_' and '.'")]
    Name(usize),
    /// Port 0.
    #[error("its port is 0")]
    Port,
}

/// What a first byte shows of a protocol that is not SOCKS.
fn protocol_of(first: u8) -> String {
    match first {
        TLS_HANDSHAKE => ", but TLS".to_owned(),
        // A method.
        b'A'..=b'Z' => ", but HTTP".to_owned(),
        _ => format!(" (its first byte is {first})"),
    }
}

/// Reads a client's greeting, which must offer this method.
pub fn parse_greeting(received: &[u8], method: Method) -> Result<Option<((), usize)>, Socks5Error> {
    at_front(received, |reader| {
        let version = reader.byte()?;
        if version != VERSION {
            return Some(Err(Socks5Error::Version(version)));
        }
        let is_offered = reader.counted()?.contains(&method.code());
        Some(match (is_offered, method) {
            (true, _) => Ok(()),
            (false, Method::NoAuthentication) => Err(Socks5Error::NoMethod),
            (false, Method::Password) => Err(Socks5Error::NoPassword),
        })
    })
}

/// Reads a client's user name and password (RFC 1929, section 2).
pub fn parse_login(received: &[u8]) -> Result<Option<(Login, usize)>, Socks5Error> {
    at_front(received, |reader| {
        if reader.byte()? != LOGIN_VERSION {
            return Some(Err(Socks5Error::Login));
        }
        let (user, password) = (reader.counted()?, reader.counted()?);
        Some(Ok(Login::new(user, password)))
    })
}

/// Reads a client's request: where it wants to go.
pub fn parse_request(received: &[u8]) -> Result<Option<(Target, usize)>, Socks5Error> {
    // Say what is wrong at the first byte that is.
    if let Some(&version) = received.first().filter(|&&version| version != VERSION) {
        return Err(RequestFault::Version(version).into());
    }
    at_front(received, |reader| {
        let [_, command, reserved, address_type] = reader.array()?;
        if command != CONNECT {
            return Some(Err(Socks5Error::Command(command)));
        }
        if reserved != 0 {
            return Some(Err(RequestFault::Reserved(reserved).into()));
        }
        let host = match address_type {
            IPV4 => IpAddr::from(reader.array::<4>()?).into(),
            IPV6 => IpAddr::from(reader.array::<16>()?).into(),
            DOMAIN => match parse_name(reader.counted()?) {
                Ok(name) => name,
                Err(fault) => return Some(Err(fault.into())),
            },
            other => return Some(Err(Socks5Error::AddressType(other))),
        };
        let port = u16::from_be_bytes(reader.array()?);
        let target = Target::new(host, port);
        Some(target.map_err(|_| RequestFault::Port.into()))
    })
}

/// The reply once the flow is open. Where the far end's own address is not known, give
/// `0.0.0.0:0`: clients ignore it for CONNECT.
pub(crate) fn reply_granted(bound: SocketAddr) -> Vec<u8> {
    reply(GRANTED, bound)
}

/// The reply to a request whose flow was refused.
pub(crate) fn reply_refused(refusal: Refusal) -> Vec<u8> {
    let code = match refusal {
        Refusal::Other
        | Refusal::Limit(_)
        | Refusal::Draining
        | Refusal::OwnDraining
        | Refusal::TargetReset
        | Refusal::Tls(_)
        | Refusal::TlsUnknown
        | Refusal::LaneLost
        | Refusal::Misconfirmed => GENERAL_FAILURE,
        Refusal::NotAllowed
        | Refusal::OwnAddress
        | Refusal::ClientAddress
        | Refusal::AnswersElsewhere => NOT_ALLOWED,
        Refusal::LinkDown => NETWORK_UNREACHABLE,
        Refusal::NameNotResolved | Refusal::Unreachable => HOST_UNREACHABLE,
        Refusal::ConnectionRefused => CONNECTION_REFUSED,
        // RFC 1928 has "TTL expired" for what did not come through in time.
        Refusal::TimedOut => TTL_EXPIRED,
    };
    reply(code, UNKNOWN_ADDRESS)
}

impl Socks5Error {
    /// What to send before closing; `None` to a client that does not speak SOCKS5.
    pub fn reply(&self) -> Option<Vec<u8>> {
        const NO_ACCEPTABLE_METHOD: u8 = 0xff;
        match self {
            // A letter begins the request of an HTTP client.
            Socks5Error::Version(b'A'..=b'Z') => Some(NO_HTTP.as_bytes().to_vec()),
            Socks5Error::Version(_) => None,
            Socks5Error::NoMethod | Socks5Error::NoPassword => {
                Some(vec![VERSION, NO_ACCEPTABLE_METHOD])
            }
            Socks5Error::Login => Some(vec![LOGIN_VERSION, GENERAL_FAILURE]),
            Socks5Error::Command(_) => Some(reply(COMMAND_NOT_SUPPORTED, UNKNOWN_ADDRESS)),
            Socks5Error::AddressType(_) => Some(reply(ADDRESS_NOT_SUPPORTED, UNKNOWN_ADDRESS)),
            Socks5Error::Malformed(_) => Some(reply(GENERAL_FAILURE, UNKNOWN_ADDRESS)),
        }
    }
}

impl Method {
    /// The answer to a greeting that offers it.
    pub fn accepted(self) -> [u8; 2] {
        [VERSION, self.code()]
    }

    fn code(self) -> u8 {
        match self {
            Method::NoAuthentication => 0,
            Method::Password => 2,
        }
    }
}

/// The type of the first record of a TLS client.
const TLS_HANDSHAKE: u8 = 22;

const VERSION: u8 = 5;
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;

const IPV4: u8 = 1;
const DOMAIN: u8 = 3;
const IPV6: u8 = 4;

const GRANTED: u8 = 0;
const GENERAL_FAILURE: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const NETWORK_UNREACHABLE: u8 = 3;
const HOST_UNREACHABLE: u8 = 4;
const CONNECTION_REFUSED: u8 = 5;
const TTL_EXPIRED: u8 = 6;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_NOT_SUPPORTED: u8 = 8;

const UNKNOWN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn reply(code: u8, bound: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![VERSION, code, 0];
    match bound.ip() {
        IpAddr::V4(address) => {
            bytes.push(IPV4);
            bytes.extend(address.octets());
        }
        IpAddr::V6(address) => {
            bytes.push(IPV6);
            bytes.extend(Ipv6Addr::octets(&address));
        }
    }
    bytes.extend(bound.port().to_be_bytes());
    bytes
}

pub(crate) fn parse_name(bytes: &[u8]) -> Result<Host, RequestFault> {
    if bytes.is_empty() {
        return Err(RequestFault::EmptyName);
    }
    let fault = RequestFault::Name(bytes.len());
    let name = std::str::from_utf8(bytes).map_err(|_| fault)?;
    Host::from_name(name).map_err(|_| fault)
}

/// What `parse` finds at the front of the bytes received so far, and its length; nothing while it
/// is not whole.
fn at_front<T>(
    received: &[u8],
    parse: impl FnOnce(&mut Reader<'_>) -> Option<Result<T, Socks5Error>>,
) -> Result<Option<(T, usize)>, Socks5Error> {
    let position = 0;
    let mut reader = Reader { received, position };
    let parsed = parse(&mut reader).transpose()?;
    Ok(parsed.map(|message| (message, reader.position)))
}

/// Reads from the front; `None` where the bytes received so far end.
struct Reader<'a> {
    received: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.received.get(self.position..self.position + length)?;
        self.position += length;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Bytes behind a byte that counts them.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const METHODS: [Method; 2] = [Method::NoAuthentication, Method::Password];

    fn request(address_type: u8, address: &[u8], port: u16) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, address_type];
        bytes.extend(address);
        bytes.extend(port.to_be_bytes());
        bytes
    }

    fn domain(name: &str) -> Vec<u8> {
        [&[name.len() as u8], name.as_bytes()].concat()
    }

    #[test]
    fn each_kind_of_address_is_read() {
        let cases = [
            (request(1, &[10, 0, 0, 1], 80), "10.0.0.1:80"),
            (request(3, &domain("Example.org"), 443), "example.org:443"),
            (request(3, &domain("10.0.0.1"), 443), "10.0.0.1:443"),
            (request(3, &domain("::1"), 443), "[::1]:443"),
            (request(4, &Ipv6Addr::LOCALHOST.octets(), 1), "[::1]:1"),
        ];
        for (bytes, expected) in cases {
            let target = expected.parse().unwrap();
            assert_eq!(parse_request(&bytes), Ok(Some((target, bytes.len()))));
        }
    }

    #[test]
    fn what_follows_a_message_is_left() {
        let greeting = [5, 2, 2, 0, 99];
        for method in METHODS {
            assert_eq!(parse_greeting(&greeting, method), Ok(Some(((), 4))));
        }
        assert_eq!(Method::NoAuthentication.accepted(), [5, 0]);
        assert_eq!(Method::Password.accepted(), [5, 2]);
        let login = Login::new(b"ab", b"c:d");
        assert_eq!(parse_login(b"\x01\x02ab\x03c:dmore"), Ok(Some((login, 8))));
        let mut bytes = request(1, &[10, 0, 0, 1], 80);
        let length = bytes.len();
        bytes.extend(b"GET /");
        assert_eq!(parse_request(&bytes).unwrap().unwrap().1, length);
    }

    #[test]
    fn a_part_needs_more() {
        let greeting = [5, 2, 2, 0];
        let longest = request(3, &domain(&"a".repeat(255)), 80);
        assert_eq!(longest.len(), MESSAGE_BYTES_MAX);
        for end in 0..greeting.len() {
            assert_eq!(parse_greeting(&greeting[..end], Method::Password), Ok(None));
        }
        let parts = ["u", "p"].map(|part| domain(&part.repeat(255)));
        let login = [&[1], &parts.concat()[..]].concat();
        assert_eq!(login.len(), LOGIN_BYTES_MAX);
        for end in 0..login.len() {
            assert_eq!(parse_login(&login[..end]), Ok(None));
        }
        assert!(parse_login(&login).unwrap().is_some());
        for end in 0..longest.len() {
            assert_eq!(parse_request(&longest[..end]), Ok(None));
        }
        assert!(parse_request(&longest).unwrap().is_some());
    }

    #[test]
    fn each_fault_has_its_error_and_reply() {
        let greeting = |bytes: &[u8]| parse_greeting(bytes, Method::NoAuthentication).unwrap_err();
        assert_eq!(greeting(&[4, 1]), Socks5Error::Version(4));
        assert_eq!(greeting(b"GET /"), Socks5Error::Version(b'G'));
        for (first, text) in [
            (b'G', "not SOCKS, but HTTP: "),
            (22, "not SOCKS, but TLS: "),
            (6, "not SOCKS (its first byte is 6): "),
        ] {
            let error = greeting(&[first]).to_string();
            assert!(error.starts_with(text), "{error}");
        }
        assert_eq!(greeting(&[5, 1, 2]), Socks5Error::NoMethod);
        assert_eq!(greeting(&[5, 0]), Socks5Error::NoMethod);
        assert_eq!(Socks5Error::Version(4).reply(), None);
        let to_http = Socks5Error::Version(b'C').reply().expect("an answer");
        assert!(to_http.starts_with(b"HTTP/1.1 400 "));
        assert_eq!(Socks5Error::NoMethod.reply(), Some(vec![5, 0xff]));
        let unasked = parse_greeting(&[5, 1, 0], Method::Password).unwrap_err();
        assert_eq!(unasked, Socks5Error::NoPassword);
        assert_eq!(unasked.reply(), Some(vec![5, 0xff]));
        assert_eq!(parse_login(&[5]), Err(Socks5Error::Login));
        assert_eq!(Socks5Error::Login.reply(), Some(vec![1, 1]));

        let fault = |bytes: &[u8]| parse_request(bytes).unwrap_err();
        let code = |error: Socks5Error| error.reply().unwrap()[1];
        let bind = fault(&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!((bind, code(bind)), (Socks5Error::Command(2), 7));
        let address_type = fault(&[5, 1, 0, 2]);
        assert_eq!(
            (address_type, code(address_type)),
            (Socks5Error::AddressType(2), 8)
        );
        for (bytes, named) in [
            (vec![4], "its version is 4, not 5"),
            (request(3, &domain(""), 80), "its name is empty"),
            (request(3, &domain("a b"), 80), "its name (length 3)"),
            (request(3, &[1, 0xff], 80), "its name (length 1)"),
            (request(1, &[10, 0, 0, 1], 0), "its port is 0"),
            (vec![5, 1, 1, 1], "its reserved byte is 1, not 0"),
        ] {
            let error = fault(&bytes);
            let text = error.to_string();
            let start = format!("malformed SOCKS5 request: {named}");
            assert!(text.starts_with(&start), "{bytes:?}: {text}");
            assert_eq!(code(error), 1, "{bytes:?}");
        }
    }

    #[test]
    fn replies_have_the_layout_of_the_rfc() {
        let v4 = reply_granted("10.0.0.1:258".parse().unwrap());
        assert_eq!(v4, [5, 0, 0, 1, 10, 0, 0, 1, 1, 2]);
        let v6 = reply_granted("[::1]:258".parse().unwrap());
        assert_eq!((v6[3], v6.len()), (4, 22));
        let refused = reply_refused(Refusal::ConnectionRefused);
        assert_eq!(refused, [5, 5, 0, 1, 0, 0, 0, 0, 0, 0]);
        for refusal in Refusal::all() {
            assert_ne!(reply_refused(refusal)[1], GRANTED);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_login_or_not(
            version in prop_oneof![Just(1u8), any::<u8>()],
            rest in proptest::collection::vec(any::<u8>(), 0..600),
            user in proptest::collection::vec(any::<u8>(), 0..256),
            password in proptest::collection::vec(any::<u8>(), 0..256),
        ) {
            let bytes = [&[version], &rest[..]].concat();
            match parse_login(&bytes) {
                Ok(Some((_, length))) => prop_assert!(length <= LOGIN_BYTES_MAX.min(bytes.len())),
                Ok(None) => prop_assert!(bytes.len() < LOGIN_BYTES_MAX),
                Err(_) => prop_assert!(version != 1),
            }
            let lengths = [user.len() as u8, password.len() as u8];
            let written = [&[1, lengths[0]], &user[..], &lengths[1..], &password].concat();
            let login = Login::new(&user, &password);
            prop_assert_eq!(parse_login(&written), Ok(Some((login, written.len()))));
        }

        #[test]
        fn any_bytes_are_survived_and_no_message_grows_past_its_bound(
            start in prop_oneof![Just(vec![5u8, 1, 0, 3]), Just(vec![5, 1, 0, 4]), Just(vec![])],
            rest in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let bytes = [start, rest].concat();
            for parsed in [
                parse_greeting(&bytes, METHODS[0]).map(|done| done.map(|(_, length)| length)),
                parse_greeting(&bytes, METHODS[1]).map(|done| done.map(|(_, length)| length)),
                parse_request(&bytes).map(|done| done.map(|(_, length)| length)),
            ] {
                match parsed {
                    Ok(Some(length)) => prop_assert!(length <= MESSAGE_BYTES_MAX.min(bytes.len())),
                    Ok(None) => prop_assert!(bytes.len() < MESSAGE_BYTES_MAX),
                    Err(_) => {}
                }
            }
        }
    }
}
