//! Keeping what was read in a chunk store.

use std::{fmt::Write, path::PathBuf};

use super::{Setup, program::Report, sets::Sets};
use crate::median::median;

/// What is run, and what it is called.
const WAYS: [(&str, &[&str]); 2] = [
    ("none", &[]),
    ("chunk store", &["-o", "out-store", "--realm", "measured"]),
];

pub(super) struct Keeping {
    rows: Vec<Row>,
}

struct Row {
    set: String,
    way: &'static str,
    /// Until all was on disk.
    gb_per_s: f64,
    /// What was written of all bytes.
    written: Option<f64>,
    peak_bytes: f64,
}

pub(super) fn measure(setup: &Setup, sets: &Sets) -> anyhow::Result<Keeping> {
    let rows = sets.some().each(|set, files| {
        eprintln!("chunk store: {}", set.name);
        let mut reports: [Vec<Report>; 2] = Default::default();
        // What is asked for twice has one name in an archive.
        let mut files: Vec<PathBuf> = files.to_vec();
        files.sort();
        files.dedup();
        for _ in 0..setup.runs {
            for ((_, options), reports) in WAYS.iter().zip(&mut reports) {
                let folder = tempfile::tempdir_in(&setup.folder)?;
                let options: Vec<String> = options
                    .iter()
                    .map(|option| match option.starts_with("out") {
                        true => folder.path().join(option).display().to_string(),
                        false => (*option).to_owned(),
                    })
                    .collect();
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                reports.extend(setup.program.bulk(&files, &options)?);
            }
        }
        let rows = WAYS.iter().zip(reports).map(|((way, _), reports)| Row {
            set: set.name.clone(),
            way,
            gb_per_s: median(reports.iter().map(|report| match report.kept_seconds {
                Some(seconds) => report.bytes as f64 / 1e9 / seconds,
                None => report.gb_per_s,
            })),
            written: reports.first().and_then(|report| {
                let written = report.kept.as_ref()?.store.new_bytes;
                Some(written as f64 / report.bytes as f64)
            }),
            peak_bytes: median(
                reports
                    .iter()
                    .map(|report| report.peak_memory_bytes.unwrap_or(0) as f64),
            ),
        });
        Ok(rows.collect::<Vec<_>>())
    })?;
    Ok(Keeping {
        rows: rows.into_iter().flatten().collect(),
    })
}

impl Keeping {
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let mut text =
            "\n## Writing a chunk store\n\nWith `-o`, until all data is on disk. Each file is read \
                        once. A chunk store holds\nunchanged chunks.\n\n\
                        | data | output | GB/s | written, of the bytes read | peak memory, MB |\n\
                        |---|---|--:|--:|--:|\n"
                .to_owned();
        for row in &self.rows {
            let written = row
                .written
                .map_or(String::new(), |share| format!("{:.2} %", 100.0 * share));
            writeln!(
                text,
                "| {} | {} | {:.2} | {written} | {:.0} |",
                row.set,
                row.way,
                row.gb_per_s,
                row.peak_bytes / 1e6
            )?;
        }
        Ok(text)
    }
}
