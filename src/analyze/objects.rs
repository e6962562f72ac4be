//! `refrain analyze --objects`: how much of files repeats in earlier files, by the size of chunks (CZIP, Figures 5 to 7;
//! PACK, section 5.1).

use std::{
    collections::HashSet,
    io::{self, Write},
    ops::ControlFlow,
    path::PathBuf,
    sync::Arc,
};

use anyhow::ensure;
use indicatif::ProgressBar;
use refrain_bulk::{
    Bounds, BulkOptions, Chunks, Failed, Input, Item, Method, Opens, Progress, Sink,
    find_redundancy,
};
use refrain_codec::chunk::chunking::{Chunking, ChunkingMethod};
use serde::Serialize;

use super::html::{Page, Series, escaped};
use crate::{
    interrupt::Interrupt,
    progress,
    standard_io::EndableInput,
    stderr::warn,
    table::{Table, bytes, count, percent, printable_path},
};

/// From 1 KiB to 64 KiB.
const SIZES: [u32; 7] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
];

/// Chunks by which single files are reported: those of PACK.
const OF_FILES: (ChunkingMethod, u32) = (ChunkingMethod::Pack, 8 << 10);

/// Chunks of which names are kept: 4 million, in 64 to 128 MiB.
const NAMES_MAX: usize = if cfg!(test) { 4 << 10 } else { 4 << 20 };

/// Files that text shows.
const FILES_SHOWN: usize = 40;

/// Files with a row of their own in JSON.
const FILES_MAX: usize = 10_000;

/// The report and its JSON.
#[derive(Serialize)]
pub(super) struct Report {
    files: u64,
    bytes: u64,
    chunk_sizes: Vec<Row>,
    each: Vec<Object>,
    unread_files: u64,
}

/// The overlap of chunks of one average size.
#[derive(Serialize)]
struct Row {
    chunk_bytes: u32,
    pack: Overlap,
    modp: Overlap,
    fixed: Overlap,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Overlap {
    /// Bytes of chunks that any file, or this one, had before.
    repeated_bytes: u64,
    /// Bytes of chunks that the file before this one has.
    previous_bytes: u64,
}

/// A file, and the bytes of its chunks that were there before.
#[derive(Serialize)]
struct Object {
    path: String,
    bytes: u64,
    repeated_bytes: u64,
    previous_bytes: u64,
}

/// Names of chunks in bounded memory. When there are too many, only one in two is kept, in four, and so on. Bytes count
/// for the others too.
#[derive(Default)]
struct Names {
    names: HashSet<u64>,
    /// Kept names have so many zeros at their ends.
    zeros: u32,
}

impl Names {
    /// The bytes for which a chunk counts that is there.
    fn bytes_of(&self, name: u64, bytes: u64) -> u64 {
        match self.names.contains(&name) {
            true => bytes << self.zeros,
            false => 0,
        }
    }

    fn insert(&mut self, name: u64) {
        if name.trailing_zeros() < self.zeros {
            return;
        }
        self.names.insert(name);
        if self.names.len() > NAMES_MAX {
            self.zeros += 1;
            self.names
                .retain(|name| name.trailing_zeros() >= self.zeros);
        }
    }
}

/// Compares each file with the one before it, and for the report of files with all.
#[derive(Default)]
struct Compared {
    previous: Names,
    present: Names,
    previous_bytes: u64,
    /// All chunks, if single files are reported.
    all: Option<Names>,
    objects: Vec<Object>,
    present_object: Option<Object>,
}

impl Sink for Compared {
    fn begin(&mut self, item: Item) -> ControlFlow<()> {
        let is_file = |item: &Item| item.metadata.as_ref().is_none_or(|it| it.is_file());
        self.present_object = is_file(&item).then(|| Object {
            path: printable_path(&*item.path).to_string(),
            bytes: 0,
            repeated_bytes: 0,
            previous_bytes: 0,
        });
        ControlFlow::Continue(())
    }

