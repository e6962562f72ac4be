//! MAXP on bytes beside SAMPLEBYTE: link bytes and the sender's CPU time, by sampling period, by rung of the effort,
//! and over sockets. What decides which of them is the default, and whether p follows the effort.

pub(crate) mod engine;
mod sockets;

use std::{fmt::Write, path::Path};

use anyhow::ensure;
use refrain_codec::{
    marker::MarkerAlgorithm::{MaxpBytes, SampleByte},
    simd::Backend,
};

use crate::{corpus, machine, markers, median::median};
use engine::{Sending, encode_ns};

const PERIODS: [usize; 5] = [32, 64, 128, 256, 512];

/// The densest and a sparse one: their CPU time is shown.
const CLOCKED_PERIODS: [usize; 2] = [32, 256];

/// The ladder of `auto`: p and zstd's level.
const LADDER: [(usize, i32); 7] = [
    (256, -5),
    (128, -1),
    (64, 1),
    (32, 3),
    (32, 6),
    (32, 9),
    (32, 12),
];

/// zstd 3, where `auto` begins.
pub(crate) const FIRST_RUNG: usize = 3;

/// The page of results.
pub(crate) fn run(data: &Path, refrain: &Path, runs: usize) -> anyhow::Result<String> {
    ensure!(runs > 0, "--runs must be greater than zero");
    let corpora = corpus::load_kinds(data)?;
    let mut page = format!(
        "# The default marker\n\n\
         Written by `cargo run --release -p refrain-experiments -- default-marker --write docs/results-marker.md`.\n\
         {}.\n\n\
         `lab/data get linux pages mail silesia requests` gets the data of seven sets. *Compressed files* are\n\
         Silesia's files as zstd has packed them in `$REFRAIN_DATA`. `lab/data` packs them at a lower level: they are\n\
         larger then. The demo's objects are in `demo/corpus`. No command gets the 33 captures. They come from public\n\
         repositories, some of which state no licence, so they are not published here. The command reads all files in\n\
         `$REFRAIN_DATA/pcap`: put captures of your own there. The table then has other figures in that row.\n\n\
         Ratios below 1 are in favour of `maxp-bytes`. Every byte is compared. CPU time is the sender's: of its\n\
         thread in an engine, of its process over sockets. Of {runs} interleaved runs, engines count the least time\n\
         of each call; other figures are medians. *Worst*: the highest ratio of all data sets. Transfers over\n\
         sockets are short: the CPU time of one data set may be twice as high or half as high by chance.\n",
        machine::describe(),
    );
    by_period(&mut page, &corpora, runs)?;
    by_rung(&mut page, &corpora, runs)?;
    by_encoder(&mut page, data, runs)?;
    sockets::tables(&mut page, refrain, &corpora, runs)?;
    Ok(page)
}

fn by_period(page: &mut String, corpora: &[corpus::Corpus], runs: usize) -> anyhow::Result<()> {
    let backends: Vec<Backend> = Backend::available().collect();
    write!(
        page,
        "\n## By data set\n\n\
         `maxp-bytes` over `samplebyte`, both with the same p. The engines of both ends run in one process, with a\n\
         cache of 128 MiB and zstd {}. Columns: bytes from the sender to the receiver, and the sender's CPU time at\n\
         p = {} and {}.\n\n\
         | data set | MB |",
        LADDER[FIRST_RUNG].1, CLOCKED_PERIODS[0], CLOCKED_PERIODS[1]
    )?;
    for period in PERIODS {
        write!(page, " bytes, p = {period} |")?;
    }
    for backend in &backends {
        write!(page, " CPU, {} |", backend.instruction_set())?;
    }
    write!(page, "\n|---|--:|{}", "--:|".repeat(PERIODS.len()))?;
    writeln!(page, "{}", "---|".repeat(backends.len()))?;
    let mut columns = Columns::default();
    for corpus in corpora {
        eprintln!("{}", corpus.name);
        let of = |algorithm, period, backend| Sending {
            algorithm,
            period,
            backend,
            rung: FIRST_RUNG,
            table: None,
        };
        let mut bytes = Vec::new();
        for period in PERIODS {
            let pair = [MaxpBytes, SampleByte].map(|it| of(it, period, Backend::best()));
            bytes.push(engine::compare(corpus, pair, 1)?.bytes);
        }
        let mut cpu = Vec::new();
        for &backend in &backends {
            for period in CLOCKED_PERIODS {
                let pair = [MaxpBytes, SampleByte].map(|it| of(it, period, backend));
                cpu.push(engine::compare(corpus, pair, runs)?.cpu);
            }
        }
        columns.add(&[bytes, cpu].concat());
        write!(
            page,
            "| {} | {:.1} |",
            corpus.name,
            corpus.bytes() as f64 / 1e6
        )?;
        write_row(page, columns.last())?;
    }
    for (name, row) in [
        ("**median**", columns.medians()),
        ("**worst**", columns.worst()),
    ] {
        write!(page, "| {name} | |")?;
        write_row(page, &row)?;
    }
    Ok(())
}

