//! The page about the sender's CPU time.

use std::fmt::Write;

use refrain_gateway::status::Predictions;

use super::{DELAY_MS, MBIT, Report, STORE_SIZE, trial::Sent};
use crate::{
    median::{median, medians_of},
    targets::{Measured, Target, at_least, at_most},
};

/// The bounds: the ratio to `--mode off` where nothing repeats, and GB a CPU second where all does.
const RATIO_MAX: f64 = 1.03;
const GB_PER_CPU_S_MIN: f64 = 2.0;

/// The page, from all that was measured.
pub(super) fn page(report: &Report) -> anyhow::Result<String> {
    let mut page = introduction(report);
    ways(&mut page, report)?;
    pairs(&mut page, report)?;
    Ok(page)
}

fn introduction(report: &Report) -> String {
    format!(
        "# The sender's CPU time for predictions\n\n\
         Written by `cargo run --release -p refrain-experiments -- sender-cpu --write docs/results-sender-cpu.md`.\n\
         `--json` prints every run. {}.\n\n\
         Real programs run: a client, a near gateway with a store, a far gateway and an origin. The far gateway is\n\
         the sender. Its process' CPU clock, user and system, is read before and after a transfer, which is\n\
         compared byte by byte. Gateways are started again for each transfer. The store stays; it is full, with at\n\
         most {STORE_SIZE}. Figures of each way are {}; the ways took turns. GB = 10^9 application\n\
         bytes. All transfers go over sockets. The noise comes from fixed seeds: no data set is needed.\n\n\
         - *Nothing repeats*: {} MB of noise, new each time, on loopback. In mode `receiver` the near end offers\n  \
         the beginning of an earlier response of the same origin, which is wrong.\n\
         - *All repeats*: the same {} MB repeatedly. Predictions are in time on a link slower than the store's\n  \
         reads: {MBIT} Mbit/s, {DELAY_MS} ms one way. The other ways go over loopback, where they cost least:\n  \
         fewer, larger writes. They are also measured on the slow link, with {} MB.\n\
         - *Bare TLS*: one thread that copies the origin's socket into TLS, with the gateways' library and \
         cipher.\n",
        report.machine,
        medians_of(report.new_by_off.len()),
        report.object_bytes / 1_000_000,
        report.object_bytes / 1_000_000,
        report.slow_object_bytes / 1_000_000,
    )
}

/// The bounds that the figures are checked against.
pub(super) fn targets(report: &Report) -> Vec<Target> {
    let over_off = median(ratios(&report.new_by_receiver, &report.new_by_off));
    let text = format!("{:+.1} %", 100.0 * (over_off - 1.0));
    let over_off = at_most(over_off, RATIO_MAX, text);
    let rate = median_of(&report.repeated_by_receiver, Sent::bytes_per_cpu_s) / 1e9;
    let rate = at_least(rate, GB_PER_CPU_S_MIN, format!("{rate:.2} GB/s"));
    let over_tls = median(ratios(
        &report.repeated_by_receiver,
        &report.repeated_by_bare_tls,
    ));
    vec![
        Target {
            what: "nothing repeats: `receiver` over `off`, median of ratios",
            asked: "within 3 %",
            measured: Some(over_off),
        },
        Target {
            what: "all repeats: application bytes per core",
            asked: "≥ 2 GB/s",
            measured: Some(rate),
        },
        Target {
            what: "all repeats: CPU time per byte, over bare TLS",
            asked: "< 1",
            measured: Some(Measured {
                text: format!("{over_tls:.2}"),
                is_met: over_tls < 1.0,
            }),
        },
    ]
}

fn ways(page: &mut String, report: &Report) -> anyhow::Result<()> {
    *page += "\n## Way by way\n\n\
              *Offered*, *confirmed*: shares of the application's bytes. *Hashed, wrong*: bytes hashed for wrong\n\
              offers with a right hint. *Lowest*, *highest*: of the single runs.\n\n\
              | | link | CPU ns per byte | lowest | highest | GB per CPU second | MB/s | offered | confirmed | \
              hashed, wrong |\n\
              |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    let slow = format!("{MBIT} Mbit/s");
    for (name, link, runs) in [
        ("new, `receiver`", "loopback", &report.new_by_receiver),
        ("new, `off`", "loopback", &report.new_by_off),
        ("repeated, `receiver`", &slow, &report.repeated_by_receiver),
        ("repeated, `off`", "loopback", &report.repeated_by_off),
        (
            "repeated, bare TLS",
            "loopback",
            &report.repeated_by_bare_tls,
        ),
        ("`off`", &slow, &report.slow_by_off),
        ("bare TLS", &slow, &report.slow_by_bare_tls),
    ] {
        let ns_a_byte = |sent: &Sent| 1e9 / sent.bytes_per_cpu_s();
        let (lowest, highest) = ends(runs.iter().map(ns_a_byte));
        let share = |of: fn(&Predictions) -> u64| {
            let share = |sent: &Sent| of(&sent.predictions) as f64 / sent.bytes as f64;
            100.0 * median_of(runs, share)
        };
        writeln!(
            page,
            "| {name} | {link} | {:.3} | {lowest:.3} | {highest:.3} | {:.2} | {:.0} | {:.1} % | \
             {:.1} % | {:.2} % |",
            median_of(runs, ns_a_byte),
            median_of(runs, Sent::bytes_per_cpu_s) / 1e9,
            median_of(runs, |sent| sent.bytes as f64 / sent.took_s / 1e6),
            share(|predictions| predictions.offered_bytes),
            share(|predictions| predictions.confirmed_bytes),
            share(|predictions| predictions.hashed_false_bytes),
        )?;
    }
    Ok(())
}

