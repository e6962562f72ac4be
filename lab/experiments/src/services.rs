//! The cost of a service for small requests, and the memory of streams that wait, over loopback.
//!
//! ```text
//! h2load ─────────────────────────────────────▶ nginx      direct
//! h2load ─▶ nginx ──────── TLS ──────── nginx ▶ nginx      two nginx in a row
//! h2load ─▶ refrain near ─ lanes ─ refrain far ▶ nginx     a service by the site's own name
//! ```
//!
//! All connections speak TLS. Ways take turns, in an order that moves from run to run. Each turn has newly started programs
//! between the clients and the site.

mod idle;
mod load;
mod page;
mod ways;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::{
    machine,
    targets::{self, WithTargets},
};
use load::{Requests, VERSIONS};
use ways::{Site, WAYS};

/// The options of `services`.
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

/// All that was measured.
#[derive(Serialize)]
struct Report {
    machine: String,
    date: String,
    version: String,
    runs: usize,
    nginx: String,
    h2load: String,
    rows: Vec<Row>,
    /// Bytes of memory per idle stream, of the near and the far end, run by run.
    idle_stream_bytes: Vec<[f64; 2]>,
}

/// A version of HTTP by a way, turn by turn.
#[derive(Serialize)]
struct Row {
    version: &'static str,
    way: &'static str,
    turns: Vec<Requests>,
}

/// Measures, and gives the page.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    ensure!(arguments.runs > 0, "--runs must be greater than zero");
    let mut report = Report {
        machine: machine::describe(),
        date: machine::date()?,
        version: machine::version(),
        runs: arguments.runs,
        nginx: machine::package_version("nginx")?,
        h2load: machine::package_version("nghttp2-client")?,
        rows: Vec::new(),
        idle_stream_bytes: Vec::new(),
    };
    let site = Site::start()?;
    for version in &VERSIONS {
        report.rows.extend(measure(arguments, &site, version)?);
    }
    for _ in 0..arguments.runs {
        let bytes = idle::measure(&arguments.refrain)?;
        eprintln!("idle streams: {bytes:?} bytes each");
        report.idle_stream_bytes.push(bytes);
    }
    let targets = page::targets(&report);
    if arguments.json {
        let report = &report;
        return Ok(serde_json::to_string_pretty(&WithTargets { report, targets })? + "\n");
    }
    targets::print(&targets);
    page::page(&report)
}

fn measure(
    arguments: &Arguments,
    site: &Site,
    version: &'static load::Version,
) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = WAYS
        .iter()
        .map(|way| Row {
            version: version.name,
            way: way.name,
            turns: Vec::new(),
        })
        .collect();
    for run in 0..arguments.runs {
        for turn in 0..WAYS.len() {
            let number = (turn + run) % WAYS.len();
            let way = &WAYS[number];
            let ready = (way.start)(site, &arguments.refrain)?;
            let requests = load::requests(&ready, version)
                .with_context(|| format!("{}, {}", version.name, way.name))?;
            eprintln!("{}, {}: {requests:?}", version.name, way.name);
            rows[number].turns.push(requests);
        }
    }
    Ok(rows)
}
