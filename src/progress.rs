//! How far something is, on standard error: on a terminal, and nothing elsewhere.

use std::{
    fmt::Write,
    io::IsTerminal,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::table::bytes;

/// What is said of bytes: how many, how fast, and how long the rest takes; in the units of the reports.
pub(crate) const OF_BYTES: &str = "{bar:20} {decimal_bytes} of {decimal_total_bytes}, \
                            {decimal_bytes_per_sec}{time_left}  {wide_msg}";

/// What is said of bytes where nobody knows how many there will be.
pub(crate) const SOME_BYTES: &str =
    "{spinner} {decimal_bytes}, {decimal_bytes_per_sec}  {wide_msg}";

/// What is said of bytes that are only looked at: how fast that is tells nothing of the rest.
pub(crate) const LOCAL_BYTES: &str = "{spinner} {decimal_bytes}  {wide_msg}";

/// Whether the user wants none.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// From now on, nothing is shown.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// A progress bar on a terminal, nothing elsewhere.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let target = match std::io::stderr().is_terminal() && !is_quiet() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    ProgressBar::with_draw_target(None, target).with_style(style(template))
}

/// A bar of bytes, of which there are `total` if that is known.
pub(crate) fn of_bytes(total: Option<u64>) -> ProgressBar {
    match total {
        None => bar(SOME_BYTES),
        Some(bytes) => {
            let bar = bar(OF_BYTES);
            bar.set_length(bytes);
            bar
        }
    }
}

/// How a bar is to look. Bytes have the digits that they have in reports. A time left below a second may also be one
/// that is not known yet.
pub(crate) fn style(template: &str) -> ProgressStyle {
    // What cannot be shown of a bar is left out.
    ProgressStyle::with_template(template)
        .expect("a valid template")
        .with_key(
            "decimal_bytes",
            |state: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{}", bytes(state.pos()));
            },
        )
        .with_key(
            "decimal_total_bytes",
            |state: &ProgressState, out: &mut dyn Write| {
                let total = state.len().unwrap_or(state.pos());
                let _ = write!(out, "{}", bytes(total));
            },
        )
        .with_key(
            "decimal_bytes_per_sec",
            |state: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{}/s", bytes(state.per_sec() as u64));
            },
        )
        .with_key("time_left", |state: &ProgressState, out: &mut dyn Write| {
            let left = state.eta();
            if left >= Duration::from_secs(1) {
                let _ = write!(out, ", {:#} left", HumanDuration(left));
            }
        })
}
