//! What stored files take, and what it costs to store them.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Setup,
    data::{DataSet, bytes_of},
    measured::{Cost, measure, medians},
    ways::{self, ARCHIVE, Way, are_installed, bash},
};
use crate::{
    chapters::{Figures, Plot},
    median::medians_of,
    targets::{Target, at_most},
};

/// The file of the plot, and the ways that it shows.
const PLOT: &str = "czip-sizes.svg";
const PLOTTED: [&str; 5] = [
    ways::SMALL,
    ways::SOLID,
    ways::CASYNC,
    ways::BORG_SMALL_CHUNKS,
    ways::RESTIC,
];

/// All sets.
#[derive(Serialize, Deserialize)]
pub(super) struct Sizes {
    pub runs: usize,
    pub sets: Vec<SetSizes>,
}

/// One set.
#[derive(Serialize, Deserialize)]
pub(super) struct SetSizes {
    pub set: DataSet,
    /// `None` where it is not there.
    pub stored: Option<SetStored>,
}

/// What came of a set.
#[derive(Serialize, Deserialize)]
pub(super) struct SetStored {
    pub bytes: u64,
    pub rows: Vec<Row>,
}

/// A set stored in one way.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    pub way: String,
    pub is_ours: bool,
    pub reads_ranges: bool,
    pub outcome: Outcome,
}

/// What came of it.
#[derive(Serialize, Deserialize)]
pub(super) enum Outcome {
    Stored {
        bytes: u64,
        /// Of all runs; one of them for ways whose time is of no interest.
        costs: Vec<Cost>,
        /// Of our own archives.
        report: Option<Report>,
    },
    NotThere,
    Failed,
}

/// What `refrain czip create --json` says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub archive_bytes: u64,
    pub unique_bytes: u64,
    pub stored_bytes: u64,
    pub chunks: u64,
    pub references: u64,
}

impl SetStored {
    /// The bytes that were stored in the way of that name.
    pub(super) fn stored(&self, way: &str) -> Option<u64> {
        self.rows
            .iter()
            .find(|row| row.way == way)
            .and_then(Row::stored)
    }
}

impl Row {
    pub(super) fn stored(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Stored { bytes, .. } => Some(bytes),
            Outcome::NotThere | Outcome::Failed => None,
        }
    }

    /// What our own program said.
    pub(super) fn report(&self) -> Option<Report> {
        match self.outcome {
            Outcome::Stored { report, .. } => report,
            Outcome::NotThere | Outcome::Failed => None,
        }
    }
}

