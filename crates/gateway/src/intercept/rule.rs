//! Rules of interception: which connections, and what happens to them.
//!
//! A rule is words of the form `key=value`, such as `port=80,443 dst=10.20.0.0/16 uid=www-data`. A connection matches
//! if all keys match, and a key matches if one of its values does. Of several rules, the first that matches counts.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    str::FromStr,
};

use ipnet::IpNet;

use super::handling::{Carriage, ClientAddress, Handling};
use crate::rules::HostPattern;

/// The longest rule, in bytes.
const RULE_BYTES_MAX: usize = 4096;

/// A rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterceptRule {
    /// Destination ports; any if empty.
    pub(super) ports: Vec<RangeInclusive<u16>>,
    /// Destination networks; any if empty.
    pub(super) destinations: Vec<IpNet>,
    /// Source networks; any if empty.
    pub(super) sources: Vec<IpNet>,
    /// The interfaces by which forwarded connections come in; `*` for any. If empty, the rule is for programs of this
    /// machine.
    pub(super) interfaces: Vec<String>,
    /// Users of programs, by name or number; any if empty.
    pub(super) users: Vec<String>,
    /// Their groups; any if empty.
    pub(super) groups: Vec<String>,
    /// Control groups of programs, as paths below the root of cgroup version 2; any if empty.
    pub(super) cgroups: Vec<String>,
    /// Names of servers, which clients give in their first bytes; any if empty.
    names: Vec<HostPattern>,
    /// What happens to the connections.
    pub(super) action: Action,
    /// How the server gets the client's address.
    client_address: ClientAddress,
    /// Where they go while the gateway does not work.
    pub(super) on_failure: OnFailure,
}

/// What happens to a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Action {
    /// It goes through the link.
    #[default]
    Optimize,
    /// It goes through the link as it is.
    Pass,
    /// It goes to the server, and not through the link. By a rule without names, the kernel leaves it alone.
    Direct,
    /// It is refused.
    Reject,
}

/// What happens to a new connection while the gateway does not work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OnFailure {
    /// It goes direct.
    #[default]
    Direct,
    /// It is redirected nevertheless, so it is refused.
    Reset,
}

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
        "unknown key \"{0}\" (there are: port, dst, src, in, uid, gid, cgroup, name, action, client_address, on_failure)"
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
    /// An address, for connections that no gateway makes.
    #[error(
        "client_address is only for connections that a gateway makes: those of action=optimize and action=pass"
    )]
    NoClientAddress,
}

/// A rule that comes after one with a name, and that the near end cannot decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" comes after a rule with name, but has other values of in, uid, gid or cgroup: the near end knows only names, \
     addresses and ports (put this rule first)"
)]
pub struct UndecidableRule(String);

impl InterceptRule {
    /// The control groups that it names.
    pub fn control_groups(&self) -> &[String] {
        &self.cgroups
    }

