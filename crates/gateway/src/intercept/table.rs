//! The table of the firewall that intercepts, as a script for `nft -f`.
//!
//! ```text
//! set alive..     an element for each address family, which expires: the gate of a port
//! set others..    the same, for connections of other machines
//! chain gate      a packet of the gateway to itself renews its element, and is dropped
//! chain local     connections of programs of this machine
//! chain forwarded connections that come in by an interface
//! chain names..   answers of DNS: the near end gets copies, and learns the names of servers
//! chain answers   answers to connections that a gateway makes from clients' addresses: they come here
//! chain held..    the first packets of connections of `refusal=exact`: the near end decides about each
//! chain ended..   what it refuses of these
//! chain quic      counts packets of QUIC, which are not intercepted
//! chain refused.. what `action=reject` and `quic=reject` refuse, before the chains above change destinations
//! ```

use std::{fmt::Write, net::IpAddr};

use ipnet::IpNet;

use super::{
    dns_names::DNS_PORT,
    handling::Handling,
    rule::{Action, InterceptRule, OnFailure, QUIC_PORT, range, show},
};

/// The table's family and name.
pub const TABLE: &str = "inet refrain";

/// What the table's comment says. A table without it is not ours.
pub const COMMENT: &str = "made by refrain intercept";

/// How long the gate stays open without being renewed, in milliseconds.
pub(super) const GATE_MS: u64 = 500;

/// What the gateway sends itself to renew a gate. The second one renews that of other machines' connections too.
pub(super) const RENEWAL: &[u8] = &[];
pub(super) const RENEWAL_OF_OTHERS: &[u8] = &[0];

/// The bytes of a header of UDP.
const UDP_BYTES: usize = 8;

/// The mark of answers to connections from clients' addresses. A route brings packets with it to this machine.
pub const ANSWERS_MARK: u32 = 0x7ee;

/// The mark of packets that are never intercepted: those of a gateway with the right to set it.
pub(crate) const OWN_MARK: u32 = 0x7ef;

/// The mark of first packets of connections that their targets refuse.
pub(super) const REFUSED_MARK: u32 = 0x7ed;

/// What the first packet of a connection has, and no other.
const OPENING: &str = " tcp flags & (syn | ack) == syn ct state new";

/// The gateway that the table is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// The port of its listener for redirected connections. Those after it are for connections that it handles
    /// otherwise.
    pub port: u16,
    /// The number of its user.
    pub user: u32,
    /// Whether it gets copies of DNS answers. Some kernels cannot make them.
    pub gets_dns: bool,
}

/// How the firewall names the control group that a rule names: how many parts of the path count, and the path from
/// where it looks. None if the group is not there.
pub type PathOfGroup<'a> = dyn Fn(&str) -> Option<(usize, String)> + 'a;

/// The script that makes the table of these rules. What a rule says of control groups that are not there is left out.
pub fn script(
    rules: &[InterceptRule],
    gateway: &Gateway,
    path_of_group: &PathOfGroup<'_>,
) -> String {
    let Gateway { port, user, .. } = gateway;
    let handlings = InterceptRule::handlings(rules);
    let mut text = format!("table {TABLE} {{\n  comment \"{COMMENT}\"\n");
    let are_forwarded = rules.iter().any(InterceptRule::is_forwarded);
    let sides = if are_forwarded {
        &[false, true][..]
    } else {
        &[false]
    };
    for handling in &handlings {
        for is_forwarded in sides {
            text += &format!(
                "  set {} {{
    type nf_proto
    flags dynamic,timeout
    timeout {GATE_MS}ms
  }}
",
                gate(*handling, *is_forwarded)
            );
        }
    }
    text += "  chain gate {\n    type filter hook output priority 0\n";
    for handling in &handlings {
        let port = port + handling.port_offset();
        for listener in ["ip daddr 127.0.0.1", "ip6 daddr ::1"] {
            // The last one drops the packet.
            for is_forwarded in sides.iter().rev() {
                let (length, verdict) = match is_forwarded {
                    true => (
                        format!(" udp length {}", UDP_BYTES + RENEWAL_OF_OTHERS.len()),
                        "",
                    ),
                    false => (String::new(), " drop"),
                };
                text += &format!(
                    "    meta skuid {user} {listener} udp dport {port}{length} update @{} \
                     {{ meta nfproto timeout {GATE_MS}ms }}{verdict}\n",
                    gate(*handling, *is_forwarded)
                );
            }
        }
    }
    text += "  }\n";
    for handling in handlings.iter().filter(|_| gateway.gets_dns) {
        if let Handling::ByName { is_forwarded } = *handling {
            add_names(&mut text, is_forwarded, port + handling.port_offset());
        }
    }
    if rules.iter().any(InterceptRule::is_for_clients) {
        add_answers(&mut text);
    }
    text += &format!(
        "  chain quic {{
    type filter hook prerouting priority 150
    iifname != \"lo\" udp sport {QUIC_PORT} counter
  }}
