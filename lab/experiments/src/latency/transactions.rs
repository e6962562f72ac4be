//! HTTP transactions by the round trips that a direct connection needs, as in EndRE's Table 5.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::{Setup, http, link, objects::Objects};
use crate::{
    chapters::{Figures, Plot},
    median::{median, medians_of},
    over_link::OverLink,
    targets::{Target, at_least},
};

/// About that of the paper's pilot, whose link took 18.4 Mbit/s.
const MBIT: u32 = 20;
const ROUND_TRIP_MS: [u64; 3] = [50, 100, 200];
const ROUND_TRIPS: [u32; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// The first window of a connection, and what a segment carries.
const FIRST_WINDOW: usize = 10;
const SEGMENT_BYTES: usize = 1448;

/// What pairs have carried before the first transaction.
const HISTORY_BYTES: usize = 4 << 20;

/// The cache of each direction, the largest in the paper.
const CACHE: [&str; 2] = ["--cache-size", "10MiB"];
const MATCHING_ALONE: [&str; 6] = [
    "--cache-size",
    "10MiB",
    "--mode",
    "sender",
    "--second-stage",
    "off",
];

const WAYS: [&str; 4] = ["direct, CUBIC", "direct, BBR", "matching only", "default"];
const PAIRS: [usize; 2] = [2, 3];

/// The paper's gain for transactions of more than one round trip, at about 30 % redundancy.
const PAPER_LEAST: f64 = 0.20;

#[derive(Serialize, Deserialize)]
pub(super) struct Transactions {
    runs: usize,
    cells: Vec<Cell>,
}

#[derive(Serialize, Deserialize)]
struct Cell {
    round_trip_ms: u64,
    round_trips: u32,
    bytes: usize,
    /// From the request to the last byte, medians by way.
    transaction_s: [f64; WAYS.len()],
    /// The same from the call of `connect`.
    with_connect_s: [f64; WAYS.len()],
    /// Application bytes that did not cross between the gateways, as a share, by pair.
    saved: [f64; PAIRS.len()],
}

/// A cell's figures while it is measured.
#[derive(Default)]
struct Samples {
    transaction_s: [Vec<f64>; WAYS.len()],
    with_connect_s: [Vec<f64>; WAYS.len()],
    carried: [u64; PAIRS.len()],
}

/// Bytes that slow start takes `round_trips` for: half of what the last of them could carry.
fn bytes_of(round_trips: u32, round_trip_ms: u64) -> usize {
    let path = MBIT as usize * 125 * round_trip_ms as usize;
    let carried = |round: u32| ((FIRST_WINDOW * SEGMENT_BYTES) << round.min(16)).min(path);
    let last = round_trips - 1;
    (0..last).map(carried).sum::<usize>() + carried(last) / 2
}

impl Figures<Setup<'_>> for Transactions {
    const NAME: &'static str = "transactions";
    const TITLE: &'static str = "HTTP transactions by round trips";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let mut cells = Vec::new();
        for round_trip_ms in ROUND_TRIP_MS {
            cells.extend(measure(setup, round_trip_ms)?);
        }
        let runs = setup.runs;
        Ok(Self { runs, cells })
    }

    fn targets(&self) -> Vec<Target> {
        let gain = self.mean_gain(0, PAIRS[0]);
        let text = format!("{:.0} %", 100.0 * gain);
        vec![Target {
            what: "gain of matching only over CUBIC at about 30 % redundancy, mean over transactions of 2 round trips and more",
            asked: "20 % or more",
            measured: Some(at_least(gain, PAPER_LEAST, text)),
        }]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(
            page,
            "A transaction of *n* round trips has the size that a direct connection carries in *n* round trips.\n\
             These are round trips of slow start, from the request on. Slow start begins with\n\
             {FIRST_WINDOW} segments of {SEGMENT_BYTES} bytes. Link: {MBIT} Mbit/s. Each object is real content (five files of Silesia). About 30 % of it was sent\n\
             before. No object is sent twice over one pair. Caches are 10 MiB, the paper's largest. Each pair has\n\
             carried {} MiB before. *Matching only*: `--mode sender --second-stage off`. *Default*: no option\n\
             except the cache. *Saved*: application bytes that did not cross between the gateways, where TLS\n\
             counts. *Gain*: the saved share of the transaction's time; below 0, the pair is slower. Times are\n\
             {}; the ways took turns.\n\n\
             The mean gain of transactions of more than one round trip, over CUBIC and over BBR: {:.0} % and {:.0} % for\n\
             matching only, {:.0} % and {:.0} % by default.\n\n\
             ![Gain by round trips](plots/latency-transactions.svg)\n\n\
             The paper's figure is from other machines and other traffic:\n\n\
             | source | data | redundancy | gain |\n\
             |---|---|--:|--:|\n\
             | EndRE (Aggarwal et al., NSDI 2010), Table 5 | HTTP of an enterprise, replayed over an emulated link: \
             transactions of more than one round trip | about 30 % | 20 to 35 % on average |",
            HISTORY_BYTES >> 20,
            medians_of(self.runs),
            100.0 * self.mean_gain(0, 2),
            100.0 * self.mean_gain(1, 2),
            100.0 * self.mean_gain(0, 3),
            100.0 * self.mean_gain(1, 3),
        )?;
        for round_trip_ms in ROUND_TRIP_MS {
            self.write_table(page, round_trip_ms)?;
        }
        Ok(())
    }

    fn plots(&self) -> anyhow::Result<Vec<Plot>> {
        let places = ROUND_TRIPS.map(|round_trips| round_trips.to_string());
        let mut series = Vec::new();
        for pair in PAIRS {
            for round_trip_ms in ROUND_TRIP_MS {
                let name = format!("{}, {round_trip_ms} ms", WAYS[pair]);
                let gains = self
                    .of(round_trip_ms)
                    .map(|cell| 100.0 * cell.gain(0, pair));
                series.push((name, gains.collect()));
            }
        }
        let words = refrain_plot::Words {
            title: "Time of an HTTP transaction that a pair saves",
            across: "round trips of the direct transfer",
            up: "% of the time of CUBIC",
        };
        Ok(vec![Plot {
            name: "latency-transactions.svg",
            svg: refrain_plot::lines(&words, &places, &series)?,
        }])
    }
}

