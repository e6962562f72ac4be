//! The names that the admin listener answers to.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether `host`, as in a `Host` field, is one of `names`, an address or `localhost`. A page that is
/// read by an address has that as its origin, and no other page is of the same origin.
pub(super) fn is_own(host: &str, names: &[String]) -> bool {
    let Some(name) = without_port(host) else {
        return false;
    };
    let bracketed = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    if let Some(address) = bracketed {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_v4 = name.parse::<Ipv4Addr>().is_ok();
    let name = name.strip_suffix('.').unwrap_or(name);
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    is_v4 || is("localhost") || names.iter().any(|known| is(known))
}

/// A host without its port; `None` if what stands for one is no port.
fn without_port(host: &str) -> Option<&str> {
    let name_end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(name_end);
    match port.strip_prefix(':') {
        None if port.is_empty() => Some(name),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_given_names_are_answered_and_no_others() {
        let names = ["gw.example.org".to_owned()];
        for host in [
            "127.0.0.1",
            "127.0.0.1:9001",
            "10.0.0.5:9001",
            "[::1]",
            "[::1]:9001",
            "localhost",
            "LOCALHOST:9001",
            "localhost.:9001",
            "gw.example.org",
            "GW.example.org.:443",
        ] {
            assert!(is_own(host, &names), "{host}");
        }
        for host in [
            "",
            ":9001",
            "evil.example",
            "evil.example:9001",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "evil.example#127.0.0.1",
            "localhost.evil.example",
            "evil.example:9001:127.0.0.1",
            "[::1].evil.example",
            "[evil.example]",
            "::1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "gw.example.org.evil.example",
            "xgw.example.org",
        ] {
            assert!(!is_own(host, &names), "{host}");
        }
    }
}
