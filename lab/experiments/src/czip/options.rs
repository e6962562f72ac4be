//! What each option of `refrain czip create` is worth: sizes with it and without, on each set.
//!
//! Sizes are the same on a busy machine, so that this chapter can be measured at any time.

mod dictionary;

use std::{fmt::Write, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    Setup,
    data::{DataSet, bytes_of},
    sizes::{Report, compare, store},
    ways::{ARCHIVE, create},
};
use crate::chapters::Figures;

/// A column a set; rows are the same in all.
#[derive(Serialize, Deserialize)]
pub(super) struct Options {
    sets: Vec<Column>,
}

#[derive(Serialize, Deserialize)]
struct Column {
    set: DataSet,
    plain_bytes: u64,
    cells: Vec<Cell>,
}

/// A set with one choice of options.
#[derive(Serialize, Deserialize)]
struct Cell {
    options: String,
    report: Report,
    cpu_s: f64,
    /// What a shared dictionary makes of the archive, where that was reckoned.
    with_dictionary_bytes: Option<u64>,
}

/// A group of rows: what it is about, and the options of each; what others stand over comes first.
struct Group {
    title: &'static str,
    rows: &'static [&'static str],
}

const GROUPS: [Group; 9] = [
    Group {
        title: "Frames and bases",
        rows: &[
            "",
            "--no-delta",
            "--frame-size 0",
            "--frame-size 0 --no-delta",
            "--frame-size 64K",
            "--frame-size 1M",
            "--frame-size 4M",
        ],
    },
    Group {
        title: "Unpacked containers, profile `small`",
        rows: &["", "--no-containers"],
    },
    Group {
        title: "Unpacked containers, profile `shared`",
        rows: &["--profile shared", "--profile shared --no-containers"],
    },
    Group {
        title: "Chunk size, profile `small`",
        rows: &[
            "",
            "--chunk-size 4K",
            "--chunk-size 8K",
            "--chunk-size 16K",
            "--chunk-size 64K",
            "--chunk-size 128K",
        ],
    },
    Group {
        title: "Chunk size, profile `shared`",
        rows: &[
            "--profile shared",
            "--profile shared --chunk-size 1K",
            "--profile shared --chunk-size 4K",
            "--profile shared --chunk-size 8K",
            "--profile shared --chunk-size 16K",
            "--profile shared --chunk-size 64K",
        ],
    },
    Group {
        title: "Chunker, profile `small`",
        rows: &["", "--chunker modp", "--chunker fixed"],
    },
    Group {
        title: "Chunker, profile `shared`",
        rows: &[
            "--profile shared",
            "--profile shared --chunker modp",
            "--profile shared --chunker fixed",
        ],
    },
    Group {
        title: "Compression",
        rows: &[
            "",
            "--compress zstd:1",
            "--compress zstd:9",
            "--compress gzip",
            "--compress bzip2",
        ],
    },
    DICTIONARY,
];

const DICTIONARY: Group = Group {
    title: "A shared dictionary",
    rows: &[
        "--profile shared",
        "--profile shared --chunk-size 8K",
        "--profile shared --chunk-size 4K",
        "--profile shared --chunk-size 1K",
    ],
};

/// Everything that is measured, once each.
fn all() -> Vec<&'static str> {
    let mut all = Vec::new();
    for options in GROUPS.iter().flat_map(|group| group.rows) {
        if !all.contains(options) {
            all.push(*options);
        }
    }
    all
}

impl Figures<Setup<'_>> for Options {
    const NAME: &'static str = "options";
    const TITLE: &'static str = "The effect of each option";

    fn measure(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let mut sets = Vec::new();
        for set in DataSet::ALL {
            match setup.data.files(set) {
                Ok(files) => sets.push(column(setup, set, &files)?),
                Err(error) => eprintln!("{}: not available: {error:#}", set.name()),
            }
        }
        Ok(Self { sets })
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        *page += "Archives in MB. In brackets: the ratio to the first row of the group. *CPU*: the sum over all\n\
                  sets, of one run; other programs may have run at the same time. Each archive was read back and\n\
                  compared. These figures led to [decision 24](decisions/0024-what-czip-keeps.md).\n";
        for group in &GROUPS {
            writeln!(page, "\n### {}\n", group.title)?;
            self.write_head(page)?;
            self.write_rows(page, group)?;
        }
        write!(
            page,
            "\nThere is no option for a dictionary: its effect is an estimate. A dictionary of {} was trained on\n\
             chunks of the set itself, which is in its favour. Each chunk counts with the smaller size, with or\n\
             without the dictionary. The dictionary counts too.\n",
            dictionary::BYTES_TEXT
        )?;
        Ok(())
    }
}

