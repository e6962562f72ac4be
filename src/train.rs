//! `refrain train`: chooses the table of SAMPLEBYTE by the redundant content of captures or files.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use refrain_analysis::{
    blocks::Blocks,
    train::{Content, Redundancy, Trained, Trials},
};
use refrain_capture::{CaptureError, Ended, Layer, Limits, Streams};
use serde::Serialize;

use crate::{
    analyze::{Clock, expected_bytes, not_an_input, read, site},
    interrupt::Interrupt,
    progress,
    standard_io::is_standard,
    stderr::warn,
    table::{Table, bytes, percent, printable_path},
    usage::UsageError,
};

/// Read at once.
const PIECE_BYTES: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct TrainArguments {
    /// Train with these captures or files
    ///
    /// Files that are not captures are content. Each is read twice.
    #[arg(value_name = "FILE", required = true)]
    inputs: Vec<PathBuf>,
    /// Write the table to this file, for --marker-table
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Measure the table with this capture or file too, which is not trained with
    #[arg(long, value_name = "FILE")]
    test: Vec<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// The report and its JSON.
#[derive(Serialize)]
struct Report {
    training_bytes: u64,
    /// The values of the table, those first that redundant content has most.
    table: Vec<u8>,
    saved_bytes: u64,
    default_saved_bytes: u64,
    maxp_saved_bytes: u64,
    /// The savings of tables with one value, with two, ...
    steps: Vec<Step>,
    test: Option<Tested>,
}

#[derive(Serialize)]
struct Step {
    value: u8,
    saved_bytes: u64,
}

/// The savings of data that was not trained with.
#[derive(Serialize)]
struct Tested {
    bytes: u64,
    saved_bytes: u64,
    default_saved_bytes: u64,
    maxp_saved_bytes: u64,
}

pub(crate) fn run(arguments: &TrainArguments) -> anyhow::Result<()> {
    if let Some(output) = &arguments.output {
        not_an_input(output, &[&arguments.inputs[..], &arguments.test].concat())?;
    }
    let mut inputs = arguments.inputs.iter().chain(&arguments.test);
    if inputs.any(|input| is_standard(input)) {
        let error = anyhow::anyhow!("standard input cannot be read twice: give a file");
        return Err(UsageError(error).into());
    }
    let interrupt = Interrupt::listen()?;
    let redundancy = pass(&arguments.inputs, Redundancy::default(), true, &interrupt)?;
    let values = redundancy.values();
    if values.is_empty() {
        bail!(
            "nothing repeats in {} of data, so there is nothing to train with",
            bytes(redundancy.bytes)
        );
    }
    let trained = pass(&arguments.inputs, Trials::new(&values), false, &interrupt)?.finish();
    let table = trained.table();
    let test = match arguments.test.is_empty() {
        true => None,
        false => {
            let tested = pass(&arguments.test, Trials::new(&table), true, &interrupt)?.finish();
            Some(Tested {
                bytes: tested.bytes,
                saved_bytes: tested.steps.last().map_or(0, |&(_, saved)| saved),
                default_saved_bytes: tested.default_saved_bytes,
                maxp_saved_bytes: tested.maxp_saved_bytes,
            })
        }
    };
    if let Some(output) = &arguments.output {
        fs::write(output, file(&trained))
            .with_context(|| format!("cannot write \"{}\"", printable_path(output)))?;
    }
    let report = Report {
        training_bytes: trained.bytes,
        saved_bytes: trained.saved_bytes(),
        default_saved_bytes: trained.default_saved_bytes,
        maxp_saved_bytes: trained.maxp_saved_bytes,
        steps: trained
            .steps
            .iter()
            .map(|&(value, saved_bytes)| Step { value, saved_bytes })
            .collect(),
        table,
        test,
    };
    crate::report::to_stdout(arguments.json, &report, |out| report.print(out))
}

/// The table as a file for `--marker-table`.
fn file(trained: &Trained) -> String {
    let share = |saved: u64| percent(saved as f64, trained.bytes as f64);
    let values: Vec<String> = trained.table().iter().map(u8::to_string).collect();
    format!(
        "# A table of SAMPLEBYTE, by `refrain train` with {} of data.\n\
         # Saved {} of it; the default table {}, MAXP {}.\n{}\n",
        bytes(trained.bytes),
        share(trained.saved_bytes()),
        share(trained.default_saved_bytes),
        share(trained.maxp_saved_bytes),
        values.join(", ")
    )
}

/// Gives all content of the inputs to `taker`. A second pass repeats no warnings.
fn pass<T: Content>(
    inputs: &[PathBuf],
    mut taker: T,
    warns: bool,
    interrupt: &Interrupt,
) -> anyhow::Result<T> {
    let bar = progress::of_bytes(expected_bytes(inputs));
    let mut clock = Clock::default();
    for input in inputs {
        let name = || format!("\"{}\"", printable_path(input));
        clock.next_capture();
        let mut blocks = Blocks::new(taker, site);
        let mut streams = Streams::new(Limits::default());
        let ended = read(input, &bar, interrupt, &mut |packet, fragments| {
            let at = clock.time(packet.at);
            if let Layer::Tcp(segment) = Layer::of(packet, fragments) {
                streams.segment(at, &segment, &mut blocks);
            }
        });
        streams.finish(&mut blocks);
        taker = blocks.finish().0;
        interrupt.check()?;
        match ended {
            Ok(Ended::Whole | Ended::Stopped) => {}
            Ok(Ended::Cut | Ended::Damaged) if !warns => {}
            Ok(Ended::Cut | Ended::Damaged) => bar.suspend(|| {
                warn(format_args!(
                    "{} is damaged or truncated: only the packets before that were read",
                    name()
                ));
            }),
            Err(CaptureError::Unknown | CaptureError::Empty) => {
                read_file(input, &mut taker, interrupt)
                    .with_context(|| format!("cannot read {}", name()))?;
            }
            Err(error) => bail!("cannot read {}: {error}", name()),
        }
    }
    bar.finish_and_clear();
    Ok(taker)
}

fn read_file(path: &Path, taker: &mut impl Content, interrupt: &Interrupt) -> anyhow::Result<()> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        interrupt.check()?;
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(());
        }
        taker.content(&piece[..read]);
    }
}

