//! The page and its plot.

use std::{fmt::Write, path::Path};

use refrain_plot::Words;

use super::{
    measure::{Connections, Figures, IDLE, Measured, Row, Transfer},
    place::{CONGESTION, Kind},
    wanproxy,
    ways::{DIRECT, PAIR, WANPROXY},
};
use crate::{
    bulk::plots_from,
    machine,
    median::{median, medians_of},
};

/// The file of the plot, and the ways that it shows.
const PLOT: &str = "peers-time.svg";
const PLOTTED: [&str; 7] = [
    PAIR,
    "ssh -C",
    "rsync -z",
    "nginx brotli",
    "zstd --patch-from",
    "squid",
    "pair + squid before",
];

/// A cache, and the ways that have both it and the pair.
const SQUID: &str = "squid";
const WITH_SQUID: [&str; 2] = ["pair + squid before", "pair + squid after"];

/// The names of the three transfers of a content.
const PHASES: [&str; 3] = ["first", "again", "next"];

/// From this load on, programs of a turn wait for others' on a machine of two cores.
const BUSY_LOAD: f64 = 1.5;

/// What is less than the pair's by this much is listed.
const NOTABLY_LESS: f64 = 0.95;

/// The page, from the figures of all places.
pub(super) fn write(
    all: &[(&Kind, Option<Figures>)],
    plots: &Path,
    page: Option<&Path>,
) -> anyhow::Result<String> {
    let plots_folder = plots_from(page, plots);
    let mut text = method();
    let plotted = all
        .iter()
        .find_map(|(kind, figures)| Some((*kind, figures.as_ref()?)));
    if let Some((kind, figures)) = plotted
        && let Some(svg) = plot(kind, figures)?
    {
        std::fs::create_dir_all(plots)?;
        std::fs::write(plots.join(PLOT), svg)?;
        writeln!(text, "\n![Time of transfers]({plots_folder}/{PLOT})")?;
    }
    for (kind, figures) in all {
        if let Some(figures) = figures {
            writeln!(text, "\n## {}\n", kind.title)?;
            place(&mut text, figures)?;
        }
    }
    if std::env::var_os(WANPROXY).is_none() {
        text += wanproxy::MEASURED_BEFORE;
    }
    Ok(text)
}

fn method() -> String {
    format!(
        "# The pair and other programs\n\n\
         Written by `cargo run --release -p refrain-experiments -- peers --write docs/results-peers.md`, as root,\n\
         after `lab/setup --peers`.\n\n\
         A client at the near end transfers files from an nginx at the far end, and compares every byte. The link\n\
         is the lab's: real TCP between two network namespaces, with a queue of 100 ms in front of each direction.\n\
         Connections that set no congestion control have {CONGESTION}. Programs are Debian's, with default options\n\
         except those named below. Each turn has its own link, and newly started programs with empty caches. Ways\n\
         take turns, in an order that changes from run to run. All transfers go over sockets.\n\
         `lab/data get linux pages mail` gets the data sets.\n\n\
         - *first*: new content. *again*: the same content once more. *next*: later versions of it, one after \
         the\n  other. Each file has its own connection.\n\
         - *MB on the link*: bytes on the link in both directions, with the headers of IP and TCP. MB = 10^6 \
         bytes.\n  It does not include the start of the programs: the handshakes of a pair or of ssh.\n\
         - *origin, MB*: bytes that nginx sent in all three transfers.\n\
         - *new connection*: from the connect to the first byte of a small response, and to the last byte of 1 \
         MiB.\n  The programs are ready then.\n\
         - *idle*: the same from the request, on a connection that carried 1 MiB and then was idle for {} s.\n  \
         Linux's TCP then begins with a small window again. These responses are new noise: no cache and no\n  \
         compression helps.\n\
         - `rsync -z` runs for each file, and updates the file before. It skips a file of the same size and \
         time,\n  as in *again*.\n\
         - `zstd --patch-from` is `zstd -3` with the file before as a reference. Plain TCP sends its output at \
         the\n  same time. Both ends must have the file before.\n\
         - *nginx gzip* and *nginx brotli* are the origin's own compression, both at level 6, while it sends.\n\
         - *squid* is a cache at the near end. *pair + squid before* has a squid between client and pair, at \
         the\n  near end. *pair + squid after* has one between pair and origin, at the far end. *pair + nginx \
         before* and\n  *pair + nginx after* have nginx as the cache. Caches hold 256 MB.\n\
         - A cache answers *again* without a request to the origin, which allows this for an hour (`expires \
         1h`).\n  The pair keeps no files: the origin sends each file again, so the client gets the current \
         content.\n  The link carries references to earlier data.\n",
        IDLE.as_secs()
    )
}

