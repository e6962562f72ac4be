//! A status as tables for people: the savings first, then peers, targets and flows.
//!
//! With `--verbose`, traffic is shown as a sum that adds up: the bytes of applications, less those that each layer
//! saved, plus those of the link itself, are the bytes on the link.

use std::collections::BTreeSet;
use std::io::{self, Write};

use refrain_gateway::status::{
    Direction, Driver, Flow, Interception, LimitedBy, Peer, Predictions, Status, TargetTraffic,
};

use super::sums::{both, saved, sum};
use crate::table::{Table, age, bytes, percent};

/// Rows of targets that are shown; JSON has all.
const TARGETS_SHOWN: usize = 12;

/// How much is shown.
#[derive(Clone, Copy)]
pub(super) struct View {
    /// Caches, effort and layers too.
    pub is_verbose: bool,
    /// The characters of a line.
    pub columns_max: usize,
}

/// Writes the tables of `status`.
pub(super) fn print(status: &Status, view: View, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", headline(status))?;
    match view.is_verbose {
        true => details(status, out)?,
        false => summary(status, out)?,
    }
    if let Some(store) = &status.store {
        for also in &store.also {
            let held = match also.is_there {
                true => format!("{} chunks, {} in the realm", also.chunks, also.realm_chunks),
                false => "not available yet".to_owned(),
            };
            writeln!(out, "also read: {}: {held}", also.path)?;
            if let Some(trouble) = &also.trouble {
                writeln!(out, "  {trouble}")?;
            }
        }
        if store.damaged_chunks > 0 {
            writeln!(
                out,
                "store: {} damaged chunks were found and dropped; `refrain store verify --store {}` \
                 searches for more",
                store.damaged_chunks, store.path,
            )?;
        }
        let peers = status.peers.iter();
        let unlearnt: u64 = peers.map(|peer| peer.counters.unlearnt_chunks).sum();
        if unlearnt > 0 {
            writeln!(
                out,
                "store: {unlearnt} chunks were not stored because it was too slow"
            )?;
        }
        if let Some(error) = &store.last_error {
            writeln!(out, "store: {error}{}", ago(store.last_error_s))?;
        }
    }
    if let Some(interception) = &status.interception {
        let state = match interception {
            Interception { bypassed: true, .. } => {
                "off (`refrain bypass off` ends this): new connections go direct"
            }
            Interception {
                gate_open: true, ..
            } => "on, if `refrain intercept on` has loaded the rules",
            _ => "off, because no link takes new connections: they go direct",
        };
        writeln!(out, "interception: {state}")?;
    }
    for listener in status.listeners.iter().filter(|it| !it.sites.is_empty()) {
        writeln!(
            out,
            "service: {} at {}",
            listener.sites.join(" "),
            listener.address
        )?;
    }
    if let Some(opening) = &status.opening {
        let (clients, names) = (opening.refused_clients, opening.refused_names);
        let passing = match (clients, names) {
            (0, 0) => String::new(),
            _ => format!(
                " (pass for now: {clients} clients that refused the certificate, {names} names)"
            ),
        };
        writeln!(out, "opening TLS to {}{passing}", opening.names)?;
        let passing = opening.passing_clients.iter().chain(&opening.passing_names);
        for passing in passing.filter(|_| view.is_verbose) {
            writeln!(out, "  passes: {passing}")?;
        }
    }
    writeln!(out)?;
    let columns_max = view.columns_max;
    match view.is_verbose {
        true => {
            links(&status.peers).print(out)?;
            writeln!(out)?;
            traffic(&status.peers).print(out)?;
        }
        false => peers(&status.peers).print_within(columns_max, out)?,
    }
    for peer in status.peers.iter().filter(|_| status.peers.len() > 1) {
        if let (Some(serves), Some(reason)) = (peer.serves, &peer.serves_reason) {
            let new = if serves { "new" } else { "no new" };
            writeln!(out, "{}: gets {new} connections: {reason}", peer.label())?;
        }
    }
    // A peer may have several links, each with a row that has the peer's error.
    let mut told = BTreeSet::new();
    for peer in &status.peers {
        if let Some(error) = &peer.last_error
            && told.insert((&peer.key, error))
        {
            let label = peer.label();
            // Some errors begin with it.
            let error = error.strip_prefix(&format!("{label} ")).unwrap_or(error);
            writeln!(out, "{label}: {error}{}", ago(peer.last_error_s))?;
        }
    }
    writeln!(out)?;
    if !status.targets.is_empty() {
        targets(&status.targets).print_within(columns_max, out)?;
        let more = status.targets.len().saturating_sub(TARGETS_SHOWN);
        if more > 0 {
            writeln!(out, "and {more} more rows (--json prints all)")?;
        }
        writeln!(out)?;
    }
    match status.flows.as_slice() {
        [] => writeln!(out, "no open flows"),
        open if view.is_verbose => flow_details(open).print(out),
        open => flows(open).print_within(columns_max, out),
    }
}

