//! SOCKS4 and 4a, the server's side, without I/O: a request's bytes in, a target or a reply out.
//!
//! A client sends one request, CONNECT, and takes one reply. In SOCKS4a the address is 0.0.0.x, and
//! a name follows, for the far end to resolve. There is no password; the user id that a client names
//! is not used, since it proves nothing.

use std::net::{IpAddr, Ipv4Addr};

use crate::{
    socks5::{RequestFault, parse_name},
    target::Target,
};

/// The first byte of a request.
pub const VERSION: u8 = 4;

/// The longest user id, and the longest name.
const TEXT_BYTES_MAX: usize = 255;

/// No request is longer than this: its head, a user id and a name, each with a zero behind it.
pub const REQUEST_BYTES_MAX: usize = 8 + 2 * (TEXT_BYTES_MAX + 1);

/// What a client did that ends its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Socks4Error {
    /// The first byte is not SOCKS4's.
    #[error("not SOCKS4 (its first byte is {0})")]
    Version(u8),
    /// The client has to sign in, and cannot.
    #[error("SOCKS4 has no passwords, but --proxy-auth requires one: use socks5:// or socks5h://")]
    NoPassword,
    /// BIND, or a command that SOCKS4 does not have.
    #[error("unsupported SOCKS4 command {0}: only CONNECT (1) is served")]
    Command(u8),
    /// A user id or a name without an end.
    #[error("malformed SOCKS4 request: its {0} is longer than {TEXT_BYTES_MAX} bytes")]
    TooLong(&'static str),
    /// A part of the request that cannot be.
    #[error("malformed SOCKS4 request: {0}")]
    Malformed(#[from] RequestFault),
}

/// Reads a client's request: where it wants to go, and the request's length. `Ok(None)` while it
/// needs more, which ends after at most [`REQUEST_BYTES_MAX`] bytes.
pub fn parse_request(received: &[u8]) -> Result<Option<(Target, usize)>, Socks4Error> {
    match received {
        [VERSION, CONNECT, ..] | [VERSION] | [] => {}
        [VERSION, command, ..] => return Err(Socks4Error::Command(*command)),
        [version, ..] => return Err(Socks4Error::Version(*version)),
    }
    let Some(([_, _, port @ .., a, b, c, d], rest)) = received.split_first_chunk::<8>() else {
        return Ok(None);
    };
    let port = u16::from_be_bytes(*port);
    let Some((_user, rest)) = text(rest, "user id")? else {
        return Ok(None);
    };
    let (host, rest) = match [*a, *b, *c, *d] {
        [0, 0, 0, last] if last != 0 => match text(rest, "name")? {
            Some((name, rest)) => (parse_name(name)?, rest),
            None => return Ok(None),
        },
        octets => (IpAddr::V4(Ipv4Addr::from(octets)).into(), rest),
    };
    let target = Target::new(host, port).map_err(|_| RequestFault::Port)?;
    Ok(Some((target, received.len() - rest.len())))
}

/// The bytes up to a zero, and those behind it.
type Text<'a> = (&'a [u8], &'a [u8]);

fn text<'a>(received: &'a [u8], what: &'static str) -> Result<Option<Text<'a>>, Socks4Error> {
    match received.iter().position(|&byte| byte == 0) {
        Some(end) if end <= TEXT_BYTES_MAX => Ok(Some((&received[..end], &received[end + 1..]))),
        None if received.len() <= TEXT_BYTES_MAX => Ok(None),
        _ => Err(Socks4Error::TooLong(what)),
    }
}

/// The reply once the flow is open, or to a request that is refused. Clients ignore its address.
pub(crate) fn reply(is_granted: bool) -> [u8; 8] {
    const GRANTED: u8 = 90;
    const REJECTED: u8 = 91;
    let code = if is_granted { GRANTED } else { REJECTED };
    [0, code, 0, 0, 0, 0, 0, 0]
}

const CONNECT: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A request, with a name if there is one.
    fn request(port: u16, address: [u8; 4], user: &[u8], name: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = vec![4, 1];
        bytes.extend(port.to_be_bytes());
        bytes.extend(address);
        for text in [Some(user), name].into_iter().flatten() {
            bytes.extend(text);
            bytes.push(0);
        }
        bytes
    }

    fn named(user: &[u8], name: &[u8]) -> Vec<u8> {
        request(80, [0, 0, 0, 7], user, Some(name))
    }

    #[test]
    fn each_kind_of_address_is_read_and_what_follows_is_left() {
        for (mut bytes, expected) in [
            (request(80, [10, 0, 0, 1], b"", None), "10.0.0.1:80"),
            (request(258, [10, 0, 0, 1], b"alice", None), "10.0.0.1:258"),
            (named(b"", b"Example.org"), "example.org:80"),
            (named(b"alice", b"10.0.0.1"), "10.0.0.1:80"),
            // No name: its last byte is zero.
            (request(80, [0, 0, 0, 0], b"", None), "0.0.0.0:80"),
            (request(80, [0, 0, 1, 1], b"", None), "0.0.1.1:80"),
        ] {
            let parsed = Ok(Some((expected.parse().unwrap(), bytes.len())));
            assert_eq!(parse_request(&bytes), parsed);
            bytes.extend(b"GET / HTTP/1.1\r\n");
            assert_eq!(parse_request(&bytes), parsed);
        }
    }

    #[test]
    fn a_part_needs_more_and_the_longest_request_is_read() {
        let name = [
            "a".repeat(63),
            "b".repeat(63),
            "c".repeat(63),
            "d".repeat(61),
        ]
        .join(".");
        let longest = named(&[b'u'; TEXT_BYTES_MAX], name.as_bytes());
        assert_eq!(
            longest.len() + 2,
            REQUEST_BYTES_MAX,
            "a host name has 253 bytes"
        );
        for end in 0..longest.len() {
            assert_eq!(parse_request(&longest[..end]), Ok(None));
        }
        assert!(parse_request(&longest).unwrap().is_some());
    }

    #[test]
    fn each_fault_has_its_error() {
        let long = [b'a'; TEXT_BYTES_MAX + 1];
        for (bytes, expected) in [
            (vec![5], Socks4Error::Version(5)),
            (vec![4, 2], Socks4Error::Command(2)),
            (named(&long, b"a"), Socks4Error::TooLong("user id")),
            (named(b"", &long), Socks4Error::TooLong("name")),
            (named(b"", b""), RequestFault::EmptyName.into()),
            (named(b"", b"a b"), RequestFault::Name(3).into()),
            (named(b"", &[0xff]), RequestFault::Name(1).into()),
            (
                request(0, [10, 0, 0, 1], b"", None),
                RequestFault::Port.into(),
            ),
        ] {
            assert_eq!(parse_request(&bytes), Err(expected), "{bytes:?}");
        }
        // Without an end, as soon as there is one byte too many.
        for without_end in [request(80, [10, 0, 0, 1], &long, None), named(b"", &long)] {
            let bytes = &without_end[..without_end.len() - 1];
            assert!(matches!(parse_request(bytes), Err(Socks4Error::TooLong(_))));
            assert_eq!(parse_request(&bytes[..bytes.len() - 1]), Ok(None));
        }
    }

    #[test]
    fn a_reply_has_eight_bytes_and_a_version_of_zero() {
        assert_eq!(reply(true), [0, 90, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reply(false), [0, 91, 0, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived_and_no_request_grows_past_its_bound(
            start in prop_oneof![Just(vec![4u8, 1, 0, 80, 0, 0, 0, 1]), Just(vec![4, 1]), Just(vec![])],
            rest in proptest::collection::vec(any::<u8>(), 0..600),
            without_zeros in proptest::collection::vec(1u8.., 0..600),
        ) {
            for rest in [rest, without_zeros] {
                let bytes = [&start[..], &rest].concat();
                // However they are split, the first bytes that decide say the same as all.
                let prefixes = (0..=bytes.len()).map(|end| parse_request(&bytes[..end]));
                let decided = prefixes.into_iter().find(|parsed| *parsed != Ok(None));
                prop_assert_eq!(decided.unwrap_or(Ok(None)), parse_request(&bytes));
                match parse_request(&bytes) {
                    Ok(Some((_, length))) => prop_assert!(length <= REQUEST_BYTES_MAX.min(bytes.len())),
                    Ok(None) => prop_assert!(bytes.len() < REQUEST_BYTES_MAX),
                    Err(_) => {}
                }
            }
        }
    }
}
