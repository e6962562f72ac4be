//! What stored files take, and what it costs to store them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    Setup,
    data::{DataSet, bytes_of},
    measured::{Cost, measure},
    ways::{self, Way, are_installed, bash},
};

/// All sets.
#[derive(Serialize, Deserialize)]
pub struct Sizes {
    pub runs: usize,
    pub sets: Vec<SetSizes>,
}

/// One set.
#[derive(Serialize, Deserialize)]
pub struct SetSizes {
    pub set: DataSet,
    /// `None` where it is not there.
    pub stored: Option<SetStored>,
}

/// What came of a set.
#[derive(Serialize, Deserialize)]
pub struct SetStored {
    pub bytes: u64,
    pub rows: Vec<Row>,
}

/// A set stored in one way.
#[derive(Serialize, Deserialize)]
pub struct Row {
    pub way: String,
    pub is_ours: bool,
    pub reads_ranges: bool,
    pub outcome: Outcome,
}

/// What came of it.
#[derive(Serialize, Deserialize)]
pub enum Outcome {
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
pub struct Report {
    pub archive_bytes: u64,
    pub unique_bytes: u64,
    pub stored_bytes: u64,
    pub chunks: u64,
    pub references: u64,
}

impl SetStored {
    /// The bytes that were stored in the way of that name.
    pub fn stored(&self, way: &str) -> Option<u64> {
        self.rows
            .iter()
            .find(|row| row.way == way)
            .and_then(Row::stored)
    }
}

impl Row {
    pub fn stored(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Stored { bytes, .. } => Some(bytes),
            Outcome::NotThere | Outcome::Failed => None,
        }
    }

    /// What our own program said.
    pub fn report(&self) -> Option<Report> {
        match self.outcome {
            Outcome::Stored { report, .. } => report,
            Outcome::NotThere | Outcome::Failed => None,
        }
    }
}

/// Measures them; ways take turns.
pub fn run(setup: &Setup<'_>) -> anyhow::Result<Sizes> {
    let ways = ways::all();
    let mut sets = Vec::new();
    for set in DataSet::ALL {
        let stored = match setup.data.files(set) {
            Ok(files) => Some(of_set(setup, &files, &ways)?),
            Err(error) => {
                eprintln!("{}: not there: {error:#}", set.name());
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

/// Stores `files`, in a folder that goes away again.
fn once(
    setup: &Setup<'_>,
    files: &[PathBuf],
    way: &Way,
    is_first: bool,
) -> anyhow::Result<Outcome> {
    let folder = tempfile::tempdir_in(setup.data.folder())?;
    let out = folder.path().join("out");
    std::fs::create_dir(&out)?;
    let script = format!("REFRAIN=$1; shift; {}", way.script);
    let files_too = [setup.refrain].into_iter().chain(paths(files));
    let (cost, output) = measure(bash(&script, files_too), folder.path(), None)?;
    let bytes = bytes_of(&out)?;
    eprintln!(
        "{}: {:.2} MB, {:.2} s",
        way.name,
        bytes as f64 / 1e6,
        cost.wall_s
    );
    let report = match way.is_ours {
        true => Some(serde_json::from_slice(&output)?),
        false => None,
    };
    if way.is_ours && is_first {
        compare(setup, files, &out.join("archive.czip"))?;
    }
    let costs = vec![cost];
    Ok(Outcome::Stored {
        bytes,
        costs,
        report,
    })
}

/// Reads an archive of `files` back, and compares every byte.
fn compare(setup: &Setup<'_>, files: &[PathBuf], archive: &Path) -> anyhow::Result<()> {
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