    /// Whether it is about forwarded connections.
    pub(crate) fn is_forwarded(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// How the near end handles its connections; none if it does not get them.
    pub(crate) fn handling(&self) -> Option<Handling> {
        let is_excluded = match self.action {
            _ if !self.names.is_empty() => {
                return Some(Handling::ByName {
                    is_forwarded: self.is_forwarded(),
                });
            }
            Action::Optimize => false,
            Action::Pass => true,
            Action::Direct | Action::Reject => return None,
        };
        Some(Handling::Carry(Carriage {
            is_excluded,
            client_address: self.client_address,
        }))
    }

    /// How the near end handles connections by these rules, each once, in the order of their ports; the plain one always.
    pub(crate) fn handlings(rules: &[InterceptRule]) -> Vec<Handling> {
        let mut all: Vec<_> = rules.iter().filter_map(InterceptRule::handling).collect();
        all.push(Handling::PLAIN);
        all.sort_by_key(|handling| handling.port_offset());
        all.dedup();
        all
    }

    /// Fails if the near end could not decide about a connection that a rule with a name is about.
    pub fn check_all(rules: &[InterceptRule]) -> Result<(), UndecidableRule> {
        for is_forwarded in [false, true] {
            let mut rules = InterceptRule::from_first_name(rules, is_forwarded);
            let Some(first) = rules.next() else { continue };
            if let Some(other) = rules.find(|rule| !rule.has_kernel_keys_of(first)) {
                return Err(UndecidableRule(other.to_string()));
            }
        }
        Ok(())
    }

    /// The rules about such connections, from the first that has a name.
    fn from_first_name(
        rules: &[InterceptRule],
        is_forwarded: bool,
    ) -> impl Iterator<Item = &InterceptRule> {
        let rules = rules.iter();
        let rules = rules.filter(move |rule| rule.is_forwarded() == is_forwarded);
        rules.skip_while(|rule| rule.names.is_empty())
    }

    /// Whether it has the same values of those keys that only the kernel can decide about.
    fn has_kernel_keys_of(&self, other: &InterceptRule) -> bool {
        self.interfaces == other.interfaces
            && self.users == other.users
            && self.groups == other.groups
            && self.cgroups == other.cgroups
    }

    /// What happens to a connection that the kernel left to the near end because of a rule with a name, and how the
    /// link carries it.
    pub(crate) fn decide(
        rules: &[InterceptRule],
        is_forwarded: bool,
        client: SocketAddr,
        server: SocketAddr,
        name: Option<&str>,
    ) -> (Action, Carriage) {
        let in_one = |nets: &[IpNet], address: SocketAddr| {
            let address = address.ip().to_canonical();
            nets.is_empty() || nets.iter().any(|net| net.contains(&address))
        };
        let has_name = |rule: &InterceptRule| {
            let mut names = rule.names.iter();
            rule.names.is_empty()
                || name.is_some_and(|name| names.any(|pattern| pattern.covers_name(name)))
        };
        let matches = |rule: &&InterceptRule| {
            let mut ports = rule.ports.iter();
            (rule.ports.is_empty() || ports.any(|range| range.contains(&server.port())))
                && in_one(&rule.sources, client)
                && in_one(&rule.destinations, server)
                && has_name(rule)
        };
        match InterceptRule::from_first_name(rules, is_forwarded).find(matches) {
            Some(rule) => {
                let carriage = Carriage {
                    is_excluded: rule.action == Action::Pass,
                    client_address: rule.client_address,
                };
                (rule.action, carriage)
            }
            // No rule is about it.
            None => (Action::Direct, Carriage::default()),
        }
    }

    /// Whether the near end itself connects from the addresses of clients, so that the table brings the answers to it.
    pub(crate) fn is_for_clients(&self) -> bool {
        self.action == Action::Direct && self.client_address == ClientAddress::Keep
    }

    /// Whether the near end must know the rule itself.
    pub fn has_name(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether connections of this family can match.
    pub(super) fn has_networks_of(&self, is_ipv6: bool) -> bool {
        let has = |nets: &[IpNet]| {
            nets.is_empty() || nets.iter().any(|net| net.addr().is_ipv6() == is_ipv6)
        };
        has(&self.sources) && has(&self.destinations)
    }
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
        Ok(rule)
    }
}

const KEYS: [&str; 11] = [
    "port",
    "dst",
    "src",
    "in",
    "uid",
    "gid",
    "cgroup",
    "name",
    "action",
    "client_address",
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
    net.ok()
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
        let ports = self
            .ports
            .iter()
            .map(|range| match range.start() == range.end() {
                true => range.start().to_string(),
                false => format!("{}-{}", range.start(), range.end()),
            });
        let list = |values: &mut dyn Iterator<Item = String>| values.collect::<Vec<_>>().join(",");
        let nets = |nets: &[IpNet]| list(&mut nets.iter().map(show));
        let names = |names: &[String]| names.join(",");
        let mut words = vec![
            ("port", list(&mut ports.into_iter())),
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

/// A network without the length of its prefix, if that is all of the address.
pub(super) fn show(net: &IpNet) -> String {
    match net.prefix_len() == net.max_prefix_len() {
        true => net.addr().to_string(),
        false => net.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(text: &str) -> Result<InterceptRule, InterceptRuleError> {
        text.parse()
    }

    #[test]
    fn each_key_is_read_and_written() {
        for text in [
            "port=80,443,8000-8099 action=optimize",
            "dst=10.20.0.0/16,10.30.0.5,fd00::/8 src=10.0.0.0/8 action=direct",
            "in=lan0,wlan0 action=optimize on_failure=reset",
            "dst=::1 in=* action=reject",
            "uid=www-data,1000 gid=adm cgroup=system.slice/app.service action=optimize",
            "port=443 name=*.example.org,shop.example action=pass on_failure=reset",
            "in=* name=* action=reject",
            "port=80 action=pass client_address=proxy_v2",
        ] {
            assert_eq!(rule(text).map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        let short = rule("  dst=10.20.0.0/16\tport=443-443 cgroup=/a/b/ ").expect("a rule");
        let written = "port=443 dst=10.20.0.0/16 cgroup=a/b action=optimize";
        assert_eq!(short.to_string(), written);
        let overlapping = rule("dst=10.0.0.0/8,10.20.0.0/16 port=100,80-90,85-99").expect("a rule");
        let written = "port=80-100 dst=10.0.0.0/8 action=optimize";
        assert_eq!(overlapping.to_string(), written);
    }

    #[test]
    fn each_fault_has_its_error() {
        use InterceptRuleError as Error;
        let text = |text: &str| text.to_owned();
        for (rule, error) in [
            ("", Error::Empty),
            (" ", Error::Empty),
            ("port", Error::NoValue(text("port"))),
            ("port=", Error::NoValue(text("port="))),
            ("ports=80", Error::UnknownKey(text("ports"))),
            ("port=80 port=81", Error::Twice("port")),
            ("in=lan0 uid=0", Error::Contradiction("uid")),
            ("src=10.0.0.0/8 dst=fd00::/8", Error::Families),
            ("action=direct on_failure=reset", Error::NoFailure),
            (
                "name=a.example action=direct client_address=proxy_v2",
                Error::NoClientAddress,
            ),
            ("action=direct client_address=keep", Error::NoClientAddress),
            (
                "src=10.20.1.2/16",
                Error::HostBits {
                    key: "src",
                    value: "10.20.1.2/16".parse().expect("a network"),
                },
            ),
        ] {
            assert_eq!(super::tests::rule(rule), Err(error), "{rule:?}");
        }
        let long = format!("uid={}", "a".repeat(RULE_BYTES_MAX));
        assert_eq!(rule(&long), Err(Error::TooLong));
        for (wrong, key) in [
            ("port=0", "port"),
            ("port=90-80", "port"),
            ("port=65536", "port"),
            ("port=+80", "port"),
            ("port=80,,81", "port"),
            ("dst=10.0.0.0/33", "dst"),
            ("dst=example.org", "dst"),
            ("in=a\"b", "in"),
            ("in=interface-too-long", "in"),
            ("uid=a;b", "uid"),
            ("uid=4294967296", "uid"),
            ("cgroup=a/../b", "cgroup"),
            ("cgroup=a\"b", "cgroup"),
            ("action=drop", "action"),
            ("name=10.20.0.5", "name"),
            ("name=a.*.example", "name"),
            ("name=a,,b", "name"),
            ("client_address=proxy_v1", "client_address"),
            ("on_failure=hang", "on_failure"),
        ] {
            let found = rule(wrong);
            let is_of_key = matches!(&found, Err(Error::Value { key: of, .. }) if *of == key);
            assert!(is_of_key, "{wrong}: {found:?}");
        }
    }

    #[test]
    fn the_near_end_decides_by_name_as_the_rules_say_in_their_order() {
        let rules = [
            "port=80 dst=10.9.0.0/16 action=reject",
            "port=443,80 name=*.bank.example action=direct",
            "port=443 name=*.bank.example,media.example action=pass client_address=proxy_v2",
            "dst=10.20.0.0/16 name=evil.example action=reject",
            "port=80,443",
            "in=lan0 name=* action=reject",
        ];
        let rules = rules.map(|text| rule(text).expect("a rule"));
        assert_eq!(InterceptRule::check_all(&rules), Ok(()));
        let decide = |server: &str, name| {
            let client = "[::ffff:10.1.0.2]:40000".parse().expect("an address");
            let server = server.parse().expect("an address");
            let (action, carriage) = InterceptRule::decide(&rules, false, client, server, name);
            (action, carriage.client_address != ClientAddress::Hidden)
        };
        let plain = (Action::Optimize, false);
        for (server, name, expected) in [
            (
                "10.20.0.5:443",
                Some("www.bank.example"),
                (Action::Direct, false),
            ),
            ("10.20.0.5:443", Some("media.example"), (Action::Pass, true)),
            ("10.20.0.5:80", Some("media.example"), plain),
            (
                "10.20.0.5:80",
                Some("evil.example"),
                (Action::Reject, false),
            ),
            ("10.21.0.5:80", Some("evil.example"), plain),
            ("10.20.0.5:80", Some("bank.example"), plain),
            ("10.20.0.5:443", None, plain),
            // The kernel has decided about those of the first rule.
            ("10.9.0.5:80", None, plain),
            ("10.20.0.5:22", None, (Action::Direct, false)),
        ] {
            assert_eq!(decide(server, name), expected, "{server} {name:?}");
        }
    }

    #[test]
    fn rules_that_only_the_kernel_can_decide_about_come_before_names() {
        let check = |texts: &[&str]| {
            let rules: Vec<_> = texts
                .iter()
                .map(|text| rule(text).expect("a rule"))
                .collect();
            let found = InterceptRule::check_all(&rules).map_err(|error| error.0);
            found.err()
        };
        assert_eq!(
            check(&["uid=0 action=direct", "name=a.example", "port=80"]),
            None
        );
        assert_eq!(
            check(&["uid=5 name=a.example", "in=lan0", "uid=5 port=80"]),
            None
        );
        assert_eq!(
            check(&["name=a.example", "uid=0 action=direct"]).as_deref(),
            Some("uid=0 action=direct")
        );
        assert_eq!(
            check(&["in=lan0 name=a.example", "in=lan1"]).as_deref(),
            Some("in=lan1 action=optimize")
        );
    }

    fn rules_of(texts: &[&str]) -> Vec<InterceptRule> {
        let rules = texts.iter().map(|text| rule(text).expect("a rule"));
        rules.collect()
    }

    #[test]
    fn each_handling_has_a_port_of_its_own() {
        let all = [
            "port=80",
            "port=80 action=pass",
            "port=80 client_address=proxy_v2",
            "port=80 action=pass client_address=proxy_v2",
            "port=80 client_address=keep",
            "port=80 action=pass client_address=keep",
            "name=example.org",
            "name=example.org in=lan0",
        ];
        let offsets = |rules: &[InterceptRule]| {
            let all = InterceptRule::handlings(rules).into_iter();
            all.map(Handling::port_offset).collect::<Vec<_>>()
        };
        assert_eq!(offsets(&rules_of(&all)), [0, 1, 2, 3, 4, 5, 6, 7]);
        for (offset, rule) in all.into_iter().enumerate().skip(1) {
            assert_eq!(offsets(&rules_of(&[rule])), [0, offset as u16], "{rule}");
        }
        assert_eq!(offsets(&rules_of(&["action=direct", "action=reject"])), [0]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_not(text in "\\PC{0,60}") {
            let _ = rule(&text);
        }

        #[test]
        fn a_rule_is_written_as_it_is_read(
            text in "(port=[0-9]{1,5}(-[0-9]{1,5})? ?)?(dst=[0-9.:/a-f]{1,20} ?)?(uid=[a-z0-9,]{1,9})?"
        ) {
            if let Ok(read) = rule(&text) {
                prop_assert_eq!(rule(&read.to_string()), Ok(read));
            }
        }
    }
}
