//! `refrain intercept`: loads and removes the firewall's rules that redirect connections to a near end.

pub(crate) mod control_groups;
mod keep;
pub(crate) mod lock;
pub(crate) mod loops;
pub(crate) mod nft_version;
mod routes;
mod ruleset;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Subcommand;
use control_groups::ControlGroups;
use lock::Lock;
use nix::unistd::Uid;
pub(crate) use refrain_gateway::intercept::table::Gateway;
use refrain_gateway::intercept::{
    removed::Clients,
    rule::InterceptRule,
    table::{COMMENT, TABLE},
};
use ruleset::Ruleset;
pub(crate) use ruleset::SERVICE_USER;
use serde::Serialize;
use serde_json::Value;

use crate::system_program::{self, Failed};

/// The set that is the gate of most connections.
const GATE: &str = "alive";

/// In a script whose table brings answers to clients' addresses here.
const ANSWERS: &str = "chain answers";

/// A script that holds packets, and is only checked.
const QUEUE: &str = "table inet refrain_check {
  chain held {
    type filter hook output priority 0
    tcp dport 1 queue flags bypass to 1
  }
}
";

/// A script that copies packets, and is only checked.
const COPIES: &str = "table inet refrain_check {
  chain names {
    type filter hook input priority 150
    udp sport 53 ct direction reply log group 1
  }
}
";

/// The context of an error.
const NOT_ASKED: &str = "cannot ask open connections to confirm themselves: those that are no longer redirected may wait without an error";

/// How long connections in their handshake may take, between the gate's end and the table's. A table of network
/// address translation that goes earlier leaves some of them hanging.
const HANDSHAKES: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub(crate) struct InterceptArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load the rules, keep them loaded, and remove them at the end
    ///
    /// The command stays until Ctrl-C, SIGTERM or `refrain intercept off`. Connections are redirected only while the near
    /// end runs and has a link: otherwise new connections go direct within half a second.
    ///
    /// Rules are loaded again if another program removed them, or if a control group was created or recreated. SIGHUP
    /// also loads them, from the file as it is then. Each time, new connections go direct for about 0.2 s, and the counts of
    /// connections start again from zero.
    #[command(
        after_help = "Example:\n  refrain intercept on --config /etc/refrain/near.toml --dry-run"
    )]
    On(OnArguments),
    /// End `refrain intercept on`, and remove the rules
    #[command(after_help = "Example:\n  refrain intercept off")]
    Off,
    /// Show the rules, and the number of connections that each matched
    #[command(after_help = "Example:\n  refrain intercept show")]
    Show {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args)]
struct OnArguments {
    /// Read the gateway's options from this file, with its rules
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The file is that of a far end that connects from clients' addresses (`client_addresses`)
    ///
    /// No rule of a far end redirects connections. The command only brings the answers to those addresses to the far end.
    #[arg(long, conflicts_with_all = ["rule", "user"])]
    far: bool,
    /// Add a rule before those of the file, such as 'port=80,443 dst=10.20.0.0/16'
    #[arg(long, value_name = "RULE")]
    rule: Vec<InterceptRule>,
    /// The near end runs as this user [default: refrain]
    #[arg(long, value_name = "NAME|NUMBER")]
    user: Option<String>,
    /// Print the script for `nft -f`, and load nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &InterceptArguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::On(on) if on.dry_run => print(on),
        Command::On(on) => keep::run(on),
        Command::Off => off(),
        Command::Show { json } => show(*json),
    }
}

/// Prints the script.
fn print(arguments: &OnArguments) -> anyhow::Result<()> {
    let ruleset = Ruleset::read(arguments)?;
    let control_groups = ControlGroups::of(&ruleset.rules)?;
    let script = ruleset.script(&control_groups);
    warn_of_what_is_missing(&ruleset.rules, &control_groups);
    // Others cannot have the firewall check it. Another machine may be able to load it.
    if Uid::effective().is_root()
        && let Err(error) = check(&ruleset.rules, &script)
    {
        crate::stderr::warn(crate::in_words(&error));
    }
    Ok(io::stdout().write_all(script.as_bytes())?)
}

