//! Rules as users write them.

use std::{fmt, net::IpAddr, ops::RangeInclusive, str::FromStr};

use ipnet::IpNet;

use super::{Action, ClientAddress, HostPattern, InterceptRule, OnFailure};

/// The longest rule, in bytes.
pub(super) const RULE_BYTES_MAX: usize = 4096;

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterceptRuleError {
    /// No word.
    #[error("empty: expected words such as port=80,443 dst=10.20.0.0/16")]
    Empty,
    /// Longer than any sensible one.
    #[error("longer than {RULE_BYTES_MAX} bytes")]
    TooLong,
    /// A word without an equals sign.
    #[error("\"{0}\": expected KEY=VALUE, such as port=80,443")]
    NoValue(String),
    /// A key that there is not.
    #[error(
        "unknown key \"{0}\" (there are: port, sport, dst, src, in, uid, gid, cgroup, name, action, client_address, quic, refusal, on_refusal, on_failure)"
    )]
    UnknownKey(String),
    /// A key twice.
    #[error("{0} is given twice: write {0}=A,B")]
    Twice(&'static str),
    /// A value that its key does not have.
    #[error("{key}: \"{value}\": expected {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What values of the key look like.
        expected: &'static str,
    },
    /// A network with bits set behind its prefix: probably not what its author meant.
    #[error("{key}: \"{value}\" has bits set after its prefix; did you mean {}?", .value.trunc())]
    HostBits {
        /// The key.
        key: &'static str,
        /// The network.
        value: IpNet,
    },
    /// Addresses of loopback.
    #[error(
        "{key}: {value} is this machine itself: its connections to itself are never intercepted"
    )]
    Loopback {
        /// The key.
        key: &'static str,
        /// The address.
        value: String,
    },
    /// Keys of programs next to one of forwarded connections.
    #[error("{0} is for programs of this machine, and in for forwarded connections: use two rules")]
    Contradiction(&'static str),
    /// Source and destination networks without a common family.
    #[error("src and dst have no address family in common")]
    Families,
    /// A way of failing, of connections that the gateway does not get.
    #[error(
        "on_failure is only for connections that the near end gets: those of action=optimize, action=pass or name"
    )]
    NoFailure,
    /// QUIC of servers that are only known by their names, or of other ports.
    #[error(
        "quic=reject is only for rules of action=optimize or action=pass for port 443, without name and sport"
    )]
    NoQuic,
    /// An answer as the target's, to connections that the near end accepts first, or does not get.
    #[error(
        "refusal=exact is only for action=optimize and action=pass, without name: connections by name are accepted \
         before their target is known"
    )]
    NoExactness,
    /// A way around refusals, of connections that the link does not carry, or that must come from the client's address.
    #[error(
        "on_refusal=direct is only for action=optimize and action=pass, and not for on_failure=reset or \
         client_address=keep: the near end connects from its own address"
    )]
    NoRefusal,
    /// An address, for connections that no gateway makes.
    #[error(
        "client_address is only for connections that a gateway makes: those of action=optimize, action=pass and, with \
         keep, of name with action=direct"
    )]
    NoClientAddress,
}

impl FromStr for InterceptRule {
    type Err = InterceptRuleError;

