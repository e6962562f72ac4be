//! `refrain czip get`: what is in an archive on any web server, without what is here already.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Once},
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow, ensure};
use clap::builder::{OsStringValueParser, TypedValueParser};
use indicatif::ProgressBar;
use refrain_czip::get::{
    GetError, GetOptions, GetProgress, GetReport, Phase, StoredReport, Transfer, get, partial,
};
use serde::Serialize;

use super::{
    bounded,
    create::temporary_for,
    open::{self, AccessArguments, CacheArguments},
    report, retry, threads,
};
use crate::{
    in_words,
    interrupt::Interrupt,
    progress,
    standard_io::is_standard,
    stderr::warn,
    table::{bytes, count, lines, percent, printable, printable_path},
};

const EXAMPLE: &str = "\
Example:
  refrain czip get https://example.org/v2.czip -o v2.tar --seed v1.tar";

const AFTER_LONG_HELP: &str = "\
Any web server works. A server that supports Range requests sends only new data. The download is kept in FILE.part \
until FILE is complete. After Ctrl-C, a broken connection, a full disk or a power cut, the same command resumes it. \
A server without Range requests then sends everything again. FILE appears only when it is complete and checked. \
FILE.part needs at most the space of FILE and of the archive's table, about 1 % of the archive. While FILE is \
assembled, both exist.

FILE.part is a directory for its owner only. If it belongs to another user, or others can write to it, the command \
fails.

The variables http_proxy, https_proxy, all_proxy and no_proxy set proxies, as for curl.

The content of an archive of several files is one stream, without separators. It is refused without --joined. For \
the directory tree, use `get --archive` and then `extract`, or `extract URL -o DIR`.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLE, after_long_help = format!("{EXAMPLE}\n\n{AFTER_LONG_HELP}"))]
pub(super) struct GetArguments {
    /// Fetch the archive at this http or https address
    #[arg(value_name = "URL", value_parser = bounded::web_address)]
    url: String,
    /// Write the content to this file
    ///
    /// If it is a link, the file that it leads to is written. For standard output, use `cat URL` or, for one file of
    /// several, `extract URL PATH -o -`.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    cache: CacheArguments,
    /// Reuse data from these files, directories and archives
    ///
    /// An example is an earlier release. An existing output is always used too. Archives provide chunks and stored
    /// frames. Without keys, an encrypted one provides only stored frames.
    #[arg(long, value_name = "FILE|DIR", num_args = 1.., value_parser = OsStringValueParser::new().try_map(parse_seed))]
    seed: Vec<PathBuf>,
    /// Fetch chunks by name from this server
    ///
    /// An edge is `refrain czip serve`, or a cache in front of it. May be given several times. Each edge is asked for
    /// its share of the chunks, `URL/.czip/chunk/NAME`. It has up to 10s to answer. It gets up to 256 requests at the
    /// same time, divided by the number of edges. The archive's own server gets twice as many, if it is an edge. Chunks
    /// that no edge has come from the archive's server.
    #[arg(long = "edge", value_name = "URL", value_parser = bounded::web_address)]
    edges: Vec<String>,
    /// Send at most N requests, plus one per MiB to fetch
    ///
    /// If data is missing in more places, neighbouring ranges are joined.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = bounded::count())]
    requests: usize,
    /// Send up to N requests at the same time
    ///
    /// At most 64.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = bounded::requests_at_a_time())]
    connections: usize,
    /// Assemble the file with N threads [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = bounded::threads())]
    threads: Option<usize>,
    #[command(flatten)]
    access: AccessArguments,
    /// Keep the archive unchanged, instead of its content
    ///
    /// Keys are not used. If the archive has profile `small` and was made with --after OLD.czip, OLD.czip is of little
    /// use as a seed.
    #[arg(long)]
    archive: bool,
    /// Write the content of several files as one file
    ///
    /// Their contents follow one after the other.
    #[arg(long, conflicts_with = "archive")]
    joined: bool,
    /// Report as one JSON object
    #[arg(long)]
    json: bool,
    /// Show requests, and the sources of the data
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    fetched: Transfer,
    /// Of an archive that is kept as it is.
    stored: Option<StoredReport>,
    #[serde(flatten)]
    got: &'a GetReport,
}

