//! Text files that people write.

/// The byte order mark that some editors put in front of UTF-8. It says nothing, and is part of no key.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

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
