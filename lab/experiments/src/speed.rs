//! How fast: the rows of `refrain bench`, as a page.

use std::{fmt::Write, path::Path, process::Command};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::machine;

/// A row of `refrain bench --json`.
#[derive(Deserialize)]
struct Row {
    name: String,
    gb_per_s: f64,
    peer: Option<String>,
    peer_gb_per_s: Option<f64>,
    ratio: Option<f64>,
}

/// The page of results, from the program at `refrain`.
pub fn run(refrain: &Path) -> anyhow::Result<String> {
    let output = Command::new(refrain)
        .args(["bench", "--json", "--seconds", "2"])
        .output()
        .with_context(|| format!("cannot run {}", refrain.display()))?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rows: Vec<Row> = serde_json::from_slice(&output.stdout)?;
    let mut page = format!(
        "# How fast it is\n\n\
         Written by `cargo run --release -p refrain-experiments -- speed --write \
         docs/performance.md`,\nfrom `refrain bench --json --seconds 2`. {}.\n\n\
         GB/s = 10^9 plain bytes a second, on one core but for the pair's rows, where origin,\n\
         both gateways, client and relay share the machine. Each row and its peer took turns in\n\
         one run; speeds and ratios are medians. Below 1, the peer is faster. Blocks of 64 KiB come\n\
         from 64 MiB of memory (16 MiB where all is known), the log has 32 MiB: neither fits the\n\
         processor's second-level cache.\n\n\
         | what | GB/s | beside | GB/s | ratio |\n|---|---|---|---|---|\n",
        machine::describe(),
    );
    for row in rows {
        let number =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
        writeln!(
            page,
            "| {} | {:.2} | {} | {} | {} |",
            row.name,
            row.gb_per_s,
            row.peer.as_deref().unwrap_or(""),
            number(row.peer_gb_per_s),
            number(row.ratio),
        )?;
    }
    Ok(page)
}