impl Options {
    fn write_head(&self, page: &mut String) -> std::fmt::Result {
        *page += "| |";
        for column in &self.sets {
            let mb = column.plain_bytes as f64 / 1e6;
            write!(page, " {}, {mb:.1} MB |", column.set.short_name())?;
        }
        *page += " CPU, s |\n|---|";
        writeln!(page, "{}--:|", "--:|".repeat(self.sets.len()))
    }

    fn write_rows(&self, page: &mut String, group: &Group) -> std::fmt::Result {
        for &options in group.rows {
            let called = match options {
                "" => "default".to_owned(),
                options => format!("`{options}`"),
            };
            self.write_row(page, group, options, &called, |cell| {
                Some(cell.report.archive_bytes)
            })?;
            if group.title == DICTIONARY.title {
                let called = format!("{called} and a dictionary");
                self.write_row(page, group, options, &called, |cell| {
                    cell.with_dictionary_bytes
                })?;
            }
        }
        Ok(())
    }

    fn write_row(
        &self,
        page: &mut String,
        group: &Group,
        options: &str,
        called: &str,
        bytes: impl Fn(&Cell) -> Option<u64>,
    ) -> std::fmt::Result {
        write!(page, "| {called} |")?;
        for column in &self.sets {
            let first = column.cell(group.rows[0]);
            match (column.cell(options).and_then(&bytes), first) {
                (Some(bytes), Some(first)) => {
                    let over = bytes as f64 / first.report.archive_bytes as f64;
                    let mb = bytes as f64 / 1e6;
                    // Small sets have small archives.
                    let places = if mb < 10.0 { 3 } else { 2 };
                    write!(page, " {mb:.places$} ({over:.3}) |")?;
                }
                _ => *page += " |",
            }
        }
        let cells = self.sets.iter().filter_map(|column| column.cell(options));
        writeln!(page, " {:.0} |", cells.map(|cell| cell.cpu_s).sum::<f64>())
    }
}

impl Column {
    fn cell(&self, options: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.options == options)
    }
}

fn column(setup: &Setup<'_>, set: DataSet, files: &[PathBuf]) -> anyhow::Result<Column> {
    let plain_bytes = files
        .iter()
        .map(|file| bytes_of(file))
        .sum::<Result<_, _>>()?;
    let cells = all().into_iter().map(|options| {
        let stored = store(setup, files, &create(options))?;
        let report: Report = serde_json::from_slice(&stored.output)?;
        let archive = stored.out().join(ARCHIVE);
        compare(setup, files, &archive)?;
        let with_dictionary_bytes = match DICTIONARY.rows.contains(&options) {
            true => Some(dictionary::bytes_with(&archive)?),
            false => None,
        };
        let mb = report.archive_bytes as f64 / 1e6;
        eprintln!("{}, {options}: {mb:.2} MB", set.short_name());
        anyhow::Ok(Cell {
            options: options.to_owned(),
            report,
            cpu_s: stored.cost.cpu_s,
            with_dictionary_bytes,
        })
    });
    Ok(Column {
        set,
        plain_bytes,
        cells: cells.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_over_the_first_of_their_group() {
        let cell = |options: &str, archive_bytes| Cell {
            options: options.to_owned(),
            report: Report {
                archive_bytes,
                unique_bytes: 0,
                stored_bytes: 0,
                chunks: 0,
                references: 0,
            },
            cpu_s: 2.0,
            with_dictionary_bytes: None,
        };
        let options = Options {
            sets: vec![Column {
                set: DataSet::Django,
                plain_bytes: 700_000_000,
                cells: vec![cell("", 10_000_000), cell("--no-delta", 12_500_000)],
            }],
        };
        let mut page = String::new();
        options.write(&mut page).expect("memory");
        assert!(
            page.contains("\n| | D1, 700.0 MB | CPU, s |\n|---|--:|--:|\n"),
            "{page}"
        );
        assert!(
            page.contains("\n| default | 10.00 (1.000) | 2 |\n"),
            "{page}"
        );
        assert!(
            page.contains("\n| `--no-delta` | 12.50 (1.250) | 2 |\n"),
            "{page}"
        );
    }
}
