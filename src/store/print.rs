//! What `refrain store` found, for people.

use std::io::{self, Write};

use refrain_store::{AddReport, StoreStat, VerifyReport};

use crate::table::{bytes, lines, percent, printable};

pub(super) fn stat(stat: &StoreStat, out: &mut dyn Write) -> io::Result<()> {
    let disk = &stat.disk;
    let realms = stat.realms.iter().map(|realm| {
        let name = realm.name.as_ref().unwrap_or(&realm.realm);
        (
            "realm",
            format!("{}: {} chunks", printable(name), realm.chunks),
        )
    });
    let since = stat.oldest_s.map_or("-".to_owned(), since);
    let all: Vec<_> = [
        ("chunks", stat.chunks.to_string()),
        (
            "on disk",
            format!("{} of {}", bytes(disk.total()), bytes(stat.disk_bytes_max)),
        ),
        ("  chunks", bytes(disk.chunks)),
        (
            "  index",
            format!(
                "{} ({} of the chunks)",
                bytes(disk.index),
                percent(disk.index as f64, disk.chunks as f64)
            ),
        ),
        (
            "  recipes",
            format!("{}, {} entries", bytes(disk.recipes), stat.recipe_entries),
        ),
        ("  other", bytes(disk.other)),
        ("segments", stat.segments.to_string()),
        ("oldest segment", since),
        ("openings", stat.openings.to_string()),
        ("added files", stat.files.to_string()),
        ("damaged", stat.damaged.to_string()),
        ("memory when open", bytes(stat.memory_bytes)),
    ]
    .into_iter()
    .chain(realms)
    .collect();
    lines(&all, out)
}

/// How long ago a moment was, in the largest unit that fits.
fn since(moment_s: u64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ago_s = now.map_or(0, |now| now.as_secs()).saturating_sub(moment_s);
    let units = [("days", 86_400), ("hours", 3_600), ("minutes", 60)];
    let unit = units.into_iter().find(|&(_, unit_s)| ago_s >= 2 * unit_s);
    let (unit, unit_s) = unit.unwrap_or(("seconds", 1));
    format!("{} {unit} ago", ago_s / unit_s)
}

pub(super) fn added(report: &AddReport, out: &mut dyn Write) -> io::Result<()> {
    let mut all = vec![
        (
            "added",
            format!(
                "{} files, {}, {} chunks",
                report.added_files,
                bytes(report.added_bytes),
                report.added_chunks
            ),
        ),
        ("unchanged", format!("{} files", report.unchanged_files)),
    ];
    for (name, count) in [
        ("changed or missing", report.dropped_files),
        ("in damaged lists", report.damaged_files),
        ("empty", report.empty_files),
        ("symbolic links", report.symlinks),
        ("special files", report.special_files),
        ("private, skipped", report.private),
        ("unreadable", report.unreadable),
        ("changed while read", report.changed_while_read),
    ] {
        if count > 0 {
            all.push((name, count.to_string()));
        }
    }
    lines(&all, out)
}

pub(super) fn verified(report: &VerifyReport, out: &mut dyn Write) -> io::Result<()> {
    lines(
        &[
            (
                "intact",
                format!("{} chunks, {}", report.chunks, bytes(report.bytes)),
            ),
            ("damaged", format!("{} chunks", report.damaged_chunks)),
            ("damaged metadata", report.damaged_metadata.to_string()),
            (
                "in changed files",
                format!("{} chunks", report.changed_chunks),
            ),
        ],
        out,
    )
}
