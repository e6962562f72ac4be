//! `refrain analyze --requests`: how much of requested objects was transferred before, and the servers that elimination takes
//! (PACK, sections 5.1.1 and 5.3).

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::ensure;
use refrain_analysis::{
    details::AGES,
    requests::{
        CACHE_SIZES, Findings, Requests,
        servers::{Work, servers},
        trace,
    },
};
use refrain_capture::decompressed;
use refrain_gateway::units::{BitRate, three_digits};
use serde::Serialize;

use super::{
    AnalyzeArguments, Counted, expected_bytes,
    html::{Page, Series, cumulative},
    open,
    text::binary,
};
use crate::{
    cost::{Prices, RECEIVER, SENDER, TRAFFIC_SHARE},
    interrupt::Interrupt,
    progress,
    standard_io::is_standard,
    stderr::warn,
    table::{Table, age, bytes, count, percent, printable_path, round_age},
};

/// A longer line is no request.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The first request of a log is looked for in so many bytes.
const BEGIN_BYTES_MAX: u64 = 64 << 10;

/// The report and its JSON.
#[derive(Serialize)]
pub(super) struct Report {
    traces: Vec<String>,
    is_cut_short: bool,
    unread_traces: u64,
    unread_lines: u64,
    /// The trace has no sizes.
    sizes_are_invented: bool,
    seconds: f64,
    #[serde(flatten)]
    findings: Findings,
    cache_sizes: [u64; CACHE_SIZES.len()],
    age_limits_seconds: [u64; AGES.len()],
    server_bits_per_second: u64,
    arrays: Vec<Array>,
}

/// Servers with one way of elimination.
#[derive(Serialize)]
struct Array {
    name: &'static str,
    /// In each interval.
    servers: Vec<u32>,
    server_hours: f64,
    sent_bytes: u64,
    /// Compared with no elimination.
    cost_percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
}

/// How a trace ended before its end.
enum Broken {
    Interrupted,
    Failed(io::Error),
}

/// Reads all traces.
pub(super) fn analyze(
    arguments: &AnalyzeArguments,
    interrupt: &Interrupt,
) -> anyhow::Result<Report> {
    let traces = &arguments.captures;
    let mut requests = Requests::new(arguments.memory.0);
    let (mut lines, mut unread_lines, mut unread_traces) = (0, 0, 0);
    let mut times: Option<(u64, u64)> = None;
    let mut sizes_are_invented = false;
    let bar = progress::of_bytes(expected_bytes(traces));
    for path in by_time(traces, interrupt) {
        let input = open(path, interrupt).map(|input| Counted { input, bar: &bar });
        let read = input.map_err(Broken::Failed).and_then(|input| {
            each_line(input, interrupt, |line| {
                if line.trim_ascii().is_empty() {
                    return;
                }
                lines += 1;
                match trace::parse(line) {
                    Some(request) => {
                        sizes_are_invented |= request.is_size_invented;
                        let (first, last) = times.unwrap_or((request.nanos, request.nanos));
                        times = Some((first, last.max(request.nanos)));
                        requests.request(&request);
                    }
                    None => unread_lines += 1,
                }
            })
        });
        match read {
            Ok(()) => {}
            Err(Broken::Interrupted) => break,
            Err(Broken::Failed(error)) => {
                unread_traces += 1;
                let name = name(path);
                bar.suspend(|| warn(format_args!("\"{name}\" cannot be read: {error}")));
            }
        }
    }
    bar.finish_and_clear();
    if lines == unread_lines {
        interrupt.check()?;
        ensure!(unread_traces == 0, "no request could be read");
    }
    ensure!(
        lines > unread_lines,
        "no request in {}: supported are access logs of nginx and Apache (common or combined format), Squid's access log, \
         and the UMass trace of YouTube requests",
        count(lines, "line", "lines")
    );
    let findings = requests.finish();
    let (first, last) = times.unwrap_or_default();
    Ok(Report {
        traces: traces.iter().map(|path| name(path)).collect(),
        is_cut_short: interrupt.check().is_err(),
        unread_traces,
        unread_lines,
        sizes_are_invented,
        seconds: (last - first) as f64 / 1e9,
        cache_sizes: CACHE_SIZES,
        age_limits_seconds: AGES,
        server_bits_per_second: arguments.server_output.0,
        arrays: arrays(&findings, arguments.server_output, &arguments.prices),
        findings,
    })
}

fn name(path: &Path) -> String {
    match is_standard(path) {
        true => "standard input".to_owned(),
        false => printable_path(path),
    }
}