    fn from_str(text: &str) -> Result<InterceptRule, InterceptRuleError> {
        use InterceptRuleError as Error;
        if text.len() > RULE_BYTES_MAX {
            return Err(Error::TooLong);
        }
        let mut rule = InterceptRule::default();
        let mut seen = Vec::new();
        for word in text.split_ascii_whitespace() {
            let (given, values) = word
                .split_once('=')
                .filter(|(_, values)| !values.is_empty())
                .ok_or_else(|| Error::NoValue(word.to_owned()))?;
            let key = *KEYS
                .iter()
                .find(|key| **key == given)
                .ok_or_else(|| Error::UnknownKey(given.to_owned()))?;
            if seen.contains(&key) {
                return Err(Error::Twice(key));
            }
            seen.push(key);
            match key {
                "port" => rule.ports = merged(read(key, values, PORTS, ports)?),
                "sport" => rule.source_ports = merged(read(key, values, PORTS, ports)?),
                "dst" => rule.destinations = networks(key, values)?,
                "src" => rule.sources = networks(key, values)?,
                "in" => {
                    rule.interfaces = read(key, values, "an interface, or * for any", interface)?
                }
                "uid" => rule.users = read(key, values, "a user's name or number", account)?,
                "gid" => rule.groups = read(key, values, "a group's name or number", account)?,
                "cgroup" => {
                    let expected = "a path such as system.slice/app.service";
                    rule.cgroups = read(key, values, expected, cgroup)?;
                }
                "name" => {
                    let expected = "a server's name, *.SUFFIX, or * for any name";
                    rule.names = read(key, values, expected, server_name)?;
                }
                "client_address" => {
                    rule.client_address = one(key, values, "proxy_v2 or keep", |value| {
                        Some(match value {
                            "proxy_v2" => ClientAddress::ProxyV2,
                            "keep" => ClientAddress::Keep,
                            _ => return None,
                        })
                    })?;
                }
                "refusal" => {
                    rule.is_exact = one(key, values, "exact", |value| {
                        (value == "exact").then_some(true)
                    })?;
                }
                "on_refusal" => {
                    rule.is_relayed_if_refused = one(key, values, "direct", |value| {
                        (value == "direct").then_some(true)
                    })?;
                }
                "quic" => {
                    rule.rejects_quic = one(key, values, "reject", |value| {
                        (value == "reject").then_some(true)
                    })?;
                }
                "action" => {
                    rule.action = one(key, values, "optimize, pass, direct or reject", |value| {
                        Some(match value {
                            "optimize" => Action::Optimize,
                            "pass" => Action::Pass,
                            "direct" => Action::Direct,
                            "reject" => Action::Reject,
                            _ => return None,
                        })
                    })?;
                }
                _ => {
                    rule.on_failure = one(key, values, "direct or reset", |value| {
                        Some(match value {
                            "direct" => OnFailure::Direct,
                            "reset" => OnFailure::Reset,
                            _ => return None,
                        })
                    })?;
                }
            }
        }
        if seen.is_empty() {
            return Err(Error::Empty);
        }
        let of_programs = ["uid", "gid", "cgroup"];
        if let Some(key) = of_programs.into_iter().find(|key| seen.contains(key))
            && rule.is_forwarded()
        {
            return Err(Error::Contradiction(key));
        }
        if ![false, true]
            .into_iter()
            .any(|is_ipv6| rule.has_networks_of(is_ipv6))
        {
            return Err(Error::Families);
        }
        if seen.contains(&"on_failure") && rule.handling().is_none() {
            return Err(Error::NoFailure);
        }
        let is_made = match rule.action {
            Action::Optimize | Action::Pass => true,
            Action::Direct => {
                rule.client_address == ClientAddress::Keep && rule.handling().is_some()
            }
            Action::Reject => false,
        };
        if rule.client_address != ClientAddress::Hidden && !is_made {
            return Err(Error::NoClientAddress);
        }
        let is_carried = matches!(rule.action, Action::Optimize | Action::Pass);
        let keeps = rule.client_address == ClientAddress::Keep;
        let resets = rule.on_failure == OnFailure::Reset;
        if rule.is_relayed_if_refused && (!is_carried || keeps || resets) {
            return Err(Error::NoRefusal);
        }
        if rule.is_exact && !(is_carried && rule.names.is_empty()) {
            return Err(Error::NoExactness);
        }
        let can_be_quic = is_carried && rule.is_about_quic();
        if rule.rejects_quic && !can_be_quic {
            return Err(Error::NoQuic);
        }
        Ok(rule)
    }
}

const KEYS: [&str; 15] = [
    "port",
    "sport",
    "dst",
    "src",
    "in",
    "uid",
    "gid",
    "cgroup",
    "name",
    "action",
    "client_address",
    "quic",
    "refusal",
    "on_refusal",
    "on_failure",
];

const PORTS: &str = "a port or a range: 80, 8000-8099";

const NETWORK: &str = "an address or a network: 10.20.0.5, 10.20.0.0/16, fd00::/8";

