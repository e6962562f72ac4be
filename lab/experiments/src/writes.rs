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
    median::{median, medians_of},
    processes::{Gateways, Setup},
    targets::{self, Measured, Target, all_of, at_least},
};
use exchange::Sink;
use hops::{Haproxies, Relay};

/// Bytes of a write, the largest first: the others are held against it.
const WRITES: [usize; 4] = [65_536, 8_192, 1_400, 64];

/// From this size on, small writes are to be as good as large ones.
const LARGE_WRITE: usize = 1_400;

/// What WANProxy's XCodec reached on such data with 64 KB reads, on another day.
struct Wanproxy {
    data: &'static str,
    cold: Pass,
    again: Pass,
}

const WANPROXY_SILESIA: Wanproxy = Wanproxy {
    data: "Silesia, the same 7 files",
    cold: Pass {
        rate: 14.7,
        ratio: 1.006,
    },
    again: Pass {
        rate: 110.0,
        ratio: 21.9,
    },
};
/// Such data as ten releases of Linux are.
const WANPROXY_TARS: Wanproxy = Wanproxy {
    data: "Django 4.2.1 to 4.2.10, 10 tars, 594.7 MB",
    cold: Pass {
        rate: 28.5,
        ratio: 2.3,
    },
    again: Pass {
        rate: 74.0,
        ratio: 14.4,
    },
};

const WANPROXY_TABLE: &str = "
## WANProxy, measured on another day

These figures did not take turns with those above. WANProxy was measured once for this project, on a noisy virtual
machine with two cores: two proxies on loopback, XCodec without zlib, reads of 64 KB, and a connection for each file.
Every byte was compared.

| data | cold, MB/s | ratio | again, MB/s | ratio |
|---|--:|--:|--:|--:|
";

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

/// What is less than another figure by this much is listed.
const NOTABLY_LESS: f64 = 0.95;

/// One of a cell's passes.
type PassOf = fn(&Cell) -> Pass;

