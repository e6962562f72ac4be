//! The firewall's rules of interception, and the near end that they are for.

use std::{net::SocketAddr, thread::sleep, time::Duration};

use refrain_gateway::{config::Config, intercept::rule::InterceptRule, units::decimal_bytes};
use serde_json::Value;

use super::{
    Finding, context::Context, firewall, gateways::ADVICE_WITHOUT_SOCKET, keeper,
    sockets::Listening,
};
use crate::{
    in_words,
    intercept::{self, Gate, Loaded, LoadedRule, control_groups::ControlGroups, loops, nft},
    kernel_file::{has_capability, text_of},
};

/// A gate that is closed is looked at again after this: rules that were just loaded have a closed one.
const GATE_AGAIN: Duration = Duration::from_millis(400);

/// Tables of others that are looked at.
pub(super) const OTHERS_MAX: usize = 8;

/// The loaded rules of a near end, if there are any. Those of a far end redirect nothing.
pub(super) fn loaded(context: &Context) -> Option<&Value> {
    // Others cannot read them: `rules` says so.
    let table = context.table().ok().flatten().filter(|_| context.is_root);
    table.filter(|table| Loaded::read(table).gate.is_some())
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
    let way = |of_resets| way_with_closed_gate(table, of_resets);
    let because = |cause: &str| format!("closed: {cause}; {}", way("are refused"));
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
            let way = way("still go through the near end");
            let text = format!("closed: `refrain bypass on` was run; {way}");
            Finding::note(text).advise("refrain bypass off")
        }
        (_, false) => Finding::problem(
            because("the near end has no link"),
            "see \"gateways\" and \"peers\"",
        ),
        _ if is(|state| state.gate_open) => {
            let port = firewall::redirect_port(table).unwrap_or_default();
            let user = firewall::excepted_user(table).unwrap_or_default();
            let way = way("go only to that port");
            Finding::problem(
                format!(
                    "closed: the near end works, but not at port {port} as user {user}, as the rules have it; {way}"
                ),
                keeper::before("load the rules with the near end's file and --user of its process"),
            )
        }
        _ => Finding::problem(
            because("the near end cannot take new connections"),
            "read its log: it has too few open files, shuts down, or is overloaded",
        ),
    }
}

