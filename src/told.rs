//! What people are told on standard error, beside the log. Nothing depends on whether anybody can hear it:
//! a warning that cannot be written ends nothing.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Writes a line to standard error.
pub(crate) fn tell(message: impl Display) {
    write(format_args!("refrain: {message}\n"));
}

/// Asks for something, without a line's end.
pub(crate) fn ask(question: impl Display) {
    write(format_args!("{question}"));
}

/// All at once, so that lines of several threads stay whole.
fn write(text: impl Display) {
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}