impl Figures<Setup<'_>> for Sizes {
    const NAME: &'static str = "sizes";
    const TITLE: &'static str = "Stored sizes";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        run(setup)
    }

    fn targets(&self) -> Vec<Target> {
        let stored = |set: DataSet| {
            let row = self.sets.iter().find(|row| row.set == set)?;
            row.stored.as_ref()
        };
        let over = |set: DataSet, way: &str, bound: f64| {
            let stored = stored(set)?;
            let (ours, theirs) = (stored.stored(ways::SMALL)?, stored.stored(way)?);
            let ratio = ours as f64 / theirs as f64;
            let (ours, theirs) = (ours as f64 / 1e6, theirs as f64 / 1e6);
            let text = format!("{ratio:.3} ({ours:.2} of {theirs:.2} MB)");
            Some(at_most(ratio, bound, text))
        };
        let share = |set: DataSet| {
            let stored = stored(set)?;
            let percent = 100.0 * stored.stored(ways::SMALL)? as f64 / stored.bytes as f64;
            let solid = 100.0 * stored.stored(ways::SOLID)? as f64 / stored.bytes as f64;
            let text = format!("{percent:.2} % (solid: {solid:.2} %)");
            Some(at_most(percent, 0.5, text))
        };
        vec![
            Target {
                what: "Django series, over solid `zstd -3 --long=31`",
                asked: "≤ 1.3",
                measured: over(DataSet::Django, ways::SOLID, 1.3),
            },
            Target {
                what: "root file systems, over casync",
                asked: "≤ 0.80",
                measured: over(DataSet::RootFileSystems, ways::CASYNC, 0.8),
            },
            Target {
                what: "root file systems, over solid",
                asked: "≤ 1.25",
                measured: over(DataSet::RootFileSystems, ways::SOLID, 1.25),
            },
            Target {
                what: "DVD and CDs, over solid",
                asked: "≤ 1.02",
                measured: over(DataSet::DvdAndCds, ways::SOLID, 1.02),
            },
            Target {
                what: "200 revisions of a page (GitHub), of their size",
                asked: "≤ 0.5 %",
                measured: share(DataSet::GithubPage),
            },
            Target {
                what: "200 revisions of a page (Brevo), of their size",
                asked: "≤ 0.5 %",
                measured: share(DataSet::BrevoPage),
            },
            Target {
                what: "the table of any of these archives, over 40 bytes per chunk and 4 per reference",
                asked: "≤ 1",
                measured: self
                    .table_ratio()
                    .map(|ratio| at_most(ratio, 1.0, format!("{ratio:.2}"))),
            },
        ]
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        write!(
            page,
            "With default options; the next chapter has the effect of each option. Every archive of refrain was\n\
             read back and compared. *Ranges*: whether a few bytes from the middle can be read without most of the\n\
             data before them. *Table*: the archive without its frames. Times are {}; in brackets:\n\
             of one run.\n",
            medians_of(self.runs)
        )?;
        for row in &self.sets {
            let Some(stored) = &row.stored else {
                writeln!(page, "\n### {}\n\nNot available.", row.set.name())?;
                continue;
            };
            let mb = stored.bytes as f64 / 1e6;
            writeln!(page, "\n### {}, {mb:.1} MB\n", row.set.name())?;
            write_set(page, stored)?;
        }
        self.write_larger(page)
    }

    fn plots(&self) -> anyhow::Result<Vec<Plot>> {
        let places: Vec<String> = self
            .sets
            .iter()
            .map(|row| row.set.short_name().to_owned())
            .collect();
        let series = PLOTTED.map(|way| {
            let shares = self.sets.iter().map(|row| {
                let share = row.stored.as_ref().and_then(|stored| {
                    let bytes = stored.stored(way)?;
                    Some(100.0 * bytes as f64 / stored.bytes as f64)
                });
                share.unwrap_or(f64::NAN)
            });
            (way.to_owned(), shares.collect::<Vec<f64>>())
        });
        let words = refrain_plot::Words {
            title: "Stored sizes",
            across: "data set",
            up: "% of the input",
        };
        Ok(vec![Plot {
            name: PLOT,
            svg: refrain_plot::lines(&words, &places, &series)?,
        }])
    }
}

impl Sizes {
    /// Of all sets, the highest.
    fn table_ratio(&self) -> Option<f64> {
        let stored = self.sets.iter().filter_map(|set| set.stored.as_ref());
        stored.filter_map(table_ratio).reduce(f64::max)
    }

    /// Where the default takes more than one stream of zstd, and how large tables are.
    fn write_larger(&self, page: &mut String) -> anyhow::Result<()> {
        let larger = self.sets.iter().filter_map(|row| {
            let stored = row.stored.as_ref()?;
            let small = stored.stored(ways::SMALL)?;
            let solid = stored.stored(ways::SOLID)?;
            let [ours, theirs] = [small, solid].map(|bytes| bytes as f64 / 1e6);
            let name = row.set.short_name();
            (small > solid).then(|| format!("- {name}: {ours:.2} and {theirs:.2} MB\n"))
        });
        let larger: String = larger.collect();
        if !larger.is_empty() {
            *page +=
                "\n### Where `small` loses\n\n`small` is larger than solid zstd in these sets:\n\n";
            *page += &larger;
        }
        if let Some(ratio) = self.table_ratio() {
            writeln!(
                page,
                "\nIn archives with more than {TABLE_CHUNKS_MIN} chunks, the table takes at most {ratio:.2} times this size:\n\
                 40 bytes per chunk and 4 bytes per reference."
            )?;
        }
        writeln!(page, "\n![Stored sizes](plots/{PLOT})")?;
        Ok(())
    }
}

