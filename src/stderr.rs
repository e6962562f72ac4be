//! Messages on standard error, next to the log. A message that cannot be written is dropped.

use std::{
    fmt::Display,
    io::{self, Write},
    path::Path,
};

/// Writes to standard error why the command failed.
pub(crate) fn fail(error: impl Display) {
    write(format_args!("error: {error}\n"));
}

/// Writes a line about a command that continues to standard error.
pub(crate) fn warn(message: impl Display) {
    write(format_args!("refrain: {message}\n"));
}

/// Writes an error of usage to standard error, and which command's help says more.
pub(crate) fn usage(error: impl Display, command: &str) {
    write(format_args!("error: {error}\nsee '{command} --help'\n"));
}

/// Asks for something, without a line's end.
pub(crate) fn ask(question: impl Display) {
    write(format_args!("{question}"));
}

/// What the error says first of a file that cannot be opened; the reason follows.
pub(crate) fn cannot_open(path: &Path) -> String {
    format!("cannot open \"{}\"", path.display())
}

/// The text without the numbers of the system's errors, such as `(os error 2)`.
pub(crate) fn without_numbers(mut text: String) -> String {
    const BEGIN: &str = " (os error ";
    while let Some(start) = text.find(BEGIN)
        && let Some(length) = text[start..].find(')')
    {
        text.replace_range(start..=start + length, "");
    }
    text
}

/// All at once, so that lines of several threads stay whole. A user's text may have control characters, which would
/// change a terminal.
fn write(text: impl Display) {
    let mut written = String::new();
    for char in without_numbers(text.to_string()).chars() {
        match char.is_control() && char != '\n' {
            true => written.extend(char.escape_default()),
            false => written.push(char),
        }
    }
    let _ = io::stderr().write_all(written.as_bytes());
}
