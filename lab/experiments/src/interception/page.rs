//! The page about the cost of interception.

use std::fmt::Write;

use super::{
    PlaceReport, Report, Row, StartRow,
    client::{COPIES, EXCHANGES, OBJECT_BYTES, Started, Transfer},
    ways::{CIPHER_SUITE, DIRECT, FIRST_BYTES, OPTIMIZE, OPTIMIZE_FULL, PAIR_TLS, PASS, TLS},
};
use crate::{
    machine,
    median::{median, medians_of},
    targets::{Measured, Target, all_of, at_least, at_most},
};

/// The bounds: milliseconds over direct connections, times the CPU time of two relays with TLS, the share of redirected
/// throughput, and seconds that a program may start later.
const MORE_MS_MAX: f64 = 1.0;
const CPU_MAX: f64 = 1.3;
const THROUGHPUT_MIN: f64 = 0.8;
const READY_S_MAX: f64 = 0.1;

impl PlaceReport {
    fn row(&self, way: &str) -> &Row {
        let mut rows = self.rows.iter();
        rows.find(|row| row.way == way).expect("a way of the table")
    }

    /// CPU seconds per GB, near end, far end and both.
    fn cpu(&self, row: &Row) -> Option<[f64; 3]> {
        let gigabytes = self.transfer_bytes as f64 / 1e9;
        let turns: Option<Vec<[f64; 2]>> = row.transfers.iter().map(|turn| turn.cpu_s).collect();
        let turns = turns?;
        let of = |figure: &dyn Fn(&[f64; 2]) -> f64| median(turns.iter().map(figure)) / gigabytes;
        Some([
            of(&|cpu| cpu[0]),
            of(&|cpu| cpu[1]),
            of(&|cpu| cpu[0] + cpu[1]),
        ])
    }

    /// The median of the ratios of single turns to those of the relays with TLS.
    fn times_tls(&self, row: &Row) -> Option<f64> {
        let both = |turn: &Transfer| turn.cpu_s.map(|[near, far]| near + far);
        let turns = row.transfers.iter().zip(&self.row(TLS).transfers);
        let ratios: Option<Vec<f64>> = turns
            .map(|(own, tls)| Some(both(own)? / both(tls)?))
            .collect();
        Some(median(ratios?))
    }

    fn rate(&self, row: &Row) -> f64 {
        median(
            row.transfers
                .iter()
                .map(|turn| self.transfer_bytes as f64 / 1e6 / turn.seconds),
        )
    }
}

impl Row {
    fn milliseconds(&self) -> [f64; 3] {
        let of =
            |figure: fn(&super::Exchanges) -> f64| 1e3 * median(self.exchanges.iter().map(figure));
        [
            of(|turn| turn.first),
            of(|turn| turn.median),
            of(|turn| turn.p99),
        ]
    }
}

impl StartRow {
    fn median(&self, figure: fn(&Started) -> f64) -> f64 {
        median(self.started.iter().map(figure))
    }
}

pub(super) fn page(report: &Report) -> anyhow::Result<String> {
    let mut page = format!(
        "# The cost of interception\n\n\
         Written by `cargo run --release -p refrain-experiments -- interception --write docs/results-interception.md`,\n\
         as root, after `lab/setup`. It needs no data set. `--json` prints every run. Measured on {} at {} on {}.\n\n\
         Two parts: connections that cannot gain from a pair, and programs under `refrain run`. The link is the lab's:\n\
         real TCP between two network namespaces. The firewall redirects connections to the near end, by\n\
         `refrain intercept on`. Each turn has newly started programs. Figures are {}. The ways took turns.\n\
         All transfers go over sockets, and are compared byte by byte.\n\n\
         - *HAProxy twice*: one at each end, version {}, mode tcp, default options. It is a plain relay. *TLS 1.3*: with\n  \
         TLS between both, and the cipher suite of the gateways, {CIPHER_SUITE}.\n\
         - *pair, action=pass*: a pair, and a rule with `action=pass`. *pair, noise*: a rule without an action. The\n  \
         gateways find out that noise does not repeat. The connection has carried {} MiB before. The\n  \
         caches take new memory as they fill: the kernel clears it, and on a virtual machine the host provides it. With *full\n  \
         caches*, they have all of their memory: 32 MiB, after 64 MiB of noise.\n\
         - *pair, TLS*: the HAProxies with TLS are a client and an origin, and the firewall redirects the connection between\n  \
         them. The gateways do not open TLS, and find it in the first bytes. The CPU time is only that of the gateways. The\n  \
         times are those of the gateways and the HAProxies.\n\
         - *First answer*: from the connect. *Exchange*: a request of 24 bytes and an answer of 64, {EXCHANGES} times on a\n  \
         connection.\n\
         - *CPU*: seconds of the processes at both ends, user and system, per GB (10^9 bytes) of a download of noise.\n",
        report.date,
        machine::version_in_words(&report.version),
        report.machine,
        medians_of(report.runs),
        report.haproxy,
        FIRST_BYTES >> 20,
    );
    for place in &report.places {
        of_place(&mut page, place)?;
    }
    programs(&mut page, &report.starts)?;
    Ok(page)
}