fn pairs(page: &mut String, report: &Report) -> anyhow::Result<()> {
    *page += "\n## Pair by pair\n\n\
              The sender's CPU time of one way over that of another, both of the same turn.\n\n\
              | | pairs | lowest | quarter | median | three quarters | highest |\n\
              |---|--:|--:|--:|--:|--:|--:|\n";
    let repeated = &report.repeated_by_receiver;
    for (name, ratios) in [
        (
            "new: `receiver` over `off`",
            ratios(&report.new_by_receiver, &report.new_by_off),
        ),
        (
            "repeated: `receiver` over `off`",
            ratios(repeated, &report.repeated_by_off),
        ),
        (
            "repeated: `receiver` over bare TLS",
            ratios(repeated, &report.repeated_by_bare_tls),
        ),
        (
            "repeated: `receiver` over `off` on its link",
            ratios(repeated, &report.slow_by_off),
        ),
        (
            "repeated: `receiver` over bare TLS on its link",
            ratios(repeated, &report.slow_by_bare_tls),
        ),
    ] {
        let (lowest, highest) = ends(ratios.iter().copied());
        writeln!(
            page,
            "| {name} | {} | {lowest:.3} | {:.3} | {:.3} | {:.3} | {highest:.3} |",
            ratios.len(),
            quantile(&ratios, 0.25),
            median(ratios.iter().copied()),
            quantile(&ratios, 0.75),
        )?;
    }
    Ok(())
}

/// CPU a byte of `ours` over that of `others`, turn by turn.
fn ratios(ours: &[Sent], others: &[Sent]) -> Vec<f64> {
    let turns = ours.iter().zip(others);
    turns
        .map(|(ours, other)| other.bytes_per_cpu_s() / ours.bytes_per_cpu_s())
        .collect()
}

fn median_of(runs: &[Sent], figure: impl Fn(&Sent) -> f64) -> f64 {
    median(runs.iter().map(figure))
}

/// Between two figures, what lies between them.
fn quantile(figures: &[f64], share: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

fn ends(figures: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let lowest = figures.clone().fold(f64::INFINITY, f64::min);
    (lowest, figures.fold(f64::NEG_INFINITY, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(cpu_s: &[f64]) -> Vec<Sent> {
        let sent = |&cpu_s| Sent {
            bytes: 1_000_000_000,
            took_s: 1.0,
            cpu_s,
            predictions: Predictions::default(),
        };
        cpu_s.iter().map(sent).collect()
    }

    fn report(new: f64, repeated: f64) -> Report {
        Report {
            machine: "a machine".to_owned(),
            object_bytes: 1_000_000_000,
            slow_object_bytes: 1_000_000_000,
            new_by_receiver: runs(&[new, 9.0, new]),
            new_by_off: runs(&[1.0, 1.0, 1.0]),
            repeated_by_receiver: runs(&[repeated, repeated, 9.0]),
            repeated_by_off: runs(&[1.0; 3]),
            repeated_by_bare_tls: runs(&[0.6; 3]),
            slow_by_off: runs(&[2.0; 3]),
            slow_by_bare_tls: runs(&[1.5; 3]),
        }
    }

    #[test]
    fn targets_are_medians_over_the_turns() {
        let measured = |new, repeated| {
            let targets = targets(&report(new, repeated));
            let measured = targets.into_iter().filter_map(|target| target.measured);
            measured.map(|measured| (measured.text, measured.is_met))
        };
        let texts = ["+2.0 %", "2.50 GB/s", "0.67"].map(ToOwned::to_owned);
        assert!(measured(1.02, 0.4).eq(texts.map(|text| (text, true))));
        assert!(measured(1.04, 0.7).all(|(_, is_met)| !is_met));
    }

    #[test]
    fn the_page_has_a_row_for_each_way_and_each_ratio() {
        let page = page(&report(1.02, 0.4)).expect("memory");
        for row in [
            "\n| repeated, `receiver` | 100 Mbit/s | 0.400 |",
            "\n| new: `receiver` over `off` | 3 | 1.020 |",
        ] {
            assert!(page.contains(row), "{row:?} is not in\n{page}");
        }
    }

    #[test]
    fn a_quantile_may_lie_between_two_figures() {
        assert_eq!(quantile(&[4.0, 1.0, 2.0, 9.0], 0.5), 3.0);
        assert_eq!(quantile(&[5.0, 1.0, 3.0], 0.25), 2.0);
        assert_eq!(quantile(&[7.0], 0.75), 7.0);
    }
}