/// The passes of a cell.
const PASSES: [(&str, PassOf); 2] = [("cold", |cell| cell.cold), ("again", |cell| cell.again)];

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
         A client sends each file on its own connection, in writes of one size without Nagle's algorithm. The bytes go through\n\
         a near and a far gateway to a sink that compares every byte. Client, gateways and sink share the machine,\n\
         with default options. All transfers go over sockets on loopback. *Cold*: the gateways have just started.\n\
         *Again*: the same files once more. MB/s = 10^6 application bytes per second. Figures are {}; the\n\
         ways took turns. *Ratio*: application bytes divided by bytes between the gateways in both directions, with\n\
         TLS. *Relay*: one plain TCP relay with the same writes. *Haproxies*: two in a row, {}.\n\
         `lab/data get silesia linux` gets the data sets.\n",
        machine::describe(),
        medians_of(runs),
        haproxy.as_ref().map_or(
            "skipped: haproxy is not installed".to_owned(),
            |haproxy| format!("{}, default options", haproxy.version)
        ),
    );
    let corpora = [
        (corpus::silesia_seven(data)?, WANPROXY_SILESIA),
        (corpus::linux_releases(data, 10)?, WANPROXY_TARS),
    ];
    for (corpus, wanproxy) in &corpora {
        let mut cells = Vec::new();
        for write_bytes in WRITES {
            eprintln!("{}, writes of {write_bytes} bytes", corpus.name);
            cells.push(measure(
                refrain,
                haproxy.as_ref(),
                corpus,
                write_bytes,
                runs,
            )?);
        }
        section(&mut page, corpus, &cells)?;
        targets::print(&targets(corpus, &cells, wanproxy));
    }
    page += WANPROXY_TABLE;
    for (_, Wanproxy { data, cold, again }) in &corpora {
        writeln!(
            page,
            "| {data} | {} | {} | {} | {} |",
            cold.rate, cold.ratio, again.rate, again.ratio
        )?;
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

fn section(page: &mut String, corpus: &Corpus, cells: &[Cell]) -> anyhow::Result<()> {
    writeln!(
        page,
        "\n## {}, {:.1} MB\n\n\
         | bytes per write | relay | haproxies | cold, MB/s | ratio | again, MB/s | ratio |\n\
         |--:|--:|--:|--:|--:|--:|--:|",
        corpus.name,
        corpus.bytes() as f64 / 1e6,
    )?;
    for cell in cells {
        writeln!(
            page,
            "| {} | {:.0} | {} | {:.0} | {:.2} | {:.0} | {:.2} |",
            cell.write_bytes,
            cell.relay,
            cell.haproxies
                .map_or("skipped".to_owned(), |rate| format!("{rate:.0}")),
            cell.cold.rate,
            cell.cold.ratio,
            cell.again.rate,
            cell.again.ratio,
        )?;
    }
    losses(page, cells)
}

/// The sizes of writes at which the pair is slower than others, or saves less than with large writes.
fn losses(page: &mut String, cells: &[Cell]) -> anyhow::Result<()> {
    let largest = &cells[0];
    let sizes = |is_loss: &dyn Fn(&Cell) -> bool| {
        let losses = cells.iter().filter(|cell| is_loss(cell));
        let sizes: Vec<String> = losses.map(|cell| cell.write_bytes.to_string()).collect();
        sizes.join(", ")
    };
    writeln!(
        page,
        "\nThe sizes of writes with which the pair loses more than 5 %:\n\n\
         | | slower than the haproxies | lower ratio than with {} bytes |\n\
         |---|---|---|",
        largest.write_bytes
    )?;
    for (name, pass) in PASSES {
        let slower = sizes(&|cell| {
            let haproxies = cell.haproxies.unwrap_or_default();
            pass(cell).rate < NOTABLY_LESS * haproxies
        });
        let less = sizes(&|cell| pass(cell).ratio < NOTABLY_LESS * pass(largest).ratio);
        writeln!(page, "| {name} | {slower} | {less} |")?;
    }
    Ok(())
}

/// The bounds that the figures are checked against.
fn targets(corpus: &Corpus, cells: &[Cell], wanproxy: &Wanproxy) -> Vec<Target> {
    let target = |asked, measured: Measured| Target {
        what: corpus.name,
        asked,
        measured: Some(measured),
    };
    let largest = &cells[0];
    let enough = largest.haproxies.unwrap_or(f64::INFINITY) * OF_HAPROXIES;
    let fast = |pass: Pass, bound: f64| {
        let bound = bound.min(enough);
        at_least(pass.rate, bound, format!("{:.0} of {bound:.0}", pass.rate))
    };
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for cell in cells {
        for (_, pass) in PASSES {
            let (pass, best) = (pass(cell), pass(largest));
            let is_large = cell.write_bytes >= LARGE_WRITE;
            if is_large {
                rates.push(pass.rate >= OF_RELAY * cell.relay.min(best.rate));
            }
            let share = if is_large { OF_RATIO } else { OF_RATIO_SMALL };
            ratios.push(pass.ratio >= share * best.ratio);
        }
    }
    let all = |met: &[bool]| all_of(met.iter().filter(|&&is_met| is_met).count(), met.len());
    vec![
        target(
            "cold, MB/s with the largest writes: 20 times WANProxy's, or 80 % of two haproxies if that is less",
            fast(largest.cold, TIMES_COLD * wanproxy.cold.rate),
        ),
        target(
            "again, MB/s with the largest writes: 5 times WANProxy's, or 80 % of two haproxies if that is less",
            fast(largest.again, TIMES_AGAIN * wanproxy.again.rate),
        ),
        target(
            "rates from 1400 bytes on: 80 % of the relay's, or of the largest writes' if that is less",
            all(&rates),
        ),
        target(
            "ratios: 95 % of that of the largest writes, a third of it below 1400 bytes",
            all(&ratios),
        ),
    ]
}
