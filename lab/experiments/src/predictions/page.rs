//! The page about predictions.

use std::fmt::Write;

use refrain_proto::Mode;

use super::{
    BREVO, GITHUB, LINUX, LOG, Report, USUAL, behind,
    goodput::{REPEATED_BYTES, STRANGE_BYTES},
    in_store::Kept,
    log, of_log,
    trial::{MBIT, Predicted, Trial},
};
use crate::targets::{Target, at_least, at_most};

const INTRODUCTION: &str = "# The effect of predictions

Written by `cargo run --release -p refrain-experiments -- predictions --write docs/results-pack.md`.
`--json` prints every figure.

The engines of both ends run over a link of 100 Mbit/s in virtual time. Their history is in memory and
forgets nothing. No clock is read and seeds are fixed, so the figures are the same on every machine.
They do not include CPU time, TLS and TCP. *Linux*: the tars of the forty 2.0 releases, 1.02 GB in
all. *GitHub*, *Brevo*: 400 revisions each of a page. Each object has its own flow, one after the
other, and every byte is compared. Chunks of 8 KiB on average have 2 to 32 KiB; smaller chunks are in
proportion. *Aligned* predicts as the paper does, *window* as refrain does by default:
[decision 16](decisions/0016-predictions.md). All transfers are simulated: no byte goes over a socket.
`lab/data get linux pages` gets the data sets.
";

const REPLACED: &str = "
## Application bytes replaced by confirmed predictions

*Small blocks* have 512 bytes, and none waits for the link: little more than the bytes of one round trip
is in flight. Other blocks have up to 64 KiB, as in a gateway, and the transport takes 16 KiB ahead. Most
of a short page is therefore sent before the first prediction can count.

The sender compresses the bytes that no prediction replaces. They are faster than predictions where these
need a long round trip. So fewer bytes are predicted there, and still fewer go over the link.

| series | chunks | in flight | aligned | window, no opening | window |
|---|--:|---|--:|--:|--:|
";

const PAPER: &str = "
The paper's figure is from another program: PACK (Zohar et al., SIGCOMM 2011, section 5.1.2). It found 83.1 %
of the same series redundant: the forty Linux 2.0 releases as tars (1 GB).
";

const COSTS: &str = "
## Costs

Shares of the application's bytes, except *wasted*. *Known*: bytes in known chunks. *Up*: all upstream
bytes. *Offers*: the offers among them. *Hashed, right*: bytes that the sender hashed for right offers.
*Wrong*: bytes that it hashed for wrong offers with a right hint. *Wasted*: the share of the offered
bytes that were not confirmed, and not overtaken by the bytes themselves. *MB/s*: bytes of the
application per second of virtual time; the link has 12.5 MB/s.

| series | chunks | round trip | | known | up | offers | hashed, right | wrong | wasted | MB/s |
|---|--:|---|---|--:|--:|--:|--:|--:|--:|--:|
";

const OF_LOG: &str = "
## Text with lines of one form

Percent replaced of an access log of 20 MB that is sent again after a change. It has almost no
anchors, so chunks end at backup anchors instead ([algorithms](algorithms.md)).

";

const BEHIND: &str = "
## With Max-Match and zstd after predictions

Bytes on the link at 50 ms, down + up, as a share of the raw bytes. *Cache*: the mirrored cache of one
direction; only `receiver` has no cache. `gzip` leaves 24 % of each Linux release. `zstd -19
--long=31` leaves 0.7 % of all forty releases together.

| series | chunks | cache | `auto` | confirmed in `auto` | `sender` | `receiver` | `zstd -3` each |
|---|--:|--:|--:|--:|--:|--:|--:|
";

const IN_STORE: &str = "
## In the store

The same objects are cut as a near end cuts them. They are stored in a chunk store on disk, one after the
other, each with its own recipe. *Index* and *with recipes* are shares of the stored bytes. *Recipes*
is a share of the received bytes. Each arrival of a chunk adds an entry to a recipe, even if the chunk
is known. So the more a series repeats itself, the larger are the recipes compared with the stored
bytes. For Linux, the index stays within 0.5 % of the stored bytes; index and recipes together do not.
*Memory* is that of the index and of all data about recipes. With few chunks, most of it is reserved
for more. Each store was opened again, its last two flows were read back, and every byte was compared.