fn off() -> anyhow::Result<()> {
    let (_lock, has_ended_keeper) = Lock::take_over()?;
    match table()? {
        // Its process was killed.
        Some(_) => remove(),
        None => {
            routes::remove();
            if !has_ended_keeper {
                crate::stderr::warn("no rules are loaded");
            }
            Ok(())
        }
    }
}

/// Such a control group or interface may come later. A misspelt one never does.
fn warn_of_what_is_missing(rules: &[InterceptRule], control_groups: &ControlGroups) {
    for group in control_groups.missing() {
        crate::stderr::warn(format!(
            "the control group \"{group}\" does not exist: its rule is loaded when it does"
        ));
    }
    let names = rules.iter().flat_map(InterceptRule::interfaces);
    let names: BTreeSet<_> = names.filter(|name| *name != "*").collect();
    for name in names {
        if !Path::new("/sys/class/net").join(name).exists() {
            crate::stderr::warn(format!(
                "no network interface is named \"{name}\" now (in={name})"
            ));
        }
    }
}

/// Fails where the firewall refuses this script.
pub(crate) fn check(rules: &[InterceptRule], script: &str) -> anyhow::Result<()> {
    let Err(refusal) = nft(&["--check", "-f", "-"], script) else {
        return Ok(());
    };
    if !refusal.is::<Failed>() {
        return Err(refusal);
    }
    if let Some(version) = nft_version::too_old() {
        bail!("{version} is too old: update nftables to 1.0 or later ({refusal})");
    }
    if let Some(exact) = rules.iter().find(|rule| rule.is_exact())
        && let Err(error) = nft(&["--check", "-f", "-"], QUEUE)
    {
        bail!(
            "cannot load the rule \"{exact}\": this system's nft and Linux do not know `queue`, which refusal=exact needs: \
             {error} (load its module with `modprobe nft_queue`, use a kernel with CONFIG_NFT_QUEUE, or remove \
             refusal=exact)"
        );
    }
    Err(refusal.context(refused(rules)))
}

/// Whether the firewall can copy DNS answers, if a rule has a name. Without them, rules with a name still work, so this is
/// a warning.
fn can_copy_dns(rules: &[InterceptRule]) -> bool {
    // Others cannot ask the firewall, and only print the script.
    if !rules.iter().any(InterceptRule::has_name) || is_root().is_err() {
        return true;
    }
    let checked = nft(&["--check", "-f", "-"], COPIES);
    // Another error is that of the rules too.
    if let Err(error) = &checked
        && error.is::<Failed>()
        && nft_version::too_old().is_none()
    {
        crate::stderr::warn(format!(
            "names of servers are read from clients' first bytes only, and not from DNS answers: this system's nft and \
             Linux do not know `log group`: {error} (load its modules with `modprobe -a nft_log nfnetlink_log`, or use a \
             kernel with CONFIG_NFT_LOG and CONFIG_NETFILTER_NETLINK_LOG)"
        ));
    }
    checked.is_ok()
}