fn place(text: &mut String, figures: &Figures) -> anyhow::Result<()> {
    writeln!(
        text,
        "Measured on {} at {} on {}; load when it began: {:.1}.\nFigures are {}.\nPackages: {}.",
        figures.date,
        machine::version_in_words(&figures.version),
        figures.machine,
        figures.load,
        medians_of(figures.runs),
        figures.packages
    )?;
    if figures.load > BUSY_LOAD {
        *text += "Other programs kept the machine busy: bytes are more reliable than times.\n";
    }
    if let Some(link) = &figures.link {
        writeln!(text, "The link, checked before: {link}.")?;
    }
    for (number, content) in figures.contents.iter().enumerate() {
        transfers(text, figures, number, content)?;
    }
    connections(text, figures)?;
    losses(text, figures)?;
    unexplained(text, figures)
}

fn transfers(
    text: &mut String,
    figures: &Figures,
    number: usize,
    content: &Measured,
) -> anyhow::Result<()> {
    let has_link = figures.link.is_some();
    let [first, _, next] = content.bytes.map(megabytes);
    writeln!(
        text,
        "\n### {}: {first} MB first, {next} MB next\n",
        content.title
    )?;
    let (head, line) = match has_link {
        true => (" MB on the link: first | again | next |", "--:|--:|--:|"),
        false => ("", ""),
    };
    writeln!(
        text,
        "| | first, s | again, s | next, s |{head} origin, MB |\n|---|--:|--:|--:|{line}--:|"
    )?;
    for row in &figures.rows {
        write!(text, "| {} |", row.way)?;
        let runs = &row.transfers[number];
        if let Some(reason) = &row.missing {
            let cells = if has_link { 6 } else { 3 };
            writeln!(text, " {reason} |{}", " |".repeat(cells))?;
            continue;
        }
        for phase in 0..PHASES.len() {
            write!(text, " {} |", figure(time(runs, phase)))?;
        }
        if has_link {
            for phase in 0..PHASES.len() {
                let bytes = link_bytes(runs, phase).unwrap_or(f64::NAN);
                write!(text, " {} |", megabytes(bytes.round() as u64))?;
            }
        }
        match runs
            .iter()
            .map(|run| run.origin_bytes)
            .collect::<Option<Vec<_>>>()
        {
            Some(sent) => {
                let sent = median(sent.into_iter().map(|bytes| bytes as f64));
                writeln!(text, " {} |", megabytes(sent.round() as u64))?;
            }
            None => text.push_str(" – |\n"),
        }
    }
    Ok(())
}

