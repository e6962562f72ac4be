//! The rules that bring answers to clients' addresses to this machine: a far end's, or those of a near end that connects
//! from these addresses.

use std::net::IpAddr;

use refrain_gateway::{config::Config, intercept::table::ANSWERS_MARK, options::Role};

use super::{Finding, context::Context, firewall, keeper};
use crate::{
    in_words,
    intercept::Loaded,
    kernel_file::{CAP_NET_RAW, has_capability, text_of},
    system_program,
    table::age,
};

/// A failure is a problem for so many seconds: nothing shows that its cause is gone.
const REPORTED_S: f64 = 3600.0;

/// Whether the far end of the file connects from the addresses of clients.
pub(super) fn are_needed(context: &Context) -> bool {
    context.config().is_some_and(is_far_end_with_clients)
}

fn is_far_end_with_clients(config: &Config) -> bool {
    config.role == Role::Far && !config.client_addresses.is_empty()
}

/// Whether they are loaded where they are needed, with their routes.
pub(super) fn answers(context: &Context) -> Vec<Finding> {
    let Some(table) = context.table().ok().filter(|_| context.is_root) else {
        return Vec::new();
    };
    let file = context.file_in_command();
    let of_near_end = table.is_some_and(|table| Loaded::read(table).gate.is_some());
    let load = format!(
        "refrain intercept on --far --config {file}, or `systemctl enable --now refrain-intercept-far`"
    );
    let command = keeper::before(&load);
    if table.is_some_and(firewall::brings_answers) {
        return match of_near_end {
            true => {
                let command = format!("refrain intercept on --config {file}");
                routes(context, &keeper::before(&command))
            }
            false => {
                let mut findings = routes(context, &command);
                findings.extend(keeper::lack(&command));
                findings.extend(went_elsewhere(context));
                findings
            }
        };
    }
    if are_needed(context) {
        const TEXT: &str = "the far end's file has client_addresses, and no rules bring the answers to these addresses here: \
                            connections from them are refused";
        let advice = match of_near_end {
            true => format!(
                "the rules of a near end are loaded, and a machine has those of one gateway: move one of them to another \
                 machine, or refrain intercept off; then {load}"
            ),
            false => command,
        };
        return vec![Finding::problem(TEXT, advice)];
    }
    if table.is_some() && !of_near_end {
        let text = "another program removed the far end's rules from their table: connections from clients' addresses \
                    are refused";
        return vec![Finding::problem(text, command)];
    }
    may_need(context, &command).into_iter().collect()
}

/// Connections whose answers took another way, which the kernel cannot know before.
fn went_elsewhere(context: &Context) -> impl Iterator<Item = Finding> {
    let found = context.found().iter();
    let all = found.filter_map(|found| found.status.answers_elsewhere.as_ref());
    all.filter(|last| last.ago_s < REPORTED_S).map(|last| {
        let (connection, ago) = (&last.connection, age(last.ago_s));
        Finding::problem(
            format!("{ago} ago, the server's answers took another way: a connection to {connection}"),
            "have the server's network route answers to clients through this machine, or remove client_address=keep from \
             the near end's rule",
        )
    })
}

/// A far end that runs here, and may be one with `client_addresses`, which its status does not have.
fn may_need(context: &Context, command: &str) -> Option<Finding> {
    let found = context.found().iter();
    let mut processes = found
        .filter(|found| found.status.role == "far")
        .filter_map(|found| found.place.process());
    let process = processes.find(|process| {
        let status = text_of(format!("/proc/{process}/status")).unwrap_or_default();
        // Root has all capabilities.
        let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
        !is_root && has_capability(&status, CAP_NET_RAW) == Some(true)
    })?;
    // The file of a far end says whether it needs them.
    let is_known = context
        .config()
        .is_some_and(|config| config.role == Role::Far);
    (!is_known).then(|| {
        Finding::note(format!(
            "the far end (process {process}) has CAP_NET_RAW, and no rules bring answers to clients' addresses here"
        ))
        .advise(format!("if its file has client_addresses: {command}"))
    })
}

/// Whether the packets that the rules mark come here: by a rule for routes, and a route.
fn routes(context: &Context, command: &str) -> Vec<Finding> {
    let mut lacks = Vec::new();
    for (family, is_needed) in [
        ("-4", is_needed(context, false)),
        ("-6", is_needed(context, true)),
    ] {
        if !is_needed {
            continue;
        }
        match lack(family) {
            Ok(None) => {}
            Ok(Some(lack)) => lacks.push(Finding::problem(
                format!("{lack}: connections from clients' addresses are refused"),
                format!("load the rules again: {command}"),
            )),
            // A kernel without IPv6 has no such rules.
            Err(_) if family == "-6" => {}
            Err(error) => lacks.push(Finding::skipped(in_words(&error))),
        }
    }
    match lacks.is_empty() {
        true => vec![Finding::ok(
            "answers to clients' addresses come to this machine",
        )],
        false => lacks,
    }
}

/// Whether connections from clients' addresses have this family.
fn is_needed(context: &Context, is_ipv6: bool) -> bool {
    let is_of_family = |address: IpAddr| address.is_ipv6() == is_ipv6;
    match context
        .config()
        .filter(|config| is_far_end_with_clients(config))
    {
        Some(config) => {
            let mut nets = config.client_addresses.iter();
            nets.any(|net| is_of_family(net.addr()))
        }
        None => {
            !is_ipv6
                || !text_of("/proc/net/if_inet6")
                    .unwrap_or_default()
                    .trim()
                    .is_empty()
        }
    }
}

/// The rule or the route that is missing.
fn lack(family: &str) -> anyhow::Result<Option<String>> {
    let list = |arguments: &[&str]| {
        system_program::run("ip", "iproute2", &[&[family], arguments].concat(), "")
    };
    let number = ANSWERS_MARK.to_string();
    let (rule, route) = (
        format!("fwmark {ANSWERS_MARK:#x} lookup {number}"),
        "local default dev lo",
    );
    if !list(&["rule", "list"])?.contains(&rule) {
        return Ok(Some(format!("`ip {family} rule` has no rule \"{rule}\"")));
    }
    // A table without any route is an error.
    let routes = list(&["route", "list", "table", &number]).unwrap_or_default();
    let text = format!("`ip {family} route list table {number}` has no route \"{route}\"");
    Ok((!routes.contains(route)).then_some(text))
}
