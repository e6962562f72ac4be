//! The page about services.

use std::fmt::Write;

use super::{
    Report, Row,
    idle::ALL_STREAMS,
    load::{CLIENTS, PER_SECOND, Requests, VERSIONS},
    ways::{FULL_PAIR, NGINX, OBJECT_BYTES, PAIR},
};
use crate::{
    machine,
    median::{median, medians_of},
    targets::{Target, at_most},
};

/// The bounds: seconds over nginx twice, and bytes per stream.
const MORE_S_MAX: f64 = 0.002;
const STREAM_BYTES_MAX: f64 = 4096.0;

impl Report {
    fn row(&self, version: &str, way: &str) -> &Row {
        let mut rows = self.rows.iter();
        rows.find(|row| row.version == version && row.way == way)
            .expect("a way of the table")
    }

    /// The median of the differences of single turns.
    fn more_than_nginx(&self, version: &str, pair: &str) -> f64 {
        let (pair, nginx) = (self.row(version, pair), self.row(version, NGINX));
        let turns = pair.turns.iter().zip(&nginx.turns);
        median(turns.map(|(pair, nginx)| pair.p99 - nginx.p99))
    }

    fn stream_bytes(&self, end: usize) -> f64 {
        median(self.idle_stream_bytes.iter().map(|bytes| bytes[end]))
    }
}

impl Row {
    fn median(&self, figure: impl Fn(&Requests) -> f64) -> f64 {
        median(self.turns.iter().map(figure))
    }
}

pub(super) fn page(report: &Report) -> anyhow::Result<String> {
    let mut page = format!(
        "# The cost of services\n\n\
         Written by `cargo run --release -p refrain-experiments -- services --write docs/results-services.md`, after\n\
         `lab/setup --peers`. `--json` prints every run. It needs no data set.\n\
         Measured on {} at {} on {}.\n\
         Figures are {}. The ways took turns. All went over sockets.\n\n\
         ## Small requests\n\n\
         {} requests per second for an object of {} bytes, by {CLIENTS} clients with a connection each. They begin one\n\
         after the other. h2load (nghttp2 {}) makes the requests, and measures the time until the whole answer.\n\n\
         - *direct*: to the site, nginx {} with TLS and HTTP/2.\n\
         - *{NGINX}*: a second and a third nginx before it. They speak HTTP/1.1 with the next, inside TLS, over connections\n  \
         that stay open.\n\
         - *{PAIR}*: a near end that serves the site by its own name, and a far end, with default options. They have just\n  \
         started: while they fill their caches, the system clears memory for them.\n\
         - *{FULL_PAIR}*: the same after 160 MiB of answers. No more memory is needed then.\n\
         - *CPU*: of both programs between the clients and the site, per request.\n\n\
         | | | median, ms | 99th percentile, ms | CPU near, µs | CPU far, µs |\n\
         |---|---|--:|--:|--:|--:|\n",
        report.date,
        machine::version_in_words(&report.version),
        report.machine,
        medians_of(report.runs),
        grouped(PER_SECOND),
        grouped(OBJECT_BYTES),
        report.h2load,
        report.nginx,
    );
    for row in &report.rows {
        let cpu = match row.turns[0].cpu.len() {
            0 => "– | –".to_owned(),
            _ => [0, 1]
                .map(|end: usize| format!("{:.0}", row.median(|turn| turn.cpu[end]) * 1e6))
                .join(" | "),
        };
        writeln!(
            page,
            "| {} | {} | {:.2} | {:.2} | {cpu} |",
            row.version,
            row.way,
            row.median(|turn| turn.median) * 1e3,
            row.median(|turn| turn.p99) * 1e3,
        )?;
    }
    writeln!(
        page,
        "\n## Streams that wait\n\n\
         {} requests over HTTP/2, on 100 connections, to a site that does not answer. The table has the resident memory\n\
         per stream: the difference from one stream per connection.\n\n\
         | end | bytes per stream |\n|---|--:|\n| near | {:.0} |\n| far | {:.0} |",
        grouped(ALL_STREAMS),
        report.stream_bytes(0),
        report.stream_bytes(1)
    )?;
    Ok(page)
}

/// A number above a thousand, as pages write it.
fn grouped(number: usize) -> String {
    format!("{},{:03}", number / 1000, number % 1000)
}

pub(super) fn targets(report: &Report) -> Vec<Target> {
    let more = VERSIONS.iter().flat_map(|version| {
        [PAIR, FULL_PAIR].map(|pair| {
            let seconds = report.more_than_nginx(version.name, pair);
            Target {
                what: match (version.name, pair) {
                    ("HTTP/2", PAIR) => "HTTP/2: 99th percentile, more than nginx twice",
                    ("HTTP/2", _) => "HTTP/2, full caches: the same",
                    (_, PAIR) => "HTTP/1.1: 99th percentile, more than nginx twice",
                    _ => "HTTP/1.1, full caches: the same",
                },
                asked: "at most 2 ms",
                measured: Some(at_most(
                    seconds,
                    MORE_S_MAX,
                    format!("{:.2} ms", seconds * 1e3),
                )),
            }
        })
    });
    let memory = [
        "memory of an idle stream, near end",
        "memory of an idle stream, far end",
    ];
    let memory = memory.into_iter().enumerate().map(|(end, what)| {
        let bytes = report.stream_bytes(end);
        Target {
            what,
            asked: "at most 4,096 bytes",
            measured: Some(at_most(
                bytes,
                STREAM_BYTES_MAX,
                format!("{bytes:.0} bytes"),
            )),
        }
    });
    more.chain(memory).collect()
}
