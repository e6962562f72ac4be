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
mod prices;
mod report;
mod tiers;

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use given::Given;
use inputs::Inputs;
use measured::Measured;
use prices::PriceList;
use refrain_gateway::text_file::remove_byte_order_mark;
use report::Report;

use crate::standard_io;

const EXAMPLES: &str = "\
Examples:
  refrain cost --traffic 9.1TB --redundancy 30%
  refrain status --admin 127.0.0.1:9002 --json | refrain cost -
  refrain cost run.json --redundancy-sender 25% --server-output 80Mbit \\
      --cpu-none 4.1 --cpu-receiver 4.3 --cpu-sender 5.2 --plot cost.svg
  refrain cost --print-prices > my-prices.toml
  refrain cost --traffic 40TB --redundancy 30% --prices my-prices.toml --egress gcp_premium_na

The prices that are built in are list prices with a date: check them before you rely on one.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CostArguments {
    /// What `refrain status --json` printed of a run: a file, or - for standard input
    #[arg(value_name = "STATUS")]
    status: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
    /// A file of prices, instead of the list that is built in
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Print the prices, as a file to edit, and nothing else
    #[arg(long, conflicts_with_all = ["json", "plot", "status"])]
    print_prices: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Write a plot of the costs by redundancy, as an SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Parsers' errors quote what they found, and that may be all of a file.
const ERROR_CHARS_MAX: usize = 400;

/// What users gave cannot be reckoned with.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongInput(String);

impl WrongInput {
    /// What is wrong, in words that do a terminal no harm.
    fn new(error: anyhow::Error) -> Self {
        let text = format!("{error:#}");
        let harmless = text.chars().map(|sign| match sign.is_control() {
            true => ' ',
            false => sign,
        });
        Self(harmless.take(ERROR_CHARS_MAX).collect())
    }
}

pub fn run(arguments: &CostArguments) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.print_prices {
        let (text, _) = price_list(arguments).map_err(WrongInput::new)?;
        return Ok(write!(out, "{text}")?);
    }
    let files = [&arguments.status, &arguments.prices].into_iter().flatten();
    if files.into_iter().any(|path| is_standard_input(path)) {
        standard_io::input().context("standard input")?;
    }
    let report = reckon(arguments).map_err(WrongInput::new)?;
    if let Some(path) = &arguments.plot {
        std::fs::write(path, plot::svg(&report)?).with_context(|| path.display().to_string())?;
    }
    match arguments.json {
        true => writeln!(out, "{}", serde_json::to_string(&report)?)?,
        false => report.print(&mut out)?,
    }
    Ok(())
}

fn reckon(arguments: &CostArguments) -> anyhow::Result<Report> {
    let (_, prices) = price_list(arguments)?;
    let run = arguments.status.as_deref().map(read_status).transpose()?;
    let inputs = Inputs::resolve(&arguments.given, run.as_ref(), &prices)?;
    Ok(Report::new(&prices.currency, inputs, run.as_ref()))
}

/// The prices that are to be taken, as text and read.
fn price_list(arguments: &CostArguments) -> anyhow::Result<(String, PriceList)> {
    let parse = |text: String| PriceList::parse(&text).map(|list| (text, list));
    let Some(path) = &arguments.prices else {
        return parse(prices::BUILT_IN.to_owned());
    };
    let bytes = read(path, prices::FILE_BYTES_MAX);
    let text = bytes.and_then(|bytes| Ok(String::from_utf8(bytes)?));
    text.and_then(parse).with_context(|| name_of(path))
}

fn read_status(path: &Path) -> anyhow::Result<Measured> {
    let json = read(path, measured::FILE_BYTES_MAX);
    let run = json.and_then(|json| Measured::parse(&json));
    run.with_context(|| name_of(path))
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

fn name_of(path: &Path) -> String {
    match is_standard_input(path) {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

/// A file, or standard input.
fn read(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let input: Box<dyn Read> = match is_standard_input(path) {
        true => Box::new(standard_io::input()?),
        false => Box::new(File::open(path)?),
    };
    let mut bytes = Vec::new();
    input.take(bytes_max + 1).read_to_end(&mut bytes)?;
    let mib_max = bytes_max >> 20;
    ensure!(bytes.len() as u64 <= bytes_max, "larger than {mib_max} MiB");
    remove_byte_order_mark(&mut bytes);
    Ok(bytes)
}
