//! The cost of interception for connections that cannot gain, and that of `refrain run`, over the lab's link.
//!
//! ```text
//! near namespace                              far namespace
//! client ──────────────────── link ──────────────────▶ origin      direct
//! client ─▶ HAProxy ───────── link ───── HAProxy ────▶ origin      relays, with and without TLS between them
//! client ─▶ refrain near ──── link ── refrain far ───▶ origin      the firewall redirects connections to the origin
//! client ─▶ HAProxy ─▶ near ─ link ─ far ─▶ HAProxy ─▶ origin      the same, of HAProxies that speak TLS
//! ```
//!
//! Ways take turns, in an order that moves from run to run. Each turn has newly started programs.

mod client;
mod page;
mod ways;

use std::{path::PathBuf, time::Duration};

use anyhow::ensure;
use refrain_link::LinkConfig;
use refrain_relay::Rate;
use serde::Serialize;

use crate::{
    machine,
    over_link::OverLink,
    targets::{self, WithTargets},
};
use client::{Exchanges, Started, Transfer};
use ways::{WAYS, Way};

/// The options of `interception`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure this program
    #[arg(long, default_value = "target/release/refrain")]
    refrain: PathBuf,
    /// Measure each way this many times
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print all figures as JSON instead of the page
    #[arg(long)]
    json: bool,
    /// Write to this file instead of standard output
    #[arg(long)]
    pub write: Option<PathBuf>,
}

/// A kind of link.
struct PlaceKind {
    title: &'static str,
    mbit: Option<u32>,
    delay: Duration,
    /// Bytes of a transfer: about ten seconds.
    transfer_bytes: u64,
}

const PLACES: [PlaceKind; 2] = [
    PlaceKind {
        title: "100 Mbit/s and 5 ms each way",
        mbit: Some(100),
        delay: Duration::from_millis(5),
        transfer_bytes: 100_000_000,
    },
    PlaceKind {
        title: "A link as fast as the machine",
        mbit: None,
        delay: Duration::ZERO,
        transfer_bytes: 500_000_000,
    },
];

/// All that was measured.
#[derive(Serialize)]
struct Report {
    machine: String,
    date: String,
    version: String,
    runs: usize,
    haproxy: String,
    places: Vec<PlaceReport>,
    starts: Vec<StartRow>,
}

#[derive(Serialize)]
struct PlaceReport {
    title: &'static str,
    transfer_bytes: u64,
    rows: Vec<Row>,
}

/// A way, turn by turn.
#[derive(Serialize)]
struct Row {
    way: &'static str,
    exchanges: Vec<Exchanges>,
    transfers: Vec<Transfer>,
}

/// A way of programs to the link, turn by turn.
#[derive(Serialize)]
struct StartRow {
    way: &'static str,
    started: Vec<Started>,
}

/// Measures, and gives the page.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    ensure!(arguments.runs > 0, "--runs must be greater than zero");
    ensure!(
        nix::unistd::geteuid().is_root(),
        "only root can make network namespaces: run this as root"
    );
    let mut report = Report {
        machine: machine::processor(),
        date: machine::date()?,
        version: machine::version(),
        runs: arguments.runs,
        haproxy: machine::package_version("haproxy")?,
        places: Vec::new(),
        starts: Vec::new(),
    };
    for kind in &PLACES {
        report.places.push(measure(arguments, kind)?);
    }
    report.starts = client::measure_programs(&arguments.refrain, arguments.runs)?;
    let targets = page::targets(&report);
    if arguments.json {
        let report = &report;
        return Ok(serde_json::to_string_pretty(&WithTargets { report, targets })? + "\n");
    }
    targets::print(&targets);
    page::page(&report)
}

fn measure(arguments: &Arguments, kind: &PlaceKind) -> anyhow::Result<PlaceReport> {
    let over = OverLink::start(
        &LinkConfig {
            rate: kind.mbit.map(Rate::mbit),
            delay: kind.delay,
            ..LinkConfig::default()
        },
        client::origin(),
    )?;
    let row = |way: &Way| Row {
        way: way.name,
        exchanges: Vec::new(),
        transfers: Vec::new(),
    };
    let mut rows: Vec<Row> = WAYS.iter().map(row).collect();
    for run in 0..arguments.runs {
        for turn in 0..WAYS.len() {
            let number = (turn + run) % WAYS.len();
            let way = &WAYS[number];
            let ready = way.start(&over, &arguments.refrain)?;
            let bytes = [way.first_bytes(), kind.transfer_bytes];
            let (exchanges, transfer) = client::measure(&over, &ready, bytes)?;
            eprintln!("{}, {}: {exchanges:?}, {transfer:?}", kind.title, way.name);
            rows[number].exchanges.push(exchanges);
            rows[number].transfers.push(transfer);
        }
    }
    Ok(PlaceReport {
        title: kind.title,
        transfer_bytes: kind.transfer_bytes,
        rows,
    })
}