/// What becomes of new connections while the gate is closed. Those of `on_failure=reset` pass no gate.
fn way_with_closed_gate(table: &Value, of_resets: &str) -> String {
    let (gated, ungated) = firewall::redirects(table);
    match (gated, ungated) {
        (_, false) => "connections go direct".to_owned(),
        (false, true) => format!("connections {of_resets} (on_failure=reset)"),
        (true, true) => {
            format!("connections go direct, and those of on_failure=reset {of_resets}")
        }
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
    let held = listening.find(|listening| listening.holds(address));
    let first = firewall::first_port(table).unwrap_or(port);
    let of_file = context.config().and_then(Config::redirected_port);
    if let Some(of_file) = of_file.filter(|of_file| ![0, first].contains(of_file)) {
        return vec![of_another(context, held, first, of_file)];
    }
    vec![match held {
        None => Finding::problem(
            format!("nothing listens at port {port}, to which the rules redirect"),
            format!(
                "start the near end; or {}",
                keeper::before("load the rules for its `transparent` port")
            ),
        ),
        Some(held) => owner(context, held, port, firewall::excepted_user(table)),
    }]
}

/// Rules for another near end than that of the file.
fn of_another(context: &Context, held: Option<&Listening>, port: u16, of_file: u16) -> Finding {
    let process = held.and_then(|held| held.process(&processes(context)));
    let process =
        process.map(|process| format!(" of process {} ({})", process.number, process.name));
    let file = context.file_in_command();
    Finding::problem(
        format!(
            "the loaded rules are for another near end: they redirect to port {port}{}, and that of the file has port \
             {of_file}",
            process.unwrap_or_default()
        ),
        format!(
            "load the rules of this file: {}; or give --config the file of the other near end",
            keeper::before(&format!("refrain intercept on --config {file}"))
        ),
    )
}

/// The processes of the near ends that take redirected connections.
fn processes(context: &Context) -> Vec<u32> {
    let near_ends = context.intercepting();
    near_ends
        .filter_map(|found| found.place.process())
        .collect()
}

fn owner(context: &Context, held: &Listening, port: u16, excepted: Option<u32>) -> Finding {
    let expected = processes(context);
    let process = held.process(&expected);
    let text = match &process {
        Some(process) => format!(
            "process {} ({}) of user {} has port {port}",
            process.number, process.name, held.user
        ),
        None => format!("a process of user {} has port {port}", held.user),
    };
    let has_no_socket = process
        .as_ref()
        .is_some_and(|process| context.has_no_socket(process));
    let is_near_end =
        process.is_none_or(|process| expected.is_empty() || expected.contains(&process.number));
    match excepted {
        _ if !is_near_end && !has_no_socket => Finding::problem(
            format!("{text}, and is not the near end that runs here"),
            "stop that process, or use another `transparent` port",
        ),
        Some(excepted) if excepted != held.user => Finding::problem(
            format!(
                "{text}, but the rules are for user {excepted}: connections of this process would be intercepted again"
            ),
            keeper::before(&format!(
                "refrain intercept on --config {} --user {}",
                context.file_in_command(),
                held.user
            )),
        ),
        // Its user may not use the folder of sockets, or it was started with another one.
        _ if has_no_socket => Finding::note(format!("{text}, and has no local socket here"))
            .advise(ADVICE_WITHOUT_SOCKET),
        _ => Finding::ok(format!("{text}, and the rules are for this user")),
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

/// The control groups of the rules: those that do not exist, and those that were made again.
pub(super) fn control_groups(context: &Context) -> Vec<Finding> {
    let rules = context.config().map_or(&[][..], |config| &config.intercept);
    let advice = "start its service: `refrain intercept on` then loads the rule within a second";
    let groups = match ControlGroups::of(rules) {
        Ok(groups) => groups,
        Err(error) => {
            return vec![Finding::problem(
                in_words(&error),
                "mount control groups of version 2, or remove cgroup= from the rules",
            )];
        }
    };
    let missing: Vec<_> = groups.missing().collect();
    let is_reported = |rule: &String| {
        let mut words = rule.split([' ', ',', '=']);
        words.any(|word| missing.contains(&word))
    };
    let of_groups = loaded(context).map(firewall::rules_of_groups);
    let gone = of_groups
        .into_iter()
        .flatten()
        .filter(|(rule, is_gone)| (*is_gone || has_no_group(rule)) && !is_reported(rule))
        .map(|(rule, _)| format!("a loaded rule is about a group that is gone: {rule}"));
    let missing = missing
        .iter()
        .map(|group| format!("\"{group}\" does not exist: its rule matches nothing"));
    let notes = missing.chain(gone);
    notes
        .map(|text| Finding::note(text).advise(advice))
        .collect()
}

/// Whether no control group of a loaded rule with this comment exists.
fn has_no_group(comment: &str) -> bool {
    let text = comment.split_once(": ").map_or(comment, |(_, text)| text);
    let Ok(rule) = text.parse::<InterceptRule>() else {
        return false;
    };
    let named = rule.control_groups().len();
    let missing = ControlGroups::of(&[rule]).map_or(0, |groups| groups.missing().count());
    named > 0 && missing == named
}

/// Far ends on this machine whose connections the loaded rules redirect.
pub(super) fn far_ends(context: &Context) -> Vec<Finding> {
    let Some((table, user)) =
        loaded(context).and_then(|table| Some((table, firewall::excepted_user(table)?)))
    else {
        return Vec::new();
    };
    let rules = Loaded::read(table).rules;
    let rules = rules.iter().filter_map(|rule| rule.rule.parse().ok());
    let rules: Vec<InterceptRule> = rules.collect();
    let processes = loops::redirected_far_ends(context.found(), &rules, user);
    processes
        .map(|process| Finding::problem(loops::described(process), loops::ADVICE))
        .collect()
}

/// What `nft -j list` prints with these arguments.
pub(super) fn list(arguments: &[&str]) -> Option<Value> {
    let printed = nft(&[&["-j", "list"], arguments].concat(), "").ok()?;
    serde_json::from_str(&printed).ok()
}

/// Translation of addresses by others, which comes first.
pub(super) fn other_rules(context: &Context) -> Vec<Finding> {
    if loaded(context).is_none() {
        return Vec::new();
    }
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

/// What is not TCP, of programs that could use it.
pub(super) fn quic(context: &Context) -> Vec<Finding> {
    let bytes = loaded(context).and_then(firewall::quic_bytes);
    let finding = bytes.map(|bytes| match bytes {
        0 => Finding::ok("no data was received by QUIC (UDP port 443) since the rules were loaded"),
        bytes => Finding::note(format!(
            "{} were received by QUIC (UDP port 443) since the rules were loaded, and bypassed refrain",
            decimal_bytes(bytes)
        ))
        .advise("if it is to use the link, give the rule for port 443 quic=reject: programs then use TCP"),
    });
    finding.into_iter().collect()
}