"
    );
    for is_forwarded in [false, true] {
        let own = rules.iter().enumerate();
        let own: Vec<_> = own
            .filter(|(_, rule)| rule.is_forwarded() == is_forwarded)
            .collect();
        if own.is_empty() {
            continue;
        }
        let (name, hook) = match is_forwarded {
            false => ("local", "output"),
            true => ("forwarded", "prerouting"),
        };
        begin(
            &mut text,
            name,
            &format!("type nat hook {hook} priority -100"),
            gateway,
            is_forwarded,
        );
        // Connections that were open before are new to connection tracking, which looks at one of their later packets.
        text += "    tcp flags & (fin | syn | rst | ack) != syn return\n";
        for (number, rule) in &own {
            let verdict = match (rule.handling(), rule.action) {
                (Some(handling), _) => {
                    let gate = match rule.on_failure {
                        OnFailure::Direct => {
                            format!(" meta nfproto @{}", gate(handling, is_forwarded))
                        }
                        OnFailure::Reset => String::new(),
                    };
                    let port = port + handling.port_offset();
                    format!("{gate} counter redirect to :{port}")
                }
                // The chain that refuses them counts them.
                (None, Action::Reject) => " return".to_owned(),
                (None, _) => " counter return".to_owned(),
            };
            let mut own = |verdict: &str| {
                add(&mut text, rule, *number, &tcp(rule), verdict, path_of_group);
            };
            own(&verdict);
            if verdict.contains('@') {
                // With a closed gate too, no later rule is about the connection.
                own(" return");
            }
        }
        text += "  }\n";
        let end_of = |is_last: fn(&InterceptRule) -> bool| {
            let last = own.iter().rposition(|(_, rule)| is_last(rule));
            last.map_or(0, |last| last + 1)
        };
        let (refused, without_quic, held) = (
            end_of(is_refused_by_kernel),
            end_of(|rule| rule.rejects_quic),
            end_of(InterceptRule::is_exact),
        );
        if held > 0 {
            // Before network address translation. Between the two are the rules of iptables' mangle.
            let [queues, resets] =
                [-160, -140].map(|priority| format!("type filter hook {hook} priority {priority}"));
            begin(
                &mut text,
                &format!("held_{name}"),
                &queues,
                gateway,
                is_forwarded,
            );
            for (number, rule) in &own[..held] {
                let mut own = |verdict: &str| {
                    let opening = format!("{}{OPENING}", tcp(rule));
                    add(&mut text, rule, *number, &opening, verdict, path_of_group);
                };
                if let Some(handling) = rule.handling().filter(|_| rule.is_exact()) {
                    let gate = gate(handling, is_forwarded);
                    let queue = port + handling.port_offset();
                    own(&format!(
                        " meta nfproto @{gate} queue flags bypass to {queue}"
                    ));
                }
                own(" return");
            }
            text += &format!(
                "  }}
  chain ended_{name} {{
    {resets}
    meta mark {REFUSED_MARK:#x}{OPENING} reject with tcp reset
  }}
"
            );
        }
        if refused > 0 || without_quic > 0 {
            let (name, hook) = match is_forwarded {
                false => ("refused_local", "output"),
                true => ("refused_forwarded", "forward"),
            };
            begin(
                &mut text,
                name,
                &format!("type filter hook {hook} priority -150"),
                gateway,
                is_forwarded,
            );
            // Answers of servers here are packets of output too.
            text += "    ct direction reply return\n";
            for (number, rule) in &own[..refused] {
                let verdict = match is_refused_by_kernel(rule) {
                    true => " counter reject with tcp reset",
                    false => " accept",
                };
                add(&mut text, rule, *number, &tcp(rule), verdict, path_of_group);
            }
            let about_quic = own[..without_quic].iter();
            for (number, rule) in about_quic.filter(|(_, rule)| rule.is_about_quic()) {
                let verdict = match (rule.rejects_quic, rule.handling(), rule.on_failure) {
                    // Programs would fall back to connections that go direct.
                    (true, Some(handling), OnFailure::Direct) => {
                        format!(" meta nfproto @{} reject", gate(handling, is_forwarded))
                    }
                    (true, _, _) => " reject".to_owned(),
                    _ => " accept".to_owned(),
                };
                let quic = format!(" udp dport {QUIC_PORT}");
                add(&mut text, rule, *number, &quic, &verdict, path_of_group);
            }
            text += "  }\n";
        }
    }
    text += "}\n";
    text
}