/// Measures them; ways take turns.
fn run(setup: &Setup<'_>) -> anyhow::Result<Sizes> {
    let ways = ways::all();
    let mut sets = Vec::new();
    for set in DataSet::ALL {
        let stored = match setup.data.files(set) {
            Ok(files) => Some(of_set(setup, &files, &ways)?),
            Err(error) => {
                eprintln!("{}: not available: {error:#}", set.name());
                None
            }
        };
        sets.push(SetSizes { set, stored });
    }
    let runs = setup.runs;
    Ok(Sizes { runs, sets })
}

fn of_set(setup: &Setup<'_>, files: &[PathBuf], ways: &[Way]) -> anyhow::Result<SetStored> {
    let mut rows: Vec<Row> = Vec::new();
    for turn in 0..setup.runs {
        for (place, way) in ways.iter().enumerate() {
            if turn > 0 && !way.is_timed {
                continue;
            }
            let outcome = match are_installed(&way.programs) {
                true => once(setup, files, way, turn == 0),
                false => Ok(Outcome::NotThere),
            };
            let outcome = outcome.unwrap_or_else(|error| {
                eprintln!("{}: {error:#}", way.name);
                Outcome::Failed
            });
            match rows.get_mut(place) {
                None => rows.push(Row {
                    way: way.name.clone(),
                    is_ours: way.is_ours,
                    reads_ranges: way.reads_ranges,
                    outcome,
                }),
                Some(row) => row.outcome.join(outcome),
            }
        }
    }
    let bytes = files
        .iter()
        .map(|file| bytes_of(file))
        .sum::<Result<_, _>>()?;
    Ok(SetStored { bytes, rows })
}

impl Outcome {
    /// One more run of the same.
    fn join(&mut self, other: Self) {
        match (self, other) {
            (Self::Stored { costs, .. }, Self::Stored { costs: more, .. }) => costs.extend(more),
            (Self::Failed, _) => {}
            (one, other) => *one = other,
        }
    }
}

/// Stores `files` in one way.
fn once(
    setup: &Setup<'_>,
    files: &[PathBuf],
    way: &Way,
    is_first: bool,
) -> anyhow::Result<Outcome> {
    let stored = store(setup, files, &way.script)?;
    let bytes = bytes_of(&stored.out())?;
    let (mb, wall_s) = (bytes as f64 / 1e6, stored.cost.wall_s);
    eprintln!("{}: {mb:.2} MB, {wall_s:.2} s", way.name);
    let report = match way.is_ours {
        true => Some(serde_json::from_slice(&stored.output)?),
        false => None,
    };
    if way.is_ours && is_first {
        compare(setup, files, &stored.out().join(ARCHIVE))?;
    }
    let costs = vec![stored.cost];
    Ok(Outcome::Stored {
        bytes,
        costs,
        report,
    })
}

/// What a script stored; it goes away when dropped.
pub(super) struct Stored {
    folder: tempfile::TempDir,
    pub cost: Cost,
    /// What it wrote to standard output.
    pub output: Vec<u8>,
}

impl Stored {
    /// The folder that holds it.
    pub(super) fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }
}

/// Stores `files` with the script of a way.
pub(super) fn store(setup: &Setup<'_>, files: &[PathBuf], script: &str) -> anyhow::Result<Stored> {
    let folder = tempfile::tempdir_in(setup.data.folder())?;
    std::fs::create_dir(folder.path().join("out"))?;
    let script = format!("REFRAIN=$1; shift; {script}");
    let files_too = [setup.refrain].into_iter().chain(paths(files));
    let (cost, output) = measure(bash(&script, files_too), folder.path(), None)?;
    Ok(Stored {
        folder,
        cost,
        output,
    })
}

