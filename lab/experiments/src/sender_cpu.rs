//! What a sender pays for predictions in CPU time: where nothing repeats, and where all does.
//!
//! Real programs: a far gateway between an origin and the link is the sender. Its process' CPU
//! clock, user and system, is read before and after a transfer. The ways that are compared take
//! turns, so that a busy machine slows all of them, and figures are medians over the turns.

mod bare_tls;
mod page;
mod trial;

use std::path::Path;

use serde::Serialize;

use crate::{
    seeded::Seeded,
    targets::{self, WithTargets},
};
pub(crate) use bare_tls::{SUBCOMMAND as BARE_TLS, serve as serve_bare_tls};
use trial::{Sent, Trials};

/// Bytes of a transfer where nothing holds it up.
const OBJECT_BYTES: u64 = 400_000_000;

/// Of one that is sent whole over the slow link: four seconds.
const SLOW_OBJECT_BYTES: u64 = 50_000_000;

/// The near end's store: two objects and some, so that it is full and evicts as it would for years.
const STORE_SIZE: &str = "1GB";

/// The link on which predictions are in time: as fast as one that a shop or an office has.
const MBIT: u32 = 100;
const DELAY_MS: u64 = 10;

/// Seeds of objects. Each that is to be new has one of its own.
const REPEATED_SEED: u64 = 1;
const SLOW_SEED: u64 = 2;
const NEW_SEEDS: u64 = 1000;

/// The far gateway's modes.
const RECEIVER: &str = "receiver";
const OFF: &str = "off";

/// All that was measured, turn by turn.
#[derive(Serialize)]
pub(crate) struct Report {
    machine: String,
    object_bytes: u64,
    slow_object_bytes: u64,
    /// Nothing repeats: `--mode receiver`, and `--mode off` of the same turn.
    new_by_receiver: Vec<Sent>,
    new_by_off: Vec<Sent>,
    /// All repeats: predicted on the slow link; else sent whole, on it and without.
    repeated_by_receiver: Vec<Sent>,
    repeated_by_off: Vec<Sent>,
    repeated_by_bare_tls: Vec<Sent>,
    slow_by_off: Vec<Sent>,
    slow_by_bare_tls: Vec<Sent>,
}

/// The page of results, or all figures as JSON, from the program at `refrain`.
pub(crate) fn run(refrain: &Path, pairs: usize, json: bool) -> anyhow::Result<String> {
    anyhow::ensure!(pairs > 0, "--pairs must be greater than zero");
    let report = &measure(refrain, pairs)?;
    let targets = page::targets(report);
    if json {
        let report = WithTargets { report, targets };
        return Ok(serde_json::to_string_pretty(&report)? + "\n");
    }
    targets::print(&targets);
    page::page(report)
}

fn measure(refrain: &Path, pairs: usize) -> anyhow::Result<Report> {
    let trials = Trials::new(refrain)?;
    let mut report = Report {
        machine: crate::machine::describe(),
        object_bytes: OBJECT_BYTES,
        slow_object_bytes: SLOW_OBJECT_BYTES,
        new_by_receiver: Vec::new(),
        new_by_off: Vec::new(),
        repeated_by_receiver: Vec::new(),
        repeated_by_off: Vec::new(),
        repeated_by_bare_tls: Vec::new(),
        slow_by_off: Vec::new(),
        slow_by_bare_tls: Vec::new(),
    };
    let new = |number: u64| Seeded::noise(NEW_SEEDS + number, OBJECT_BYTES);
    // Something else for the store to offer.
    trials.by_gateways(RECEIVER, new(0))?;
    for turn in 0..pairs {
        let mut order = [RECEIVER, OFF];
        if turn % 2 == 1 {
            order.reverse();
        }
        for (place, mode) in (1..).zip(order) {
            let sent = trials.by_gateways(mode, new(2 * turn as u64 + place))?;
            match mode {
                OFF => report.new_by_off.push(sent),
                _ => report.new_by_receiver.push(sent),
            }
        }
    }

    let repeated = Seeded::noise(REPEATED_SEED, OBJECT_BYTES);
    let slow = Seeded::noise(SLOW_SEED, SLOW_OBJECT_BYTES);
    // At once, the store cannot keep up with a loopback; then what it missed.
    trials.by_gateways(RECEIVER, repeated)?;
    trials.by_gateways_on_slow_link(RECEIVER, repeated)?;
    for _ in 0..pairs {
        let sent = trials.by_gateways_on_slow_link(RECEIVER, repeated)?;
        report.repeated_by_receiver.push(sent);
        let sent = trials.by_gateways(OFF, repeated)?;
        report.repeated_by_off.push(sent);
        report
            .repeated_by_bare_tls
            .push(trials.by_bare_tls(repeated)?);
        let sent = trials.by_gateways_on_slow_link(OFF, slow)?;
        report.slow_by_off.push(sent);
        let sent = trials.by_bare_tls_on_slow_link(slow)?;
        report.slow_by_bare_tls.push(sent);
    }
    Ok(report)
}