/// The script of the table for a far end that connects from the addresses of clients.
pub fn script_of_far_end() -> String {
    let mut text = format!("table {TABLE} {{\n  comment \"{COMMENT}\"\n");
    add_answers(&mut text);
    text += "}\n";
    text
}

/// Adds the chain that copies DNS answers to programs of this machine, or to other machines, after all translation of
/// addresses. Without connection tracking's word that it is an answer, anyone could send one.
fn add_names(text: &mut String, is_forwarded: bool, group: u16) {
    let (name, hook) = match is_forwarded {
        false => ("names_local", "input"),
        // Those of a resolver on this machine too.
        true => ("names_forwarded", "postrouting"),
    };
    *text += &format!(
        "  chain {name} {{
    type filter hook {hook} priority 150
    udp sport {DNS_PORT} ct direction reply log group {group}
  }}
"
    );
}

/// Adds the chain for answers to connections from clients' addresses. It asks for no protocol: ICMP about these
/// connections, such as "fragmentation needed", must come here too.
fn add_answers(text: &mut String) {
    *text += &format!(
        "  chain answers {{
    type filter hook prerouting priority mangle
    socket transparent 1 socket wildcard 0 meta mark set {ANSWERS_MARK:#x} accept
  }}
"
    );
}

/// The set that is the gate of connections that are handled so, of this machine's programs or of other machines.
fn gate(handling: Handling, is_forwarded: bool) -> String {
    let name = if is_forwarded { "others" } else { "alive" };
    match handling.port_offset() {
        0 => name.to_owned(),
        offset => format!("{name}_{offset}"),
    }
}

fn is_refused_by_kernel(rule: &InterceptRule) -> bool {
    rule.handling().is_none() && rule.action == Action::Reject
}

/// Begins a chain, with the connections that no rule is about: the gateway's own, and those to this machine.
fn begin(text: &mut String, name: &str, kind: &str, gateway: &Gateway, is_forwarded: bool) {
    *text += &format!("  chain {name} {{\n    {kind}\n    meta mark {OWN_MARK:#x} return\n");
    // Root is many programs: there, the mark alone decides.
    if !is_forwarded && gateway.user != 0 {
        *text += &format!("    meta skuid {} return\n", gateway.user);
    }
    *text += "    fib daddr type local return\n";
}

