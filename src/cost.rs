//! `refrain cost`: what elimination saves of the traffic, which CPU time it takes, and from which
//! price of traffic it pays; with the user's prices, also the bill.
//!
//! This file reads and writes; all others of the directory are pure. `docs/cost.md` has the formulas.

mod given;
mod inputs;
mod measured;
mod model;
mod paper;
mod prices;
mod report;

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

pub(crate) use given::parse_output;
pub(crate) use model::Bill;
pub(crate) use paper::{RECEIVER, SENDER, TRAFFIC_SHARE};
pub(crate) use prices::Prices;

use anyhow::{Context, anyhow, ensure};
use given::Given;
use inputs::Inputs;
use measured::{FILE_BYTES_MAX, Measured};
use refrain_gateway::text_file::remove_byte_order_mark;
use report::Report;

use crate::{
    standard_io::{self, is_standard},
    stderr::cannot_open,
    usage::UsageError,
};

const EXAMPLES: &str = "\
Examples:
  refrain cost --traffic 9.1TB --redundancy 30%
  refrain status --admin 127.0.0.1:9002 --json | refrain cost -
  refrain cost run.json --redundancy-sender 25% --server-output 80Mbit \\
      --cpu-none 4.1 --cpu-receiver 4.3 --cpu-sender 5.2 --price-hour 0.08
  refrain cost --traffic 40TB --redundancy 30% --price-gb 0.05 --price-hour 0.08";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CostArguments {
    /// Take measured values from this file, or from standard input (-): the output of `refrain status --json`
    #[arg(value_name = "STATUS")]
    status: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &CostArguments) -> anyhow::Result<()> {
    if arguments.status.as_deref().is_some_and(is_standard) {
        standard_io::input().context("cannot open standard input")?;
    }
    let report = reckon(arguments).map_err(wrong_input)?;
    crate::report::to_stdout(arguments.json, &report, |out| report.print(out))
}

/// A path may have control characters, which a terminal would obey. That a file cannot be read is no error of
/// usage.
fn wrong_input(error: anyhow::Error) -> anyhow::Error {
    let text = anyhow!(format!("{error:#}").replace(char::is_control, " "));
    match error.is::<io::Error>() {
        true => text,
        false => UsageError(text).into(),
    }
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
    let json = read(input).with_context(|| format!("cannot read {called}"))?;
    Measured::parse(&json).with_context(|| format!("cannot use the status from {called}"))
}

fn read(input: File) -> anyhow::Result<Vec<u8>> {
    const MIB_MAX: u64 = FILE_BYTES_MAX >> 20;
    let mut bytes = Vec::new();
    input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let is_small = bytes.len() as u64 <= FILE_BYTES_MAX;
    ensure!(is_small, "too large (limit {MIB_MAX} MiB)");
    remove_byte_order_mark(&mut bytes);
    Ok(bytes)
}