impl Report {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let values: Vec<String> = self.table.iter().map(u8::to_string).collect();
        writeln!(out, "table: {}", values.join(", "))?;
        writeln!(out)?;
        let mut table = Table::new("data  bytes  this table  default table  MAXP");
        let mut row = |data: &str, all: u64, saved: [u64; 3]| {
            let saved = saved.map(|saved| percent(saved as f64, all as f64));
            table.row([data.to_owned(), bytes(all)].into_iter().chain(saved));
        };
        let saved = [
            self.saved_bytes,
            self.default_saved_bytes,
            self.maxp_saved_bytes,
        ];
        row("training", self.training_bytes, saved);
        if let Some(test) = &self.test {
            let saved = [
                test.saved_bytes,
                test.default_saved_bytes,
                test.maxp_saved_bytes,
            ];
            row("test", test.bytes, saved);
        }
        table.print(out)?;
        writeln!(out)?;
        let mut table = Table::new("values  added  saved");
        let all = self.training_bytes as f64;
        for (index, step) in self.steps.iter().enumerate() {
            let chosen = if index + 1 == self.table.len() {
                " *"
            } else {
                ""
            };
            table.row([
                format!("{}{chosen}", index + 1),
                name_of(step.value),
                percent(step.saved_bytes as f64, all),
            ]);
        }
        table.print(out)?;
        writeln!(
            out,
            "* the table: more values save less than 0.1 % of all bytes more"
        )
    }
}

/// A value, and the character that it is.
fn name_of(value: u8) -> String {
    match value {
        b' ' => "32 (space)".to_owned(),
        _ if value.is_ascii_graphic() => format!("{value} ({})", char::from(value)),
        _ => value.to_string(),
    }
}
