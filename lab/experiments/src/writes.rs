//! What the size of an application's writes does to speed and savings: through two gateways,
//! through a plain relay, and through two haproxies in a row, all on loopback.
//!
//! A client sends each object on a connection of its own, in writes of one size, each a segment
//! of its own where nothing holds it up; a sink behind it compares every byte. Once *cold*, with
//! gateways that have just started, and once *again*.

mod exchange;
mod hops;

use std::{fmt::Write, path::Path};

use anyhow::Context;
use refrain_gateway::status::Peer;

use crate::{
    corpus::{self, Corpus},
    machine,
    processes::{Gateways, Setup},
};
use exchange::Sink;
use hops::{Haproxies, Relay};

/// Bytes of a write, the largest first: the others are held against it.
const WRITES: [usize; 4] = [65_536, 8_192, 1_400, 64];

/// From this size on, small writes are to be as good as large ones.
const LARGE_WRITE: usize = 1_400;

/// What WANProxy's XCodec reached on such data with 64 KB reads, in MB/s.
struct Wanproxy {
    cold: f64,
    again: f64,
}

/// On the seven Silesia files.
const WANPROXY_SILESIA: Wanproxy = Wanproxy {
    cold: 14.7,
    again: 110.0,
};
/// On ten releases of Django, as tars: such data as ten releases of Linux are.
const WANPROXY_TARS: Wanproxy = Wanproxy {
    cold: 28.5,
    again: 74.0,
};

/// How many times WANProxy's rate a pair is to reach.
const TIMES_COLD: f64 = 20.0;
const TIMES_AGAIN: f64 = 5.0;
/// What is enough in any case: this much of two haproxies in a row.
const OF_HAPROXIES: f64 = 0.8;
/// What small writes are to reach of a plain relay, or of the largest ones if that is less.
const OF_RELAY: f64 = 0.8;
/// And how much of the largest ones' ratio: at large and at small ones.
const OF_RATIO: f64 = 0.95;
const OF_RATIO_SMALL: f64 = 1.0 / 3.0;

/// One size of writes on one corpus, medians.
struct Cell {
    write_bytes: usize,
    relay: f64,
    haproxies: Option<f64>,
    cold: Pass,
    again: Pass,
}

/// One pass over a corpus, in MB/s and application bytes a byte on the link.
#[derive(Clone, Copy)]
struct Pass {
    rate: f64,
    ratio: f64,
}

/// The page of results, from the program at `refrain`.
pub(crate) fn run(refrain: &Path, data: &Path, runs: usize) -> anyhow::Result<String> {
    let haproxy = hops::haproxy();
    let mut page = format!(
        "# Small and large writes\n\n\
         Written by `cargo run --release -p refrain-experiments -- writes --write docs/results-writes.md`.\n\
         {}.\n\n\
         A client sends each file on its own connection, in writes of one size without Nagle's algorithm, through a\n\
         near and a far gateway to a sink that compares every byte. Client, gateways and sink share the machine,\n\
         with default options. *Cold*: the gateways have just started. *Again*: the same files once more. MB/s =\n\
         10^6 application bytes per second, medians of {runs} interleaved runs. *Ratio*: application bytes divided\n\
         by bytes between the gateways in both directions, with TLS. *Relay*: one plain TCP relay with the same\n\
         writes. *Haproxies*: two in a row, {}. `lab/data get silesia linux` gets the data sets.\n",
        machine::describe(),
        haproxy.as_ref().map_or(
            "skipped: haproxy is not installed".to_owned(),
            |haproxy| format!("{}, default options", haproxy.version)
        ),
    );
    let corpora = [
        (corpus::silesia_seven(data)?, WANPROXY_SILESIA),
        (corpus::linux_releases(data, 10)?, WANPROXY_TARS),
    ];
    for (corpus, wanproxy) in corpora {
        let mut cells = Vec::new();
        for write_bytes in WRITES {
            eprintln!("{}, writes of {write_bytes} bytes", corpus.name);
            cells.push(measure(
                refrain,
                haproxy.as_ref(),
                &corpus,
                write_bytes,
                runs,
            )?);
        }
        section(&mut page, &corpus, &cells, &wanproxy)?;
    }
    Ok(page)
}

