//! Which targets a gateway may connect to, and which flows it sends as they are.
//!
//! A rule is `HOST:PORT`. HOST is a name, `*.suffix`, `*`, an address or a CIDR range (IPv6 in
//! brackets); PORT is a number, a range `a-b` or `*`. Address rules are tested on the resolved
//! address alone, so no name can lead a flow where the addresses do not allow it. A name rule
//! allows whatever that name resolves to: its author trusts whoever answers for the name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use refrain_proto::planted::Bug;

use crate::keys::PublicKey;
use crate::target::{Host, Target, TargetError, parse_port, split_port};

/// The targets that this end connects to when the peer asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowRules {
    rules: Vec<Rule>,
}

impl AllowRules {
    /// Allows what `rules` name, and nothing when there are none.
    pub fn new(rules: Vec<Rule>) -> AllowRules {
        AllowRules { rules }
    }

    /// Allows every port of this machine's loopback addresses: the far side's default.
    pub fn loopback() -> AllowRules {
        let v4 = Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 8).trunc();
        let v6 = Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128);
        let any_port = |net| Rule {
            host: HostPattern::Net(net),
            ports: ANY_PORT,
        };
        AllowRules::new(vec![any_port(v4.into()), any_port(v6.into())])
    }

    /// Whether a flow whose client asked for `requested_host` may connect to `resolved`.
    pub fn allows(&self, requested_host: &str, resolved: SocketAddr) -> bool {
        let (address, port) = (resolved.ip(), resolved.port());
        let covers = |rule: &Rule| rule.covers(requested_host, Some(address), port);
        self.rules.iter().any(covers)
    }

    /// Whether a flow to `name` may be allowed, whatever the name resolves to. If not, there is no
    /// need to resolve it.
    pub(crate) fn may_allow(&self, name: &str, port: u16) -> bool {
        let may_cover = |rule: &Rule| match &rule.host {
            HostPattern::Net(_) => rule.ports.contains(&port),
            _ => rule.covers(name, None, port),
        };
        self.rules.iter().any(may_cover)
    }

    /// Whether a rule names this target and no other: its host and its port, no range.
    pub(crate) fn names_exactly(&self, requested_host: &str, resolved: SocketAddr) -> bool {
        let is_exact = |rule: &Rule| {
            let one_host = match &rule.host {
                HostPattern::Name(_) => true,
                HostPattern::Net(net) => net.prefix_len() == net.max_prefix_len(),
                HostPattern::Any | HostPattern::Below(_) => false,
            };
            one_host && rule.ports.start() == rule.ports.end()
        };
        let (address, port) = (resolved.ip(), resolved.port());
        let mut exact = self.rules.iter().filter(|rule| is_exact(rule));
        exact.any(|rule| rule.covers(requested_host, Some(address), port))
    }

    /// What is allowed, for the log and `status`.
    pub fn describe(&self) -> String {
        if *self == AllowRules::loopback() {
            return "loopback addresses of this machine only (127.0.0.0/8 and ::1; --allow replaces this)".into();
        }
        if self.rules.is_empty() {
            return "nothing (add targets with --allow)".into();
        }
        describe(&self.rules)
    }
}

/// The flows that are sent as they are: never chunked, cached or logged by content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExcludeRules {
    rules: Vec<Rule>,
}

impl ExcludeRules {
    /// Excludes what `rules` name.
    pub fn new(rules: Vec<Rule>) -> ExcludeRules {
        ExcludeRules { rules }
    }

    /// What is excluded, for `--dry-run`.
    pub fn describe(&self) -> String {
        if self.rules.is_empty() {
            return "nothing".into();
        }
        describe(&self.rules)
    }

    /// Whether a flow to `requested_host` is excluded. `resolved` is its address where this end
    /// knows it; the end that opens a flow by name does not, and an address rule then says nothing.
    pub fn excludes(&self, requested_host: &str, resolved: Option<IpAddr>, port: u16) -> bool {
        let covers = |rule: &Rule| rule.covers(requested_host, resolved, port);
        self.rules.iter().any(covers) && !Bug::ExcludeRulesIgnored.is_planted()
    }
}