/// Loads this script in place of what is loaded.
fn replace(rules: &[InterceptRule], script: &str) -> anyhow::Result<()> {
    let loaded = table()?;
    let is_loaded = loaded.is_some();
    // Of a far end, which has no gate.
    let other = loaded.filter(|table| Loaded::read(table).gate.is_none() != rules.is_empty());
    if other.is_some() {
        let end = if rules.is_empty() { "near" } else { "far" };
        bail!(
            "the rules of a {end} end are loaded, and a machine has those of one gateway: remove them first with \
             `refrain intercept off`"
        );
    }
    // A rule that cannot be loaded leaves the loaded ones.
    check(rules, script)?;
    let has_answers = script.contains(ANSWERS);
    if has_answers && let Err(error) = routes::add() {
        if !is_loaded {
            routes::remove();
        }
        return Err(error);
    }
    let gate = if is_loaded { close_gate() } else { Vec::new() };
    let replacement = format!("add table {TABLE}\ndelete table {TABLE}\n{script}");
    let result = nft(&["-f", "-"], &replacement).context("cannot load the rules");
    if result.is_err() {
        // A control group went after the check, for example. The loaded rules work again.
        let gate = gate
            .iter()
            .map(|line| format!("add rule {TABLE} gate {line}\n"));
        let _ = nft(&["-f", "-"], &gate.collect::<String>());
    }
    let are_routes_needed = match result {
        Ok(_) => has_answers,
        // The loaded rules may need them.
        Err(_) => is_loaded,
    };
    if !are_routes_needed {
        routes::remove();
    }
    result.map(drop)
}

/// The loaded table, as nft describes it; an error if another program made it.
pub(crate) fn table() -> anyhow::Result<Option<Value>> {
    let tables = nft(&["-j", "list", "tables"], "")?;
    let tables: Value = serde_json::from_str(&tables).context("nft -j list tables")?;
    let (family, name) = TABLE.split_once(' ').unwrap_or_default();
    let is_ours = |table: &&Value| table["family"] == family && table["name"] == name;
    let mut tables = tables["nftables"].as_array().into_iter().flatten();
    if tables
        .find_map(|entry| entry.get("table").filter(is_ours))
        .is_none()
    {
        return Ok(None);
    }
    let text = nft(&["list", "table", "inet", name], "")?;
    if !text.contains(COMMENT) {
        bail!(
            "the firewall has a table \"{TABLE}\" that this command did not make: rename it, or remove it with \
             `nft delete table {TABLE}`"
        );
    }
    let json = nft(&["-j", "list", "table", "inet", name], "")?;
    Ok(Some(
        serde_json::from_str(&json).context("nft -j list table")?,
    ))
}

/// The rules, of which nft refuses one: a name that it does not know, for example.
fn refused(rules: &[InterceptRule]) -> String {
    let rules = rules.iter().map(|rule| format!("\n  {rule}"));
    format!(
        "cannot load one of these rules:{}",
        rules.collect::<String>()
    )
}

/// Removes the table: first the gate, so that no connection is about to be redirected, then the rest.
fn remove() -> anyhow::Result<()> {
    close_gate();
    let clients = Clients::list().context(NOT_ASKED);
    nft(&["delete", "table", "inet", "refrain"], "").context("cannot remove the rules")?;
    routes::remove();
    let asked = clients.and_then(|clients| clients.ask_for_servers().context(NOT_ASKED));
    if let Err(error) = asked {
        crate::stderr::warn(format!("{error:#}"));
    }
    Ok(())
}

/// Returns the rules that renewed it.
fn close_gate() -> Vec<String> {
    // An error is that of a table without a gate.
    let listed = nft(&["list", "chain", "inet", "refrain", "gate"], "").unwrap_or_default();
    let renewals: Vec<_> = listed
        .lines()
        .filter(|line| line.contains("update @"))
        .collect();
    let sets = renewals.iter().filter_map(|line| {
        let (_, set) = line.split_once("update @")?;
        Some(format!("flush set {TABLE} {}\n", set.split(' ').next()?))
    });
    let script = format!("flush chain {TABLE} gate\n{}", sets.collect::<String>());
    let _ = nft(&["-f", "-"], &script);
    sleep(HANDSHAKES);
    renewals.into_iter().map(str::to_owned).collect()
}