/// Reads an archive of `files` back, and compares every byte.
pub(super) fn compare(setup: &Setup<'_>, files: &[PathBuf], archive: &Path) -> anyhow::Result<()> {
    let script =
        r#"program=$1 archive=$2; shift 2; "$program" czip cat "$archive" | cmp - <(cat "$@")"#;
    let before = [setup.refrain, archive];
    let arguments = before.into_iter().chain(paths(files));
    measure(bash(script, arguments), setup.data.folder(), None)?;
    Ok(())
}

fn paths(files: &[PathBuf]) -> impl Iterator<Item = &Path> {
    files.iter().map(PathBuf::as_path)
}

/// Archives with fewer chunks have a table whose root and empty room count.
const TABLE_CHUNKS_MIN: u64 = 1000;

/// The table's bytes over 40 a chunk and 4 a reference: the highest of our archives.
fn table_ratio(stored: &SetStored) -> Option<f64> {
    let reports = stored.rows.iter().filter_map(|row| row.report());
    let reports = reports.filter(|report| report.chunks > TABLE_CHUNKS_MIN);
    let ratios = reports.map(|report| {
        let table = report.archive_bytes - report.stored_bytes;
        table as f64 / (40 * report.chunks + 4 * report.references) as f64
    });
    ratios.reduce(f64::max)
}

fn write_set(page: &mut String, set: &SetStored) -> anyhow::Result<()> {
    *page += "| | ranges | MB | of the input | over `small` | table, MB | wall, s | CPU, s | peak, MB |\n\
              |---|---|--:|--:|--:|--:|--:|--:|--:|\n";
    let small = set.stored(ways::SMALL);
    for row in &set.rows {
        let ranges = if row.reads_ranges { "yes" } else { "no" };
        write!(page, "| {} | {ranges} | ", row.way)?;
        match &row.outcome {
            Outcome::NotThere => writeln!(page, "not installed | | | | | | |")?,
            Outcome::Failed => writeln!(page, "failed | | | | | | |")?,
            Outcome::Stored { bytes, costs, .. } => {
                let share = 100.0 * *bytes as f64 / set.bytes as f64;
                let over = small.map(|small| format!("{:.2}", *bytes as f64 / small as f64));
                let table = row.report().map(|report| {
                    let bytes = report.archive_bytes - report.stored_bytes;
                    format!("{:.2}", bytes as f64 / 1e6)
                });
                let cost = medians(costs);
                let of_one = |text: String| match costs.len() {
                    1 => format!("({text})"),
                    _ => text,
                };
                writeln!(
                    page,
                    "{:.2} | {share:.2} % | {} | {} | {} | {} | {:.0} |",
                    *bytes as f64 / 1e6,
                    over.unwrap_or_default(),
                    table.unwrap_or_default(),
                    of_one(format!("{:.2}", cost.wall_s)),
                    of_one(format!("{:.2}", cost.cpu_s)),
                    cost.peak_bytes as f64 / 1e6,
                )?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(wall_s: f64) -> Outcome {
        Outcome::Stored {
            bytes: 7,
            costs: vec![Cost {
                wall_s,
                cpu_s: 1.0,
                peak_bytes: 9,
            }],
            report: None,
        }
    }

    #[test]
    fn a_way_that_fails_once_has_failed() {
        let mut row = Row {
            way: "one".to_owned(),
            is_ours: false,
            reads_ranges: true,
            outcome: stored(4.0),
        };
        row.outcome.join(stored(1.0));
        assert!(matches!(&row.outcome, Outcome::Stored { costs, .. } if costs.len() == 2));
        assert_eq!(row.stored(), Some(7));
        row.outcome.join(Outcome::Failed);
        row.outcome.join(stored(2.0));
        assert_eq!(row.stored(), None);
    }
}