/// The peer that flows to some targets go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub(crate) targets: Rule,
    pub(crate) peer: PublicKey,
}

impl Route {
    /// Whether it is about a flow to `target`, as its client names it.
    pub(crate) fn covers(&self, target: &Target) -> bool {
        self.targets
            .covers(&target.host.to_string(), None, target.port)
    }
}

fn describe(rules: &[Rule]) -> String {
    let rules: Vec<String> = rules.iter().map(Rule::to_string).collect();
    rules.join(", ")
}

/// One rule: a set of hosts and a set of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    host: HostPattern,
    ports: RangeInclusive<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostPattern {
    Any,
    Name(String),
    /// Names below this suffix, which is stored with its leading dot.
    Below(String),
    Net(IpNet),
}

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The host or the port is malformed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A host without a port.
    #[error("no port: write {0}:80, or {0}:* for all ports")]
    NoPort(String),
    /// A port without a host.
    #[error(
        "no host: write HOST:{0}, such as intranet:{0} or 10.0.0.0/8:{0}, or *:{0} for all hosts"
    )]
    NoHost(String),
    /// Neither a number, nor a range `a-b`, nor `*`.
    #[error("the port must be a number from 1 to 65535, a range such as 8000-8099, or *")]
    BadPorts,
    /// Something with a slash that is no CIDR range, or a name that only a mistyped address has.
    #[error("not an address or a range of addresses, such as 10.0.0.0/8:443 or [fd00::/8]:443")]
    BadNet,
    /// The same of clients, which have no port, and so need no brackets.
    #[error("not an address or a range of addresses, such as 10.0.0.0/8 or fd00::/8")]
    BadClients,
    /// A prefix that is longer than an address.
    #[error("the number after / must be at most {0}")]
    PrefixTooLong(u8),
    /// A CIDR range with bits set behind its prefix: probably not what its author meant.
    #[error("has bits set after its prefix; did you mean {0}?")]
    HostBits(IpNet),
    /// A `*` elsewhere than alone or as `*.suffix`.
    #[error("a * must be the whole host, or the start of *.suffix")]
    BadWildcard,
}

impl Rule {
    /// Its hosts.
    pub(crate) fn host(&self) -> &HostPattern {
        &self.host
    }

    /// Whether this port is among its ports.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// Whether it covers this port of a host by its name.
    pub(crate) fn covers_name(&self, host: &str, port: u16) -> bool {
        self.has_port(port) && self.host.covers_name(host)
    }

    fn covers(&self, requested_host: &str, resolved: Option<IpAddr>, port: u16) -> bool {
        if !self.ports.contains(&port) {
            return false;
        }
        match &self.host {
            HostPattern::Net(net) => {
                let address = resolved.or_else(|| literal_address(requested_host));
                address.is_some_and(|address| net.contains(&address.to_canonical()))
            }
            host => host.covers_name(requested_host),
        }
    }
}

impl HostPattern {
    /// Whether a host with this name matches. It says nothing of addresses.
    pub(crate) fn covers_name(&self, host: &str) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Name(name) => requested_name(host).eq_ignore_ascii_case(name),
            HostPattern::Below(suffix) => is_below(requested_name(host), suffix),
            HostPattern::Net(_) => false,
        }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        if text.contains("://") {
            return Err(TargetError::of_url(text).into());
        }
        let Ok((host, ports)) = split_port(text) else {
            if text.parse::<u16>().is_ok() {
                return Err(RuleError::NoHost(text.to_owned()));
            }
            let host: HostPattern = text.parse()?;
            return Err(RuleError::NoPort(host.to_string()));
        };
        Ok(Rule {
            host: host.parse()?,
            ports: parse_ports(ports)?,
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.host)?;
        let (first, last) = (self.ports.start(), self.ports.end());
        if self.ports == ANY_PORT {
            f.write_str("*")
        } else if first == last {
            first.fmt(f)
        } else {
            write!(f, "{first}-{last}")
        }
    }
}