/// The logs by the time of their first request: a glob names rotated logs by their numbers, the newest first.
fn by_time<'a>(traces: &'a [PathBuf], interrupt: &Interrupt) -> Vec<&'a PathBuf> {
    let begin = |path: &&PathBuf| {
        let mut nanos = None;
        if !is_standard(path)
            && let Ok(input) = open(path, interrupt)
        {
            // An error is reported when the log is read.
            let _ = each_line(input.take(BEGIN_BYTES_MAX), interrupt, |line| {
                nanos = nanos.or_else(|| Some(trace::parse(line)?.nanos));
            });
        }
        nanos.unwrap_or(u64::MAX)
    };
    let mut traces: Vec<_> = traces.iter().collect();
    if traces.len() > 1 {
        traces.sort_by_cached_key(begin);
    }
    traces
}

/// Gives `take` each line of a trace, which may be compressed.
fn each_line(
    input: impl Read + Send,
    interrupt: &Interrupt,
    mut take: impl FnMut(&[u8]),
) -> Result<(), Broken> {
    let failed = |error| match interrupt.check() {
        Ok(()) => Broken::Failed(error),
        Err(_) => Broken::Interrupted,
    };
    let mut reader = BufReader::with_capacity(1 << 17, decompressed(input).map_err(failed)?);
    let mut line = Vec::new();
    let mut is_in_long_line = false;
    loop {
        line.clear();
        let mut part = reader.by_ref().take(LINE_BYTES_MAX);
        if part.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(());
        }
        // The parts of a long line count as one line.
        if !std::mem::replace(&mut is_in_long_line, line.last() != Some(&b'\n')) {
            take(&line);
        }
        if interrupt.check().is_err() {
            return Err(Broken::Interrupted);
        }
    }
}

/// The servers without elimination, with PACK, and with a sender that hashes all bytes.
fn arrays(findings: &Findings, rate: BitRate, prices: &Prices) -> Vec<Array> {
    // In proportion to the bytes that each of them hashes.
    let (receiver, sender) = (RECEIVER.load / RECEIVER.share, SENDER.load);
    let repeated = findings.same_client.bytes;
    let total = findings.total_bytes();
    let kinds = [
        ("no elimination", Work::default(), 0),
        (
            "PACK",
            Work {
                by_repeated_byte: receiver,
                ..Work::default()
            },
            repeated,
        ),
        (
            "sender-based",
            Work {
                by_byte: sender,
                ..Work::default()
            },
            repeated,
        ),
    ];
    let mut arrays: Vec<Array> = Vec::new();
    for (name, work, saved) in kinds {
        let servers = servers(findings, rate.0 as f64, work);
        let sum: f64 = servers.iter().map(|servers| f64::from(*servers)).sum();
        let server_hours = sum * findings.interval_seconds as f64 / 3600.0;
        let sent_bytes = total.saturating_sub(saved);
        let none = arrays.first();
        let none_hours = none.map_or(server_hours, |none| none.server_hours);
        let cost = prices.cost(sent_bytes, server_hours);
        let none_cost = none.map_or(cost, |none| none.cost);
        let share = match (cost, none_cost) {
            (Some(cost), Some(none)) if none > 0.0 => cost / none,
            _ => {
                let traffic = sent_bytes as f64 / total.max(1) as f64;
                let hours = server_hours / none_hours.max(f64::MIN_POSITIVE);
                TRAFFIC_SHARE * traffic + (1.0 - TRAFFIC_SHARE) * hours
            }
        };
        arrays.push(Array {
            name,
            servers,
            server_hours,
            sent_bytes,
            cost_percent: 100.0 * share,
            cost,
        });
    }
    arrays
}

impl Report {
    /// Traces that could not be read to their ends.
    pub(super) fn unread_traces(&self) -> u64 {
        self.unread_traces
    }

    /// Replaces the names of files by numbers.
    pub(super) fn anonymize(&mut self) {
        for (nth, name) in self.traces.iter_mut().enumerate() {
            *name = format!("log-{}", nth + 1);
        }
    }

    fn head(&self) -> String {
        let found = &self.findings;
        let requests = count(found.requests + found.other_requests, "request", "requests");
        let clients = count(found.clients, "client", "clients");
        let objects = count(found.objects, "object", "objects");
        let all = bytes(found.total_bytes());
        format!(
            "{requests} of {clients} for {objects} in {}: {all}",
            age(self.seconds)
        )
    }

