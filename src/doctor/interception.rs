//! The firewall's rules of interception, and the near end that they are for.

use std::{net::SocketAddr, thread::sleep, time::Duration};

use refrain_gateway::{config::Config, intercept::rule::InterceptRule};
use serde_json::Value;

use super::{Finding, context::Context, firewall, kernel_file::text_of, sockets::Listening};
use crate::{
    in_words,
    intercept::{self, Gate, Gateway, Loaded, LoadedRule, control_groups::ControlGroups, nft},
    table::count,
};

/// A gate that is closed is looked at again after this: rules that were just loaded have a closed one.
const GATE_AGAIN: Duration = Duration::from_millis(400);

/// Tables of others that are looked at.
const OTHERS_MAX: usize = 8;

/// The loaded rules, if there are any.
fn loaded(context: &Context) -> Option<&Value> {
    // Others cannot read them: `rules` says so.
    context.table().ok().flatten().filter(|_| context.is_root)
}

/// The rules that are loaded, and those of the file.
pub(super) fn rules(context: &Context) -> Vec<Finding> {
    let rules = context.config().map_or(&[][..], |config| &config.intercept);
    if !context.is_root {
        return vec![
            Finding::skipped("only root can read the firewall").advise("run this as root"),
        ];
    }
    let table = match context.table() {
        Ok(Some(table)) => table,
        Ok(None) => return vec![none_loaded(context, !rules.is_empty())],
        Err(error) if rules.is_empty() => return vec![Finding::skipped(error)],
        Err(error) => {
            return vec![Finding::problem(
                error,
                "fix this, then `refrain intercept on`",
            )];
        }
    };
    let loaded = Loaded::read(table);
    let shown = loaded.rules.iter().map(|rule| {
        Finding::ok(format!(
            "rule {}: {}, {}",
            rule.number,
            count(rule.connections, "connection", "connections"),
            rule.rule
        ))
    });
    let mut findings: Vec<_> = shown.collect();
    if let Some(config) = context
        .config()
        .filter(|config| !config.intercept.is_empty())
    {
        findings.extend(differences(config, &loaded));
    }
    findings
}

fn none_loaded(context: &Context, is_configured: bool) -> Finding {
    let advice = format!(
        "refrain intercept on --config {}, or `systemctl enable --now refrain-intercept`",
        context.file_in_command()
    );
    match (is_configured, context.intercepting().next()) {
        (true, _) => Finding::problem(
            "the file has rules, and none are loaded: connections go direct",
            advice,
        ),
        (false, Some(_)) => {
            Finding::note("a near end takes redirected connections, and no rules are loaded")
                .advise(advice)
        }
        (false, None) => Finding::ok("none are loaded"),
    }
}

/// Rules of the file that are not loaded, and others that are.
fn differences(config: &Config, loaded: &Loaded) -> Vec<Finding> {
    let Ok(groups) = ControlGroups::of(&config.intercept) else {
        return Vec::new();
    };
    let gateway = Gateway {
        port: 1,
        user: 1,
        gets_dns: false,
    };
    let script = groups.script(&config.intercept, &gateway);
    let loadable: Vec<_> = script.lines().filter_map(rule_in).collect();
    let mut has: Vec<_> = loaded.rules.iter().map(|rule| rule.rule.as_str()).collect();
    let mut findings = Vec::new();
    for rule in config.intercept.iter().map(ToString::to_string) {
        match has.iter().position(|other| is_same(&rule, other)) {
            Some(at) => drop(has.remove(at)),
            // Those of control groups that do not exist are not to be loaded.
            None if loadable.iter().any(|other| is_same(&rule, other)) => {
                findings.push(Finding::problem(
                    format!("a rule of the file is not loaded: {rule}"),
                    "load the rules again: `refrain intercept on`, or `systemctl reload refrain-intercept`",
                ));
            }
            None => {}
        }
    }
    let others = has.into_iter().map(|rule| {
        Finding::note(format!("a loaded rule is not in the file: {rule}"))
            .advise("unless --rule gave it, load the rules again")
    });
    findings.extend(others);
    findings
}

