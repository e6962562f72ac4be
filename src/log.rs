//! The log, on standard error: how much of it, and in which form.

use std::io::{self, IsTerminal};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

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
}

impl LogForm {
    /// Logs to standard error from now on, which standard output and its JSON stay clear of. No line
    /// waits for a reader that is stuck: what does not fit is lost. The guard's end writes what is left.
    pub(crate) fn begin(&self, level: LevelFilter) -> WorkerGuard {
        self.begin_with(filter(level))
    }

    /// The same, for the lines that `filter` lets through.
    pub(crate) fn begin_with(&self, filter: EnvFilter) -> WorkerGuard {
        let (writer, guard) = in_the_background();
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(writer);
        match self.json_log {
            true => log.json().flatten_event(true).init(),
            false => log.with_ansi(io::stderr().is_terminal()).init(),
        }
        guard
    }
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
