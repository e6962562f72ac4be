//! One flow on paths that hold more than a connection's buffers.

use std::{fmt::Write, net::TcpStream, time::Duration};

use refrain_link::LinkConfig;
use refrain_relay::Rate;
use serde::{Deserialize, Serialize};

use super::{Setup, flows};
use crate::{
    chapters::Figures, czip::median, over_link::OverLink, seeded::Seeded, targets::Target,
};
use flows::Expected;

/// Mbit/s, milliseconds each way, and bytes.
const PATHS: [(u32, u64, u64); 3] = [
    (20, 300, 30_000_000),
    (100, 300, 100_000_000),
    (1_000, 100, 300_000_000),
];
const CONGESTION: &str = "bbr";

#[derive(Serialize, Deserialize)]
pub(super) struct LongPaths {
    runs: usize,
    rows: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    /// In [`PATHS`].
    path: usize,
    direct_s: f64,
    pair_s: f64,
    /// Lanes that the flow used in the end, at most.
    lanes: u64,
}

impl Figures<Setup<'_>> for LongPaths {
    const NAME: &'static str = "long-paths";
    const TITLE: &'static str = "One flow on a long, fast path";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let rows = (0..PATHS.len()).map(|path| measure(setup, path));
        Ok(Self {
            runs: setup.runs,
            rows: rows.collect::<anyhow::Result<_>>()?,
        })
    }

    fn targets(_: Option<&Self>) -> Vec<Target> {
        Vec::new()
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "Seconds from the connect to the last byte of noise; medians of {} runs in which the ways took turns, with \
             {CONGESTION}.\nThe link loses nothing. *At the rate*: the bytes at the link's rate, and a round trip. A path \
             of 100 Mbit/s and 600 ms holds 7.5 MB;\nLinux gives a connection a send buffer of 4 MB at most, of which about \
             2.5 MB are on their way. *Lanes*: the most that\na pair's flow used.\n\n\
             | path | bytes | at the rate | direct | pair | lanes |\n\
             |---|--:|--:|--:|--:|--:|",
            self.runs,
        )?;
        for row in &self.rows {
            let (mbit, delay_ms, bytes) = PATHS[row.path];
            let least_s = 8e-6 * bytes as f64 / f64::from(mbit) + 2e-3 * delay_ms as f64;
            writeln!(
                page,
                "| {mbit} Mbit/s, {delay_ms} ms each way | {} MB | {least_s:.1} | {:.1} | {:.1} | {} |",
                bytes / 1_000_000,
                row.direct_s,
                row.pair_s,
                row.lanes
            )?;
        }
        Ok(())
    }
}

fn measure(setup: &Setup<'_>, path: usize) -> anyhow::Result<Row> {
    let (mbit, delay_ms, bytes) = PATHS[path];
    let link = LinkConfig {
        rate: Some(Rate::mbit(mbit)),
        delay: Duration::from_millis(delay_ms),
        ..LinkConfig::default()
    };
    let over = OverLink::start(&link, flows::origin())?;
    eprintln!("{mbit} Mbit/s, {delay_ms} ms: {}", over.checked);
    let (mut direct_s, mut pair_s, mut lanes) = (Vec::new(), Vec::new(), 0);
    for run in 0..setup.runs {
        let object = Expected::new(Seeded::noise(run as u64, bytes));
        let fetch = |address| {
            let fetched = over.client(|| object.fetch(&TcpStream::connect(address)?))?;
            anyhow::Ok(fetched.last_byte.as_secs_f64())
        };
        direct_s.push(fetch(over.direct(CONGESTION)?)?);
        let options = ["--congestion", CONGESTION];
        let pair = over.pair(setup.refrain, &options, &options)?;
        pair_s.push(fetch(pair.address)?);
        lanes = lanes.max(1 + pair.far()?.counters.strands_added);
        eprintln!(
            "run {}: direct {:.1} s, pair {:.1} s, {lanes} lanes",
            run + 1,
            direct_s[run],
            pair_s[run]
        );
    }
    Ok(Row {
        path,
        direct_s: median(direct_s),
        pair_s: median(pair_s),
        lanes,
    })
}