impl Transactions {
    fn of(&self, round_trip_ms: u64) -> impl Iterator<Item = &Cell> {
        let is_it = move |cell: &&Cell| cell.round_trip_ms == round_trip_ms;
        self.cells.iter().filter(is_it)
    }

    /// Over all transactions of more than one round trip.
    fn mean_gain(&self, direct: usize, pair: usize) -> f64 {
        let longer = self.cells.iter().filter(|cell| cell.round_trips > 1);
        let gains: Vec<f64> = longer.map(|cell| cell.gain(direct, pair)).collect();
        gains.iter().sum::<f64>() / gains.len() as f64
    }

    fn write_table(&self, page: &mut String, round_trip_ms: u64) -> anyhow::Result<()> {
        writeln!(
            page,
            "\n### A round trip of {round_trip_ms} ms\n\n\
             Seconds from the request to the last byte.\n\n\
             | round trips | bytes | {} | {} | {} | saved | gain over CUBIC | over BBR | {} | saved | gain over CUBIC | over BBR |\n\
             |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
            WAYS[0], WAYS[1], WAYS[2], WAYS[3]
        )?;
        for cell in self.of(round_trip_ms) {
            let [cubic, bbr, matching, default] = cell.transaction_s;
            write!(
                page,
                "| {} | {} | {cubic:.3} | {bbr:.3} ",
                cell.round_trips, cell.bytes
            )?;
            for (at, (pair, seconds)) in PAIRS.into_iter().zip([matching, default]).enumerate() {
                write!(
                    page,
                    "| {seconds:.3} | {} % | {} % | {} % ",
                    percent(cell.saved[at]),
                    percent(cell.gain(0, pair)),
                    percent(cell.gain(1, pair)),
                )?;
            }
            writeln!(page, "|")?;
        }
        writeln!(
            page,
            "\nThe same from the call of `connect`, as a client with a new connection waits:\n\n\
             | round trips | {} |\n|--:|--:|--:|--:|--:|",
            WAYS.join(" | ")
        )?;
        for cell in self.of(round_trip_ms) {
            let [cubic, bbr, matching, default] = cell.with_connect_s;
            writeln!(
                page,
                "| {} | {cubic:.3} | {bbr:.3} | {matching:.3} | {default:.3} |",
                cell.round_trips
            )?;
        }
        Ok(())
    }
}

