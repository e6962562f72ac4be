//! Rules of interception: which connections, and what happens to them.
//!
//! A rule is words of the form `key=value`, such as `port=80,443 dst=10.20.0.0/16 uid=www-data`. A connection matches
//! if all keys match, and a key matches if one of its values does. Of several rules, the first that matches counts.

mod text;

use std::{net::SocketAddr, ops::RangeInclusive};

use ipnet::IpNet;

use super::handling::{Carriage, ClientAddress, Handling};
use crate::rules::HostPattern;
pub use text::InterceptRuleError;
pub(super) use text::{range, show};

/// Where servers expect QUIC.
pub(super) const QUIC_PORT: u16 = 443;

/// A rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterceptRule {
    /// Destination ports; any if empty.
    pub(super) ports: Vec<RangeInclusive<u16>>,
    /// Source ports; any if empty.
    pub(super) source_ports: Vec<RangeInclusive<u16>>,
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
    /// Names of servers, from the first bytes of clients or from DNS; any if empty.
    names: Vec<HostPattern>,
    /// Whether QUIC to the same destinations is rejected, so that clients use connections.
    pub(super) rejects_quic: bool,
    /// What happens to the connections.
    pub(super) action: Action,
    /// How the server gets the client's address.
    client_address: ClientAddress,
    /// Whether the near end connects to servers itself where the link cannot carry them.
    is_relayed_if_refused: bool,
    /// Whether clients are answered when the target has answered, as it did.
    is_exact: bool,
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

/// Why the near end could not decide about all connections that it gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UndecidableRules {
    /// A rule after one with a name has other values of those keys that only the kernel can decide about.
    #[error(
        "\"{0}\" comes after a rule with name, but has other values of in, uid, gid or cgroup: the near end knows only \
         names, addresses and ports (put this rule first)"
    )]
    OtherKeys(String),
    /// One of these rules resets connections while the near end does not work, and another one lets them go direct.
    #[error(
        "\"{0}\" has another on_failure than the first rule with name: while the near end does not work, names are \
         unknown (give all rules from that one on the same on_failure)"
    )]
    OtherFailure(String),
    /// The near end accepts its connections to learn the name, whatever it says.
    #[error(
        "\"{0}\" comes after a rule with name, whose connections are accepted first: put this rule first, or remove \
         refusal=exact"
    )]
    Exact(String),
    /// Nothing is said about connections to other names.
    #[error(
        "\"{0}\" needs a rule without name after it, for connections with other names or none: with the same ports and \
         networks or more, such as \"action=direct\""
    )]
    NoRest(String),
}

impl UndecidableRules {
    /// The rule that is at fault.
    pub(crate) fn rule(&self) -> &str {
        match self {
            UndecidableRules::OtherKeys(rule)
            | UndecidableRules::OtherFailure(rule)
            | UndecidableRules::Exact(rule)
            | UndecidableRules::NoRest(rule) => rule,
        }
    }
}

impl InterceptRule {
    /// The control groups that it names.
    pub fn control_groups(&self) -> &[String] {
        &self.cgroups
    }

    /// The users of its programs, by name or number; none for all.
    pub fn users(&self) -> &[String] {
        &self.users
    }

    /// The same for groups.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// The interfaces by which its connections come in, `*` for any; none if it is for programs of this machine.
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// The clients of a network whose connections the near end gets: all, or those of its sources.
    pub fn clients_of(&self, network: IpNet) -> Vec<IpNet> {
        if self.handling().is_none() {
            return Vec::new();
        }
        if self.sources.is_empty() {
            return vec![network];
        }
        // Of two networks, one has the other, or they share nothing.
        let sources = self.sources.iter();
        let shared = sources.filter_map(|source| match source.contains(&network) {
            true => Some(network),
            false => network.contains(source).then_some(*source),
        });
        shared.collect()
    }

    /// Whether the near end gets connections of any program of this machine, whoever runs it.
    pub fn is_about_any_program(&self) -> bool {
        let programs = [&self.users, &self.groups, &self.cgroups];
        self.handling().is_some()
            && !self.is_forwarded()
            && programs.iter().all(|programs| programs.is_empty())
    }

