//! The page.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    ECOSYSTEMS, Kept, Outcome,
    row::{Bytes, Row},
};
use crate::{chapters::Plot, machine::commit_of, median::median};

/// The file of the plot.
const PLOT: &str = "ecosystems-saved.svg";

/// The page, from all that was measured.
pub(super) fn page(all: &[Kept]) -> anyhow::Result<String> {
    let mut page = "# Savings of real clients and servers\n\n\
         Written by `cargo run --release -p refrain-experiments -- ecosystems --write \
         docs/results-ecosystems.md`.\n\
         `--json` prints all figures, and `--only NAME` measures some rows again. It needs root, the\n\
         programs of `lab/setup --ecosystems`, 3 GB of disk, and a network the first time.\n\
         It gets its own data set: the packages below, by name and version.\n\n"
        .to_owned();
    summary(&mut page, all)?;
    writeln!(page, "\n![Saved bytes](plots/{PLOT})")?;
    table(&mut page, all)?;
    method(&mut page, all)?;
    Ok(page)
}

const STEPS: [&str; 3] = ["N", "N + 1", "again"];

/// What each step saves, row by row, from the highest to the lowest.
pub(super) fn plot(all: &[Kept]) -> anyhow::Result<Option<Plot>> {
    let series = [0, 1, 2].map(|step| {
        let saved = rows(all).map(|row| row.steps[step].saved_percent());
        let mut saved: Vec<f64> = saved.collect();
        saved.sort_by(|one, other| other.total_cmp(one));
        (STEPS[step].to_owned(), saved)
    });
    let count = rows(all).count();
    if count == 0 {
        return Ok(None);
    }
    let places: Vec<String> = (1..=count).map(|row| row.to_string()).collect();
    let words = refrain_plot::Words {
        title: "Bytes that the link is spared",
        across: "rows, each step from the highest to the lowest",
        up: "% of the application's bytes",
    };
    let svg = refrain_plot::lines(&words, &places, &series)?;
    Ok(Some(Plot { name: PLOT, svg }))
}

fn table(page: &mut String, all: &[Kept]) -> anyhow::Result<()> {
    *page += "\n## Rows\n\n\
              MB = 10^6 bytes, both directions together. *App*: bytes of the applications. *Link*: bytes between\n\
              the ends of the pair, with handshakes and pings. *N*: a version. *N + 1*: the next version. *Again*:\n\
              the same version for another client.\n\n\
              | |";
    for step in STEPS {
        write!(page, " {step}: app | link | saved, % |")?;
    }
    *page += " obstacle |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n";
    for kept in all {
        match &kept.outcome {
            Outcome::Skipped(reason) => writeln!(
                page,
                "| {} | {}not measured: {reason} |",
                kept.name,
                "| ".repeat(9)
            )?,
            Outcome::Measured(rows) => {
                for row in rows {
                    write!(page, "| {} |", row.name)?;
                    for bytes in row.steps {
                        write!(
                            page,
                            " {} | {} | {} |",
                            mb(bytes.app),
                            mb(bytes.link),
                            percent(bytes)
                        )?;
                    }
                    writeln!(page, " {} |", row.in_the_way)?;
                }
            }
        }
    }
    Ok(())
}

fn rows(all: &[Kept]) -> impl Iterator<Item = &Row> {
    all.iter().flat_map(|kept| match &kept.outcome {
        Outcome::Measured(rows) => rows.as_slice(),
        Outcome::Skipped(_) => &[],
    })
}

/// What stands in front of the table: how many rows save how much, and what stands in their way.
fn summary(page: &mut String, all: &[Kept]) -> anyhow::Result<()> {
    let of = |step: usize, is_it: fn(f64) -> bool| {
        let saved = rows(all).map(|row| row.steps[step].saved_percent());
        saved.filter(|&saved| is_it(saved)).count()
    };
    writeln!(
        page,
        "Of {} rows, {} save 90 % or more of version N + 1. {} save 50 to 90 %, {} save 2 to 50 %, and {} save\n\
         less. {} rows save 90 % or more when that version is transferred again. No content differed.\n\n\
         | obstacle | rows | saved of N + 1, %: lowest | median | highest | again: lowest | median |\n\
         |---|--:|--:|--:|--:|--:|--:|",
        rows(all).count(),
        of(1, |saved| saved >= 90.0),
        of(1, |saved| (50.0..90.0).contains(&saved)),
        of(1, |saved| (2.0..50.0).contains(&saved)),
        of(1, |saved| saved < 2.0),
        of(2, |saved| saved >= 90.0),
    )?;
    let mut by_obstacle: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows(all) {
        let obstacle = row.in_the_way.split([':', ',', ';']).next();
        by_obstacle
            .entry(obstacle.unwrap_or_default())
            .or_default()
            .push(row);
    }
    for (obstacle, rows) in by_obstacle {
        let [next, again] = [1, 2].map(|step| {
            let saved = rows.iter().map(|row| row.steps[step].saved_percent());
            let mut saved: Vec<f64> = saved.collect();
            saved.sort_by(f64::total_cmp);
            saved
        });
        let median = |saved: &[f64]| median(saved.iter().copied());
        writeln!(
            page,
            "| {obstacle} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
            rows.len(),
            next[0],
            median(&next),
            next[next.len() - 1],
            again[0],
            median(&again)
        )?;
    }
    Ok(())
}

