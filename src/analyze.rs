//! `refrain analyze`: estimates how much traffic a pair, and other ways to remove repeats, would have saved of captures.

mod html;
mod objects;
mod report;
mod requests;
mod text;

use std::{
    fs,
    io::{self, Read},
    num::NonZero,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use anyhow::{Context, ensure};
use clap::Args;
use indicatif::ProgressBar;
use refrain_analysis::{
    blocks::Blocks,
    columns::{self, Kind},
    run::Columns,
};
use refrain_capture::{CaptureError, Ended, Fragments, Layer, Limits, Streams, Time, read_packets};
use refrain_gateway::{
    intercept::server_name::{Search, search},
    units::{BitRate, ByteSize},
};
use report::{Packets, Report, Seen};

use crate::{
    bounded,
    cost::{Prices, parse_output},
    interrupt::Interrupt,
    progress,
    standard_io::{self, EndableInput, is_standard},
    stderr::warn,
    table::{count, lines, printable_path},
    usage::UsageError,
};

const EXAMPLES: &str = "\
Examples:
  refrain analyze office.pcap
  refrain analyze monday.pcapng tuesday.pcapng --html report.html
  tcpdump -w - port 80 | refrain analyze -
  refrain analyze --requests access.log
  refrain analyze --objects releases/";

const AFTER_LONG_HELP: &str = "\
Captures are in the pcap or pcapng format, and may be compressed by gzip or zstd. tcpdump has to keep whole packets, which \
is its default. The content of packets is in no report.

Exit codes: 0 all captures were read to their ends; 1 one was not; 2 wrong arguments; 130 Ctrl-C ended it. A capture from \
standard input may be ended by Ctrl-C: the exit code is 0 then.";

#[derive(Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{AFTER_LONG_HELP}"))]
pub(crate) struct AnalyzeArguments {
    /// Read these captures (with --requests, logs; with --objects, files and directories); - is standard input
    ///
    /// Several files are one capture, in this order: data of the first file can repeat in the second.
    #[arg(value_name = "FILE", required_unless_present = "list_columns")]
    captures: Vec<PathBuf>,
    /// Estimate these ways to remove repeats: names with commas, or `all` [default: zstd, SAMPLEBYTE, PACK, refrain]
    ///
    /// All columns take about four times the CPU time of the default ones. --list-columns prints the names.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Print the names of the columns and their sources
    #[arg(long, exclusive = true)]
    list_columns: bool,
    /// Make a separate report for each file
    #[arg(long)]
    each: bool,
    /// Compare files, and the files in directories, instead of reading captures
    ///
    /// The report shows how much of each file is in earlier files, for chunks of 1 KiB to 64 KiB. FILE can be, for example,
    /// a directory of releases, of the months of a mailbox, or of images. Files are compared in the order of their names.
    /// Each is read 21 times.
    #[arg(long, conflicts_with_all = ["columns", "each", "threads", "traffic"])]
    objects: bool,
    /// Read logs of requests instead of captures: how much of their content was transferred before
    ///
    /// FILE can be an access log of nginx or Apache (common or combined format), or of Squid. It can also be the UMass
    /// trace of YouTube requests. It may be compressed by gzip or zstd. The same name means the same content.
    #[arg(long, conflicts_with_all = ["objects", "columns", "each", "threads", "traffic"])]
    requests: bool,
    /// Set the rate at which one server uses all of its CPU, for the number of servers of --requests
    #[arg(
        long,
        value_name = "RATE",
        value_parser = parse_output,
        allow_hyphen_values = true,
        requires = "requests",
        default_value = "350Mbit"
    )]
    server_output: BitRate,
    /// Replace addresses, server names and file names by numbers
    #[arg(long)]
    anonymize: bool,
    /// Write a report with plots to this file, as a web page
    #[arg(long, value_name = "FILE", conflicts_with = "each")]
    html: Option<PathBuf>,
    /// Use N threads [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    threads: Option<usize>,
    /// Limit the memory of the estimated caches. When it is full, the least recently used caches are emptied
    #[arg(long, value_name = "SIZE", value_parser = memory, default_value = "4GiB")]
    memory: ByteSize,
    #[command(flatten)]
    prices: Prices,
    /// Print JSON instead of tables; with --each, one object per line
    #[arg(long)]
    json: bool,
    /// Print all pairs of machines, and the memory and speed of each column
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
}

/// Below this, no cache has its size.
fn memory(text: &str) -> Result<ByteSize, String> {
    bounded::size_from("256MiB", text, "GiB")
}

