//! What subcommands say when they are done: lines for people, or one JSON object.

use std::io::{self, Write};

use serde::Serialize;

use super::standard_io;

/// Prints `report` as JSON, or as `text` does.
pub(crate) fn print(
    out: &mut dyn Write,
    is_json: bool,
    report: &impl Serialize,
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    match is_json {
        true => writeln!(out, "{}", serde_json::to_string(report)?),
        false => text(out),
    }
}

/// The same to standard output.
pub(crate) fn to_stdout(
    is_json: bool,
    report: &impl Serialize,
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let printed = print(&mut io::stdout().lock(), is_json, report, text);
    printed.map_err(standard_io::output_failed)
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The most memory that this process has had.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = peak.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Of more paths, or damaged parts, a report has only the number.
pub(crate) const NAMED_MAX: usize = 1000;

/// A path in a report.
#[derive(Serialize)]
pub(crate) struct ReportedPath {
    path: String,
    /// The path's bytes in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl ReportedPath {
    pub(crate) fn new(path: &[u8]) -> Self {
        Self {
            path: String::from_utf8_lossy(path).into_owned(),
            path_hex: path_hex(path),
        }
    }
}

/// The bytes of a path in hexadecimal, if they are not UTF-8.
pub(crate) fn path_hex(path: &[u8]) -> Option<String> {
    str::from_utf8(path).is_err().then(|| hex(path))
}
