//! What `refrain store` found, for people.

use std::{
    io::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use refrain_store::{AddReport, StoreStat, VerifyReport};

use crate::table::{age, bytes, count, lines, percent, printable};

pub(super) fn stat(stat: &StoreStat, is_verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let disk = &stat.disk;
    writeln!(
        out,
        "{} of {} on disk, {}, {}",
        bytes(disk.total()),
        bytes(stat.disk_bytes_max),
        count(stat.chunks, "chunk", "chunks"),
        count(stat.realms.len() as u64, "realm", "realms")
    )?;
    let realms = stat.realms.iter().map(|realm| {
        let name = printable(realm.name.as_ref().unwrap_or(&realm.realm));
        let chunks = count(realm.chunks, "chunk", "chunks");
        ("realm", format!("{name}: {chunks}"))
    });
    let mut all: Vec<_> = realms.collect();
    if stat.damaged > 0 {
        let damaged = count(stat.damaged, "part", "parts");
        let damaged = format!("{damaged} (`refrain store verify` searches for more)");
        all.push(("damaged", damaged));
    }
    if is_verbose {
        let of_chunks = percent(disk.index as f64, disk.chunks as f64);
        let entries = count(stat.recipe_entries, "entry", "entries");
        all.extend([
            ("chunks on disk", bytes(disk.chunks)),
            (
                "index",
                format!("{} ({of_chunks} of the chunks)", bytes(disk.index)),
            ),
            ("recipes", format!("{}, {entries}", bytes(disk.recipes))),
            ("other", bytes(disk.other)),
            ("segments", stat.segments.to_string()),
            (
                "oldest segment",
                stat.oldest_s.map_or("-".to_owned(), since),
            ),
            ("openings", stat.openings.to_string()),
            ("added files", stat.files.to_string()),
            ("memory when open", bytes(stat.memory_bytes)),
        ]);
    }
    lines(&all, out)
}

/// How long ago a moment was.
fn since(moment_s: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ago_s = now.map_or(0, |now| now.as_secs()).saturating_sub(moment_s);
    format!("{} ago", age(ago_s as f64))
}

pub(super) fn added(report: &AddReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "added {}, {}, {}",
        count(report.added_files, "file", "files"),
        bytes(report.added_bytes),
        count(report.added_chunks, "chunk", "chunks")
    )?;
    let others = [
        ("unchanged", report.unchanged_files),
        ("changed or missing", report.dropped_files),
        ("in damaged lists", report.damaged_files),
        ("empty", report.empty_files),
        ("symbolic links", report.symlinks),
        ("special files", report.special_files),
        ("private, skipped", report.private),
        ("unreadable", report.unreadable),
        ("changed while read", report.changed_while_read),
    ];
    let others = others.into_iter().filter(|&(_, number)| number > 0);
    let others: Vec<_> = others
        .map(|(name, number)| (name, number.to_string()))
        .collect();
    lines(&others, out)
}

pub(super) fn verified(report: &VerifyReport, out: &mut dyn Write) -> io::Result<()> {
    let chunks = |number| count(number, "chunk", "chunks");
    let intact = format!("{}, {}", chunks(report.chunks), bytes(report.bytes));
    let mut others = Vec::new();
    match report.is_whole() {
        true => writeln!(out, "OK: {intact}")?,
        false => {
            let metadata = ("part of the metadata", "parts of the metadata");
            let damaged = [
                (report.damaged_chunks, ("chunk", "chunks")),
                (report.damaged_metadata, metadata),
            ];
            let damaged = damaged.into_iter().filter(|&(number, _)| number > 0);
            let damaged: Vec<_> = damaged
                .map(|(number, (one, more))| count(number, one, more))
                .collect();
            writeln!(out, "damaged: {}", damaged.join(", "))?;
            others.push(("intact", intact));
        }
    }
    if report.changed_chunks > 0 {
        others.push(("in changed files", chunks(report.changed_chunks)));
    }
    lines(&others, out)
}