pub(crate) fn run(arguments: &AnalyzeArguments) -> anyhow::Result<()> {
    if arguments.list_columns {
        return list_columns();
    }
    if let Some(path) = &arguments.html {
        not_an_input(path, &arguments.captures)?;
    }
    if arguments.objects {
        return compare(arguments);
    }
    let standard = arguments.captures.iter().filter(|path| is_standard(path));
    if standard.count() > 1 {
        let error = anyhow::anyhow!("standard input can be read only once: give - only once");
        return Err(UsageError(error).into());
    }
    if arguments.requests {
        return follow(arguments);
    }
    let kinds = arguments.kinds().map_err(UsageError)?;
    let interrupt = Interrupt::listen()?;
    let whole = [&arguments.captures[..]];
    let each: Vec<&[PathBuf]> = arguments.captures.chunks(1).collect();
    let parts = if arguments.each {
        &each[..]
    } else {
        &whole[..]
    };
    let mut unread = 0;
    for (nth, part) in parts.iter().enumerate() {
        let report = analyze(arguments, part, &kinds, &interrupt)?;
        unread += report.unread_captures;
        arguments.write_page(|| html::page(&report))?;
        if nth > 0 && !arguments.json {
            println!();
        }
        crate::report::to_stdout(arguments.json, &report, |out| {
            text::print(&report, arguments.verbose, out)
        })?;
        // A live capture is ended by it.
        if !is_standard(&part[part.len() - 1]) {
            interrupt.check()?;
        }
    }
    ensure!(
        unread == 0,
        "{} not read to the end, so the report is incomplete",
        count(unread, "capture was", "captures were")
    );
    Ok(())
}

/// Whether nothing that is read would be overwritten by this file.
pub(crate) fn not_an_input(output: &Path, inputs: &[PathBuf]) -> anyhow::Result<()> {
    // Files that are not there are no inputs, or are reported later.
    let Ok(output_file) = output.canonicalize() else {
        return Ok(());
    };
    let is_read = |input: &PathBuf| {
        !is_standard(input)
            && input
                .canonicalize()
                .is_ok_and(|input| output_file.starts_with(input))
    };
    if inputs.iter().any(is_read) {
        let output = printable_path(output);
        let error =
            anyhow::anyhow!("\"{output}\" is an input and would be overwritten: give another file");
        return Err(UsageError(error).into());
    }
    Ok(())
}

/// Compares files.
fn compare(arguments: &AnalyzeArguments) -> anyhow::Result<()> {
    if arguments.captures.iter().any(|path| is_standard(path)) {
        let error = anyhow::anyhow!(
            "--objects: files are read several times, and standard input cannot be"
        );
        return Err(UsageError(error).into());
    }
    let interrupt = Interrupt::listen()?;
    let mut report = objects::analyze(&arguments.captures, arguments.memory.0, &interrupt)?;
    if arguments.anonymize {
        report.anonymize();
    }
    arguments.write_page(|| report.page())?;
    crate::report::to_stdout(arguments.json, &report, |out| {
        report.print(arguments.verbose, out)
    })?;
    let unread = report.unread_files();
    ensure!(
        unread == 0,
        "could not read {}, so the report is incomplete",
        count(unread, "path", "paths")
    );
    Ok(())
}

/// Reads logs of requests.
fn follow(arguments: &AnalyzeArguments) -> anyhow::Result<()> {
    if arguments.prices.is_half() {
        let error = anyhow::anyhow!("--requests needs both --price-gb and --price-hour, or none");
        return Err(UsageError(error).into());
    }
    let interrupt = Interrupt::listen()?;
    let mut report = requests::analyze(arguments, &interrupt)?;
    if arguments.anonymize {
        report.anonymize();
    }
    arguments.write_page(|| report.page())?;
    crate::report::to_stdout(arguments.json, &report, |out| report.print(out))?;
    // A live log is ended by it.
    if !arguments
        .captures
        .last()
        .is_some_and(|path| is_standard(path))
    {
        interrupt.check()?;
    }
    let unread = report.unread_traces();
    ensure!(
        unread == 0,
        "{} not read to the end, so the report is incomplete",
        count(unread, "log was", "logs were")
    );
    Ok(())
}

impl AnalyzeArguments {
    /// Writes the web page to the file of --html.
    fn write_page(&self, page: impl FnOnce() -> String) -> anyhow::Result<()> {
        let Some(path) = &self.html else {
            return Ok(());
        };
        fs::write(path, page())
            .with_context(|| format!("cannot write \"{}\"", printable_path(path)))
    }

    fn kinds(&self) -> anyhow::Result<Vec<Kind>> {
        let all = columns::ALL.iter();
        if self.columns.is_empty() {
            return Ok(all.filter(|kind| kind.is_default).copied().collect());
        }
        if self.columns == ["all"] {
            return Ok(all.copied().collect());
        }
        for name in &self.columns {
            ensure!(
                columns::ALL.iter().any(|kind| kind.name == name),
                "unknown column \"{}\" (--list-columns prints the names)",
                name.escape_debug()
            );
        }
        let is_named = |kind: &&Kind| self.columns.iter().any(|name| kind.name == name);
        Ok(all.filter(is_named).copied().collect())
    }
}