/// Whether a rule is the one of a comment, which has only the beginning of a long one.
fn is_same(rule: &str, comment: &str) -> bool {
    match comment.strip_suffix("...") {
        Some(beginning) => rule.starts_with(beginning),
        None => rule == comment,
    }
}

/// The text of a rule in a line of the script.
fn rule_in(line: &str) -> Option<&str> {
    let (_, comment) = line.split_once(" comment \"rule ")?;
    let (_, rule) = comment.strip_suffix('"')?.split_once(": ")?;
    Some(rule)
}

/// Whether connections are redirected, and otherwise why they are not.
pub(super) fn gate(context: &Context) -> Vec<Finding> {
    let Some(table) = loaded(context) else {
        return Vec::new();
    };
    let is_open = |table: &Value| Loaded::read(table).gate == Some(Gate::Open);
    let is_open_later = || {
        sleep(GATE_AGAIN);
        intercept::table()
            .ok()
            .flatten()
            .is_some_and(|table| is_open(&table))
    };
    if !is_open(table) && !is_open_later() {
        return vec![closed(context, table)];
    }
    let opened = Finding::ok("open: connections are redirected");
    let loaded = intercept::table().ok().flatten();
    let rules = loaded.map(|table| Loaded::read(&table).rules);
    let stale = rules
        .into_iter()
        .flatten()
        .filter(|rule| rule.gate == Some(Gate::Closed));
    let stale = stale.map(|LoadedRule { number, rule, .. }| {
        Finding::problem(
            format!("closed for rule {number}, whose connections go direct: {rule}"),
            "restart the near end: it has no listener for this rule yet",
        )
    });
    [opened].into_iter().chain(stale).collect()
}

fn closed(context: &Context, table: &Value) -> Finding {
    let because = |cause: &str| format!("closed: {cause}; connections go direct");
    let near_ends: Vec<_> = context.intercepting().collect();
    let is = |what: fn(&refrain_gateway::status::Interception) -> bool| {
        let mut states = near_ends
            .iter()
            .filter_map(|found| found.status.interception.as_ref());
        states.any(what)
    };
    let is_up = near_ends
        .iter()
        .any(|found| found.status.peers.iter().any(|peer| peer.up));
    match (near_ends.is_empty(), is_up) {
        (true, _) => Finding::problem(
            because("no near end with `transparent` answers here"),
            "see \"gateways\"",
        ),
        _ if is(|state| state.bypassed) => {
            Finding::note(because("`refrain bypass on` was run")).advise("refrain bypass off")
        }
        (_, false) => Finding::problem(
            because("the near end has no link"),
            "see \"gateways\" and \"peers\"",
        ),
        _ if is(|state| state.gate_open) => {
            let port = firewall::redirect_port(table).unwrap_or_default();
            let user = firewall::excepted_user(table).unwrap_or_default();
            Finding::problem(
                because(&format!(
                    "the near end works, but not at port {port} as user {user}, as the rules have it"
                )),
                "load the rules again, with the near end's file and --user of its process",
            )
        }
        _ => Finding::problem(
            because("the near end cannot take new connections"),
            "read its log: it has too few open files, shuts down, or is overloaded",
        ),
    }
}