fn measure(
    refrain: &Path,
    haproxy: Option<&hops::Haproxy>,
    corpus: &Corpus,
    write_bytes: usize,
    runs: usize,
) -> anyhow::Result<Cell> {
    let sink = Sink::start(corpus)?;
    let relay = Relay::start(sink.address)?;
    let haproxies = haproxy
        .map(|haproxy| Haproxies::start(haproxy, sink.address))
        .transpose()?;
    let megabytes = corpus.bytes() as f64 / 1e6;
    let (mut by_relay, mut by_haproxies) = (Vec::new(), Vec::new());
    let mut passes = [const { (Vec::new(), Vec::new()) }; 2];
    for _ in 0..runs {
        by_relay.push(megabytes / sink.send_all(relay.address, write_bytes)?);
        if let Some(haproxies) = &haproxies {
            by_haproxies.push(megabytes / sink.send_all(haproxies.address, write_bytes)?);
        }
        let gateways = Gateways::start(&Setup {
            refrain,
            target: sink.address,
            listen: None,
            dial: None,
            far: &[],
            near: &[],
            link: None,
        })?;
        let mut before = link_bytes(&gateways.near()?);
        for (rates, ratios) in &mut passes {
            let seconds = sink.send_all(gateways.address, write_bytes)?;
            let peer = gateways.near()?;
            let after = link_bytes(&peer);
            rates.push(megabytes / seconds);
            ratios.push(corpus.bytes() as f64 / (after - before) as f64);
            eprintln!(
                "  {:.0} MB/s, ratio {:.2}; {}",
                megabytes / seconds,
                corpus.bytes() as f64 / (after - before) as f64,
                effort(&peer)?,
            );
            before = after;
        }
    }
    let [cold, again] = passes.map(|(rates, ratios)| Pass {
        rate: median(rates),
        ratio: median(ratios),
    });
    Ok(Cell {
        write_bytes,
        relay: median(by_relay),
        haproxies: (!by_haproxies.is_empty()).then(|| median(by_haproxies)),
        cold,
        again,
    })
}

/// Bytes between the gateways so far, both ways, with all of TLS.
fn link_bytes(peer: &Peer) -> u64 {
    peer.sent.link_bytes + peer.received.link_bytes
}

/// What the near end, which is the sender, does for it.
fn effort(peer: &Peer) -> anyhow::Result<String> {
    let effort = peer.effort.as_ref().context("no link")?;
    Ok(format!(
        "{} blocks, {} bypassed, p = {}, zstd {}: {}",
        peer.sent.blocks,
        peer.sent.bypassed_blocks,
        effort.period_bytes,
        effort.zstd_level,
        effort.reason
    ))
}

fn section(
    page: &mut String,
    corpus: &Corpus,
    cells: &[Cell],
    wanproxy: &Wanproxy,
) -> anyhow::Result<()> {
    let largest = &cells[0];
    writeln!(
        page,
        "\n## {}, {:.1} MB\n\n\
         Targets, compared with WANProxy's figures for such data, with writes of {} bytes: {TIMES_COLD:.0} times\n\
         its rate cold and {TIMES_AGAIN:.0} times its rate again, or 80 % of two haproxies in a row, whichever is\n\
         lower.\n\n\
         | | MB/s | WANProxy | times | two haproxies | target | |\n\
         |---|--:|--:|--:|--:|--:|---|",
        corpus.name,
        corpus.bytes() as f64 / 1e6,
        largest.write_bytes,
    )?;
    for (name, pass, theirs, times) in [
        ("cold", largest.cold, wanproxy.cold, TIMES_COLD),
        ("again", largest.again, wanproxy.again, TIMES_AGAIN),
    ] {
        let enough = largest
            .haproxies
            .map_or(f64::INFINITY, |rate| rate * OF_HAPROXIES);
        let target = (theirs * times).min(enough);
        writeln!(
            page,
            "| {name} | {:.0} | {theirs:.1} | {:.1} | {} | {target:.0} | {} |",
            pass.rate,
            pass.rate / theirs,
            largest
                .haproxies
                .map_or("skipped".to_owned(), |rate| format!("{rate:.0}")),
            verdict(pass.rate >= target)
        )?;
    }
    writeln!(
        page,
        "\nBy the size of the writes. Targets from {LARGE_WRITE} bytes on: 80 % of the relay's rate, or of the rate\n\
         at {} bytes if that is lower, and 95 % of the ratio at that size. Targets for smaller writes: a third of\n\
         that ratio.\n\n\
         | bytes per write | relay | haproxies | cold MB/s | target | | cold ratio | target | | again MB/s | target \
         | | again ratio | target | |\n\
         |--:|--:|--:|--:|--:|---|--:|--:|---|--:|--:|---|--:|--:|---|",
        largest.write_bytes,
    )?;
    for cell in cells {
        write!(
            page,
            "| {} | {:.0} | {}",
            cell.write_bytes,
            cell.relay,
            cell.haproxies
                .map_or("skipped".to_owned(), |rate| format!("{rate:.0}")),
        )?;
        for (pass, best) in [(cell.cold, largest.cold), (cell.again, largest.again)] {
            let is_large = cell.write_bytes >= LARGE_WRITE;
            match is_large {
                true => {
                    let target = OF_RELAY * cell.relay.min(best.rate);
                    write!(
                        page,
                        " | {:.0} | {target:.0} | {}",
                        pass.rate,
                        verdict(pass.rate >= target)
                    )?;
                }
                false => write!(page, " | {:.0} | | ", pass.rate)?,
            }
            let target = best.ratio * if is_large { OF_RATIO } else { OF_RATIO_SMALL };
            write!(
                page,
                " | {:.2} | {target:.2} | {}",
                pass.ratio,
                verdict(pass.ratio >= target)
            )?;
        }
        writeln!(page, " |")?;
    }
    Ok(())
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