fn analyze(
    arguments: &AnalyzeArguments,
    captures: &[PathBuf],
    kinds: &[Kind],
    interrupt: &Interrupt,
) -> anyhow::Result<Report> {
    let began = Instant::now();
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let columns = Columns::start(kinds, arguments.threads.unwrap_or(cpus), arguments.memory.0);
    let mut blocks = Blocks::new(columns, site);
    let mut streams = Streams::new(Limits::default());
    let mut packets = Packets::default();
    let mut clock = Clock::default();
    let mut unread = 0;
    let bar = progress::of_bytes(expected_bytes(captures));
    for capture in captures {
        clock.next_capture();
        packets.next_capture();
        let read = read(capture, &bar, interrupt, &mut |packet, fragments| {
            let at = clock.time(packet.at);
            packets.saw(packet, at);
            match Layer::of(packet, fragments) {
                Layer::Tcp(segment) => {
                    packets.tcp += 1;
                    streams.segment(at, &segment, &mut blocks);
                }
                Layer::OtherOverIp => packets.other_over_ip += 1,
                Layer::Fragment => packets.fragments += 1,
                Layer::Other => packets.other += 1,
                Layer::Malformed => packets.malformed += 1,
            }
        });
        let failure = match read {
            Ok(Ended::Whole | Ended::Stopped) => continue,
            Ok(Ended::Cut) => {
                "is truncated: it ends within a packet. All packets before that were read"
                    .to_owned()
            }
            Ok(Ended::Damaged) => {
                "is damaged. Only the packets before the damage were read".to_owned()
            }
            Err(error @ CaptureError::Unknown) => {
                format!("cannot be read: {error} (a log of requests needs --requests)")
            }
            Err(error) => format!("cannot be read: {error}"),
        };
        if interrupt.check().is_err() {
            break;
        }
        unread += 1;
        let name = match is_standard(capture) {
            true => "standard input".to_owned(),
            false => format!("\"{}\"", printable_path(capture)),
        };
        bar.suspend(|| warn(format_args!("{name} {failure}")));
    }
    bar.finish_and_clear();
    streams.finish(&mut blocks);
    Ok(Report::new(Seen {
        captures,
        kinds,
        packets,
        counts: streams.counts(),
        analysis: blocks.analysis(),
        unread,
        elapsed: began.elapsed(),
        is_cut_short: interrupt.check().is_err(),
        is_anonymous: arguments.anonymize,
        prices: &arguments.prices,
    }))
}

/// The time of several captures, one after the other.
#[derive(Default)]
pub(crate) struct Clock {
    last: Time,
    /// For a capture that is older than the one before.
    added_nanos: u64,
    is_new_capture: bool,
}

impl Clock {
    pub(crate) fn next_capture(&mut self) {
        self.is_new_capture = true;
    }

    pub(crate) fn time(&mut self, at: Time) -> Time {
        if std::mem::take(&mut self.is_new_capture) {
            self.added_nanos = self.last.0.saturating_sub(at.0);
        }
        let at = Time(at.0.saturating_add(self.added_nanos));
        self.last = self.last.max(at);
        at
    }
}

/// The server's name in a client's first bytes.
pub(crate) fn site(first: &[u8]) -> Option<String> {
    match search(first) {
        Search::Found(name) => Some(name),
        Search::Nameless | Search::More => None,
    }
}

/// Reads the packets of a capture.
pub(crate) fn read(
    capture: &Path,
    bar: &ProgressBar,
    interrupt: &Interrupt,
    take: &mut dyn FnMut(&refrain_capture::Packet<'_>, &mut Fragments),
) -> Result<Ended, CaptureError> {
    let input = open(capture, interrupt)?;
    let mut fragments = Fragments::default();
    read_packets(Counted { input, bar }, |packet| {
        take(&packet, &mut fragments);
        interrupt.flow()
    })
}

fn open(path: &Path, interrupt: &Interrupt) -> io::Result<EndableInput> {
    match is_standard(path) {
        true => EndableInput::standard(interrupt),
        false => EndableInput::open(path, interrupt),
    }
}

/// A reader that moves the bar.
struct Counted<'a> {
    input: EndableInput,
    bar: &'a ProgressBar,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        self.bar.inc(bytes as u64);
        Ok(bytes)
    }
}

pub(crate) fn expected_bytes(captures: &[PathBuf]) -> Option<u64> {
    let bytes = |path: &PathBuf| match is_standard(path) {
        true => standard_io::input_left(),
        false => fs::metadata(path).ok().map(|metadata| metadata.len()),
    };
    captures.iter().map(bytes).sum()
}

/// Prints the names of all columns, and where each comes from.
fn list_columns() -> anyhow::Result<()> {
    let all = columns::ALL.iter().map(|kind| {
        let default = if kind.is_default { " (default)" } else { "" };
        (
            kind.name,
            format!("{}{default}: {}", kind.title, kind.source),
        )
    });
    let all: Vec<(&str, String)> = all.collect();
    lines(&all, &mut io::stdout().lock()).map_err(standard_io::output_failed)
}