| series | chunks | received | recognised | stored | index | with recipes | recipes, of the received \
| memory per chunk |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
";

const RELEASES: &str = "
## Release by release

Percent replaced, as in the paper's Figure 5a: Linux 2.0.1 to 2.0.40, chunks of 8 KiB.

";

/// The page, from all that was measured.
pub(super) fn page(report: &Report) -> anyhow::Result<String> {
    let mut page = INTRODUCTION.to_owned();
    replaced(&mut page, report)?;
    costs(&mut page, report)?;
    changed_log(&mut page, report)?;
    with_max_match(&mut page, report)?;
    in_store(&mut page, &report.in_store)?;
    goodput(&mut page, report)?;
    releases(&mut page, report)?;
    Ok(page)
}

/// In percent.
fn percent(share: f64) -> f64 {
    100.0 * share
}

/// The bounds that the figures are checked against.
pub(super) fn targets(report: &Report) -> anyhow::Result<Vec<Target>> {
    let least = |what, asked, bound, measured: f64| Target {
        what,
        asked,
        measured: Some(at_least(measured, bound, format!("{measured:.2} %"))),
    };
    let most = |what, asked, bound, measured: f64| Target {
        what,
        asked,
        measured: Some(at_most(measured, bound, format!("{measured:.2} %"))),
    };
    let near_zero = Trial {
        round_trip_ms: 0,
        is_fine: true,
        ..USUAL
    };
    let aligned = Trial {
        predicted: Predicted::Aligned,
        ..near_zero
    };
    let window = |round_trip_ms| Trial {
        round_trip_ms,
        ..USUAL
    };
    let page = |series| Trial {
        series,
        chunk_kib: 4,
        ..USUAL
    };
    let auto = Trial {
        mode: Mode::Auto,
        ..USUAL
    };
    let replaced = |trial| anyhow::Ok(percent(report.outcome(trial)?.confirmed()));
    let known = percent(report.outcome(near_zero)?.known());
    let link = report.outcome(auto)?;
    let link = percent(link.down() + link.up());
    let kept = report.in_store(LINUX)?;
    let found = &report.goodput;
    let later = found.later_rate;
    let longer = |took_s| percent(took_s / found.off_took_s - 1.0);
    Ok(vec![
        least("Linux, 8 KiB: bytes in known chunks", "≥ 88 %", 88.0, known),
        least(
            "the same, in a store on disk",
            "≥ 88 %",
            88.0,
            percent(kept.recognised()),
        ),
        least(
            "replaced, `aligned`, near zero",
            "≥ 86 %",
            86.0,
            replaced(aligned)?,
        ),
        least(
            "replaced, `window`, 10 ms",
            "≥ 86 %",
            86.0,
            replaced(window(10))?,
        ),
        least(
            "replaced, `window`, 50 ms",
            "≥ 86 %",
            86.0,
            replaced(window(50))?,
        ),
        least(
            "replaced, `window`, 200 ms",
            "≥ 86 %",
            86.0,
            replaced(window(200))?,
        ),
        least(
            "GitHub, 4 KiB: replaced, `window`, 50 ms",
            "≥ 93 %",
            93.0,
            replaced(page(GITHUB))?,
        ),
        least(
            "Brevo, 4 KiB: replaced, `window`, 50 ms",
            "≥ 36 %",
            36.0,
            replaced(page(BREVO))?,
        ),
        most(
            "Linux, `auto`, 50 ms: link bytes both ways",
            "≤ 4 %",
            4.0,
            link,
        ),
        most(
            "Linux, 8 KiB, `window`: highest upstream",
            "≤ 0.3 %",
            0.3,
            highest_up(report, Predicted::Window),
        ),
        most(
            "Linux, 8 KiB, `aligned`: highest upstream",
            "≤ 0.3 %",
            0.3,
            highest_up(report, Predicted::Aligned),
        ),
        most(
            "Linux, 8 KiB, on disk: index, of the bytes stored",
            "≤ 0.5 %",
            0.5,
            percent(kept.index()),
        ),
        most(
            "Linux, 8 KiB, on disk: recipes, of the bytes received",
            "≤ 0.1 %",
            0.1,
            percent(kept.recipes()),
        ),
        Target {
            what: "a repeated transfer, after its first second",
            asked: "≥ 15 × the link",
            measured: Some(at_least(later, 15.0, format!("{later:.1} ×"))),
        },
        most(
            "a transfer without a match: longer than with mode `off` by",
            "≤ 2 %",
            2.0,
            longer(found.receiver_took_s),
        ),
        most(
            "a transfer with the opening of other bytes: longer by",
            "≤ 2 %",
            2.0,
            longer(found.deceived_took_s),
        ),
    ])
}