/// Reads a list of values.
fn read<T>(
    key: &'static str,
    values: &str,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, InterceptRuleError> {
    let values = values
        .split(',')
        .map(|value| one(key, value, expected, &parse));
    values.collect()
}

fn one<T>(
    key: &'static str,
    value: &str,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, InterceptRuleError> {
    parse(value).ok_or_else(|| InterceptRuleError::Value {
        key,
        value: value.to_owned(),
        expected,
    })
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let port = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number
            .then(|| text.parse().ok())?
            .filter(|&port| port > 0)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (port(first)?, port(last)?);
    (first <= last).then_some(first..=last)
}

/// The same ports in ranges that do not touch: nft refuses sets of others.
fn merged(mut ranges: Vec<RangeInclusive<u16>>) -> Vec<RangeInclusive<u16>> {
    ranges.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u16>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}

fn networks(key: &'static str, values: &str) -> Result<Vec<IpNet>, InterceptRuleError> {
    let networks = read(key, values, NETWORK, network)?;
    if let Some(own) = networks.iter().find(|network| network.addr().is_loopback()) {
        let own = own.addr().to_string();
        return Err(InterceptRuleError::Loopback { key, value: own });
    }
    match networks.iter().find(|network| **network != network.trunc()) {
        Some(&value) => Err(InterceptRuleError::HostBits { key, value }),
        None => Ok(IpNet::aggregate(&networks)),
    }
}

fn network(text: &str) -> Option<IpNet> {
    let text = text.trim_start_matches('[').trim_end_matches(']');
    let net = text
        .parse::<IpAddr>()
        .map(IpNet::from)
        .or_else(|_| text.parse::<IpNet>());
    let net = net.ok()?;
    // An IPv4 network, as IPv6 writes it.
    let mapped = match net {
        IpNet::V6(net) => net
            .addr()
            .to_ipv4_mapped()
            .zip(net.prefix_len().checked_sub(96)),
        IpNet::V4(_) => None,
    };
    match mapped {
        Some((address, prefix)) => IpNet::new(address.into(), prefix).ok(),
        None => Some(net),
    }
}

/// An interface's name, as the kernel allows them, without what has a meaning to nft.
fn interface(text: &str) -> Option<String> {
    const BYTES_MAX: usize = 15;
    let is_name = text.len() <= BYTES_MAX
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte));
    (is_name || text == "*").then(|| text.to_owned())
}

/// A name or number of a user or a group.
fn account(text: &str) -> Option<String> {
    const BYTES_MAX: usize = 32;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let begins = text.bytes().next()?;
    let is_name = (begins.is_ascii_alphabetic() || begins == b'_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let is_account = match is_number {
        true => text.parse::<u32>().is_ok(),
        false => is_name && text.len() <= BYTES_MAX,
    };
    is_account.then(|| text.to_owned())
}

/// A name of servers. Addresses have the key `dst`.
fn server_name(text: &str) -> Option<HostPattern> {
    text.parse()
        .ok()
        .filter(|name| !matches!(name, HostPattern::Net(_)))
}

/// A control group's path, without slashes at its ends.
fn cgroup(text: &str) -> Option<String> {
    let path = text.trim_matches('/');
    let is_part = |part: &str| {
        let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:\\".contains(&byte);
        !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_byte)
    };
    path.split('/').all(is_part).then(|| path.to_owned())
}

impl fmt::Display for InterceptRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |values: &mut dyn Iterator<Item = String>| values.collect::<Vec<_>>().join(",");
        let ports = |ranges: &[RangeInclusive<u16>]| list(&mut ranges.iter().map(range));
        let nets = |nets: &[IpNet]| list(&mut nets.iter().map(show));
        let names = |names: &[String]| names.join(",");
        let mut words = vec![
            ("port", ports(&self.ports)),
            ("sport", ports(&self.source_ports)),
            ("dst", nets(&self.destinations)),
            ("src", nets(&self.sources)),
            ("in", names(&self.interfaces)),
            ("uid", names(&self.users)),
            ("gid", names(&self.groups)),
            ("cgroup", names(&self.cgroups)),
            (
                "name",
                list(&mut self.names.iter().map(HostPattern::to_string)),
            ),
        ];
        let action = match self.action {
            Action::Optimize => "optimize",
            Action::Pass => "pass",
            Action::Direct => "direct",
            Action::Reject => "reject",
        };
        words.push(("action", action.to_owned()));
        match self.client_address {
            ClientAddress::Hidden => {}
            ClientAddress::ProxyV2 => words.push(("client_address", "proxy_v2".to_owned())),
            ClientAddress::Keep => words.push(("client_address", "keep".to_owned())),
        }
        if self.rejects_quic {
            words.push(("quic", "reject".to_owned()));
        }
        if self.is_exact {
            words.push(("refusal", "exact".to_owned()));
        }
        if self.is_relayed_if_refused {
            words.push(("on_refusal", "direct".to_owned()));
        }
        if self.on_failure == OnFailure::Reset {
            words.push(("on_failure", "reset".to_owned()));
        }
        let words = words.into_iter().filter(|(_, values)| !values.is_empty());
        let words: Vec<String> = words
            .map(|(key, values)| format!("{key}={values}"))
            .collect();
        f.write_str(&words.join(" "))
    }
}

/// Ports, as the rules and the firewall write them.
pub(crate) fn range(ports: &RangeInclusive<u16>) -> String {
    match ports.start() == ports.end() {
        true => ports.start().to_string(),
        false => format!("{}-{}", ports.start(), ports.end()),
    }
}

/// A network without the length of its prefix, if that is all of the address.
pub(crate) fn show(net: &IpNet) -> String {
    match net.prefix_len() == net.max_prefix_len() {
        true => net.addr().to_string(),
        false => net.to_string(),
    }
}