pub(super) fn run(arguments: &GetArguments) -> anyhow::Result<()> {
    ensure!(
        !is_standard(&arguments.output),
        "cannot write to standard output: the download is kept in a file until it is complete (use `refrain \
         czip cat URL` or `refrain czip extract URL PATH -o -`)"
    );
    let interrupt = Interrupt::listen()?;
    let leftover = Arc::new(Leftover::new(&arguments.output));
    end_soon_after(&interrupt, &leftover).context("cannot start a thread")?;
    let bar = progress::bar(progress::SOME_BYTES);
    let mut phase = None;
    let got = get(
        &arguments.url,
        &arguments.output,
        &options(arguments, &bar)?,
        &mut |now| {
            show(&bar, &mut phase, now);
            interrupt.flow()
        },
    );
    bar.finish_and_clear();
    // What another get has there is not of this one. The error of a damaged archive has advice of its own.
    let is_reported = got
        .as_ref()
        .is_err_and(|error| !matches!(error, GetError::Busy { .. }) && !error.is_damage());
    let may_pass = got.as_ref().is_err_and(GetError::may_pass);
    let got = interrupt.or(got.map_err(|error| match error {
        GetError::Remote(error) => open::failed(error),
        error @ (GetError::Archive(_) | GetError::Chunk { .. }) => {
            let advice = match error.is_damage() {
                true => leftover.advice_on_damage(),
                false => String::new(),
            };
            let url = open::shown(&arguments.url);
            anyhow!("cannot read \"{url}\": {error}{advice}")
        }
        error => error.into(),
    }));
    let report = got.map_err(|error| match is_reported {
        true => leftover.add_to(error, may_pass),
        false => error,
    })?;
    tell_of(&report);
    if !report.has_ranges && (arguments.cache.options().is_some() || !arguments.seed.is_empty()) {
        warn(format_args!(
            "the server does not support Range requests: it sent {} of the archive, from its beginning on \
             (seeds and a cache save little there)",
            bytes(report.transferred().bytes)
        ));
    }
    if report.plain_bytes.is_none() && arguments.access.keys.are_given() {
        warn(format_args!(
            "the given keys are not used: --archive keeps the archive unchanged"
        ));
    }
    let report = Report {
        fetched: report.transferred(),
        stored: arguments.archive.then_some(report.stored),
        got: &report,
    };
    report::to_stdout(arguments.json, &report, |out| {
        writeln!(out, "{}", report.headline())?;
        let (written, seconds) = (bytes(report.got.output_bytes), report.got.seconds);
        writeln!(out, "wrote {written} in {seconds:.1} s")?;
        lines(&report.lines(arguments.verbose), out)
    })
}

/// A file or a folder: an address behind `--seed` was meant as that of the archive.
fn parse_seed(text: OsString) -> Result<PathBuf, &'static str> {
    match open::url(Path::new(&text)) {
        Some(_) => {
            Err("a seed must be a file or a directory: put the archive's address before --seed")
        }
        None => Ok(PathBuf::from(text)),
    }
}

/// A server that sends nothing keeps nobody waiting: after Ctrl-C there is nothing to tidy up.
fn end_soon_after(interrupt: &Interrupt, leftover: &Arc<Leftover>) -> io::Result<()> {
    let (interrupt, leftover) = (interrupt.clone(), leftover.clone());
    thread::Builder::new().spawn(move || {
        let exit_code = loop {
            match interrupt.check() {
                Ok(()) => thread::sleep(Duration::from_millis(100)),
                Err(interrupted) => break interrupted.exit_code,
            }
        };
        thread::sleep(Duration::from_secs(1));
        leftover.report();
        process::exit(exit_code.into());
    })?;
    Ok(())
}

/// What a get that does not finish leaves, which is reported once.
struct Leftover {
    output: PathBuf,
    reported: Once,
}

impl Leftover {
    fn new(output: &Path) -> Self {
        Self {
            output: output.to_owned(),
            reported: Once::new(),
        }
    }

    /// A line about it, the first time, and how to continue, if the same get may succeed later.
    fn text(&self, may_pass: bool) -> Option<String> {
        let how_to_continue = match may_pass {
            true => {
                " To continue the download, run the same command again (a server without Range requests sends \
                 everything again)."
            }
            false => "",
        };
        let mut text = None;
        self.reported.call_once(|| {
            text = partial(&self.output).map(|left| {
                format!(
                    "{} keeps downloaded data ({} on disk).{how_to_continue} To remove it: rm -r {}",
                    printable_path(&left.path),
                    bytes(left.bytes),
                    shell_word(&left.path)
                )
            });
        });
        text
    }

    fn report(&self) {
        if let Some(text) = self.text(true) {
            warn(text);
        }
    }

    /// `error`, with a line about it after the cause.
    fn add_to(&self, error: anyhow::Error, may_pass: bool) -> anyhow::Error {
        match self.text(may_pass) {
            Some(text) => {
                let cause = in_words(&error);
                error.context(format!("{cause}\n{text}"))
            }
            None => error,
        }
    }

