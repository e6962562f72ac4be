//! The route that brings the answers to clients' addresses to this machine: for packets that the table has marked.

use std::fs;

use anyhow::{Context, bail};
use refrain_gateway::intercept::table::ANSWERS_MARK;

use crate::system_program;

/// The number of the routing table, and the preference of the rule that leads there: before those of other programs.
const NUMBER: u32 = ANSWERS_MARK;

/// Others may have added the rule more than once.
const RULES_MAX: usize = 8;

/// The settings of all interfaces, and those of each.
const SETTINGS: &str = "/proc/sys/net/ipv4/conf";

/// Adds the route of each family, unless it is there.
pub(super) fn add() -> anyhow::Result<()> {
    check_settings()?;
    let result = add_of("-4");
    // A machine may be without IPv6.
    let _ = add_of("-6");
    result.context("cannot add the route for answers to clients' addresses")
}

/// With this setting, the kernel looks for the route back to a packet's sender by its mark too, finds that of clients, and
/// drops the packet.
fn check_settings() -> anyhow::Result<()> {
    let interfaces = fs::read_dir(SETTINGS).into_iter().flatten().flatten();
    for interface in interfaces {
        let setting = interface.path().join("src_valid_mark");
        let value = fs::read_to_string(&setting).unwrap_or_default();
        if value.trim() == "1" {
            let name = interface.file_name();
            bail!(
                "Linux would drop the answers to clients' addresses: set net.ipv4.conf.{}.src_valid_mark to 0 (wg-quick \
                 sets it to 1)",
                name.display()
            );
        }
    }
    Ok(())
}

fn add_of(family: &str) -> anyhow::Result<()> {
    let (rule, route) = (rule(), route());
    let added = ip(family, &[&["rule", "add"], &words(&rule)[..]].concat());
    if added
        .as_ref()
        .is_err_and(|error| !error.to_string().contains("File exists"))
    {
        added?;
    }
    ip(
        family,
        &[&["route", "replace"], &words(&route)[..]].concat(),
    )?;
    Ok(())
}

/// Removes the routes, if they are there.
pub(super) fn remove() {
    let (rule, route) = (rule(), route());
    for family in ["-4", "-6"] {
        let delete = || ip(family, &[&["rule", "del"], &words(&rule)[..]].concat());
        let _ = (0..RULES_MAX).take_while(|_| delete().is_ok()).count();
        let _ = ip(family, &[&["route", "del"], &words(&route)[..]].concat());
    }
}

fn rule() -> String {
    format!("pref {NUMBER} fwmark {ANSWERS_MARK:#x} lookup {NUMBER}")
}

fn route() -> String {
    format!("local default dev lo table {NUMBER}")
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn ip(family: &str, arguments: &[&str]) -> anyhow::Result<String> {
    system_program::run("ip", "iproute2", &[&[family], arguments].concat(), "")
}
