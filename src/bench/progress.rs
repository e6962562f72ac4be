//! How far `bench` is, on one line of a terminal: nothing elsewhere.

use std::fmt;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// A line that says `message`, with nothing counted yet.
pub fn line(message: &'static str) -> ProgressBar {
    let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        .with_style(style("{wide_msg}"))
        .with_message(message);
    line.tick();
    line
}

/// Counts `rows` on the line from now on.
pub fn count(line: &ProgressBar, rows: usize) {
    line.set_style(style("{bar:12} {pos} of {len}{left}: {wide_msg}").with_key("left", left));
    line.set_length(rows as u64);
    line.reset_elapsed();
}

/// What the other rows will take if they are like those so far.
fn left(state: &ProgressState, out: &mut dyn fmt::Write) {
    let (done, all) = (state.pos(), state.len().unwrap_or(0));
    if done > 0 {
        let left = state.elapsed().mul_f64((all - done) as f64 / done as f64);
        write!(out, ", {:#} left", HumanDuration(left)).expect("memory");
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a valid template")
}
