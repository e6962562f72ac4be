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
        // A store of added files has no chunks itself.
        let of_chunks = match disk.chunks {
            0 => String::new(),
            chunks => format!(" ({} of that)", percent(disk.index as f64, chunks as f64)),
        };
        let entries = count(stat.recipe_entries, "entry", "entries");
        let oldest = stat.oldest_s.map(since);
        let oldest = oldest.map_or_else(String::new, |ago| format!(", the oldest from {ago}"));
        all.extend([
            ("chunk data", bytes(disk.chunks)),
            ("index", format!("{}{of_chunks}", bytes(disk.index))),
            ("chunk order", format!("{}, {entries}", bytes(disk.recipes))),
            ("other files", bytes(disk.other)),
            ("segments", format!("{}{oldest}", stat.segments)),
            ("flow openings", stat.openings.to_string()),
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
        "added {}, {}",
        count(report.added_files, "file", "files"),
        bytes(report.added_bytes)
    )?;
    let others = [
        ("unchanged", report.unchanged_files),
        ("changed or missing", report.dropped_files),
        ("in damaged lists", report.damaged_files),
        ("empty files", report.empty_files),
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
    let changed = match report.changed_chunks {
        0 => String::new(),
        changed => format!("{} of changed or missing files", chunks(changed)),
    };
    if report.is_whole() && changed.is_empty() {
        return writeln!(out, "OK: {intact}");
    }
    if report.is_whole() {
        writeln!(out, "changed: {changed} (run `refrain store add` again)")?;
        return lines(&[("intact", intact)], out);
    }
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
    let mut others = vec![("intact", intact)];
    if !changed.is_empty() {
        others.push(("changed", changed));
    }
    lines(&others, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_verify_has_the_worst() {
        let first = |report: &VerifyReport| {
            let mut out = Vec::new();
            verified(report, &mut out).expect("memory");
            let text = String::from_utf8(out).expect("text");
            text.lines().next().unwrap_or_default().to_owned()
        };
        let mut report = VerifyReport {
            chunks: 66,
            bytes: 300_000,
            ..VerifyReport::default()
        };
        assert_eq!(first(&report), "OK: 66 chunks, 300 kB");
        report.changed_chunks = 134;
        let changed = "changed: 134 chunks of changed or missing files (";
        assert!(first(&report).starts_with(changed), "{}", first(&report));
        report.damaged_chunks = 1;
        assert_eq!(first(&report), "damaged: 1 chunk");
    }
}