impl FromStr for HostPattern {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<HostPattern, RuleError> {
        if text == "*" {
            return Ok(HostPattern::Any);
        }
        if text.contains('/') {
            return parse_net(text).map(HostPattern::Net);
        }
        let (wildcard, name) = match text.strip_prefix("*.") {
            Some(suffix) => (true, suffix),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(RuleError::BadWildcard);
        }
        let host: Host = name.parse()?;
        if host.is_mistyped_address() {
            return Err(RuleError::BadNet);
        }
        match (host, wildcard) {
            (Host::Domain(suffix), true) => Ok(HostPattern::Below(format!(".{suffix}"))),
            (_, true) => Err(RuleError::BadWildcard),
            (Host::Domain(name), false) => Ok(HostPattern::Name(name)),
            (Host::Ipv4(address), false) => Ok(HostPattern::Net(IpAddr::V4(address).into())),
            (Host::Ipv6(address), false) => Ok(HostPattern::Net(IpAddr::V6(address).into())),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Any => f.write_str("*"),
            HostPattern::Name(name) => f.write_str(name),
            HostPattern::Below(suffix) => write!(f, "*{suffix}"),
            HostPattern::Net(net) if net.prefix_len() == net.max_prefix_len() => {
                Host::from(net.addr()).fmt(f)
            }
            HostPattern::Net(IpNet::V4(net)) => net.fmt(f),
            HostPattern::Net(IpNet::V6(net)) => write!(f, "[{net}]"),
        }
    }
}

const ANY_PORT: RangeInclusive<u16> = 0..=u16::MAX;

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, RuleError> {
    if text == "*" {
        return Ok(ANY_PORT);
    }
    let port = |text| parse_port(text).map_err(|_| RuleError::BadPorts);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let ports = port(first)?..=port(last)?;
    if ports.is_empty() {
        return Err(RuleError::BadPorts);
    }
    Ok(ports)
}

fn parse_net(text: &str) -> Result<IpNet, RuleError> {
    let inner = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or(RuleError::BadNet)?,
        None if text.contains(':') => return Err(TargetError::BadIpv6.into()),
        None => text,
    };
    parse_bare_net(inner)
}

/// Reads a range of addresses without brackets.
pub(crate) fn parse_bare_net(text: &str) -> Result<IpNet, RuleError> {
    let net = canonical_net(text.parse().map_err(|_| bad_net(text))?);
    if net != net.trunc() {
        return Err(RuleError::HostBits(net.trunc()));
    }
    Ok(net)
}

/// Why a text is not a range of addresses.
fn bad_net(text: &str) -> RuleError {
    let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
    match (address.parse::<IpAddr>(), prefix.parse::<u32>()) {
        (Ok(IpAddr::V4(_)), Ok(33..)) => RuleError::PrefixTooLong(32),
        (Ok(IpAddr::V6(_)), Ok(129..)) => RuleError::PrefixTooLong(128),
        _ => RuleError::BadNet,
    }
}

/// A range of IPv4-mapped addresses as the IPv4 range it stands for, since addresses are
/// canonical when they are tested.
fn canonical_net(net: IpNet) -> IpNet {
    const MAPPED_PREFIX_BITS: u8 = 96;
    let mapped = match net {
        IpNet::V6(net) => net.addr().to_ipv4_mapped(),
        IpNet::V4(_) => None,
    };
    match (mapped, net.prefix_len().checked_sub(MAPPED_PREFIX_BITS)) {
        (Some(v4), Some(prefix_bits)) => Ipv4Net::new_assert(v4, prefix_bits).into(),
        _ => net,
    }
}