    fn chunks(&mut self, chunks: &Chunks<'_>) -> ControlFlow<()> {
        for (digest, chunk) in chunks.iter() {
            let (bytes, head) = (chunk.len() as u64, digest.0.first_chunk());
            let name = u64::from_le_bytes(*head.expect("a digest has 32 bytes"));
            self.present.insert(name);
            let previous = self.previous.bytes_of(name, bytes);
            self.previous_bytes += previous;
            if let (Some(all), Some(object)) = (&mut self.all, &mut self.present_object) {
                object.bytes += bytes;
                object.previous_bytes += previous;
                object.repeated_bytes += all.bytes_of(name, bytes);
                all.insert(name);
            }
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, _: Option<&Failed>) -> ControlFlow<()> {
        self.previous = std::mem::take(&mut self.present);
        let object = self.present_object.take();
        if self.all.is_some() && self.objects.len() < FILES_MAX {
            self.objects.extend(object);
        }
        ControlFlow::Continue(())
    }
}

/// A pass over all files.
struct Pass {
    files: u64,
    bytes: u64,
    failures: u64,
    overlap: Overlap,
    objects: Vec<Object>,
}

/// Reads all files once for each size and method.
pub(super) fn analyze(
    paths: &[PathBuf],
    memory: u64,
    interrupt: &Interrupt,
) -> anyhow::Result<Report> {
    let opens = interrupt.clone();
    let opens: Opens = Arc::new(move |path| Ok(Box::new(EndableInput::open(path, &opens)?)));
    let inputs = || -> Vec<Input> {
        let input = |path: &PathBuf| {
            let opens = Some(Arc::clone(&opens));
            Input::Path(
                path.clone(),
                Bounds {
                    opens,
                    ..Bounds::default()
                },
            )
        };
        paths.iter().map(input).collect()
    };
    let expected = crate::inputs::expected_bytes(&inputs(), interrupt);
    let passes = SIZES.len() * ChunkingMethod::ALL.len();
    let bar = progress::of_bytes(expected.map(|bytes| bytes * passes as u64));
    let mut report = Report {
        files: 0,
        bytes: 0,
        chunk_sizes: Vec::new(),
        each: Vec::new(),
        unread_files: 0,
    };
    for chunk_bytes in SIZES {
        let mut of = |method| {
            let is_of_files = OF_FILES == (method, chunk_bytes);
            let is_first = report.bytes == 0;
            let options = BulkOptions {
                method: Method::Pipeline,
                chunking: Chunking::new(method, chunk_bytes)?,
                cache_bytes: memory,
                ..BulkOptions::default()
            };
            let pass = pass(inputs(), &options, is_of_files, is_first, &bar, interrupt)?;
            if is_of_files {
                report.each = pass.objects;
            }
            (report.files, report.bytes) = (pass.files, pass.bytes);
            report.unread_files = pass.failures;
            ensure!(pass.bytes > 0, "the files have no content to compare");
            anyhow::Ok(pass.overlap)
        };
        let row = Row {
            chunk_bytes,
            pack: of(ChunkingMethod::Pack)?,
            modp: of(ChunkingMethod::Modp)?,
            fixed: of(ChunkingMethod::Fixed)?,
        };
        report.chunk_sizes.push(row);
    }
    bar.finish_and_clear();
    Ok(report)
}

fn pass(
    inputs: Vec<Input>,
    options: &BulkOptions,
    is_of_files: bool,
    tells_failures: bool,
    bar: &ProgressBar,
    interrupt: &Interrupt,
) -> anyhow::Result<Pass> {
    let mut compared = Compared {
        all: is_of_files.then(Names::default),
        ..Compared::default()
    };
    let before = bar.position();
    let outcome = find_redundancy(
        inputs,
        options,
        Some(&mut compared),
        &mut |now: Progress<'_>| {
            bar.set_position(before + now.bytes);
            if let Some((path, failed)) = now.failure
                && tells_failures
                && interrupt.check().is_ok()
            {
                bar.suspend(|| warn(crate::bulk::in_words(path, failed)));
            }
            interrupt.flow()
        },
    );
    let found = interrupt
        .or(outcome.map_err(anyhow::Error::from))?
        .redundancy;
    interrupt.check()?;
    Ok(Pass {
        files: found.files,
        bytes: found.bytes,
        failures: found.failures,
        overlap: Overlap {
            repeated_bytes: found.redundant_bytes,
            previous_bytes: compared.previous_bytes,
        },
        objects: compared.objects,
    })
}

impl Report {
    /// Files and directories that could not be read.
    pub(super) fn unread_files(&self) -> u64 {
        self.unread_files
    }

    /// Replaces the names of files by numbers.
    pub(super) fn anonymize(&mut self) {
        for (nth, object) in self.each.iter_mut().enumerate() {
            object.path = format!("file {}", nth + 1);
        }
    }