    /// What to do where the archive is damaged.
    fn advice_on_damage(&self) -> String {
        let removal = partial(&self.output).map(|left| {
            let path = shell_word(&left.path);
            format!("; remove the partial download with: rm -r {path}")
        });
        let removal = removal.unwrap_or_default();
        format!(" (its owner must upload it again{removal})")
    }
}

/// A path as a shell takes it for one word, which is no option.
fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    let path = match path.starts_with('-') {
        true => format!("./{path}"),
        false => path,
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(&byte);
    match path.bytes().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

fn options(arguments: &GetArguments, bar: &ProgressBar) -> anyhow::Result<GetOptions> {
    let mut options = GetOptions {
        remote: arguments.access.remote(retry::told_above(bar))?,
        requests_max: arguments.requests,
        seeds: arguments.seed.clone(),
        cache: arguments.cache.options(),
        edges: arguments.edges.clone(),
        keeps_archive: arguments.archive,
        joins_files: arguments.joined,
        keys: arguments.access.keys.source(),
        threads: threads(arguments.threads),
        temporary: temporary_for(&arguments.output),
        ..GetOptions::default()
    };
    options.remote.connections = arguments.connections;
    Ok(options)
}

/// Shows what is being done.
fn show(bar: &ProgressBar, phase: &mut Option<Phase>, now: GetProgress) {
    if *phase != Some(now.phase) {
        *phase = Some(now.phase);
        bar.reset();
        bar.set_message(match now.phase {
            Phase::Seeds => "reading seeds",
            Phase::Table => "fetching the table",
            Phase::Chunks => "searching for local chunks",
            Phase::Named => "fetching new chunks by name",
            Phase::Frames => "fetching new data",
            Phase::Output => "assembling the file",
        });
        let template = match (now.phase, now.total) {
            (Phase::Seeds | Phase::Chunks, _) => progress::LOCAL_BYTES,
            (_, 0) => progress::SOME_BYTES,
            _ => progress::OF_BYTES,
        };
        bar.set_style(progress::style(template));
    }
    bar.set_length(now.total);
    bar.set_position(now.done);
}

/// Says what did not go as it should have.
fn tell_of(report: &GetReport) {
    for (path, error) in &report.unread_seeds {
        let is_missing = error.kind() == io::ErrorKind::NotFound && !path.exists();
        let path = printable_path(path);
        match is_missing {
            true => warn(format_args!(
                "seed \"{path}\" does not exist: continuing without it"
            )),
            false => warn(format_args!(
                "cannot read seed \"{path}\" completely: {error}"
            )),
        }
    }
    for (path, reason) in &report.unused_seeds {
        let path = printable_path(path);
        warn(format_args!("cannot use seed \"{path}\": {reason}"));
    }
    if report.damaged > 0 {
        warn(format_args!(
            "damaged data was received and fetched again: {}",
            count(report.damaged.into(), "time", "times")
        ));
    }
    if let Some(reason) = report.not_by_name {
        warn(format_args!(
            "{reason}: ranges of the archive were fetched instead"
        ));
    }
    for server in &report.named {
        if let Some(problem) = &server.problem {
            let url = printable(&server.url);
            warn(format_args!("edge \"{url}\" is no longer used: {problem}"));
        }
    }
    if let Some(error) = &report.cache_failure {
        warn(format_args!(
            "cannot keep all fetched data in the cache: {error}"
        ));
    }
}

impl Report<'_> {
    fn headline(&self) -> String {
        let (fetched, all) = (self.fetched.bytes, self.got.archive_bytes);
        match fetched < all && self.has_reused() {
            true => format!(
                "downloaded {} of {}, reused the rest",
                bytes(fetched),
                bytes(all)
            ),
            false => format!("downloaded {}", bytes(fetched)),
        }
    }

    /// Whether some data was here. Without, the archive may also be fetched in part: not all of its table is
    /// needed.
    fn has_reused(&self) -> bool {
        let got = self.got;
        match &self.stored {
            Some(it) => [it.from_earlier, it.from_seeds, it.from_cache, it.made]
                .iter()
                .any(|found| found.frames > 0),
            None => [got.from_earlier, got.from_seeds, got.from_cache]
                .iter()
                .any(|found| found.chunks > 0),
        }
    }

    /// Damage, and details if they are wanted.
    fn lines(&self, is_verbose: bool) -> Vec<(&'static str, String)> {
        let got = self.got;
        let mut lines = Vec::new();
        if got.cache_damaged > 0 {
            let damaged = count(got.cache_damaged, "chunk", "chunks");
            lines.push(("damaged", format!("{damaged} in the cache, now replaced")));
        }
        if !is_verbose {
            return lines;
        }
        let of = |part: &Transfer| {
            let requests = count(part.requests, "request", "requests");
            format!("{} in {requests}", bytes(part.bytes))
        };
        let mut fetched = of(&self.fetched);
        if let Some(plain_bytes) = got.plain_bytes {
            let share = percent(self.fetched.bytes as f64, plain_bytes as f64);
            fetched += &format!(", {share} of the plain content");
        }
        let parts = match got.has_ranges {
            true => (
                "parts",
                format!(
                    "header {}, table {}, frames {}",
                    of(&got.header),
                    of(&got.table),
                    of(&got.frames)
                ),
            ),
            // All of it came in one answer, whatever it was asked for.
            false => (
                "range requests",
                "not supported by the server: fetched the archive from its start".to_owned(),
            ),
        };
        lines.extend([
            ("fetched", fetched),
            parts,
            ("archive size", bytes(got.archive_bytes)),
        ]);
        match &self.stored {
            Some(stored) => {
                let all = [
                    ("earlier", stored.from_earlier),
                    ("seeds", stored.from_seeds),
                    ("cache", stored.from_cache),
                    ("rebuilt", stored.made),
                    ("server", stored.from_server),
                ];
                let all = all.map(|(whence, found)| (whence, found.frames, found.bytes));
                lines.extend(from(("frame", "frames"), all));
            }
            None => {
                let all = [
                    ("earlier", got.from_earlier),
                    ("seeds", got.from_seeds),
                    ("cache", got.from_cache),
                    ("by name", got.by_name),
                    ("server", got.from_server),
                ];
                let all = all.map(|(whence, found)| (whence, found.chunks, found.bytes));
                lines.extend(from(("chunk", "chunks"), all));
            }
        }
        for edge in &got.named {
            let absent = match edge.absent {
                0 => String::new(),
                absent => format!(", {absent} not found"),
            };
            let what = format!(
                "{}, {}{absent}",
                count(edge.chunks.chunks, "chunk", "chunks"),
                of(&edge.transfer)
            );
            lines.push(("edge", format!("{}: {what}", printable(&edge.url))));
        }
        lines
    }
}