/// What the program is for, in a line.
fn headline(status: &Status) -> String {
    let total = &status.total;
    let (mut app, mut link) = both(&total.sent, &total.received);
    if link == 0 {
        // A program that did not count it.
        for peer in &status.peers {
            let of_peer = both(&peer.sent, &peer.received);
            (app, link) = (app + of_peer.0, link + of_peer.1);
        }
    }
    if app == 0 {
        return "no traffic yet".to_owned();
    }
    let (app_shown, link_shown) = (bytes(app), bytes(link));
    let savings = match link > app {
        true => format!("the link carried {link_shown} for {app_shown} of application data"),
        false => format!(
            "saved {}: {app_shown} of application data, {link_shown} over the link",
            saved(app, link)
        ),
    };
    format!("{savings}, since the gateway started")
}

/// The program in a line.
fn summary(status: &Status, out: &mut impl Write) -> io::Result<()> {
    let store = match &status.store {
        Some(store) => format!(
            "store {} ({} of {})",
            store.path,
            bytes(store.disk_bytes),
            bytes(store.disk_bytes_max)
        ),
        None => "no store".to_owned(),
    };
    writeln!(
        out,
        "{} end, up {}, caches {} (limit {}), mode {}, {store}",
        status.role,
        age(status.uptime_s),
        bytes(status.memory.allocated_bytes),
        bytes(status.memory.bound_bytes),
        status.mode,
    )
}

fn details(status: &Status, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "refrain {} {}, SIMD path {}, up {}{}; memory {} of {} reserved, {} in caches and tables{}",
        status.role,
        status.version,
        status.kernels,
        age(status.uptime_s),
        match status.cpu_s {
            Some(seconds) => format!(", CPU time {seconds:.1} s"),
            None => String::new(),
        },
        bytes(status.memory.reserved_bytes),
        bytes(status.memory.bound_bytes),
        bytes(status.memory.allocated_bytes),
        match status.memory.resident_bytes {
            Some(resident) => format!("; process {}", bytes(resident)),
            None => String::new(),
        },
    )?;
    if let Some(store) = &status.store {
        writeln!(
            out,
            "mode {}; store {}: {} chunks, {} of {} on disk; realm {}: {} chunks",
            status.mode,
            store.path,
            store.chunks,
            bytes(store.disk_bytes),
            bytes(store.disk_bytes_max),
            store.realm,
            store.realm_chunks,
        )
    } else {
        writeln!(out, "mode {}, no store", status.mode)
    }
}

/// One row per peer, with both directions of its traffic.
fn peers(peers: &[Peer]) -> Table {
    let mut table = Table::new("peer  lanes  ?rtt  ?flows  app  link  saved");
    for peer in peers {
        let (app, link) = both(&peer.sent, &peer.received);
        table.row([
            peer.label(),
            lanes(peer),
            round_trip(peer),
            peer.flows_open.to_string(),
            bytes(app),
            bytes(link),
            saved(app, link),
        ]);
    }
    table
}

fn lanes(peer: &Peer) -> String {
    match (peer.up, peer.down_s) {
        (true, _) => peer.lanes.to_string(),
        (false, Some(seconds)) => format!("down {}", age(seconds)),
        (false, None) => "down".to_owned(),
    }
}

fn round_trip(peer: &Peer) -> String {
    let time = peer.round_trip_ms;
    time.map_or("-".to_owned(), |time| format!("{time:.1} ms"))
}

fn links(peers: &[Peer]) -> Table {
    let mut table = Table::new(
        "peer  lanes  rtt  flows  uncached blocks  cache gaps  send cache full  receive cache full  <effort",
    );
    for peer in peers {
        let bypassed = peer.sent.bypassed_blocks + peer.received.bypassed_blocks;
        let filled = |counts: &Direction| {
            percent(counts.cache_filled_bytes as f64, counts.cache_bytes as f64)
        };
        let effort = peer.effort.as_ref().map_or("-".to_owned(), |effort| {
            let (period, level) = (effort.period_bytes, effort.zstd_level);
            format!(
                "sampling period {period} B, zstd {level} ({})",
                effort.reason
            )
        });
        table.row([
            peer.label(),
            lanes(peer),
            round_trip(peer),
            peer.flows_open.to_string(),
            bypassed.to_string(),
            peer.holes.to_string(),
            filled(&peer.sent),
            filled(&peer.received),
            effort,
        ]);
    }
    table
}