fn of_place(page: &mut String, place: &PlaceReport) -> anyhow::Result<()> {
    writeln!(
        page,
        "\n## {}\n\nTransfers of {} MB.\n\n\
         | | first answer, ms | exchange, ms | 99th percentile, ms | MB/s | CPU near, s/GB | CPU far, s/GB | both | \
         both, times HAProxy with TLS |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|",
        place.title,
        place.transfer_bytes / 1_000_000
    )?;
    for row in &place.rows {
        let [first, exchange, p99] = row.milliseconds();
        let cpu = place.cpu(row).map_or("– | – | –".to_owned(), |cpu| {
            cpu.map(|seconds| format!("{seconds:.2}")).join(" | ")
        });
        let times = place
            .times_tls(row)
            .map_or("–".to_owned(), |times| format!("{times:.2}"));
        writeln!(
            page,
            "| {} | {first:.2} | {exchange:.2} | {p99:.2} | {:.1} | {cpu} | {times} |",
            row.way,
            place.rate(row),
        )?;
    }
    Ok(())
}

fn programs(page: &mut String, rows: &[StartRow]) -> anyhow::Result<()> {
    writeln!(
        page,
        "\n## Programs\n\n\
         `curl` gets {:.1} GB from an HTTP server: the same {} MiB {COPIES} times. So the link is not the limit. *Start*:\n\
         the time of `true`, from its start to its end. Redirected programs run as another user than the near end, by\n\
         `setpriv`.\n\n\
         | | curl, MB/s | start, ms |\n|---|--:|--:|",
        (COPIES * OBJECT_BYTES) as f64 / 1e9,
        OBJECT_BYTES >> 20,
    )?;
    for row in rows {
        writeln!(
            page,
            "| {} | {:.0} | {:.1} |",
            row.way,
            row.median(|started| started.bytes_per_s) / 1e6,
            row.median(|started| started.start_s) * 1e3,
        )?;
    }
    Ok(())
}

/// The bounds that the figures are checked against.
pub(super) fn targets(report: &Report) -> Vec<Target> {
    let slow = &report.places[0];
    let more = |way: &str, than: &str| {
        let [own, other] = [way, than].map(|way| slow.row(way).milliseconds());
        let more = own[1] - other[1];
        at_most(more, MORE_MS_MAX, format!("{more:.2} ms"))
    };
    let cpu = |way: &'static str| {
        let times = report
            .places
            .iter()
            .filter_map(|place| place.times_tls(place.row(way)));
        let times: Vec<f64> = times.collect();
        let met = times.iter().filter(|&&times| times <= CPU_MAX).count();
        let text = times
            .iter()
            .map(|times| format!("{times:.2}"))
            .collect::<Vec<_>>();
        Measured {
            text: text.join(", "),
            ..all_of(met, times.len())
        }
    };
    let [redirected, run] = &report.starts[..] else {
        return Vec::new();
    };
    let share = run.median(|started| started.bytes_per_s)
        / redirected.median(|started| started.bytes_per_s);
    let later =
        run.median(|started| started.start_s) - redirected.median(|started| started.start_s);
    let target = |what, asked, measured| Target {
        what,
        asked,
        measured: Some(measured),
    };
    vec![
        target(
            "pass: more than direct at 100 Mbit/s, an exchange",
            "at most 1 ms",
            more(PASS, DIRECT),
        ),
        target(
            "noise: more than direct at 100 Mbit/s, an exchange",
            "at most 1 ms",
            more(OPTIMIZE, DIRECT),
        ),
        target(
            "TLS: more than without the pair at 100 Mbit/s, an exchange",
            "at most 1 ms",
            more(PAIR_TLS, TLS),
        ),
        target(
            "pass: CPU time, over HAProxy twice with TLS",
            "at most 1.3",
            cpu(PASS),
        ),
        target(
            "noise: CPU time, over HAProxy twice with TLS",
            "at most 1.3",
            cpu(OPTIMIZE),
        ),
        target(
            "noise, full caches: CPU time, over HAProxy twice with TLS",
            "at most 1.3",
            cpu(OPTIMIZE_FULL),
        ),
        target(
            "TLS: CPU time, over HAProxy twice with TLS",
            "at most 1.3",
            cpu(PAIR_TLS),
        ),
        target(
            "refrain run: throughput, of redirected",
            "at least 0.8",
            at_least(share, THROUGHPUT_MIN, format!("{share:.2}")),
        ),
        target(
            "refrain run: ready",
            "within 100 ms",
            at_most(later, READY_S_MAX, format!("{:.0} ms", later * 1e3)),
        ),
    ]
}