    pub(super) fn print(&self, is_verbose: bool, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{}, {}: bytes of chunks that were there before",
            count(self.files, "file", "files"),
            bytes(self.bytes)
        )?;
        writeln!(out, "\nin any file")?;
        self.table(|overlap| overlap.repeated_bytes).print(out)?;
        writeln!(out, "\nin the file before")?;
        self.table(|overlap| overlap.previous_bytes).print(out)?;
        let shown = match is_verbose {
            true => self.each.len(),
            false => self.each.len().min(FILES_SHOWN),
        };
        writeln!(out, "\nPACK, 8 KiB, by file")?;
        let mut table = Table::new("file  bytes  in any file  in the file before");
        for object in &self.each[..shown] {
            let share = |part: u64| percent(part as f64, object.bytes as f64);
            table.row([
                object.path.clone(),
                bytes(object.bytes),
                share(object.repeated_bytes),
                share(object.previous_bytes),
            ]);
        }
        table.print(out)?;
        if shown < self.each.len() {
            writeln!(
                out,
                "and {} more (--verbose shows them)",
                self.each.len() - shown
            )?;
        }
        Ok(())
    }

    /// The report as a web page.
    pub(super) fn page(&self) -> String {
        let mut page = Page::default();
        page.facts(&[
            (self.files.to_string(), "files".to_owned()),
            (bytes(self.bytes), "content".to_owned()),
        ]);
        if self.unread_files > 0 {
            page.note("Not all of the files was read.");
        }
        page.section("sizes", "Overlap by chunk size");
        page.text("Bytes of chunks that were there before (CZIP, Figures 5 to 7).");
        self.plot(&mut page, "In any file", |overlap| overlap.repeated_bytes);
        self.plot(&mut page, "In the file before", |overlap| {
            overlap.previous_bytes
        });
        page.section("files", "Overlap by file");
        page.text("PACK's chunks of 8 KiB (PACK, Figure 5). The table has the names of the files.");
        let places: Vec<String> = (1..=self.each.len()).map(|nth| nth.to_string()).collect();
        let share = |part: u64, object: &Object| 100.0 * part as f64 / object.bytes.max(1) as f64;
        let any = self.each.iter().map(|it| share(it.repeated_bytes, it));
        let before = self.each.iter().map(|it| share(it.previous_bytes, it));
        let series = [
            ("in any file", any.collect()),
            ("in the file before", before.collect()),
        ];
        let series = series.map(|(name, values)| Series {
            name: name.to_owned(),
            values,
        });
        page.plot("Repeated bytes", "%", "file", &places, &series);
        let rows = self.each.iter().map(|object| {
            let share = |part: u64| percent(part as f64, object.bytes as f64);
            vec![
                escaped(&object.path),
                bytes(object.bytes),
                share(object.repeated_bytes),
                share(object.previous_bytes),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let heads = ["file", "bytes", "in any file", "in the file before"];
        page.table("Files and their overlap", &heads, &rows);
        page.finish("refrain analyze --objects", "Repeats in these files")
    }

    fn plot(&self, page: &mut Page, title: &str, of: impl Fn(&Overlap) -> u64) {
        let sizes = self.chunk_sizes.iter();
        let places = sizes.map(|row| format!("{} KiB", row.chunk_bytes >> 10));
        let places: Vec<String> = places.collect();
        let series = |name: &str, overlap: fn(&Row) -> &Overlap| {
            let share = |row| 100.0 * of(overlap(row)) as f64 / self.bytes.max(1) as f64;
            Series {
                name: name.to_owned(),
                values: self.chunk_sizes.iter().map(share).collect(),
            }
        };
        let series = [
            series("PACK", |row| &row.pack),
            series("MODP", |row| &row.modp),
            series("fixed", |row| &row.fixed),
        ];
        page.plot(title, "%", "chunk size", &places, &series);
    }

    fn table(&self, of: impl Fn(&Overlap) -> u64) -> Table {
        let all = self.bytes as f64;
        let mut table = Table::new("chunk size  PACK  MODP  fixed");
        for row in &self.chunk_sizes {
            let size = format!("{} KiB", row.chunk_bytes >> 10);
            let shares = [&row.pack, &row.modp, &row.fixed];
            let shares = shares.map(|overlap| percent(of(overlap) as f64, all));
            table.row([size].into_iter().chain(shares));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_few_and_count_for_the_others() {
        let mut names = Names::default();
        let name = |nth: u64| nth.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        let count = 3 * NAMES_MAX as u64;
        (0..count).for_each(|nth| names.insert(name(nth)));
        assert!(
            names.names.len() <= NAMES_MAX && names.zeros == 2,
            "{}",
            names.zeros
        );
        let found: u64 = (0..count).map(|nth| names.bytes_of(name(nth), 1)).sum();
        assert!(found.abs_diff(count) < count / 10, "{found} of {count}");
        let others = (count..2 * count).map(|nth| names.bytes_of(name(nth), 1));
        assert_eq!(others.sum::<u64>(), 0);
    }
}
