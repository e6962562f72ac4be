//! `refrain demo`: what a pair saves, shown on this machine.
//!
//! An origin web server, a far and a near gateway and a client, each with threads of its
//! own, talk over loopback; the bytes on the link are counted on its TCP connections.

pub(crate) mod content;
mod world;

use std::{
    io::Write,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use anyhow::Context;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::{
    progress, report,
    table::{Table, bytes, count, percent},
};
use content::Object;
use world::World;

#[derive(clap::Args)]
pub(crate) struct DemoArguments {
    /// Transfer these files instead of the built-in content, in this order. For a directory: all files
    /// in it and below it, in the order of their paths
    files: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Search for repeats with this effort
    #[arg(long, default_value = "auto", value_parser = ["auto", "max"])]
    effort: String,
    /// Fetch this many objects at the same time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64), value_name = "COUNT")]
    flows: u8,
}

/// What a demo found.
#[derive(Debug, Serialize)]
struct Report {
    objects: usize,
    /// How many were fetched at the same time.
    flows: u8,
    /// Plain bytes that the flows carried, both ways.
    app_bytes: u64,
    /// Bytes on the link's TCP connections, both ways, TLS and its handshakes included.
    link_bytes: u64,
    /// What `zstd -3` makes of the same, each file on its own.
    zstd_only_bytes: u64,
    /// Whether every byte arrived equal.
    verified: bool,
    layers: Layers,
    seconds: f64,
    app_mb_per_s: f64,
}

/// What became of the bytes, layer by layer.
#[derive(Debug, Serialize)]
struct Layers {
    max_match_saved_bytes: i64,
    zstd_saved_bytes: i64,
    /// Frames, TLS, handshakes, acknowledgements.
    overhead_bytes: i64,
}

pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<()> {
    let objects = match arguments.files.is_empty() {
        true => content::embedded()?,
        false => content::from_files(&arguments.files)?,
    };
    let report = measure(objects, arguments)?;
    report::to_stdout(arguments.json, &report, |out| print(&report, out))?;
    anyhow::ensure!(
        report.verified,
        "some received data differs from the sent data"
    );
    Ok(())
}

fn measure(objects: Vec<Object>, arguments: &DemoArguments) -> anyhow::Result<Report> {
    let body_bytes: u64 = objects.iter().map(|object| object.bytes.len() as u64).sum();
    let progress = progress::bar("{bar:30} {decimal_bytes} of {decimal_total_bytes} {wide_msg}");
    progress.set_length(body_bytes);
    let world = World::start(&objects, &arguments.effort)?;
    let began = Instant::now();
    let verified = fetch_all(&world, &objects, arguments.flows, &progress)?;
    let seconds = began.elapsed().as_secs_f64();
    progress.finish_and_clear();
    let status = world.status();
    let peer = status
        .peers
        .first()
        .context("the near gateway has no peer")?;
    let (sent, received) = (&peer.sent, &peer.received);
    let app_bytes = sent.app_bytes + received.app_bytes;
    let link_bytes = sent.link_bytes + received.link_bytes;
    let max_match_saved_bytes = sent.matching_saved_bytes + received.matching_saved_bytes;
    let zstd_saved_bytes = sent.zstd_saved_bytes + received.zstd_saved_bytes;
    let mut zstd_only_bytes = app_bytes - body_bytes;
    for object in &objects {
        zstd_only_bytes += zstd::bulk::compress(&object.bytes, 3)?.len() as u64;
    }
    Ok(Report {
        objects: objects.len(),
        flows: arguments.flows,
        app_bytes,
        link_bytes,
        zstd_only_bytes,
        verified,
        layers: Layers {
            max_match_saved_bytes,
            zstd_saved_bytes,
            overhead_bytes: link_bytes as i64
                - (app_bytes as i64 - max_match_saved_bytes - zstd_saved_bytes),
        },
        seconds,
        app_mb_per_s: body_bytes as f64 / seconds / 1e6,
    })
}

/// Fetches every object, so many at a time; says whether each byte arrived equal.
fn fetch_all(
    world: &World,
    objects: &[Object],
    flows: u8,
    progress: &ProgressBar,
) -> anyhow::Result<bool> {
    let next = AtomicUsize::new(0);
    let fetch_some = || {
        let mut verified = true;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(object) = objects.get(index) else {
                return anyhow::Ok(verified);
            };
            progress.set_message(object.name.clone());
            let received = world
                .fetch(index)
                .with_context(|| format!("cannot fetch \"{}\"", object.name))?;
            verified &= received == object.bytes;
            progress.inc(object.bytes.len() as u64);
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..flows).map(|_| scope.spawn(fetch_some)).collect();
        clients
            .into_iter()
            .map(|client| client.join().expect("clients do not panic"))
            .try_fold(true, |all, verified| Ok(all & verified?))
    })
}

fn print(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    let share = |part: i64| percent(part as f64, report.app_bytes as f64);
    let mut table = Table::new("  bytes  share of application bytes");
    let mut row = |what: &str, count: i64| {
        let shown = match count {
            0.. => bytes(count as u64),
            _ => format!("-{}", bytes(count.unsigned_abs())),
        };
        table.row([what.to_owned(), shown, share(count)]);
    };
    row("application bytes", report.app_bytes as i64);
    row("  saved by Max-Match", report.layers.max_match_saved_bytes);
    row(
        "  saved by zstd on the rest",
        report.layers.zstd_saved_bytes,
    );
    row("  added by frames and TLS", report.layers.overhead_bytes);
    row("link bytes", report.link_bytes as i64);
    row(
        "only zstd -3, each file separately",
        report.zstd_only_bytes as i64,
    );
    writeln!(
        out,
        "{}, from the origin through the far and the near gateway to the client:\n",
        count(report.objects as u64, "object", "objects")
    )?;
    table.print(out)?;
    writeln!(out)?;
    let link_bytes = report.link_bytes;
    writeln!(
        out,
        "{} bytes than without refrain, {} than only zstd",
        compared(link_bytes, report.app_bytes),
        compared(link_bytes, report.zstd_only_bytes),
    )?;
    writeln!(
        out,
        "{:.1} MB/s ({:.2} s, {} at a time)",
        report.app_mb_per_s,
        report.seconds,
        count(report.flows.into(), "object", "objects")
    )?;
    match report.verified {
        true => writeln!(out, "verified: received data is identical to sent data"),
        false => writeln!(out, "FAILED: SOME RECEIVED DATA DIFFERS FROM SENT DATA"),
    }
}

/// How much fewer or more `bytes` are than `others`.
fn compared(bytes: u64, others: u64) -> String {
    let times = others as f64 / bytes as f64;
    // Below that, it would be shown as 1.0 times.
    if times >= 1.05 {
        return format!("{times:.1} times fewer");
    }
    let difference = percent(bytes.abs_diff(others) as f64, others as f64);
    let word = if bytes > others { "more" } else { "fewer" };
    format!("{difference} {word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_are_not_shown_as_fewer() {
        for (bytes, others, text) in [
            (2_530_000, 43_700_000, "17.3 times fewer"),
            (100, 105, "1.1 times fewer"),
            (100, 104, "3.8 % fewer"),
            (100, 100, "0.0 % fewer"),
            (111, 100, "11.0 % more"),
            (30_000, 200, "14900.0 % more"),
        ] {
            assert_eq!(compared(bytes, others), text);
        }
    }
}