/// Adds a rule: a line for each family and control group that it has.
fn add(
    text: &mut String,
    rule: &InterceptRule,
    number: usize,
    transport: &str,
    verdict: &str,
    path_of_group: &PathOfGroup<'_>,
) {
    let families: &[Option<bool>] = match rule.sources.is_empty() && rule.destinations.is_empty() {
        true => &[None],
        false => &[Some(false), Some(true)],
    };
    let cgroups: Vec<Option<(usize, String)>> = match rule.cgroups.is_empty() {
        true => vec![None],
        false => rule
            .cgroups
            .iter()
            .filter_map(|path| path_of_group(path).map(Some))
            .collect(),
    };
    for family in families {
        if family.is_some_and(|is_ipv6| !rule.has_networks_of(is_ipv6)) {
            continue;
        }
        for cgroup in &cgroups {
            let mut line = String::from("   ");
            if rule.is_forwarded() && !rule.interfaces.iter().any(|name| name == "*") {
                let names = rule.interfaces.iter().map(|name| format!("\"{name}\""));
                line += &format!(" iifname {}", set(names));
            }
            for (key, accounts) in [("skuid", &rule.users), ("skgid", &rule.groups)] {
                if !accounts.is_empty() {
                    let accounts = accounts.iter().map(|account| match is_number(account) {
                        true => account.clone(),
                        false => format!("\"{account}\""),
                    });
                    line += &format!(" meta {key} {}", set(accounts));
                }
            }
            if let Some((level, path)) = cgroup {
                line += &format!(" socket cgroupv2 level {level} \"{path}\"");
            }
            if let Some(is_ipv6) = family {
                let protocol = if *is_ipv6 { "ip6" } else { "ip" };
                for (key, nets) in [("saddr", &rule.sources), ("daddr", &rule.destinations)] {
                    match nets.is_empty() {
                        // The other key names the family.
                        true => {}
                        false => {
                            line += &format!(" {protocol} {key} {}", set(nets_of(nets, *is_ipv6)))
                        }
                    }
                }
            }
            // Writing to a text cannot fail.
            let _ = writeln!(
                text,
                "{line}{transport}{verdict} comment \"{}\"",
                comment(rule, number)
            );
        }
    }
}

/// The connections of a rule, by their ports.
fn tcp(rule: &InterceptRule) -> String {
    let mut text = String::new();
    for (key, ports) in [("sport", &rule.source_ports), ("dport", &rule.ports)] {
        if !ports.is_empty() {
            text += &format!(" tcp {key} {}", set(ports.iter().map(range)));
        }
    }
    match text.is_empty() {
        true => " meta l4proto tcp".to_owned(),
        false => text,
    }
}

/// A rule's number and text, cut to the length that the kernel keeps.
fn comment(rule: &InterceptRule, number: usize) -> String {
    const BYTES_MAX: usize = 127;
    const CUT: &str = "...";
    let mut text = format!("rule {}: {rule}", number + 1);
    if text.len() > BYTES_MAX {
        text.truncate(text.floor_char_boundary(BYTES_MAX - CUT.len()));
        text += CUT;
    }
    text
}

fn nets_of(nets: &[IpNet], is_ipv6: bool) -> impl Iterator<Item = String> {
    let is_of_family = move |net: &&IpNet| matches!(net.addr(), IpAddr::V6(_)) == is_ipv6;
    nets.iter().filter(is_of_family).map(show)
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A value, or a set of several.
fn set(values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.collect();
    match &values[..] {
        [value] => value.clone(),
        values => format!("{{ {} }}", values.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_answers_are_copied_only_for_rules_with_a_name_where_the_firewall_can() {
        let script = |gets_dns: bool, rules: &[&str]| {
            let rules: Vec<_> = rules
                .iter()
                .map(|rule| rule.parse().expect("a rule"))
                .collect();
            let gateway = Gateway {
                port: 15001,
                user: 1,
                gets_dns,
            };
            script(&rules, &gateway, &|_| None)
        };
        let local = ["port=80 name=a.example action=direct", "port=80"];
        let forwarded = ["in=* port=80 name=a.example action=direct", "in=* port=80"];
        for (gets_dns, rules, groups) in [
            (true, &local[..], &["hook input", "log group 15013"][..]),
            (true, &forwarded, &["hook postrouting", "log group 15014"]),
            (true, &local[1..], &[]),
            (false, &local, &[]),
        ] {
            let script = script(gets_dns, rules);
            assert!(groups.iter().all(|part| script.contains(part)), "{script}");
            let count = usize::from(!groups.is_empty());
            assert_eq!(script.matches("log group").count(), count, "{script}");
        }
    }
}
