//! All columns over all captures: EndRE's Table 4, and the figures of both papers.

use std::{collections::BTreeMap, fmt::Write, process::Command};

use anyhow::{Context, ensure};
use refrain_analysis::columns::ALL;
use refrain_plot::Words;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Setup;
use crate::{
    chapters::{Figures, Plot},
    targets::{Target, at_most},
};

const PERIODS: [u32; 5] = [32, 64, 128, 256, 512];
const ALGORITHMS: [&str; 4] = ["modp", "maxp", "fixed", "samplebyte"];

/// The average per site of EndRE's Table 4, in percent.
const PAPER: [(&str, f64); 9] = [
    ("gzip", 13.0),
    ("modp-32", 25.0),
    ("maxp-32", 26.0),
    ("fixed-32", 19.0),
    ("samplebyte-32", 26.0),
    ("samplebyte-zstd", 30.0),
    ("chunk-match", 22.0),
    ("endre-dot", 34.0),
    ("middlebox", 39.0),
];

#[derive(Serialize, Deserialize, Default)]
pub(super) struct Captures {
    captures: usize,
    payload_bytes: u64,
    flows: u64,
    encrypted_bytes: u64,
    compressed_bytes: u64,
    columns: Vec<Column>,
    protocols: Vec<Protocol>,
    cache_sizes: Vec<u64>,
    /// By protocol, and of all under the empty name: bytes that each size saves.
    cache_saved: BTreeMap<String, Vec<u64>>,
    same_pair_bytes: u64,
    other_pair_bytes: u64,
    age_limits_seconds: Vec<u64>,
    match_ages: Vec<u64>,
    chain_lengths: Vec<u64>,
    chunk_ages: Vec<u64>,
}

#[derive(Serialize, Deserialize, Default)]
struct Column {
    name: String,
    title: String,
    sent_bytes: u64,
    cpu_seconds: f64,
}

#[derive(Serialize, Deserialize, Default)]
struct Protocol {
    name: String,
    bytes: u64,
    saved_bytes: BTreeMap<String, i64>,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().into_iter().flatten().map(number).collect()
}

fn add(sums: &mut Vec<u64>, further: &[u64]) {
    sums.resize(sums.len().max(further.len()), 0);
    for (sum, further) in sums.iter_mut().zip(further) {
        *sum += further;
    }
}

impl Captures {
    fn add(&mut self, report: &Value) {
        self.captures += 1;
        self.payload_bytes += number(&report["payload_bytes"]);
        self.flows += number(&report["tcp_flows"]);
        self.encrypted_bytes += number(&report["encrypted_bytes"]);
        self.compressed_bytes += number(&report["compressed_bytes"]);
        for (name, column) in report["columns"].as_object().into_iter().flatten() {
            let place = self.columns.iter().position(|known| known.name == *name);
            let place = place.unwrap_or_else(|| {
                self.columns.push(Column {
                    name: name.clone(),
                    title: column["title"].as_str().unwrap_or_default().to_owned(),
                    ..Column::default()
                });
                self.columns.len() - 1
            });
            self.columns[place].sent_bytes += number(&column["sent_bytes"]);
            self.columns[place].cpu_seconds += column["cpu_seconds"].as_f64().unwrap_or_default();
        }
        for row in report["protocols"].as_array().into_iter().flatten() {
            let name = row["protocol"].as_str().unwrap_or_default();
            let place = self.protocols.iter().position(|known| known.name == name);
            let place = place.unwrap_or_else(|| {
                self.protocols.push(Protocol {
                    name: name.to_owned(),
                    ..Protocol::default()
                });
                self.protocols.len() - 1
            });
            let protocol = &mut self.protocols[place];
            protocol.bytes += number(&row["bytes_to_server"]) + number(&row["bytes_to_client"]);
            for (name, saved) in row["saved_bytes"].as_object().into_iter().flatten() {
                *protocol.saved_bytes.entry(name.clone()).or_default() +=
                    saved.as_i64().unwrap_or_default();
            }
        }
        let cache = &report["cache"];
        if cache.is_object() {
            self.cache_sizes = numbers(&cache["sizes"]);
            let all = self.cache_saved.entry(String::new()).or_default();
            add(all, &numbers(&cache["saved_bytes"]));
            for row in cache["protocols"].as_array().into_iter().flatten() {
                let name = row["protocol"].as_str().unwrap_or_default().to_owned();
                let saved = self.cache_saved.entry(name).or_default();
                add(saved, &numbers(&row["saved_bytes"]));
            }
        }
        let matches = &report["matches"];
        self.same_pair_bytes += number(&matches["same_pair_bytes"]);
        self.other_pair_bytes += number(&matches["other_pair_bytes"]);
        self.age_limits_seconds = numbers(&report["age_limits_seconds"]);
        add(&mut self.match_ages, &numbers(&matches["by_age"]));
        add(
            &mut self.chain_lengths,
            &numbers(&report["chains"]["by_chain_length"]),
        );
        add(&mut self.chunk_ages, &numbers(&report["chains"]["by_age"]));
    }

