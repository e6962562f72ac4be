//! The route that brings the answers to clients' addresses to this machine: for packets that the table has marked.

use anyhow::Context;
use refrain_gateway::intercept::table::ANSWERS_MARK;

use crate::system_program;

/// The number of the routing table. Others are unlikely to have it.
const ROUTES: u32 = ANSWERS_MARK;

/// Adds the route of each family, unless it is there.
pub(super) fn add() -> anyhow::Result<()> {
    let result = add_of("-4");
    // A machine may be without IPv6.
    let _ = add_of("-6");
    result.context("cannot add the route for answers to clients' addresses")
}

fn add_of(family: &str) -> anyhow::Result<()> {
    let (mark, routes) = (format!("{ANSWERS_MARK:#x}"), ROUTES.to_string());
    if !is_there(family) {
        ip(family, &["rule", "add", "fwmark", &mark, "lookup", &routes])?;
    }
    let route = ["local", "default", "dev", "lo", "table", &routes];
    ip(family, &[&["route", "replace"], &route[..]].concat())?;
    Ok(())
}

/// Removes the routes, if they are there.
pub(super) fn remove() {
    let (mark, routes) = (format!("{ANSWERS_MARK:#x}"), ROUTES.to_string());
    for family in ["-4", "-6"] {
        if is_there(family) {
            let _ = ip(family, &["rule", "del", "fwmark", &mark, "lookup", &routes]);
            let _ = ip(family, &["route", "flush", "table", &routes]);
        }
    }
}

fn is_there(family: &str) -> bool {
    let rules = ip(family, &["rule", "list"]).unwrap_or_default();
    let own = format!("fwmark {ANSWERS_MARK:#x} lookup {ROUTES}");
    rules.lines().any(|line| line.trim_end().ends_with(&own))
}

fn ip(family: &str, arguments: &[&str]) -> anyhow::Result<String> {
    system_program::run("ip", "iproute2", &[&[family], arguments].concat(), "")
}
