//! Addresses to listen on, as people type them: `1080`, `:1080`, `localhost:1080`, `[::1]:1080`.
//!
//! One parser and one error for every listener. Without a host most listeners are on loopback, so
//! that nobody is let in by accident; `*` is all addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::target::{LANES_PORT, Target, TargetError, parse_port};

/// Why a text is not an address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Of a listener that needs a port.
    #[error(
        "expected a port, or a local address with a port: 1080, localhost:1080, 10.0.0.5:1080, \
         [::1]:1080, or *:1080 for all addresses"
    )]
    NeedsPort,
    /// Of lanes, which have a port of their own.
    #[error(
        "expected a port, a local address, or both: 7001, 10.0.0.5, 10.0.0.5:7001, [::1]:7001, or * for all addresses"
    )]
    Lanes,
    /// Of redirected connections, which come to several addresses.
    #[error(
        "expected a port, such as 15001, or *:15001 for connections of other machines: redirected connections come to \
         several addresses"
    )]
    Redirected,
    /// The port is a number that no port has.
    #[error("the port is too large: ports are from 1 to 65535")]
    LargePort,
}

/// Reads the address of a listener that is on loopback if no host is given.
///
/// ```
/// use refrain_gateway::address::parse_listen;
///
/// let loopback = "127.0.0.1:1080".parse();
/// assert_eq!(parse_listen("1080").ok(), loopback.ok());
/// assert_eq!(parse_listen("*:1080").unwrap().to_string(), "[::]:1080");
/// ```
pub fn parse_listen(text: &str) -> Result<SocketAddr, ListenError> {
    let address = parse(text, IpAddr::V4(Ipv4Addr::LOCALHOST), None);
    address.ok_or_else(|| fault(text, ListenError::NeedsPort))
}

/// Reads the addresses of a listener for redirected connections: those of loopback in both families, since a
/// redirection keeps the family, or all. Connections of programs come to loopback, others to any own address.
pub(crate) fn parse_redirected(text: &str) -> Result<Vec<SocketAddr>, ListenError> {
    let address = parse_listen(text)?;
    let (ip, port) = (address.ip().to_canonical(), address.port());
    let loopback = |ip: IpAddr| SocketAddr::new(ip, port);
    let [ipv4, ipv6] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].map(loopback);
    match () {
        () if port == 0 => Err(ListenError::Redirected),
        () if ip.is_unspecified() => Ok(vec![address]),
        () if !is_loopback(ip) => Err(ListenError::Redirected),
        () if has_ipv6() => Ok(vec![ipv4, ipv6]),
        () => Ok(vec![ipv4]),
    }
}

fn has_ipv6() -> bool {
    UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// Reads an address that lanes are taken at: on all addresses if no host is given, at
/// [`LANES_PORT`] if no port is.
pub(crate) fn parse_lanes(text: &str) -> Result<SocketAddr, ListenError> {
    let address = parse(text, ALL_ADDRESSES, Some(LANES_PORT));
    address.ok_or_else(|| fault(text, ListenError::Lanes))
}

/// What is wrong with a text that is not an address: its port, if that is too large, or `other`.
fn fault(text: &str, other: ListenError) -> ListenError {
    let port = text.rsplit(':').next().unwrap_or_default();
    match is_number(port) && port.parse::<u16>().is_err() {
        true => ListenError::LargePort,
        false => other,
    }
}

/// Reads where a program connects to a listener: as that spells its address, or `HOST:PORT`.
pub fn parse_admin(text: &str) -> Result<Target, TargetError> {
    let without_host = text.strip_prefix('*').unwrap_or(text).strip_prefix(':');
    let port = without_host.unwrap_or(text);
    match is_number(port) {
        true => Target::new(IpAddr::V4(Ipv4Addr::LOCALHOST).into(), parse_port(port)?),
        false => text.parse(),
    }
}

/// IPv4 too, as [`acceptor::bind`](crate::acceptor::bind) sees to.
const ALL_ADDRESSES: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

fn parse(text: &str, default_host: IpAddr, default_port: Option<u16>) -> Option<SocketAddr> {
    // Also has the scopes of IPv6 addresses.
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        None if is_number(text) => ("", Some(text)),
        _ if text.is_empty() => return None,
        _ => (text, None),
    };
    let port = match port {
        Some(port) if is_number(port) => port.parse().ok(),
        Some(_) => None,
        None => default_port,
    };
    let host = match host {
        "" => Some(default_host),
        "*" => Some(ALL_ADDRESSES),
        // As itself, so that no look-up can make it another machine's.
        name if name.eq_ignore_ascii_case("localhost") => Some(Ipv4Addr::LOCALHOST.into()),
        bracketed if bracketed.starts_with('[') => {
            let inner = bracketed[1..].strip_suffix(']');
            inner.and_then(|inner| inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6))
        }
        plain => plain.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    };
    Some(SocketAddr::new(host?, port?))
}

