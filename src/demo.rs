//! `refrain demo`: how many bytes and seconds a pair saves, shown on this machine.
//!
//! A client fetches objects from an origin web server in three ways, one after the other, over a simulated link:
//!
//! ```text
//! client ─────────────── link ──────────────▶ origin      direct, zstd
//! client ─▶ near end ─── link ─── far end ──▶ origin      pair
//! ```
//!
//! All of them have threads of their own in this program, and talk over loopback.

pub(crate) mod content;
mod link;
mod origin;
mod report;
mod transfer;
mod ways;

use std::path::PathBuf;

use anyhow::Context;
use refrain_gateway::units::BitRate;

use content::Object;
use link::LinkChoice;
use report::{Findings, Report};
use transfer::Transfer;
use ways::{Route, Setting, Way};

/// Direct and zstd transfers that would take longer are not made: their seconds are calculated.
const TRANSFER_SECONDS_MAX: f64 = 20.0;

/// Up to this rate the link limits a transfer, so `auto` reaches `max`. When it does so depends on the machine, and a
/// demo is short. To send the same bytes on all machines, it begins with `max`.
const MAX_EFFORT_UP_TO: BitRate = BitRate(100_000_000);

#[derive(clap::Args)]
pub(crate) struct DemoArguments {
    /// Transfer these files instead of the built-in content, in this order. For a directory: all files
    /// in it and below it, in the order of their paths
    ///
    /// All files together can total at most 2.15 GB, and a directory can contain at most 10000 files.
    files: Vec<PathBuf>,
    /// Simulate a link of this rate and one-way delay, or none
    ///
    /// The rate of each direction is from 1Mbit to 1Gbit, without the headers of TCP and IP. The delay is
    /// at most 500ms. With `none`, all connections are on loopback, and nothing limits them.
    #[arg(long, value_name = "RATE,DELAY", default_value = "20Mbit,25ms")]
    link: LinkChoice,
    /// Search for repeats with this effort [default: max if the link has at most 100Mbit, otherwise auto]
    ///
    /// On such a link, auto also reaches max, after some time that depends on this machine.
    #[arg(long, value_parser = ["auto", "max"])]
    effort: Option<String>,
    /// Fetch this many objects at the same time, 1 to 64
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=64), value_name = "COUNT")]
    flows: u8,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Show the bytes that each layer of the pair saved
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
}

impl DemoArguments {
    fn effort(&self) -> &str {
        match (&self.effort, self.link.0) {
            (Some(effort), _) => effort,
            (None, Some(link)) if link.rate <= MAX_EFFORT_UP_TO => "max",
            (None, _) => "auto",
        }
    }
}

pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<()> {
    let objects = match arguments.files.is_empty() {
        true => content::embedded()?,
        false => content::from_files(&arguments.files)?,
    };
    let report = measure(&objects, arguments)?;
    report.print(arguments.json, arguments.verbose)?;
    anyhow::ensure!(
        report.verified,
        "some received data differs from the sent data"
    );
    Ok(())
}

fn measure(objects: &[Object], arguments: &DemoArguments) -> anyhow::Result<Report> {
    let body_bytes: u64 = objects.iter().map(|object| object.bytes.len() as u64).sum();
    let mut zstd_bytes = 0;
    for object in objects {
        zstd_bytes += zstd::bulk::compress(&object.bytes, origin::ZSTD_LEVEL)?.len() as u64;
    }
    let setting = Setting {
        origin: origin::serve(objects)?,
        link: arguments.link.0,
        flows: arguments.flows,
        effort: arguments.effort(),
    };
    let direct = transfer_or_calculate(Way::Direct, setting, objects, body_bytes)?;
    let zstd = transfer_or_calculate(Way::Zstd, setting, objects, zstd_bytes)?;
    let route = Route::start(Way::Pair, setting)?;
    let pair = Transfer::make(&route, objects, body_bytes, setting.flows)?;
    let peer = route.peer().context("the near gateway has no peer")?;
    let findings = Findings {
        objects: objects.len(),
        body_bytes,
        zstd_bytes,
        direct,
        zstd,
        pair,
        sent: peer.sent,
        received: peer.received,
    };
    Ok(Report::new(setting, findings))
}

/// Transfers all objects by `way`, unless the link's rate and delay make that too long.
fn transfer_or_calculate(
    way: Way,
    setting: Setting<'_>,
    objects: &[Object],
    body_bytes: u64,
) -> anyhow::Result<Transfer> {
    let round_trips = objects.len().div_ceil(setting.flows.into());
    let seconds_min = setting
        .link
        .map(|link| link.seconds_min(body_bytes, round_trips));
    match seconds_min {
        Some(seconds) if seconds > TRANSFER_SECONDS_MAX => Ok(Transfer::calculated(seconds)),
        _ => {
            let route = Route::start(way, setting)?;
            Transfer::make(&route, objects, body_bytes, setting.flows)
        }
    }
}