fn connections(text: &mut String, figures: &Figures) -> anyhow::Result<()> {
    *text += "\n### Connections\n\n\
              | | new connection: first byte, ms | 1 MiB, ms | after 5 s idle: first byte, ms | 1 MiB, ms |\n\
              |---|--:|--:|--:|--:|\n";
    for row in &figures.rows {
        write!(text, "| {} |", row.way)?;
        let runs = &row.connections;
        if let Some(reason) = &row.missing {
            writeln!(text, " {reason} | | | |")?;
            continue;
        }
        if runs.is_empty() {
            text.push_str(" accepts no connections of clients | | | |\n");
            continue;
        }
        for seconds in connection_figures(runs) {
            write!(text, " {:.1} |", 1e3 * seconds)?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn connection_figures(runs: &[Connections]) -> [f64; 4] {
    let of = |figure: fn(&Connections) -> f64| median(runs.iter().map(figure));
    [
        median(
            runs.iter()
                .flat_map(|run| run.new_first_bytes.iter().copied()),
        ),
        of(|run| run.new_large),
        of(|run| run.idle_first_byte),
        of(|run| run.idle_large),
    ]
}

/// A list of what is notably faster or smaller than the pair.
fn losses(text: &mut String, figures: &Figures) -> anyhow::Result<()> {
    let Some(pair) = figures.rows.iter().find(|row| row.way == PAIR) else {
        return Ok(());
    };
    if pair.missing.is_some() {
        return Ok(());
    }
    *text += "\n### Where the pair loses\n\nThe pair's figure, then those of ways with at least 5 % less:\n\n";
    let others = || figures.rows.iter().filter(|row| row.missing.is_none());
    let mut list = |what: &str, unit: &str, of: &dyn Fn(&Row) -> Option<f64>| {
        let Some(own) = of(pair) else {
            return;
        };
        let less = others().filter_map(|row| {
            let other = of(row)?;
            (other < NOTABLY_LESS * own).then(|| format!("{} {}", row.way, figure(other)))
        });
        let less: Vec<String> = less.collect();
        if !less.is_empty() {
            let own = figure(own);
            text.push_str(&format!("- {what}: {own} {unit}. {}.\n", less.join("; ")));
        }
    };
    for (number, content) in figures.contents.iter().enumerate() {
        for (phase, name) in PHASES.into_iter().enumerate() {
            let what = format!("{}, {name}", content.name);
            list(&what, "s", &|row| Some(time(&row.transfers[number], phase)));
            list(&what, "MB on the link", &|row| {
                Some(link_bytes(&row.transfers[number], phase)? / 1e6)
            });
        }
    }
    let names = [
        "new connection, first byte",
        "new connection, 1 MiB",
        "idle connection, first byte",
        "idle connection, 1 MiB",
    ];
    for (number, name) in names.into_iter().enumerate() {
        list(name, "ms", &|row| {
            let is_there = !row.connections.is_empty();
            is_there.then(|| 1e3 * connection_figures(&row.connections)[number])
        });
    }
    Ok(())
}

/// A list of transfers in which the pair with squid is slower than each of the two without the other.
fn unexplained(text: &mut String, figures: &Figures) -> anyhow::Result<()> {
    let (Some(pair), Some(squid)) = (figures.row(PAIR), figures.row(SQUID)) else {
        return Ok(());
    };
    let mut list = String::new();
    for (number, content) in figures.contents.iter().enumerate() {
        for (phase, name) in PHASES.into_iter().enumerate() {
            let seconds = |row: &Row| time(&row.transfers[number], phase);
            let [of_pair, of_squid] = [seconds(pair), seconds(squid)];
            for row in WITH_SQUID.into_iter().filter_map(|way| figures.row(way)) {
                let both = seconds(row);
                if of_pair.max(of_squid) < NOTABLY_LESS * both {
                    writeln!(
                        list,
                        "- {}, {name}: {} {} s. {PAIR} {}; {SQUID} {}.",
                        content.name,
                        row.way,
                        figure(both),
                        figure(of_pair),
                        figure(of_squid)
                    )?;
                }
            }
        }
    }
    if !list.is_empty() {
        *text += "\n### Unexplained times\n\n\
                  In these transfers, the pair with squid took longer than the pair without squid and squid without\n\
                  the pair: each of these took at least 5 % less. The figures do not show the reason.\n\n";
        *text += &list;
    }
    Ok(())
}

/// Lines over all transfers, as shares of the direct one's time.
fn plot(kind: &Kind, figures: &Figures) -> anyhow::Result<Option<String>> {
    let Some(direct) = figures.row(DIRECT) else {
        return Ok(None);
    };
    let names = figures.contents.iter().map(|content| &content.name);
    let places = names.flat_map(|name| PHASES.map(|phase| format!("{name} {phase}")));
    let places: Vec<String> = places.collect();
    let series = PLOTTED.into_iter().filter_map(|name| {
        let row = figures.row(name)?;
        let both = row.transfers.iter().zip(&direct.transfers);
        let shares = both.flat_map(|(own, direct)| {
            [0, 1, 2].map(|phase| 100.0 * time(own, phase) / time(direct, phase))
        });
        Some((name.to_owned(), shares.collect()))
    });
    let title = format!("Time of transfers, {}", kind.title);
    let words = Words {
        title: &title,
        across: "content and transfer",
        up: "% of direct",
    };
    refrain_plot::lines(&words, &places, &series.collect::<Vec<_>>()).map(Some)
}

impl Figures {
    /// A way that was measured.
    fn row(&self, way: &str) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.way == way && row.missing.is_none())
    }
}

fn time(runs: &[Transfer], phase: usize) -> f64 {
    median(runs.iter().map(|run| run.seconds[phase]))
}

fn link_bytes(runs: &[Transfer], phase: usize) -> Option<f64> {
    let bytes: Option<Vec<[u64; 3]>> = runs.iter().map(|run| run.link_bytes).collect();
    Some(median(bytes?.iter().map(|bytes| bytes[phase] as f64)))
}

fn figure(figure: f64) -> String {
    match figure {
        10.0.. => format!("{figure:.1}"),
        1.0.. => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

fn megabytes(bytes: u64) -> String {
    let megabytes = bytes as f64 / 1e6;
    match megabytes {
        10.0.. => format!("{megabytes:.1}"),
        _ => format!("{megabytes:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: &str, seconds: [f64; 3], missing: Option<&str>) -> Row {
        let transfer = |more: f64| Transfer {
            seconds: seconds.map(|seconds| seconds + more),
            link_bytes: Some([2_000_000, 1_000_000, 500_000]),
            origin_bytes: None,
        };
        Row {
            way: way.to_owned(),
            missing: missing.map(ToOwned::to_owned),
            transfers: vec![match missing {
                None => vec![transfer(0.0), transfer(7.0), transfer(0.0)],
                Some(_) => Vec::new(),
            }],
            connections: Vec::new(),
        }
    }

    fn figures() -> Figures {
        Figures {
            machine: "a machine".to_owned(),
            version: "abcdef0".to_owned(),
            load: 0.1,
            date: "2026-01-01".to_owned(),
            runs: 3,
            packages: "zstd 1".to_owned(),
            link: Some("as asked".to_owned()),
            contents: vec![Measured {
                name: "linux".to_owned(),
                title: "Releases".to_owned(),
                bytes: [4_000_000, 4_000_000, 8_000_000],
            }],
            rows: vec![
                row(DIRECT, [4.0, 4.0, 8.0], None),
                row(PAIR, [2.0, 0.5, 1.0], None),
                row("rsync -z", [2.5, 0.5, 0.25], None),
                row("squid", [0.0; 3], Some("squid is not installed")),
            ],
        }
    }

    #[test]
    fn a_place_has_medians_reasons_and_what_is_less_than_the_pair() {
        let mut text = String::new();
        place(&mut text, &figures()).expect("a page");
        for line in [
            "| pair | 2.00 | 0.500 | 1.00 | 2.000 | 1.000 | 0.500 | – |",
            "| squid | squid is not installed | | | | | | |",
            "- linux, next: 1.00 s. rsync -z 0.250.",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert_eq!(text.matches("\n- ").count(), 1, "{text}");
    }

    #[test]
    fn lists_transfers_in_which_pair_and_squid_are_slower_than_each() {
        let mut figures = figures();
        figures.rows.truncate(2);
        figures.rows.push(row(SQUID, [3.0, 0.25, 9.0], None));
        let both = row(WITH_SQUID[0], [4.0, 0.25, 2.0], None);
        figures.rows.push(both);
        let mut text = String::new();
        place(&mut text, &figures).expect("a page");
        let line = "\n- linux, first: pair + squid before 4.00 s. pair 2.00; squid 3.00.\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(text.matches("before 0.250 s").count(), 0, "{text}");
        assert_eq!(text.matches("before 2.00 s").count(), 0, "{text}");
    }

    #[test]
    fn the_plot_leaves_out_ways_without_figures() {
        let svg = plot(&super::super::place::KINDS[0], &figures());
        let svg = svg.expect("a plot").expect("a way to compare with");
        assert!(svg.contains("rsync -z") && svg.contains("linux again"));
        assert!(!svg.contains("squid"));
    }
}