impl Cell {
    /// The share of the time of a direct way that a pair saves.
    fn gain(&self, direct: usize, pair: usize) -> f64 {
        1.0 - self.transaction_s[pair] / self.transaction_s[direct]
    }
}

fn measure(setup: &Setup<'_>, round_trip_ms: u64) -> anyhow::Result<Vec<Cell>> {
    let sizes = ROUND_TRIPS.map(|round_trips| bytes_of(round_trips, round_trip_ms));
    let all = (0..setup.runs).flat_map(|_| sizes);
    let objects = Objects::new(setup.data, [HISTORY_BYTES].into_iter().chain(all))?;
    let served = objects.clone();
    let link = link(MBIT, round_trip_ms / 2);
    let over = OverLink::start(&link, http::origin(move |number| served.bytes(number)))?;
    eprintln!("round trip {round_trip_ms} ms: {}", over.checked);
    let pairs = [
        over.pair(setup.refrain, &MATCHING_ALONE, &MATCHING_ALONE)?,
        over.pair(setup.refrain, &CACHE, &CACHE)?,
    ];
    let history = objects.bytes(0);
    for pair in &pairs {
        over.client(|| http::get(pair.address, 0, &history))?;
    }
    let mut samples = ROUND_TRIPS.map(|_| Samples::default());
    let mut number = 0;
    for run in 0..setup.runs {
        eprintln!("run {} of {}", run + 1, setup.runs);
        for samples in &mut samples {
            number += 1;
            let body = objects.bytes(number);
            for (way, congestion) in ["cubic", "bbr"].into_iter().enumerate() {
                let address = over.direct(congestion)?;
                samples.push(way, over.client(|| http::get(address, number, &body))?);
            }
            for (at, pair) in pairs.iter().enumerate() {
                let before = pair.near()?.received.link_bytes;
                let times = over.client(|| http::get(pair.address, number, &body))?;
                samples.push(PAIRS[at], times);
                samples.carried[at] += pair.near()?.received.link_bytes - before;
            }
        }
    }
    let cells = ROUND_TRIPS.into_iter().zip(sizes).zip(samples);
    let cells = cells.map(|((round_trips, bytes), samples)| Cell {
        round_trip_ms,
        round_trips,
        bytes,
        transaction_s: samples.transaction_s.map(median),
        with_connect_s: samples.with_connect_s.map(median),
        saved: samples
            .carried
            .map(|carried| 1.0 - carried as f64 / (setup.runs * bytes) as f64),
    });
    Ok(cells.collect())
}

impl Samples {
    fn push(&mut self, way: usize, times: http::Times) {
        let transaction = times.last_byte - times.connected;
        self.transaction_s[way].push(transaction.as_secs_f64());
        self.with_connect_s[way].push(times.last_byte.as_secs_f64());
    }
}

/// A share in whole percent. As an integer, it has no zero below zero.
fn percent(share: f64) -> i64 {
    (100.0 * share).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_doubles_until_the_path_is_full() {
        let window = FIRST_WINDOW * SEGMENT_BYTES;
        assert_eq!(bytes_of(1, 200), window / 2);
        assert_eq!(bytes_of(3, 200), 3 * window + 2 * window);
        // 20 Mbit/s carry 500,000 bytes in 200 ms.
        assert_eq!(bytes_of(16, 200) - bytes_of(15, 200), 500_000);
    }
}