/// `u16::from_str` would take a plus sign.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_spelling_means_its_address() {
        for (text, address) in [
            ("1080", "127.0.0.1:1080"),
            (":1080", "127.0.0.1:1080"),
            ("localhost:1080", "127.0.0.1:1080"),
            ("LocalHost:1080", "127.0.0.1:1080"),
            ("127.0.0.1:1080", "127.0.0.1:1080"),
            ("[::1]:1080", "[::1]:1080"),
            ("[::]:1080", "[::]:1080"),
            ("*:1080", "[::]:1080"),
            ("0.0.0.0:1080", "0.0.0.0:1080"),
            ("0", "127.0.0.1:0"),
            ("*:0", "[::]:0"),
            ("[fe80::1%2]:80", "[fe80::1%2]:80"),
        ] {
            assert_eq!(parse_listen(text), Ok(address.parse().unwrap()), "{text}");
        }
        for (text, address) in [
            ("7001", "[::]:7001"),
            (":7001", "[::]:7001"),
            ("*", "[::]:7000"),
            ("*:7001", "[::]:7001"),
            ("10.0.0.5", "10.0.0.5:7000"),
            ("[fd00::5]", "[fd00::5]:7000"),
            ("localhost", "127.0.0.1:7000"),
            ("10.0.0.5:7001", "10.0.0.5:7001"),
        ] {
            assert_eq!(parse_lanes(text), Ok(address.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_listener_is_reached_at_what_it_is_called() {
        let reached = |text: &str| parse_admin(text).map(|target| target.to_string());
        for (text, target) in [
            ("9001", "127.0.0.1:9001"),
            (":9001", "127.0.0.1:9001"),
            ("*:9001", "127.0.0.1:9001"),
            ("localhost:9001", "localhost:9001"),
            ("[::1]:9001", "[::1]:9001"),
            ("far.example:9001", "far.example:9001"),
        ] {
            assert_eq!(reached(text).as_deref(), Ok(target), "{text}");
        }
        for text in [
            "",
            ":",
            "*",
            "0",
            "65536",
            "far.example",
            "*9001",
            ":9001:1",
        ] {
            assert!(reached(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_local_address_is_refused() {
        for text in [
            "",
            ":",
            "*:",
            "[::1]:",
            "[::1",
            "::1:1080",
            "[127.0.0.1]:1080",
            "[]:1080",
            "[::1]1080",
            ":+80",
            "+80",
            "-1",
            "1080 ",
            "256.0.0.1:0",
            "example.org:1080",
            "user@localhost:80",
            "127.0.0.1:80:90",
            "http://127.0.0.1:80",
            "٣",
        ] {
            assert_eq!(parse_listen(text), Err(ListenError::NeedsPort), "{text:?}");
            assert_eq!(parse_lanes(text), Err(ListenError::Lanes), "{text:?}");
        }
        for text in ["65536", "*:65536", "127.0.0.1:99999", "[::1]:70000"] {
            assert_eq!(parse_listen(text), Err(ListenError::LargePort), "{text}");
            assert_eq!(parse_lanes(text), Err(ListenError::LargePort), "{text}");
        }
        for needs_port in ["*", "localhost", "10.0.0.5", "[::1]"] {
            let refused = Err(ListenError::NeedsPort);
            assert_eq!(parse_listen(needs_port), refused, "{needs_port}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(v4: [u8; 4], v6: [u16; 8], port: u16) {
            for address in [SocketAddr::new(v4.into(), port), SocketAddr::new(v6.into(), port)] {
                prop_assert_eq!(parse_listen(&address.to_string()), Ok(address));
                prop_assert_eq!(parse_lanes(&address.to_string()), Ok(address));
            }
            let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            prop_assert_eq!(parse_listen(&port.to_string()), Ok(loopback));
        }

        #[test]
        fn any_text_parses_or_fails(text in "[0-9a-f:.*\\[\\]%]{0,24}|localhost.{0,8}|.{0,40}") {
            let _ = parse_lanes(&text);
            if let Ok(address) = parse_listen(&text) {
                prop_assert_eq!(parse_listen(&address.to_string()), Ok(address));
            }
        }
    }
}