    /// Sentences about the limits of the findings.
    fn notes(&self) -> Vec<String> {
        let found = &self.findings;
        let mut notes = Vec::new();
        if self.sizes_are_invented {
            notes.push(
                "The trace has no sizes. They are invented: 1 to 60 MB, with a mean of 11.5 MB."
                    .to_owned(),
            );
        }
        if found.other_requests > 0 {
            let requests = count(found.other_requests, "request is", "requests are");
            let other = bytes(found.other_bytes);
            notes.push(format!(
                "{requests} not for content that can repeat ({other}): another method than GET, another status, or no name."
            ));
        }
        if self.unread_lines > 0 {
            let lines = count(self.unread_lines, "line has", "lines have");
            notes.push(format!("{lines} no known format."));
        }
        if found.sampled_one_in > 1 {
            notes.push(format!(
                "One object in {} was followed, for --memory. It counts for the others too.",
                found.sampled_one_in
            ));
        }
        if self.unread_traces > 0 || self.is_cut_short {
            notes.push("Not all of the logs was read.".to_owned());
        }
        notes
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let found = &self.findings;
        writeln!(out, "{}", self.head())?;
        for note in self.notes() {
            writeln!(out, "{note}")?;
        }
        writeln!(out)?;
        let requests = (found.requests + found.other_requests) as f64;
        let all = found.total_bytes() as f64;
        let mut table = Table::new("repeats of  requests  bytes");
        for (name, repeats) in self.places() {
            table.row([
                name.to_owned(),
                percent(repeats.requests as f64, requests),
                percent(repeats.bytes as f64, all),
            ]);
        }
        table.print(out)?;
        writeln!(out)?;
        let mut table = Table::new("cache  the same client  any client");
        for (size, shares) in self.curve() {
            let shares = shares.map(|share| format!("{share:.1} %"));
            table.row([size].into_iter().chain(shares));
        }
        table.print(out)?;
        writeln!(out)?;
        let mut table = Table::new(match self.arrays.iter().any(|array| array.cost.is_some()) {
            true => "servers  most  hours  traffic  cost  total cost",
            false => "servers  most  hours  traffic  total cost",
        });
        for row in self.rows_of_arrays() {
            table.row(row);
        }
        table.print(out)
    }