/// Whether the near end has the port to which the rules redirect, as the user whom they except.
pub(super) fn listener(context: &Context) -> Vec<Finding> {
    let table = loaded(context);
    let Some((table, port)) =
        table.and_then(|table| Some((table, firewall::redirect_port(table)?)))
    else {
        return Vec::new();
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut listening = context.listening().iter();
    vec![match listening.find(|listening| listening.holds(address)) {
        None => Finding::problem(
            format!("nothing listens at port {port}, to which the rules redirect"),
            "start the near end, or load the rules again for its `transparent` port",
        ),
        Some(held) => owner(context, held, port, firewall::excepted_user(table)),
    }]
}

fn owner(context: &Context, held: &Listening, port: u16, excepted: Option<u32>) -> Finding {
    let expected = context
        .intercepting()
        .find_map(|found| found.place.process());
    let process = held.process(expected.as_slice());
    let text = match &process {
        Some(process) => format!(
            "process {} ({}) of user {} has port {port}",
            process.number, process.name, held.user
        ),
        None => format!("a process of user {} has port {port}", held.user),
    };
    let is_near_end =
        process.is_none_or(|process| expected.is_none_or(|expected| process.number == expected));
    match excepted {
        _ if !is_near_end => Finding::problem(
            format!("{text}, and is not the near end that runs here"),
            "stop that process, or use another `transparent` port",
        ),
        Some(excepted) if excepted != held.user => Finding::problem(
            format!(
                "{text}, but the rules except user {excepted}: its connections would be intercepted again"
            ),
            format!(
                "refrain intercept on --config {} --user {}",
                context.file_in_command(),
                held.user
            ),
        ),
        _ => Finding::ok(format!("{text}, and the rules except this user")),
    }
}

/// Whether the near end has the capability that rules of the file need.
pub(super) fn capability(context: &Context) -> Vec<Finding> {
    const CAP_NET_ADMIN: u32 = 12;
    const ADVICE: &str = "write AmbientCapabilities=CAP_NET_ADMIN and CapabilityBoundingSet=CAP_NET_ADMIN below [Service] \
                          with `systemctl edit refrain-near`, and restart it";
    let rules = context.config().map_or(&[][..], |config| &config.intercept);
    let (has_exact, has_names) = (
        rules.iter().any(InterceptRule::is_exact),
        rules.iter().any(InterceptRule::has_name),
    );
    let process = context
        .intercepting()
        .find_map(|found| found.place.process());
    let Some(process) = process.filter(|_| has_exact || has_names) else {
        return Vec::new();
    };
    let status = text_of(format!("/proc/{process}/status")).unwrap_or_default();
    let text = format!("the near end (process {process})");
    let findings = match has_capability(&status, CAP_NET_ADMIN) {
        Some(true) => [Some(Finding::ok(format!("{text} has CAP_NET_ADMIN"))), None],
        Some(false) => {
            let exact = format!("{text} lacks CAP_NET_ADMIN: refusal=exact has no effect");
            let names = format!(
                "{text} lacks CAP_NET_ADMIN: rules with name know names from clients' first bytes only, and not from \
                 DNS answers"
            );
            [
                has_exact.then(|| Finding::problem(exact, ADVICE)),
                has_names.then(|| Finding::note(names).advise(ADVICE)),
            ]
        }
        None => {
            let text = format!("cannot read the capabilities of process {process}");
            [Some(Finding::skipped(text)), None]
        }
    };
    findings.into_iter().flatten().collect()
}

/// Whether the process of such a file below `/proc` has the capability with this number.
fn has_capability(status: &str, capability: u32) -> Option<bool> {
    let mut lines = status.lines();
    let effective = lines.find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    Some(effective >> capability & 1 == 1)
}

/// The control groups of the rules: those that do not exist, and those that were made again.
pub(super) fn control_groups(context: &Context) -> Vec<Finding> {
    let rules = context.config().map_or(&[][..], |config| &config.intercept);
    let advice = "start its service and load the rules again, or use `refrain intercept on --keep`, which follows it";
    let mut findings = match ControlGroups::of(rules) {
        Ok(groups) => {
            let missing = groups.missing().map(|group| {
                let text = format!("\"{group}\" does not exist: its rule matches nothing");
                Finding::note(text).advise(advice)
            });
            missing.collect()
        }
        Err(error) => vec![Finding::problem(
            in_words(&error),
            "mount control groups of version 2, or remove cgroup= from the rules",
        )],
    };
    let gone = loaded(context).map(firewall::rules_of_gone_groups);
    findings.extend(gone.into_iter().flatten().map(|rule| {
        let text = format!("a loaded rule is about a group that is gone: {rule}");
        Finding::problem(text, advice)
    }));
    findings
}

/// Translation of addresses by others, which comes first.
pub(super) fn other_rules(context: &Context) -> Vec<Finding> {
    if loaded(context).is_none() {
        return Vec::new();
    }
    let list = |arguments: &[&str]| -> Option<Value> {
        let printed = nft(&[&["-j", "list"], arguments].concat(), "").ok()?;
        serde_json::from_str(&printed).ok()
    };
    let Some(chains) = list(&["chains"]) else {
        return Vec::new();
    };
    let mut others = firewall::other_chains(&chains);
    others.dedup_by(|one, other| (&one.family, &one.table) == (&other.family, &other.table));
    let notes = others.iter().take(OTHERS_MAX).filter_map(|chain| {
        let (family, table) = (chain.family.as_str(), chain.table.as_str());
        let listed = list(&["table", family, table])?;
        firewall::changes_destinations(&listed).then(|| {
            Finding::note(format!(
                "table {family} {table} (chain {}) can change destinations before these rules: such connections are \
                 not intercepted",
                chain.name
            ))
            .advise("this is usual for docker; compare `nft list ruleset` if a rule here counts too few connections")
        })
    });
    notes.collect()
}

/// Connections that are not TCP, of programs that could use it.
pub(super) fn quic(context: &Context) -> Vec<Finding> {
    if loaded(context).is_none() {
        return Vec::new();
    }
    let Some(connections) = text_of("/proc/net/nf_conntrack") else {
        return vec![Finding::skipped(
            "this kernel has no /proc/net/nf_conntrack: QUIC connections are not counted",
        )];
    };
    vec![match firewall::quic_connections(&connections) {
        0 => Finding::ok("no open connection uses QUIC"),
        number => Finding::note(count(
            number as u64,
            "open QUIC connection bypasses refrain",
            "open QUIC connections bypass refrain",
        ))
        .advise("if they are to use the link, refuse UDP to port 443: programs then use TCP"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_of(texts: &[&str]) -> Vec<InterceptRule> {
        texts
            .iter()
            .map(|text| text.parse().expect("a rule"))
            .collect()
    }

    #[test]
    fn a_long_rule_is_known_by_its_beginning() {
        assert!(is_same("port=80", "port=80") && is_same("port=80,81", "port=80,..."));
        assert!(!is_same("port=80", "port=8") && !is_same("port=80", "port=81..."));
    }

    #[test]
    fn capabilities_are_those_in_effect() {
        let status =
            "Name:\trefrain\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000001000\nCapBnd:\t0\n";
        assert_eq!(has_capability(status, 12), Some(true));
        assert_eq!(has_capability(status, 13), Some(false));
        for status in ["", "CapEff:\tx\n", "CapEff:"] {
            assert_eq!(has_capability(status, 12), None, "{status}");
        }
    }

    #[test]
    fn rules_are_found_in_the_script_that_loads_them() {
        let rules = rules_of(&["port=80 dst=10.0.0.0/8,fd00::/8", "port=443 action=reject"]);
        let groups = ControlGroups::of(&rules).expect("none");
        let script = groups.script(
            &rules,
            &Gateway {
                port: 1,
                user: 1,
                gets_dns: false,
            },
        );
        let mut found: Vec<_> = script.lines().filter_map(rule_in).collect();
        found.sort();
        found.dedup();
        let written: Vec<_> = rules.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(written.iter().all(|rule| found.contains(&rule.as_str())));
        for line in [
            "",
            " comment \"rule",
            " comment \"rule 1\"",
            "comment \"rule 1: a",
        ] {
            assert_eq!(rule_in(line), None);
        }
    }
}
