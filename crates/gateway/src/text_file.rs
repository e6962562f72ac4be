//! Text files that people write.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The byte order mark that some editors put in front of UTF-8. It says nothing, and is part of no key.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Opens a file that a user named.
///
/// # Errors
/// If it is not there, is a directory, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path).map_err(|error| match error.kind() {
        kind @ io::ErrorKind::NotFound => io::Error::new(kind, no_such_file(path, None)),
        _ => error,
    })?;
    match file.metadata()?.is_dir() {
        true => Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a directory, not a file",
        )),
        false => Ok(file),
    }
}

/// Why there is no file at `path`, and the next step: `advice`, if there is any. A relative path may be right, and the
/// directory wrong.
pub(crate) fn no_such_file(path: &Path, advice: Option<&str>) -> String {
    match (env::current_dir(), advice) {
        (Ok(directory), advice) if path.is_relative() => format!(
            "no such file in \"{}\" (relative paths start in the current directory: give the full path{})",
            directory.display(),
            advice.map_or_else(String::new, |advice| format!(", or {advice}"))
        ),
        (_, Some(advice)) => format!("no such file ({advice})"),
        (_, None) => "no such file".to_owned(),
    }
}

/// What an error of [`open`] or [`read`] says first of the file; the reason follows.
pub fn failure(path: &Path, error: &io::Error) -> String {
    // What has invalid content was opened.
    let failed = match error.kind() {
        io::ErrorKind::InvalidData => "read",
        _ => "open",
    };
    format!("cannot {failed} \"{}\"", path.display())
}

/// Reads a file of no more than `bytes_max`, without its byte order mark.
///
/// # Errors
/// If it cannot be read, is longer (the reason is `too_large`), or is not UTF-8.
pub fn read(file: impl Read, bytes_max: u64, too_large: &str) -> io::Result<String> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(invalid(too_large));
    }
    remove_byte_order_mark(&mut bytes);
    String::from_utf8(bytes).map_err(|_| invalid("not a text file (UTF-8)"))
}

/// Removes the byte order mark from the front of a file's content, if there is one.
pub fn remove_byte_order_mark(content: &mut Vec<u8>) {
    if content.starts_with(BYTE_ORDER_MARK) {
        content.drain(..BYTE_ORDER_MARK.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_one_mark_at_the_front_only() {
        for (content, expected) in [
            ("\u{feff}key", "key"),
            ("\u{feff}", ""),
            ("\u{feff}\u{feff}key", "\u{feff}key"),
            ("key\u{feff}", "key\u{feff}"),
            ("", ""),
        ] {
            let mut content = content.as_bytes().to_vec();
            remove_byte_order_mark(&mut content);
            assert_eq!(content, expected.as_bytes());
        }
        let mut cut_short = BYTE_ORDER_MARK[..2].to_vec();
        remove_byte_order_mark(&mut cut_short);
        assert_eq!(cut_short, &BYTE_ORDER_MARK[..2]);
    }
}
