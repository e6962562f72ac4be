//! The log, on standard error: how much of it, and in which form.

use std::{
    fmt,
    fs::File,
    io::{self, IsTerminal},
    os::{fd::AsFd, unix::fs::MetadataExt},
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        FmtContext, FormatEvent, FormatFields, format,
        format::{Format, Full, Writer},
    },
    registry::LookupSpan,
};

use crate::{progress, stderr::without_numbers};

/// Lines of the log that wait for standard error's reader: a few MB.
const LINES_WAITING_MAX: usize = 16_384;

/// The levels, as gateways' options name them.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// A parser of levels.
pub(crate) fn levels() -> impl TypedValueParser<Value = LevelFilter> {
    PossibleValuesParser::new(LEVELS).try_map(|level| level.parse::<LevelFilter>())
}

/// The log options of servers without a configuration.
#[derive(clap::Args)]
pub(crate) struct LogArguments {
    /// Log to stderr at this level
    #[arg(
        long = "log",
        value_name = "LEVEL",
        env = "REFRAIN_LOG",
        default_value = "info",
        value_parser = levels()
    )]
    level: LevelFilter,
    #[command(flatten)]
    form: LogForm,
}

impl LogArguments {
    /// Logs from now on, as [`LogForm::begin`] does.
    pub(crate) fn begin(&self) -> WorkerGuard {
        self.form.begin(self.level)
    }
}

/// The form of the log, which all take that log.
#[derive(clap::Args)]
pub(crate) struct LogForm {
    /// Write the log as JSON
    ///
    /// One object per line.
    #[arg(long)]
    json_log: bool,
    /// Log more, as with --log debug
    #[arg(short, long)]
    verbose: bool,
}

impl LogForm {
    /// Logs to standard error from now on, which standard output and its JSON stay clear of. No line
    /// waits for a reader that is stuck: what does not fit is lost. The guard's end writes what is left.
    pub(crate) fn begin(&self, level: LevelFilter) -> WorkerGuard {
        self.begin_with(filter(level))
    }

    /// The same, for the lines that `filter` lets through, unless -v or -q is given.
    pub(crate) fn begin_with(&self, chosen: EnvFilter) -> WorkerGuard {
        let chosen = match (self.verbose, progress::is_quiet()) {
            (true, _) => filter(LevelFilter::DEBUG),
            (false, true) => filter(LevelFilter::WARN),
            (false, false) => chosen,
        };
        let (writer, guard) = in_the_background();
        let log = tracing_subscriber::fmt()
            .with_env_filter(chosen)
            .with_writer(move || WithoutNumbers(writer.clone()));
        match self.json_log {
            true => log.json().flatten_event(true).init(),
            false if is_journal() => {
                let format = ForJournal(format().without_time().with_target(false));
                log.with_ansi(false).event_format(format).init();
            }
            false => {
                let is_terminal = io::stderr().is_terminal();
                log.with_ansi(is_terminal).with_target(false).init();
            }
        }
        guard
    }
}

/// Lines without the numbers of the system's errors, as all messages are.
struct WithoutNumbers(NonBlocking);

impl io::Write for WithoutNumbers {
    /// Takes one line at a time, whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match str::from_utf8(line) {
            Ok(text) => self
                .0
                .write_all(without_numbers(text.to_owned()).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Lines for systemd's journal, which adds the time. It takes the level from the number in front (sd-daemon(3)).
struct ForJournal(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        write!(writer, "<{priority}>")?;
        self.0.format_event(context, writer, event)
    }
}

/// Whether standard error is systemd's journal: `JOURNAL_STREAM` has its device and inode (systemd.exec(5)).
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let own = stderr.and_then(|stderr| stderr.metadata());
    let own = own.map(|own| format!("{}:{}", own.dev(), own.ino())).ok();
    stream.is_some() && stream == own
}

/// What is at most as detailed as `level`. `fuser` warns that it could not unmount what somebody else did
/// unmount, which nobody asks about.
fn filter(level: LevelFilter) -> EnvFilter {
    match level > LevelFilter::WARN {
        true => EnvFilter::new(level.to_string()),
        false => EnvFilter::new(format!("{level},fuser::session=error")),
    }
}

fn in_the_background() -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_WAITING_MAX)
        .finish(io::stderr())
}
