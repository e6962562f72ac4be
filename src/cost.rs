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
    fmt::Display,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
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
    fn new(error: impl Display) -> Self {
        // With the causes of an error that has some.
        let text = format!("{error:#}");
        let harmless = text.chars().map(|sign| match sign.is_control() {
            true => ' ',
            false => sign,
        });
        Self(harmless.take(ERROR_CHARS_MAX).collect())
    }

    fn of_file(path: &Path, error: impl Display) -> Self {
        match is_standard_input(path) {
            true => Self::new(format_args!("standard input: {error:#}")),
            false => Self::new(format_args!("{}: {error:#}", path.display())),
        }
    }
}

pub fn run(arguments: &CostArguments) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.print_prices {
        let (text, _) = price_list(arguments)?;
        return Ok(write!(out, "{text}")?);
    }
    let report = reckon(arguments)?;
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
    let files = [&arguments.status, &arguments.prices].into_iter().flatten();
    if files.into_iter().any(|path| is_standard_input(path)) {
        standard_io::input().context("standard input")?;
    }
    let (_, prices) = price_list(arguments)?;
    let run = arguments.status.as_deref().map(read_status).transpose()?;
    let inputs =
        Inputs::resolve(&arguments.given, run.as_ref(), &prices).map_err(WrongInput::new)?;
    Ok(Report::new(&prices.currency, inputs, run.as_ref()))
}

/// The prices that are to be taken, as text and read.
fn price_list(arguments: &CostArguments) -> Result<(String, PriceList), WrongInput> {
    let Some(path) = &arguments.prices else {
        let list = PriceList::parse(prices::BUILT_IN).map_err(WrongInput::new)?;
        return Ok((prices::BUILT_IN.to_owned(), list));
    };
    let wrong = |error: &dyn Display| WrongInput::of_file(path, error);
    let bytes = read(path, prices::FILE_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|error| wrong(&error))?;
    let list = PriceList::parse(&text).map_err(|error| wrong(&error))?;
    Ok((text, list))
}

fn read_status(path: &Path) -> Result<Measured, WrongInput> {
    let bytes = read(path, measured::FILE_BYTES_MAX)?;
    Measured::parse(&bytes).map_err(|error| WrongInput::of_file(path, error))
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// A file, or standard input.
fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, WrongInput> {
    let wrong = |error: &dyn Display| WrongInput::of_file(path, error);
    let input: Box<dyn Read> = match is_standard_input(path) {
        true => Box::new(standard_io::input().map_err(|error| wrong(&error))?),
        false => Box::new(File::open(path).map_err(|error| wrong(&error))?),
    };
    let mut bytes = Vec::new();
    let read = input.take(bytes_max + 1).read_to_end(&mut bytes);
    read.map_err(|error| wrong(&error))?;
    match bytes.len() as u64 > bytes_max {
        true => Err(wrong(&format!("larger than {} MiB", bytes_max >> 20))),
        false => {
            remove_byte_order_mark(&mut bytes);
            Ok(bytes)
        }
    }
}
