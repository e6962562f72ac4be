//! `refrain cost`: what elimination saves on the bill for traffic, and what it adds to the one for
//! servers.
//!
//! This file reads and writes; all others of the folder are pure. How each figure is reckoned
//! stands in `docs/cost.md`.

mod given;
mod inputs;
mod measured;
mod model;
mod paper;
mod plot;
mod report;

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, ensure};
use given::Given;
use inputs::Inputs;
use measured::Measured;
use refrain_gateway::text_file::remove_byte_order_mark;
use report::Report;

use crate::{
    standard_io::{self, is_standard},
    told::cannot_open,
    wrong::WrongArguments,
};

const EXAMPLES: &str = "\
Examples:
  refrain cost --traffic 9.1TB --redundancy 30%
  refrain status --admin 127.0.0.1:9002 --json | refrain cost -
  refrain cost run.json --redundancy-sender 25% --server-output 80Mbit \\
      --cpu-none 4.1 --cpu-receiver 4.3 --cpu-sender 5.2 --plot cost.svg
  refrain cost --traffic 40TB --redundancy 30% --egress 0.05 --server 0.08 --cores 2";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CostArguments {
    /// Read the output of `refrain status --json` for a run from this file, or from standard input (-)
    #[arg(value_name = "STATUS")]
    status: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Write a plot of the costs by redundancy to this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Parsers' errors quote what they found, and that may be all of a file.
const ERROR_CHARS_MAX: usize = 400;

pub(crate) fn run(arguments: &CostArguments) -> anyhow::Result<()> {
    if arguments.status.as_deref().is_some_and(is_standard) {
        standard_io::input().context("cannot open standard input")?;
    }
    let report = reckon(arguments).map_err(wrong_input)?;
    if let Some(path) = &arguments.plot {
        std::fs::write(path, plot::svg(&report)?)
            .with_context(|| format!("cannot write to \"{}\"", path.display()))?;
    }
    crate::report::to_stdout(arguments.json, &report, |out| report.print(out))
}

/// What users gave cannot be reckoned with: in words that do a terminal no harm.
fn wrong_input(error: anyhow::Error) -> WrongArguments {
    let text = format!("{error:#}").replace(char::is_control, " ");
    let text: String = text.chars().take(ERROR_CHARS_MAX).collect();
    WrongArguments(anyhow!(text))
}

fn reckon(arguments: &CostArguments) -> anyhow::Result<Report> {
    let run = arguments.status.as_deref().map(read_status).transpose()?;
    let inputs = Inputs::resolve(&arguments.given, run.as_ref())?;
    Ok(Report::new(inputs, run.as_ref()))
}

fn read_status(path: &Path) -> anyhow::Result<Measured> {
    let (input, called) = match is_standard(path) {
        true => {
            let input = standard_io::input().context("cannot open standard input")?;
            (input, "standard input".to_owned())
        }
        false => {
            let file = File::open(path).with_context(|| cannot_open(path))?;
            (file, format!("\"{}\"", path.display()))
        }
    };
    let json = read(input, measured::FILE_BYTES_MAX);
    let run = json.and_then(|json| Measured::parse(&json));
    run.with_context(|| format!("cannot read {called}"))
}

fn read(input: File, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(bytes_max + 1).read_to_end(&mut bytes)?;
    let mib_max = bytes_max >> 20;
    ensure!(
        bytes.len() as u64 <= bytes_max,
        "too large (limit {mib_max} MiB)"
    );
    remove_byte_order_mark(&mut bytes);
    Ok(bytes)
}