    /// Whether it is about forwarded connections.
    pub fn is_forwarded(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// Whether clients are to be answered as the target answers.
    pub fn is_exact(&self) -> bool {
        self.is_exact
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
            is_relayed_if_refused: self.is_relayed_if_refused,
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

    /// Whether a rule has clients of connections that are handled so answered as the target answers.
    pub(crate) fn any_is_exact(rules: &[InterceptRule], handling: Handling) -> bool {
        let mut rules = rules.iter();
        rules.any(|rule| rule.is_exact && rule.handling() == Some(handling))
    }

    /// Fails if the near end could not decide about a connection that a rule with a name is about.
    pub fn check_all(rules: &[InterceptRule]) -> Result<(), UndecidableRules> {
        for is_forwarded in [false, true] {
            let by_name = InterceptRule::from_first_name(rules, is_forwarded);
            let by_name: Vec<_> = by_name.collect();
            let Some(first) = by_name.first() else {
                continue;
            };
            if let Some(other) = by_name.iter().find(|rule| !rule.has_kernel_keys_of(first)) {
                return Err(UndecidableRules::OtherKeys(other.to_string()));
            }
            let mut others = by_name.iter();
            if let Some(other) = others.find(|rule| rule.on_failure != first.on_failure) {
                return Err(UndecidableRules::OtherFailure(other.to_string()));
            }
            if let Some(exact) = by_name.iter().find(|rule| rule.is_exact) {
                return Err(UndecidableRules::Exact(exact.to_string()));
            }
            for (index, rule) in by_name
                .iter()
                .enumerate()
                .filter(|(_, rule)| rule.has_name())
            {
                let mut later = by_name[index..].iter().filter(|rule| !rule.has_name());
                if !later.any(|later| later.covers_all_of(rule)) {
                    return Err(UndecidableRules::NoRest(rule.to_string()));
                }
            }
        }
        Ok(())
    }

    /// Rules that never match, each with an earlier one that has all of its connections.
    pub fn hidden(
        rules: &[InterceptRule],
    ) -> impl Iterator<Item = (&InterceptRule, &InterceptRule)> {
        rules.iter().enumerate().filter_map(|(index, rule)| {
            let hides = |earlier: &&InterceptRule| {
                let has_any = |values: &[String]| values.iter().any(|value| value == "*");
                earlier.is_forwarded() == rule.is_forwarded()
                    && earlier.names.is_empty()
                    && earlier.covers_all_of(rule)
                    && (has_any(&earlier.interfaces) || earlier.interfaces == rule.interfaces)
                    && (earlier.users.is_empty() || earlier.users == rule.users)
                    && (earlier.groups.is_empty() || earlier.groups == rule.groups)
                    && (earlier.cgroups.is_empty() || earlier.cgroups == rule.cgroups)
            };
            Some((rule, rules[..index].iter().find(hides)?))
        })
    }

    /// Whether its ports and networks have all of the other rule's.
    fn covers_all_of(&self, other: &InterceptRule) -> bool {
        let has_nets = |own: &[IpNet], others: &[IpNet]| {
            let has = |net: &IpNet| own.iter().any(|own| own.contains(net));
            own.is_empty() || !others.is_empty() && others.iter().all(has)
        };
        let has_ports = |own: &[RangeInclusive<u16>], others: &[RangeInclusive<u16>]| {
            let has = |range: &RangeInclusive<u16>| {
                let mut own = own.iter();
                own.any(|own| own.contains(range.start()) && own.contains(range.end()))
            };
            own.is_empty() || !others.is_empty() && others.iter().all(has)
        };
        has_ports(&self.ports, &other.ports)
            && has_ports(&self.source_ports, &other.source_ports)
            && has_nets(&self.sources, &other.sources)
            && has_nets(&self.destinations, &other.destinations)
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

    /// Whether a rule is about this name.
    pub(crate) fn any_has_name(rules: &[InterceptRule], name: &str) -> bool {
        let mut patterns = rules.iter().flat_map(|rule| &rule.names);
        patterns.any(|pattern| pattern.covers_name(name))
    }

    /// What happens to a connection that the kernel left to the near end because of a rule with a name, and how the
    /// link carries it. Of several names that the server may have, one is enough.
    pub(crate) fn decide(
        rules: &[InterceptRule],
        is_forwarded: bool,
        client: SocketAddr,
        server: SocketAddr,
        names: &[String],
    ) -> (Action, Carriage) {
        let has_name = |rule: &InterceptRule| {
            let mut patterns = rule.names.iter();
            rule.names.is_empty()
                || patterns.any(|pattern| names.iter().any(|name| pattern.covers_name(name)))
        };
        let matches = |rule: &&InterceptRule| rule.covers(client, server) && has_name(rule);
        match InterceptRule::from_first_name(rules, is_forwarded).find(matches) {
            Some(rule) => {
                let carriage = Carriage {
                    is_excluded: rule.action == Action::Pass,
                    client_address: rule.client_address,
                    is_relayed_if_refused: rule.is_relayed_if_refused,
                };
                (rule.action, carriage)
            }
            // Of rules that were changed, and that the near end or the kernel still have as they were.
            None => (Action::Direct, Carriage::default()),
        }
    }

    /// Whether a rule has connections from there to there reset while the near end does not work. The kernel may know
    /// that it does not match.
    pub(crate) fn any_resets(
        rules: &[InterceptRule],
        client: SocketAddr,
        server: SocketAddr,
    ) -> bool {
        let mut resetting = rules
            .iter()
            .filter(|rule| rule.on_failure == OnFailure::Reset);
        resetting.any(|rule| rule.covers(client, server))
    }

    /// Whether its ports and networks have such a connection.
    fn covers(&self, client: SocketAddr, server: SocketAddr) -> bool {
        let has = |nets: &[IpNet], address: SocketAddr| {
            let address = address.ip().to_canonical();
            nets.is_empty() || nets.iter().any(|net| net.contains(&address))
        };
        self.has_port(server.port())
            && has_port(&self.source_ports, client.port())
            && has(&self.sources, client)
            && has(&self.destinations, server)
    }

    /// Whether the near end itself connects from the addresses of clients, so that the table brings the answers to it.
    pub(crate) fn is_for_clients(&self) -> bool {
        self.action == Action::Direct && self.client_address == ClientAddress::Keep
    }

    /// Whether the near end must know the rule itself.
    pub fn has_name(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether it says something about QUIC, which shows no name and has source ports of its own.
    pub(super) fn is_about_quic(&self) -> bool {
        self.has_port(QUIC_PORT) && self.names.is_empty() && self.source_ports.is_empty()
    }

    /// Whether connections to this port can match.
    pub(super) fn has_port(&self, port: u16) -> bool {
        has_port(&self.ports, port)
    }

    /// Whether connections of this family can match.
    pub(super) fn has_networks_of(&self, is_ipv6: bool) -> bool {
        let has = |nets: &[IpNet]| {
            nets.is_empty() || nets.iter().any(|net| net.addr().is_ipv6() == is_ipv6)
        };
        has(&self.sources) && has(&self.destinations)
    }
}

/// Whether these ports, or any if there are none, have this one.
fn has_port(ports: &[RangeInclusive<u16>], port: u16) -> bool {
    ports.is_empty() || ports.iter().any(|range| range.contains(&port))
}

#[cfg(test)]
mod tests;
