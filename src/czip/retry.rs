//! Tells of requests that failed and are made again: whoever waits learns what for, on a terminal or not.

use indicatif::ProgressBar;
use refrain_http_ranges::{OnRetry, Retry};

use crate::{stderr, table::printable};

/// A line on standard error for each, above `bar`.
pub(super) fn told_above(bar: &ProgressBar) -> OnRetry {
    let bar = bar.clone();
    OnRetry::new(move |retry| bar.suspend(|| warn(retry)))
}

/// The same where no bar is known.
pub(super) fn to_stderr() -> OnRetry {
    OnRetry::new(warn)
}

fn warn(retry: Retry<'_>) {
    let Retry {
        error,
        attempt,
        attempts_max,
        pause,
    } = retry;
    stderr::warn(format_args!(
        "{}; attempt {attempt} of {attempts_max} in {:.1} s",
        printable(error),
        pause.as_secs_f64()
    ));
}