/// The highest upstream share of Linux in chunks of 8 KiB, over all round trips, in percent.
fn highest_up(report: &Report, predicted: Predicted) -> f64 {
    let at = Trial { predicted, ..USUAL };
    let trials = report.trials.iter();
    let alike = trials.filter(|measured| {
        let Trial {
            round_trip_ms,
            is_fine,
            ..
        } = measured.trial;
        let other = Trial {
            round_trip_ms,
            is_fine,
            ..at
        };
        measured.trial == other
    });
    let shares = alike.map(|measured| measured.outcome.up());
    percent(shares.fold(0.0, f64::max))
}

fn replaced(page: &mut String, report: &Report) -> anyhow::Result<()> {
    *page += REPLACED;
    for at in receivers(report) {
        let flight = match at.round_trip_ms {
            0 => "near zero".to_owned(),
            ms => format!("{} KB ({})", f64::from(ms * MBIT) / 8.0, round_trip(at)),
        };
        write!(page, "| {} | {} KiB | {flight}", at.series, at.chunk_kib)?;
        for predicted in Predicted::ALL {
            let outcome = report.outcome(Trial { predicted, ..at })?;
            write!(page, " | {:.2} %", percent(outcome.confirmed()))?;
        }
        *page += " |\n";
    }
    *page += PAPER;
    Ok(())
}

fn round_trip(at: Trial) -> String {
    let blocks = if at.is_fine && at.round_trip_ms > 0 {
        ", small blocks"
    } else {
        ""
    };
    format!("{} ms{blocks}", at.round_trip_ms)
}

/// One trial for each row of the tables by round trip.
fn receivers(report: &Report) -> impl Iterator<Item = Trial> {
    let trials = report.trials.iter().map(|measured| measured.trial);
    trials.filter(|trial| {
        let is_usual = trial.mode == Mode::Receiver && trial.predicted == Predicted::Window;
        is_usual && trial.series != LOG
    })
}

fn costs(page: &mut String, report: &Report) -> anyhow::Result<()> {
    *page += COSTS;
    for at in receivers(report) {
        for (predicted, name) in [
            (Predicted::Aligned, "aligned"),
            (Predicted::WindowWithoutOpening, "window, no opening"),
            (Predicted::Window, "window"),
        ] {
            let outcome = report.outcome(Trial { predicted, ..at })?;
            writeln!(
                page,
                "| {} | {} KiB | {} | {name} | {:.2} % | {:.3} % | {:.3} % | {:.2} % | {:.2} % \
                 | {:.1} % | {:.1} |",
                at.series,
                at.chunk_kib,
                round_trip(at),
                percent(outcome.known()),
                percent(outcome.up()),
                percent(outcome.offer_frames()),
                percent(outcome.hashed_true()),
                percent(outcome.hashed_false()),
                percent(outcome.wasted()),
                outcome.mbyte_per_s(),
            )?;
        }
    }
    Ok(())
}

fn changed_log(page: &mut String, report: &Report) -> anyhow::Result<()> {
    *page += OF_LOG;
    writeln!(page, "| | {} |", log::CHANGES.join(" | "))?;
    writeln!(page, "|---|{}", "--:|".repeat(log::CHANGES.len()))?;
    for (name, trial) in of_log() {
        write!(page, "| {name} |")?;
        for share in &report.outcome(trial)?.confirmed_each[1..] {
            write!(page, " {:.1} |", percent(*share))?;
        }
        *page += "\n";
    }
    Ok(())
}