/// What is loaded, as the firewall has it.
#[derive(Serialize)]
pub(crate) struct Loaded {
    /// Whether connections are redirected; none of a far end.
    pub gate: Option<Gate>,
    pub rules: Vec<LoadedRule>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Gate {
    Open,
    Closed,
}

#[derive(Serialize)]
pub(crate) struct LoadedRule {
    pub number: u64,
    /// The beginning of a long one.
    pub rule: String,
    /// Whether its connections are redirected; none if the rule redirects none, or all.
    pub gate: Option<Gate>,
    pub connections: u64,
}

impl Loaded {
    /// Reads the table as `nft -j` describes it.
    pub(crate) fn read(table: &Value) -> Loaded {
        let entries = table["nftables"].as_array().into_iter().flatten();
        // By the sets that are gates.
        let mut gates = BTreeMap::<&str, Gate>::new();
        let mut rules = BTreeMap::<u64, LoadedRule>::new();
        for entry in entries {
            if let Some(set) = entry["set"]["name"].as_str() {
                let elements = entry["set"]["elem"].as_array();
                let is_open = elements.is_some_and(|all| !all.is_empty());
                gates.insert(set, if is_open { Gate::Open } else { Gate::Closed });
            }
            let rule = &entry["rule"];
            let comment = rule["comment"].as_str().and_then(|text| {
                let (number, text) = text.strip_prefix("rule ")?.split_once(": ")?;
                Some((number.parse().ok()?, text))
            });
            if let (Some((number, text)), Some(parts)) = (comment, rule["expr"].as_array()) {
                let counters = parts
                    .iter()
                    .filter_map(|part| part["counter"]["packets"].as_u64());
                let mut sets = parts
                    .iter()
                    .filter_map(|part| part["match"]["right"].as_str()?.strip_prefix('@'));
                let of = rules.entry(number).or_insert_with(|| LoadedRule {
                    number,
                    rule: text.to_owned(),
                    gate: None,
                    connections: 0,
                });
                of.gate = of.gate.or_else(|| gates.get(sets.next()?).copied());
                of.connections += counters.sum::<u64>();
            }
        }
        let (gate, rules) = (gates.get(GATE).copied(), rules.into_values().collect());
        Loaded { gate, rules }
    }
}

fn show(json: bool) -> anyhow::Result<()> {
    let loaded = table()?.as_ref().map(Loaded::read);
    let mut out = io::stdout().lock();
    if json {
        return Ok(writeln!(out, "{}", serde_json::to_string(&loaded)?)?);
    }
    let Some(Loaded { gate, rules }) = loaded else {
        return Ok(writeln!(
            out,
            "no rules are loaded (`refrain intercept on` loads them)"
        )?);
    };
    let any_resets = rules
        .iter()
        .any(|loaded| loaded.rule.contains("on_failure=reset"));
    let state = match gate {
        Some(Gate::Open) => "gate open: connections are redirected",
        Some(Gate::Closed) if any_resets => {
            "gate closed: the near end does not run, has no link, or is bypassed; connections go direct, and those of \
             on_failure=reset only to the near end"
        }
        Some(Gate::Closed) => {
            "gate closed: the near end does not run, has no link, or is bypassed; connections go direct"
        }
        None => "answers to clients' addresses come to the far end of this machine",
    };
    writeln!(out, "{state}")?;
    for LoadedRule {
        number,
        rule,
        gate: own,
        connections,
    } in rules
    {
        let unit = if connections == 1 {
            "connection"
        } else {
            "connections"
        };
        // The near end has no listener for its connections yet.
        let is_stale = gate == Some(Gate::Open) && own == Some(Gate::Closed);
        let stale = if is_stale {
            " (direct until the near end is restarted)"
        } else {
            ""
        };
        writeln!(out, "rule {number}: {connections} {unit}, {rule}{stale}")?;
    }
    Ok(())
}

fn is_root() -> anyhow::Result<()> {
    if !Uid::effective().is_root() {
        bail!("only root can read and change the firewall: run this as root");
    }
    Ok(())
}

pub(crate) fn nft(arguments: &[&str], input: &str) -> anyhow::Result<String> {
    is_root()?;
    system_program::run("nft", "nftables", arguments, input)
}