/// Bytes by period, then a pair of CPU times a backend.
fn write_row(page: &mut String, row: &[f64]) -> std::fmt::Result {
    let (bytes, cpu) = row.split_at(PERIODS.len());
    for ratio in bytes {
        write!(page, " {ratio:.3} |")?;
    }
    for times in cpu.chunks(CLOCKED_PERIODS.len()) {
        let times: Vec<String> = times.iter().map(|ratio| format!("{ratio:.2}")).collect();
        write!(page, " {} |", times.join(", "))?;
    }
    writeln!(page)
}

fn by_rung(page: &mut String, corpora: &[corpus::Corpus], runs: usize) -> anyhow::Result<()> {
    let backends: Vec<Backend> = Backend::available().collect();
    write!(
        page,
        "\n## By rung of the effort\n\n\
         `maxp-bytes` over `samplebyte`, both with the rung's p and a table for p = 32. Figures are medians over\n\
         the data sets, in brackets the worst.\n\n\
         | p, zstd | bytes |",
    )?;
    for backend in &backends {
        write!(page, " CPU, {} |", backend.instruction_set())?;
    }
    writeln!(page, "\n|---|--:|{}", "--:|".repeat(backends.len()))?;
    for (rung, (period, level)) in LADDER.into_iter().enumerate() {
        eprintln!("zstd {level}");
        let mut columns = Columns::default();
        for corpus in corpora {
            let mut row = Vec::new();
            for &backend in &backends {
                let pair = [MaxpBytes, SampleByte].map(|algorithm| Sending {
                    algorithm,
                    period: 32,
                    backend,
                    rung,
                    table: None,
                });
                let ratios = engine::compare(corpus, pair, runs)?;
                if row.is_empty() {
                    row.push(ratios.bytes);
                }
                row.push(ratios.cpu);
            }
            columns.add(&row);
        }
        write!(page, "| {period}, {level} |")?;
        for (median, worst) in columns.medians().into_iter().zip(columns.worst()) {
            write!(page, " {median:.3} ({worst:.3}) |")?;
        }
        page.push('\n');
    }
    Ok(())
}

fn by_encoder(page: &mut String, data: &Path, runs: usize) -> anyhow::Result<()> {
    write!(
        page,
        "\n## The encoder only\n\n\
         `maxp-bytes` with a table for p = 32, without zstd: CPU time per byte in ns, and the share of bytes that\n\
         tokens and literals save. Content is sent twice, the second time edited. *Media* are content of full\n\
         entropy.\n\n\
         | content | |",
    )?;
    for period in PERIODS {
        write!(page, " p = {period} |")?;
    }
    writeln!(page, "\n|---|---|{}", "--:|".repeat(PERIODS.len()))?;
    for (name, content) in markers::contents(data)? {
        let twice = [
            &content[..],
            &markers::edited(&content, markers::EDIT_DISTANCE),
        ]
        .concat();
        for backend in Backend::available() {
            let mut times = vec![Vec::new(); PERIODS.len()];
            let mut saved = Vec::new();
            for _ in 0..runs {
                saved.clear();
                for (period, times) in PERIODS.into_iter().zip(&mut times) {
                    let (ns, percent) = encode_ns(&twice, period, backend)?;
                    times.push(ns);
                    saved.push(percent);
                }
            }
            write!(page, "| {name} | {} |", backend.instruction_set())?;
            for (times, saved) in times.into_iter().zip(saved) {
                write!(page, " {:.2} ns, {saved:.1} % |", median(times))?;
            }
            page.push('\n');
        }
    }
    Ok(())
}

/// Rows of ratios, one a data set.
#[derive(Default)]
struct Columns(Vec<Vec<f64>>);

impl Columns {
    fn add(&mut self, row: &[f64]) {
        self.0.push(row.to_vec());
    }

    fn last(&self) -> &[f64] {
        self.0.last().map_or(&[], Vec::as_slice)
    }

    fn medians(&self) -> Vec<f64> {
        self.each(median)
    }

    fn worst(&self) -> Vec<f64> {
        self.each(|column| column.into_iter().fold(0.0, f64::max))
    }

    fn each(&self, fold: impl Fn(Vec<f64>) -> f64) -> Vec<f64> {
        let columns = 0..self.last().len();
        columns
            .map(|column| fold(self.0.iter().map(|row| row[column]).collect()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_their_median_and_worst() {
        let mut columns = Columns::default();
        for row in [[1.0, 9.0], [3.0, 7.0], [2.0, 8.0], [10.0, 0.0]] {
            columns.add(&row);
        }
        assert_eq!(columns.medians(), [2.5, 7.5]);
        assert_eq!(columns.worst(), [10.0, 9.0]);
    }
}