fn with_max_match(page: &mut String, report: &Report) -> anyhow::Result<()> {
    *page += BEHIND;
    for at in behind() {
        let link = |trial| -> anyhow::Result<String> {
            let outcome = report.outcome(trial)?;
            let (down, up) = (percent(outcome.down()), percent(outcome.up()));
            Ok(format!("{down:.2} + {up:.2} %"))
        };
        let auto = Trial {
            mode: Mode::Auto,
            ..at
        };
        let receiver = Trial {
            cache_mib: USUAL.cache_mib,
            ..at
        };
        writeln!(
            page,
            "| {} | {} KiB | {} MiB | {} | {:.2} % | {} | {} | {:.2} % |",
            at.series,
            at.chunk_kib,
            at.cache_mib,
            link(auto)?,
            percent(report.outcome(auto)?.confirmed()),
            link(Trial {
                mode: Mode::Sender,
                ..at
            })?,
            link(receiver)?,
            percent(report.zstd_each(at.series)?),
        )?;
    }
    Ok(())
}

fn in_store(page: &mut String, all: &[Kept]) -> anyhow::Result<()> {
    *page += IN_STORE;
    for kept in all {
        writeln!(
            page,
            "| {} | {} KiB | {:.1} MB | {:.2} % | {:.1} MB | {:.2} % | {:.2} % | {:.3} % \
             | {:.0} bytes |",
            kept.series,
            kept.chunk_kib,
            kept.received_bytes as f64 / 1e6,
            percent(kept.recognised()),
            kept.stored_bytes as f64 / 1e6,
            percent(kept.index()),
            percent(kept.metadata()),
            percent(kept.recipes()),
            kept.memory_a_chunk(),
        )?;
    }
    Ok(())
}

fn goodput(page: &mut String, report: &Report) -> anyhow::Result<()> {
    let found = &report.goodput;
    write!(
        page,
        "\n## Speed: `receiver`, {} ms\n\n\
         {} MB of noise took {:.2} s. The second transfer took {:.2} s: {:.1} times the link's rate. Its first\n\
         second had {:.1} times the rate, the rest {:.1} times.\n\n\
         {} MB of noise without a match took {:.3} s with mode `off`, and {:.3} s with an empty history. It took\n\
         {:.3} s where the same number of other bytes had answered the same opening before.\n",
        USUAL.round_trip_ms,
        REPEATED_BYTES / 1_000_000,
        found.first_took_s,
        found.second_took_s,
        found.second_rate,
        found.first_second_rate,
        found.later_rate,
        STRANGE_BYTES / 1_000_000,
        found.off_took_s,
        found.receiver_took_s,
        found.deceived_took_s,
    )?;
    Ok(())
}

fn releases(page: &mut String, report: &Report) -> anyhow::Result<()> {
    *page += RELEASES;
    let near_zero = Trial {
        round_trip_ms: 0,
        is_fine: true,
        ..USUAL
    };
    let aligned = |at| Trial {
        predicted: Predicted::Aligned,
        ..at
    };
    let lines = [
        ("aligned, near zero", aligned(near_zero)),
        ("aligned, 50 ms", aligned(USUAL)),
        ("window, 50 ms", USUAL),
    ];
    for first in (1..=40).step_by(10) {
        *page += "| 2.0. |";
        for release in first..first + 10 {
            write!(page, " {release} |")?;
        }
        *page += "\n|---|";
        *page += &"--:|".repeat(10);
        *page += "\n";
        for (name, trial) in lines {
            let shares = &report.outcome(trial)?.confirmed_each;
            write!(page, "| {name} |")?;
            for share in &shares[first - 1..first + 9] {
                write!(page, " {:.0} |", percent(*share))?;
            }
            *page += "\n";
        }
        *page += "\n";
    }
    page.pop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_a_line_whose_figures_are_in_order() {
        let kept = Kept {
            series: LINUX,
            chunk_kib: 8,
            received_bytes: 1_000_000_000,
            stored_bytes: 200_000_000,
            chunks: 25_000,
            index_bytes: 800_000,
            recipe_bytes: 600_000,
            memory_bytes: 1_000_000,
            read_back_bytes: 0,
        };
        let mut page = String::new();
        in_store(&mut page, &[kept]).expect("text grows");
        let line = page.lines().last().expect("its line");
        assert_eq!(
            line,
            "| Linux | 8 KiB | 1000.0 MB | 80.00 % | 200.0 MB | 0.40 % | 0.70 % | 0.060 % | 40 bytes |"
        );
        let heads = page.lines().find(|line| line.starts_with("| series"));
        let columns = |line: &str| line.matches('|').count();
        assert_eq!(columns(heads.expect("a head")), columns(line));
    }
}