/// One line per source that provided something.
fn from(
    (one, many): (&str, &str),
    all: [(&'static str, u64, u64); 5],
) -> impl Iterator<Item = (&'static str, String)> {
    let some = all.into_iter().filter(|(_, found, _)| *found > 0);
    some.map(move |(whence, found, of_bytes)| {
        let what = format!("{}, {}", count(found, one, many), bytes(of_bytes));
        (whence, what)
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_first_line_has_the_downloaded_bytes() {
        let mut got = GetReport {
            archive_bytes: 1_730_000,
            ..GetReport::default()
        };
        let headline = |got: &GetReport, bytes: u64| {
            let (fetched, stored) = (Transfer { bytes, requests: 1 }, None);
            let report = Report {
                fetched,
                stored,
                got,
            };
            report.headline()
        };
        assert_eq!(headline(&got, 1_720_000), "downloaded 1.72 MB");
        got.from_seeds.chunks = 9;
        let reused = "downloaded 74.0 kB of 1.73 MB, reused the rest";
        assert_eq!(headline(&got, 74_000), reused);
        assert_eq!(headline(&got, 1_730_000), "downloaded 1.73 MB");
    }

    #[test]
    fn parts_are_shown_only_where_they_were_fetched_apart() {
        for (has_ranges, name, said) in [
            (true, "parts", "frames 7 B in 1 request"),
            (false, "range requests", "not supported"),
        ] {
            let got = GetReport {
                frames: Transfer {
                    bytes: 7,
                    requests: 1,
                },
                has_ranges,
                ..GetReport::default()
            };
            let report = Report {
                fetched: got.transferred(),
                stored: None,
                got: &got,
            };
            let lines = report.lines(true);
            let line = lines.iter().find(|(found, _)| *found == name);
            let (_, line) = line.expect("a line");
            assert!(line.contains(said), "{line}");
            assert_eq!(line.contains("frames"), has_ranges, "{line}");
        }
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        for path in [
            "out.part",
            "a b/it's.part",
            "$HOME \"x\".part",
            "-rf.part",
            "ü.part",
            "a\nb",
        ] {
            let script = format!("printf %s {}", shell_word(Path::new(path)));
            let printed = Command::new("sh").args(["-c", &script]).output();
            let printed = String::from_utf8(printed.expect("a shell is there").stdout);
            let printed = printed.expect("text");
            assert_eq!(printed.strip_prefix("./").unwrap_or(&printed), path);
        }
    }
}