fn traffic(peers: &[Peer]) -> Table {
    let mut table =
        Table::new("peer  <direction  app  predicted  matching  zstd  overhead  link  saved");
    for peer in peers {
        for (direction, counts) in [("sent", &peer.sent), ("received", &peer.received)] {
            let cells = [peer.label(), direction.to_owned()];
            table.row(cells.into_iter().chain(sum(counts)));
        }
    }
    table
}

/// What was carried since the start, those first that carried most.
fn targets(targets: &[TargetTraffic]) -> Table {
    let mut table = Table::new("target  ?<data class  ?sent  ?received  link  saved");
    for traffic in targets.iter().take(TARGETS_SHOWN) {
        let (app, link) = (traffic.app_bytes(), traffic.link_bytes());
        table.row([
            traffic
                .target
                .clone()
                .unwrap_or_else(|| "other targets".to_owned()),
            traffic.class.clone(),
            bytes(traffic.sent.app_bytes),
            bytes(traffic.received.app_bytes),
            bytes(link),
            saved(app, link),
        ]);
    }
    table
}

/// The head of the column of waits.
const WAITED: &str = "sending waited for (share of age)";

/// One row per flow, with both directions.
fn flows(flows: &[Flow]) -> Table {
    let mut table = Table::new(&format!(
        "flow  <target  ?<data class  ?age  app  link  saved  ?<{WAITED}"
    ));
    for flow in flows {
        let (app, link) = both(&flow.sent, &flow.received);
        table.row([
            flow.id.to_string(),
            flow.target.clone(),
            flow.class.clone(),
            age(flow.age_s),
            bytes(app),
            bytes(link),
            saved(app, link),
            waited(&flow.limited_by, flow.age_s),
        ]);
    }
    table
}

/// Two rows per flow.
fn flow_details(flows: &[Flow]) -> Table {
    let mut table = Table::new(&format!(
        "flow  <target  <opened  <data class  <direction  <driven by  age  app  predicted  matching  zstd  \
         overhead  link  saved  <{WAITED}  <reason for driver",
    ));
    for flow in flows {
        // What is received was classed at the other end.
        let waited = waited(&flow.limited_by, flow.age_s);
        for (direction, class, counts, driver, waited) in [
            (
                "sent",
                flow.class.as_str(),
                &flow.sent,
                &flow.send_driver,
                waited.as_str(),
            ),
            ("received", "-", &flow.received, &flow.receive_driver, "-"),
        ] {
            let cells = [
                flow.id.to_string(),
                flow.target.clone(),
                flow.opened.clone(),
                class.to_owned(),
                direction.to_owned(),
                driver.by.clone(),
                age(flow.age_s),
            ];
            let why = why(driver, &counts.predictions);
            let last = [waited.to_owned(), why];
            table.row(cells.into_iter().chain(sum(counts)).chain(last));
        }
    }
    table
}

/// What a flow of this age waited for, and for how much of it.
fn waited(limited_by: &LimitedBy, age_s: f64) -> String {
    let waits = [
        ("reader", limited_by.reader_s),
        ("credit", limited_by.credit_s),
        ("link", limited_by.link_s),
        ("CPU", limited_by.processor_s),
    ];
    let waits = waits
        .into_iter()
        .filter(|(_, seconds)| *seconds >= age_s / 100.0);
    let waits: Vec<String> = waits
        .filter(|(_, seconds)| *seconds > 0.0)
        .map(|(name, seconds)| format!("{name} {}", percent(seconds, age_s)))
        .collect();
    match waits.is_empty() {
        true => "-".to_owned(),
        false => waits.join(", "),
    }
}

/// Why an end drives a direction of a flow, and what came of its predictions.
fn why(driver: &Driver, predictions: &Predictions) -> String {
    let mut why = driver.reason.clone();
    if let Some(level) = driver.dispersion.filter(|&level| level > 0) {
        why += &format!("; dispersion {level}");
    }
    for (what, count) in [
        ("offered", predictions.offered_bytes),
        ("too late", predictions.overtaken_bytes),
        ("wasted", predictions.wasted_bytes),
    ] {
        if count > 0 {
            why += &format!("; {what} {}", bytes(count));
        }
    }
    why
}

/// When something was last met.
fn ago(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!(" ({} ago)", age(seconds)))
}

#[cfg(test)]
mod tests;
