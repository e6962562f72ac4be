//! Text files that people write.

use std::io::{self, Read};

/// The byte order mark that some editors put in front of UTF-8. It says nothing, and is part of no key.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

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
