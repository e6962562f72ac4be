//! `refrain czip list`: the catalog.

use std::{
    ffi::OsStr,
    io::{self, BufWriter, Write},
    os::unix::ffi::OsStrExt,
};

use anyhow::Context;
use refrain_czip_format::catalog::{Entry, EntryKind};
use serde::Serialize;
use time::OffsetDateTime;

use super::{
    open::ArchiveArguments,
    report::{self, ReportedPath},
    standard_io,
};
use crate::{interrupt::Interrupt, table::printable_path};

#[derive(clap::Args)]
pub(super) struct ListArguments {
    #[command(flatten)]
    archive: ArchiveArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    entries: Vec<EntryReport>,
}

#[derive(Serialize)]
struct EntryReport {
    kind: &'static str,
    #[serde(flatten)]
    path: ReportedPath,
    mode: u16,
    mtime_s: i64,
    mtime_ns: u32,
    /// Of files: how many bytes they have, and where in the plain content.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// Of links: where they lead.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
}

pub(super) fn run(arguments: &ListArguments) -> anyhow::Result<()> {
    let archive = arguments.archive.open_unlocked(&Interrupt::default())?;
    if !arguments.json {
        let entries = arguments.archive.entries(&archive)?;
        let mut out = BufWriter::new(io::stdout().lock());
        let written = entries.iter().try_for_each(|entry| line(entry, &mut out));
        return written
            .and_then(|()| out.flush())
            .map_err(standard_io::output_failed);
    }
    let entries = archive.entries();
    let entries = entries.with_context(|| arguments.archive.called())?;
    let mut offset = 0;
    let entries = entries.iter().map(|entry| {
        let report = EntryReport::new(entry, offset);
        offset += report.bytes.unwrap_or(0);
        report
    });
    let report = Report {
        entries: entries.collect(),
    };
    report::to_stdout(true, &report, |_| Ok(()))
}

/// A line as `ls` prints it, with the time in UTC.
fn line(entry: &Entry, out: &mut dyn Write) -> io::Result<()> {
    let shown = |path: &[u8]| printable_path(OsStr::from_bytes(path));
    let (kind, bytes, leads_to) = match &entry.kind {
        EntryKind::File { bytes } => ('-', bytes.to_string(), String::new()),
        EntryKind::Folder => ('d', "-".to_owned(), String::new()),
        EntryKind::SymbolicLink { target } => {
            ('l', "-".to_owned(), format!(" -> {}", shown(target)))
        }
        EntryKind::HardLink { target } => {
            ('h', "-".to_owned(), format!(" link to {}", shown(target)))
        }
    };
    let name = match entry.path.is_empty() {
        true => "(standard input)".to_owned(),
        false => shown(&entry.path),
    };
    let (mode, time) = (mode(entry.mode), time(entry.mtime_s));
    writeln!(out, "{kind}{mode} {bytes:>13} {time} {name}{leads_to}")
}

/// Permissions as `ls` shows them.
fn mode(mode: u16) -> String {
    let classes = [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')];
    classes
        .iter()
        .fold(String::new(), |mut shown, &(shift, special, name)| {
            let bits = mode >> shift;
            shown.push(if bits & 4 != 0 { 'r' } else { '-' });
            shown.push(if bits & 2 != 0 { 'w' } else { '-' });
            shown.push(match (mode & special != 0, bits & 1 != 0) {
                (true, true) => name,
                (true, false) => name.to_ascii_uppercase(),
                (false, true) => 'x',
                (false, false) => '-',
            });
            shown
        })
}

/// A moment to the minute; as seconds, if it is in no year that people write.
fn time(seconds: i64) -> String {
    match OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(time) => format!(
            "{:04}-{:02}-{:02} {:02}:{:02}",
            time.year(),
            u8::from(time.month()),
            time.day(),
            time.hour(),
            time.minute()
        ),
        Err(_) => format!("{seconds} s"),
    }
}

impl EntryReport {
    fn new(entry: &Entry, position: u64) -> Self {
        let (kind, bytes, target) = match &entry.kind {
            EntryKind::File { bytes } => ("file", Some(*bytes), None),
            EntryKind::Folder => ("folder", None, None),
            EntryKind::SymbolicLink { target } => ("symbolic link", None, Some(target)),
            EntryKind::HardLink { target } => ("hard link", None, Some(target)),
        };
        Self {
            kind,
            path: ReportedPath::new(&entry.path),
            mode: entry.mode,
            mtime_s: entry.mtime_s,
            mtime_ns: entry.mtime_ns,
            bytes,
            offset: bytes.map(|_| position),
            target: target.map(|target| String::from_utf8_lossy(target).into_owned()),
            target_hex: target.and_then(|target| report::path_hex(target)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_times_are_shown_as_ls_does() {
        assert_eq!(mode(0o755), "rwxr-xr-x");
        assert_eq!(mode(0o7640), "rwSr-S--T");
        assert_eq!(mode(0o7777), "rwsrwsrwt");
        assert_eq!(time(0), "1970-01-01 00:00");
        assert_eq!(time(-1), "1969-12-31 23:59");
        assert_eq!(time(1_709_210_096), "2024-02-29 12:34");
        assert_eq!(time(i64::MAX), format!("{} s", i64::MAX));
    }
}