    fn saved(&self, name: &str) -> Option<f64> {
        let column = self.columns.iter().find(|column| column.name == name)?;
        Some(100.0 - 100.0 * column.sent_bytes as f64 / self.payload_bytes.max(1) as f64)
    }

    fn by_period(&self, figure: impl Fn(&Column) -> f64) -> Vec<(String, Vec<f64>)> {
        let lines = ALGORITHMS.iter().map(|algorithm| {
            let values = PERIODS.iter().map(|period| {
                let name = format!("{algorithm}-{period}");
                let column = self.columns.iter().find(|column| column.name == name);
                column.map_or(f64::NAN, &figure)
            });
            (algorithm.to_uppercase(), values.collect())
        });
        lines.collect()
    }
}

impl Figures<Setup<'_>> for Captures {
    const NAME: &'static str = "captures";
    const TITLE: &'static str = "All columns over the captures";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let mut figures = Self::default();
        let mut command = Command::new(setup.refrain);
        command
            .args(["analyze", "--each", "--json", "--columns", "all"])
            .args(&setup.captures);
        let output = command.output().context("cannot run the program")?;
        // A capture that ends within a packet is one of them.
        ensure!(
            !output.stdout.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        for line in output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            figures.add(&serde_json::from_slice(line)?);
        }
        ensure!(
            figures.captures == setup.captures.len(),
            "a capture has no report"
        );
        Ok(figures)
    }

    fn targets(&self) -> Vec<Target> {
        let difference = || {
            let own = self.saved("samplebyte-32")?;
            let others = self.saved("modp-32")?.max(self.saved("maxp-32")?);
            let text = format!("{:.2} points", others - own);
            Some(at_most(others - own, 1.0, text))
        };
        vec![Target {
            what: "SAMPLEBYTE below the better of MODP and MAXP, p = 32",
            asked: "at most 1 point",
            measured: difference(),
        }]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let share = |bytes: u64| 100.0 * bytes as f64 / self.payload_bytes.max(1) as f64;
        writeln!(
            page,
            "{} captures with {} connections and {:.1} MB of application data; {:.1} % of it is encrypted, and {:.1} % more\n\
             does not compress. Each capture is analyzed separately, with empty caches. *Paper*: the average over ten\n\
             company sites of Table 4 of EndRE (NSDI 2010), other traffic. The paper has gzip after SAMPLEBYTE where we have zstd.\n",
            self.captures,
            self.flows,
            mb(self.payload_bytes),
            share(self.encrypted_bytes),
            share(self.compressed_bytes)
        )?;
        writeln!(
            page,
            "| column | saved % | paper % | MB per CPU second |\n|---|--:|--:|--:|"
        )?;
        // JSON has them by name.
        let mut columns: Vec<&Column> = self.columns.iter().collect();
        columns.sort_by_key(|column| ALL.iter().position(|kind| kind.name == column.name));
        for column in columns {
            let paper = PAPER.iter().find(|(name, _)| *name == column.name);
            let paper = paper.map_or(String::new(), |(_, percent)| format!("{percent:.0}"));
            let speed = mb(self.payload_bytes) / column.cpu_seconds.max(1e-9);
            let saved = self.saved(&column.name).unwrap_or_default();
            writeln!(
                page,
                "| {} | {saved:.1} | {paper} | {speed:.0} |",
                column.title
            )?;
        }
        let all: f64 = self.columns.iter().map(|column| column.cpu_seconds).sum();
        let speed = mb(self.payload_bytes) / all.max(1e-9);
        writeln!(
            page,
            "\nAll columns together: {speed:.1} MB per CPU second.\n"
        )?;
        writeln!(
            page,
            "### By protocol\n\n| | MB | zstd % | SAMPLEBYTE % | PACK % | refrain % | inflated % |\n|---|--:|--:|--:|--:|--:|--:|"
        )?;
        let mut protocols: Vec<&Protocol> = self.protocols.iter().collect();
        protocols.sort_by_key(|protocol| std::cmp::Reverse(protocol.bytes));
        for protocol in protocols {
            write!(page, "| {} | {:.2} ", protocol.name, mb(protocol.bytes))?;
            for name in ["zstd", "samplebyte-32", "pack", "refrain", "inflated"] {
                let saved = protocol.saved_bytes.get(name).copied().unwrap_or_default();
                write!(
                    page,
                    "| {:.1} ",
                    100.0 * saved as f64 / protocol.bytes.max(1) as f64
                )?;
            }
            writeln!(page, "|")?;
        }
        writeln!(
            page,
            "\n### Savings and speed by p (EndRE, Figures 6 and 7)\n\n\
             ![Savings by p](plots/analyze-savings.svg)\n\n![Speed by p](plots/analyze-speed.svg)\n\n\
             ### Savings by cache size (EndRE, Figures 8 and 9)\n\n\
             ![Savings by cache size](plots/analyze-cache.svg)\n\n\
             The captures are short: no pair of machines exchanges 10 MB twice. The paper's knee is at 8 to 10 MB.\n"
        )?;
        let all = self.same_pair_bytes + self.other_pair_bytes;
        let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        writeln!(
            page,
            "### Origin and age of repeats\n\n\
             {:.1} % of the repeated bytes were exchanged before by the same pair of machines (column *box at the IP layer*).\n\
             EndRE, section 3: about 75 % of the gain of a shared cache comes from the same pair.\n",
            percent(self.same_pair_bytes, all)
        )?;
        writeln!(
            page,
            "| age below | matches, bytes % | chunks of PACK, bytes % |\n|---|--:|--:|"
        )?;
        let limits = self
            .age_limits_seconds
            .iter()
            .map(|limit| format!("{limit} s"));
        let (matches, chunks) = (self.match_ages.iter().sum(), self.chunk_ages.iter().sum());
        for (nth, limit) in limits.chain(["more".to_owned()]).enumerate() {
            let of =
                |counts: &[u64], all| percent(counts.get(nth).copied().unwrap_or_default(), all);
            writeln!(
                page,
                "| {limit} | {:.1} | {:.1} |",
                of(&self.match_ages, matches),
                of(&self.chunk_ages, chunks)
            )?;
        }
        let chains: u64 = self.chain_lengths.iter().sum();
        let in_chains: u64 = self.chain_lengths.iter().skip(1).sum();
        writeln!(
            page,
            "\n### Chains of chunks (PACK, Figure 6)\n\n\
             {:.1} % of repeated chunks are in chains of two or more. The paper: 54 % of all chunks for Linux releases, 88 %\n\
             for mail.\n",
            percent(in_chains, chains)
        )?;
        writeln!(
            page,
            "| chunks in a row | share of repeated chunks % |\n|---|--:|"
        )?;
        for (nth, chunks) in self.chain_lengths.iter().enumerate() {
            if *chunks > 0 {
                writeln!(
                    page,
                    "| {} to {} | {:.1} |",
                    1_u64 << nth,
                    (2_u64 << nth) - 1,
                    percent(*chunks, chains)
                )?;
            }
        }
        Ok(())
    }

    fn plots(&self) -> anyhow::Result<Vec<Plot>> {
        let periods: Vec<String> = PERIODS.iter().map(u32::to_string).collect();
        let all = self.payload_bytes.max(1) as f64;
        let savings = Words {
            title: "Saved, by the sampling period p",
            across: "p",
            up: "% of application bytes",
        };
        let speed = Words {
            title: "Speed, by the sampling period p",
            across: "p",
            up: "MB per CPU second",
        };
        let cache = Words {
            title: "Saved, by the cache of a pair and direction",
            across: "cache",
            up: "% of application bytes",
        };
        let sizes = self.cache_sizes.iter().map(|size| match size >> 20 {
            0 => format!("{} KiB", size >> 10),
            mib => format!("{mib} MiB"),
        });
        let sizes: Vec<String> = sizes.collect();
        let mut curves = Vec::new();
        for (name, saved) in &self.cache_saved {
            let protocol = self
                .protocols
                .iter()
                .find(|protocol| protocol.name == *name);
            let bytes = protocol.map_or(self.payload_bytes, |protocol| protocol.bytes);
            if bytes as f64 > all / 100.0 {
                let values = saved
                    .iter()
                    .map(|saved| 100.0 * *saved as f64 / bytes as f64);
                let name = if name.is_empty() { "all" } else { name };
                curves.push((name.to_owned(), values.collect()));
            }
        }
        let saved = |column: &Column| 100.0 - 100.0 * column.sent_bytes as f64 / all;
        let rate = |column: &Column| all / 1e6 / column.cpu_seconds.max(1e-9);
        Ok(vec![
            Plot {
                name: "analyze-savings.svg",
                svg: refrain_plot::lines(&savings, &periods, &self.by_period(saved))?,
            },
            Plot {
                name: "analyze-speed.svg",
                svg: refrain_plot::lines(&speed, &periods, &self.by_period(rate))?,
            },
            Plot {
                name: "analyze-cache.svg",
                svg: refrain_plot::lines(&cache, &sizes, &curves)?,
            },
        ])
    }
}