fn method(page: &mut String, all: &[Kept]) -> anyhow::Result<()> {
    *page += "\n## Method\n\n\
              Each row has a new pair of processes with empty caches. It has the default cache of 128 MiB, and no\n\
              store. The names of rows show exceptions. *The same pair* is that of the row above. Figures are from `total`\n\
              of the near end's `refrain status --json`, before and after each step. Clients, servers and both ends\n\
              are on one machine, in a network namespace without an uplink. All bytes go over sockets on its\n\
              loopback. Packages are fetched once, by name and version. The figures are bytes, not times.\n\n\
              | | measured at | effort | machine | load | took, s | programs |\n\
              |---|---|---|---|--:|--:|---|\n";
    for ecosystem in &ECOSYSTEMS {
        match all.iter().find(|kept| kept.name == ecosystem.name) {
            Some(kept) => writeln!(
                page,
                "| {} | {} | {} | {} | {:.1} | {:.0} | {} |",
                kept.name,
                commit_of(&kept.version).0,
                kept.effort,
                kept.machine,
                kept.load,
                kept.took_s,
                kept.programs.join("; ")
            )?,
            None => writeln!(page, "| {} | not measured | | | | | |", ecosystem.name)?,
        }
    }
    let changed = all.iter().filter(|kept| commit_of(&kept.version).1);
    let changed: Vec<&str> = changed.map(|kept| kept.name.as_str()).collect();
    if !changed.is_empty() {
        writeln!(
            page,
            "\nThe working tree had uncommitted changes outside of `docs` when these were measured: {}.",
            changed.join(", ")
        )?;
    }
    *page += "\n*Flows reset*: connections through the pair, of all three steps, that ended with a reset instead of a\n\
              normal end. TCP also resets a connection that a program closes with unread data. The near end counts\n\
              resets without their reasons, so these are unknown. The content passed its check in each row.\n\n\
              | | content checked by | flows reset |\n|---|---|--:|\n";
    for kept in all {
        if let Outcome::Measured(rows) = &kept.outcome {
            for row in rows {
                let resets = row.steps.iter().map(|bytes| bytes.resets).sum::<u64>();
                writeln!(page, "| {} | {} | {resets} |", row.name, row.checked)?;
            }
        }
    }
    Ok(())
}

fn mb(bytes: u64) -> String {
    let mb = bytes as f64 / 1e6;
    let places = match mb {
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{mb:.places$}")
}

/// Little is lost or saved where nothing repeats, so that its sign is of interest.
fn percent(bytes: Bytes) -> String {
    format!("{:.1}", bytes.saved_percent())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(outcome: Outcome) -> Kept {
        Kept {
            name: "pip".to_owned(),
            machine: "a machine".to_owned(),
            version: "1234567".to_owned(),
            effort: "max".to_owned(),
            load: 0.5,
            took_s: 12.0,
            programs: vec!["pip 23".to_owned(), "nginx 1.22".to_owned()],
            outcome,
        }
    }

    #[test]
    fn losses_stand_in_the_table() {
        let bytes = |app, link| Bytes {
            app,
            link,
            resets: 0,
        };
        let row = Row {
            name: "pip: a wheel".to_owned(),
            steps: [
                bytes(41_200_000, 41_300_000),
                bytes(1_000_000, 40_000),
                bytes(4_000_000, 4_000),
            ],
            checked: "`cmp`".to_owned(),
            in_the_way: "gzip".to_owned(),
        };
        let page = page(&[kept(Outcome::Measured(vec![row]))]).expect("memory");
        assert!(
            page.contains(
                "\n| pip: a wheel | 41.2 | 41.3 | -0.2 | 1.00 | 0.040 | 96.0 | 4.00 | 0.004 | 99.9 | gzip |\n"
            ),
            "{page}"
        );
        assert!(page.contains("\nOf 1 rows, 1 save 90 %"), "{page}");
        let obstacle = "\n| gzip | 1 | 96.0 | 96.0 | 96.0 | 99.9 | 99.9 |\n";
        assert!(page.contains(obstacle), "{page}");
        assert!(page.contains("\n| pip: a wheel | `cmp` | 0 |\n"), "{page}");
    }

    #[test]
    fn what_is_not_measured_says_why() {
        let reason = "`x` (package `y`) not found".to_owned();
        let page = page(&[kept(Outcome::Skipped(reason))]).expect("memory");
        assert!(
            page.contains("| not measured: `x` (package `y`) not found |"),
            "{page}"
        );
    }
}