    fn places(&self) -> [(&'static str, &refrain_analysis::requests::Repeats); 2] {
        [
            ("the same client", &self.findings.same_client),
            ("any client", &self.findings.any_client),
        ]
    }

    fn rows_of_arrays(&self) -> Vec<Vec<String>> {
        let rows = self.arrays.iter().map(|array| {
            let most = array.servers.iter().max().copied().unwrap_or_default();
            let mut row = vec![
                array.name.to_owned(),
                most.to_string(),
                format!("{:.1}", array.server_hours),
                bytes(array.sent_bytes),
            ];
            row.extend(array.cost.map(|cost| format!("{cost:.2}")));
            row.push(format!("{:.1} %", array.cost_percent));
            row
        });
        rows.collect()
    }

    /// Cache sizes with the shares of bytes that they find: by client, and of all clients. The last one has no bound.
    fn curve(&self) -> Vec<(String, [f64; 2])> {
        let all = self.findings.total_bytes().max(1) as f64;
        let share = |bytes: u64| 100.0 * bytes as f64 / all;
        let places = self.places().map(|(_, repeats)| repeats);
        let mut curve = Vec::new();
        for (nth, size) in CACHE_SIZES.iter().enumerate() {
            let saved = places.map(|repeats| repeats.by_cache_size[nth]);
            curve.push((binary(*size), saved.map(share)));
            if saved == places.map(|repeats| repeats.bytes) {
                break;
            }
        }
        let unbounded = places.map(|repeats| share(repeats.bytes));
        curve.push(("no limit".to_owned(), unbounded));
        curve
    }

    /// The report as a web page.
    pub(super) fn page(&self) -> String {
        let found = &self.findings;
        let mut page = Page::default();
        let all = found.total_bytes() as f64;
        let mut facts = vec![
            (bytes(found.total_bytes()), "requested".to_owned()),
            (
                (found.requests + found.other_requests).to_string(),
                "requests".to_owned(),
            ),
            (found.clients.to_string(), "clients".to_owned()),
            (found.objects.to_string(), "objects".to_owned()),
            (
                age(self.seconds),
                "from the first request to the last".to_owned(),
            ),
            (
                format!("{} Mbit/s", three_digits(found.highest_rate() / 1e6)),
                "in the busiest interval".to_owned(),
            ),
        ];
        for (name, repeats) in self.places() {
            let share = percent(repeats.bytes as f64, all);
            facts.push((share, format!("repeats of {name}")));
        }
        page.facts(&facts);
        page.note(&format!("Logs: {}", self.traces.join(", ")));
        for note in self.notes() {
            page.note(&note);
        }
        self.page_of_intervals(&mut page);
        page.section("cache", "Repeats by cache size");
        page.text(
            "A cache keeps the last bytes that were sent: those of one client, or those of all.",
        );
        let curve = self.curve();
        let places: Vec<String> = curve.iter().map(|(size, _)| size.clone()).collect();
        let series = self.places().map(|(name, _)| name.to_owned());
        let series = series.into_iter().enumerate().map(|(nth, name)| Series {
            name,
            values: curve.iter().map(|(_, shares)| shares[nth]).collect(),
        });
        let series: Vec<Series> = series.collect();
        page.plot(
            "Repeated bytes by cache size",
            "%",
            "cache",
            &places,
            &series,
        );
        page.section("age", "Age of repeats");
        let limits = self
            .age_limits_seconds
            .iter()
            .map(|limit| round_age(*limit));
        let limits: Vec<String> = limits.chain(["more".to_owned()]).collect();
        let series = self.places().map(|(name, repeats)| Series {
            name: name.to_owned(),
            values: cumulative(&repeats.by_age),
        });
        page.plot(
            "Repeated bytes by age (PACK, Figure 8)",
            "%",
            "age below",
            &limits,
            &series,
        );
        self.page_of_servers(&mut page);
        page.section("method", "Method");
        page.text(
            "An object repeats as far as it was transferred before. The same name means the same content. Parts that \
             objects share are not counted. The client's cache is empty at the beginning.",
        );
        page.finish("refrain analyze --requests", "Repeats in these requests")
    }

    /// The begin of each interval.
    fn times(&self) -> Vec<String> {
        let seconds = self.findings.interval_seconds;
        let nths = 0..self.findings.intervals.len() as u64;
        nths.map(|nth| round_age(nth * seconds)).collect()
    }

    fn page_of_intervals(&self, page: &mut Page) {
        let found = &self.findings;
        page.section("time", "Traffic and repeats over time");
        page.text(&format!(
            "Intervals of {} (PACK, Figure 4).",
            round_age(found.interval_seconds)
        ));
        let megabits = 8e-6 / found.interval_seconds as f64;
        let intervals = &found.intervals;
        let traffic = intervals.iter().map(|it| it.bytes as f64 * megabits);
        let traffic = Series {
            name: "traffic".to_owned(),
            values: traffic.collect(),
        };
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let same = intervals
            .iter()
            .map(|it| share(it.same_client_bytes, it.bytes));
        let any = intervals
            .iter()
            .map(|it| share(it.any_client_bytes, it.bytes));
        let shares = [
            ("the same client", same.collect()),
            ("any client", any.collect()),
        ];
        let shares = shares.map(|(name, values)| Series {
            name: name.to_owned(),
            values,
        });
        let times = self.times();
        page.plot("Traffic", "Mbit/s", "time", &times, &[traffic]);
        page.plot("Repeated bytes over time", "%", "time", &times, &shares);
    }

    fn page_of_servers(&self, page: &mut Page) {
        page.section("servers", "Servers");
        let rate = BitRate(self.server_bits_per_second);
        page.text(&format!(
            "An array of servers that send {rate} each at most. One is added when less than a quarter of a CPU is free, and \
             removed if half a CPU is free after that (PACK, section 5.3 and Figure 9)."
        ));
        let series = self.arrays.iter().map(|array| Series {
            name: array.name.to_owned(),
            values: array.servers.iter().map(|it| f64::from(*it)).collect(),
        });
        let series: Vec<Series> = series.collect();
        page.plot("Servers over time", "", "time", &self.times(), &series);
        let heads = ["", "most", "hours", "traffic", "cost", "total cost"];
        let has_cost = self.arrays.iter().any(|array| array.cost.is_some());
        let heads: Vec<&str> = heads
            .into_iter()
            .filter(|head| has_cost || *head != "cost")
            .collect();
        page.table("Costs (PACK, Table 3)", &heads, &self.rows_of_arrays());
        page.text(match has_cost {
            true => "The costs are those of --price-gb and --price-hour.",
            false => "Without prices, traffic and servers without elimination cost 7 : 3, as in the paper.",
        });
    }
}
