//! Tells of requests that failed and are made again: whoever waits learns what for, on a terminal or
//! not. And how long they wait.

use indicatif::ProgressBar;
use refrain_czip::remote::{OnRetry, RemoteOptions, Retry};
use refrain_gateway::units::TimeSpan;

use crate::{table::printable, told};

/// A line on standard error for each, above `bar`.
pub fn told_above(bar: &ProgressBar) -> OnRetry {
    let bar = bar.clone();
    OnRetry::new(move |retry| bar.suspend(|| tell(retry)))
}

/// The same where no bar is known.
pub fn told() -> OnRetry {
    OnRetry::new(tell)
}

/// Has requests wait so long for a server, and no longer for a connection to it.
pub fn wait(options: &mut RemoteOptions, TimeSpan(timeout): TimeSpan) {
    options.progress_timeout = timeout;
    options.connect_timeout = timeout.min(options.connect_timeout);
}

fn tell(retry: Retry<'_>) {
    let Retry {
        error,
        attempt,
        attempts_max,
        pause,
    } = retry;
    told::tell(format_args!(
        "{}; attempt {attempt} of {attempts_max} in {:.1} s",
        printable(error),
        pause.as_secs_f64()
    ));
}