fn requested_name(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

fn is_below(name: &str, suffix: &str) -> bool {
    let (name, suffix) = (name.as_bytes(), suffix.as_bytes());
    name.len() > suffix.len() && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
}

fn literal_address(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(texts: &[&str]) -> AllowRules {
        AllowRules::new(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn allows(rule: &str, host: &str, resolved: &str) -> bool {
        rules(&[rule]).allows(host, resolved.parse().unwrap())
    }

    #[test]
    fn the_default_is_loopback_alone_and_says_so() {
        let default = AllowRules::loopback();
        for address in [
            "127.0.0.1:80",
            "127.9.9.9:1",
            "[::1]:443",
            "[::ffff:127.0.0.1]:80",
        ] {
            assert!(default.allows("any", address.parse().unwrap()), "{address}");
        }
        for address in [
            "10.0.0.1:80",
            "0.0.0.0:80",
            "[::]:80",
            "[fe80::1]:80",
            "128.0.0.1:80",
        ] {
            assert!(
                !default.allows("localhost", address.parse().unwrap()),
                "{address}"
            );
        }
        assert!(default.describe().contains("loopback addresses"));
    }

    #[test]
    fn only_rules_of_one_host_and_one_port_name_a_target_exactly() {
        let exactly = |rule: &str, host: &str, address: &str| {
            let rules = AllowRules::new(vec![rule.parse().unwrap()]);
            rules.names_exactly(host, address.parse().unwrap())
        };
        assert!(exactly("127.0.0.1:9002", "x", "127.0.0.1:9002"));
        assert!(exactly("127.0.0.1:9002", "x", "[::ffff:127.0.0.1]:9002"));
        assert!(exactly("localhost:9002", "localhost", "[::1]:9002"));
        for rule in [
            "127.0.0.1:*",
            "127.0.0.0/8:9002",
            "*:9002",
            "127.0.0.1:9002-9003",
        ] {
            assert!(!exactly(rule, "x", "127.0.0.1:9002"), "{rule}");
        }
        assert!(!exactly("127.0.0.1:9002", "x", "127.0.0.1:9003"));
    }

    #[test]
    fn names_that_no_rule_can_allow_are_known_before_they_are_resolved() {
        let may = |rule: &str, name: &str, port| {
            AllowRules::new(vec![rule.parse().unwrap()]).may_allow(name, port)
        };
        assert!(
            may("10.0.0.0/8:80", "a.example", 80),
            "it may resolve there"
        );
        assert!(!may("10.0.0.0/8:80", "a.example", 81));
        assert!(may("*.example:*", "a.example", 81));
        assert!(!may("*.example:*", "a.test", 81));
        assert!(!may("a.test:80", "b.test", 80));
    }

    #[test]
    fn no_rules_allow_nothing() {
        let nothing = AllowRules::new(Vec::new());
        assert!(!nothing.allows("localhost", "127.0.0.1:80".parse().unwrap()));
        assert!(nothing.describe().contains("nothing"));
    }

    #[test]
    fn a_range_is_tested_on_the_resolved_address_and_not_on_the_name() {
        assert!(allows("10.0.0.0/8:80", "intranet", "10.1.2.3:80"));
        assert!(!allows("10.0.0.0/8:80", "10.1.2.3", "192.168.0.1:80"));
    }

    #[test]
    fn a_mapped_address_cannot_slip_by() {
        assert!(allows("10.0.0.0/8:*", "x", "[::ffff:10.0.0.1]:80"));
        assert!(allows("[::ffff:10.0.0.0/104]:*", "x", "10.0.0.1:80"));
        assert!(!allows("[::/0]:*", "x", "[::ffff:10.0.0.1]:80"));
        assert!(!allows("[::ffff:10.0.0.0/104]:*", "x", "11.0.0.1:80"));
    }

    #[test]
    fn a_name_rule_covers_what_the_name_resolves_to() {
        assert!(allows("example.org:80", "EXAMPLE.org.", "192.0.2.1:80"));
        assert!(!allows("example.org:80", "www.example.org", "192.0.2.1:80"));
        assert!(!allows("example.org:80", "192.0.2.1", "192.0.2.1:80"));
    }

    #[test]
    fn a_suffix_covers_names_below_it_alone() {
        assert!(allows(
            "*.example.org:80",
            "a.b.Example.org",
            "192.0.2.1:80"
        ));
        assert!(!allows("*.example.org:80", "example.org", "192.0.2.1:80"));
        assert!(!allows("*.example.org:80", ".example.org", "192.0.2.1:80"));
        assert!(!allows(
            "*.example.org:80",
            "badexample.org",
            "192.0.2.1:80"
        ));
        assert!(!allows(
            "*.example.org:80",
            "\u{e9}.example.or",
            "192.0.2.1:80"
        ));
    }

    #[test]
    fn ports_are_numbers_ranges_or_all() {
        assert!(allows("*:8000-8099", "x", "192.0.2.1:8099"));
        assert!(!allows("*:8000-8099", "x", "192.0.2.1:8100"));
        assert!(!allows("*:80", "x", "192.0.2.1:81"));
        assert!(allows("[::1]:*", "x", "[::1]:1"));
    }

    #[test]
    fn an_excluded_flow_is_known_by_name_before_it_is_resolved() {
        let texts = ["*:22", "vault.example:443", "10.0.0.0/8:*"];
        let rules = ExcludeRules::new(texts.iter().map(|text| text.parse().unwrap()).collect());
        assert!(rules.excludes("anything", None, 22));
        assert!(rules.excludes("vault.example", None, 443));
        assert!(rules.excludes("10.1.1.1", None, 80));
        assert!(rules.excludes("intranet", Some("10.1.1.1".parse().unwrap()), 80));
        assert!(!rules.excludes("intranet", None, 80));
        assert!(!ExcludeRules::default().excludes("x", None, 22));
    }

    #[test]
    fn each_fault_has_its_error() {
        let fault = |text: &str| text.parse::<Rule>().unwrap_err();
        assert_eq!(fault("80"), RuleError::NoHost("80".to_owned()));
        for host in [
            "example.org",
            "*.example.org",
            "*",
            "10.0.0.0/8",
            "[fd00::/8]",
            "[::1]",
        ] {
            assert_eq!(fault(host), RuleError::NoPort(host.to_owned()));
        }
        assert_eq!(fault("10.0.0.0/33"), RuleError::PrefixTooLong(32));
        let url = TargetError::Url("intranet:80".to_owned());
        assert_eq!(fault("http://intranet:80/"), url.into());
        assert_eq!(fault("::1:80"), TargetError::BadIpv6.into());
        assert_eq!(fault("fd00::/8:80"), TargetError::BadIpv6.into());
        assert_eq!(fault("a:80-79"), RuleError::BadPorts);
        assert_eq!(fault("a:http"), RuleError::BadPorts);
        assert_eq!(fault("10.0.0.0/33:80"), RuleError::PrefixTooLong(32));
        assert_eq!(fault("[fd00::/129]:80"), RuleError::PrefixTooLong(128));
        for mistyped in [
            "10.0.0/8:80",
            "10.0.0:80",
            "300.1.1.1:80",
            "10.20.0.0-10.20.0.9:80",
            "*.10.20:80",
        ] {
            assert_eq!(fault(mistyped), RuleError::BadNet, "{mistyped}");
        }
        assert_eq!(fault("a.*.org:80"), RuleError::BadWildcard);
        assert_eq!(fault("*.10.0.0.1:80"), RuleError::BadWildcard);
        let meant = "10.0.0.0/8".parse().unwrap();
        assert_eq!(fault("10.0.0.1/8:80"), RuleError::HostBits(meant));
    }

    proptest! {
        #[test]
        fn what_parses_round_trips(
            text in "(\\*|\\*\\.[a-z]{1,9}|[0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9]{1,2})?|\\[[0-9a-f:]{2,9}(/[0-9]{1,3})?\\]):(\\*|[0-9]{1,5}(-[0-9]{1,5})?)"
        ) {
            if let Ok(rule) = text.parse::<Rule>() {
                prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
            }
        }

        #[test]
        fn any_text_parses_or_fails(text in any::<String>(), host in any::<String>()) {
            let _ = text.parse::<Rule>();
            let _ = format!("{host}:80").parse::<Rule>();
            rules(&["*.example.org:80"]).allows(&host, "192.0.2.1:80".parse().unwrap());
        }
    }
}
