//! What subcommands say when they are done: lines for people, or one JSON object.

use std::io::{self, Write};

use serde::Serialize;

use crate::table;

/// Prints `report` as JSON, or `lines`.
pub fn print(
    out: &mut dyn Write,
    is_json: bool,
    report: &impl Serialize,
    lines: &[(&str, String)],
) -> anyhow::Result<()> {
    match is_json {
        true => writeln!(out, "{}", serde_json::to_string(report)?)?,
        false => table::lines(lines, out)?,
    }
    Ok(())
}

/// The same to standard output.
pub fn to_stdout(
    is_json: bool,
    report: &impl Serialize,
    lines: &[(&str, String)],
) -> anyhow::Result<()> {
    print(&mut io::stdout().lock(), is_json, report, lines)
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
