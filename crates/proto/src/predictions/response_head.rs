//! Where the head of an HTTP/1 response ends.
//!
//! The head says when it was made, so that it is never twice the same, and what follows it often
//! is. So a chunk ends there, and a sender looks there for the one behind it. Without that a short
//! response would be new as a whole each time.

use crate::limits::HTTP_HEAD_BYTES_MAX;

/// What a response begins with.
const BEGINNING: &[u8] = b"HTTP/1.";

/// Behind the last line and the empty one.
const END: &[u8] = b"\r\n\r\n";

/// Looks for the end of the head with which a stream may begin. Pieces of any size enter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadEnd {
    seen: usize,
    /// Bytes of [`END`] that were seen last.
    matched: usize,
    is_over: bool,
}

impl HeadEnd {
    /// Where in the stream's next `bytes` its head ends, if it does.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.is_over {
            return None;
        }
        for (index, &byte) in bytes.iter().enumerate() {
            let may_be = BEGINNING.get(self.seen).is_none_or(|&it| it == byte);
            self.matched = match byte {
                _ if byte == END[self.matched] => self.matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            self.seen += 1;
            let is_end = self.matched == END.len();
            self.is_over = !may_be || is_end || self.seen == HTTP_HEAD_BYTES_MAX;
            if self.is_over {
                return is_end.then_some(index + 1);
            }
        }
        None
    }

    /// The stream goes on with bytes that are not looked at: if they are of its head, its end is
    /// not found.
    pub(crate) fn pass(&mut self) {
        self.is_over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nDate: Sun, 22 Nov 2026 23:40:00 GMT\r\nAge: 7\r\n\r\n";

    #[test]
    fn a_head_ends_with_its_empty_line() {
        let response = [HEAD, b"<html>\r\n\r\n"].concat();
        let mut head = HeadEnd::default();
        assert_eq!(head.find(&response), Some(HEAD.len()));
        assert_eq!(head.find(&response), None, "once");
        for none in [
            &b"HTTP/2 200\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\n\r\n",
            b"\r\n\r\n",
            b"",
        ] {
            assert_eq!(HeadEnd::default().find(none), None);
        }
        let mut passed = HeadEnd::default();
        assert_eq!(passed.find(&HEAD[..20]), None);
        passed.pass();
        assert_eq!(passed.find(&HEAD[20..]), None);
    }

    #[test]
    fn longer_ones_are_given_up() {
        let line = [&HEAD[..HEAD.len() - 2], &b"x: y\r\n".repeat(3000)].concat();
        assert_eq!(HeadEnd::default().find(&[&line, END].concat()), None);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            fields in "[a-z:\r\n ]{0,200}",
            body in prop::collection::vec(any::<u8>(), 0..100),
            cuts in prop::collection::vec(0..300_usize, 0..6),
        ) {
            let response = [b"HTTP/1.0 ", fields.as_bytes(), END, &body[..]].concat();
            let whole = HeadEnd::default().find(&response);
            let known = response.windows(END.len()).position(|bytes| bytes == END);
            prop_assert_eq!(whole, known.map(|at| at + END.len()));
            let mut cuts = cuts;
            cuts.retain(|&cut| cut < response.len());
            cuts.sort_unstable();
            let (mut head, mut from, mut found) = (HeadEnd::default(), 0, None);
            for to in cuts.into_iter().chain([response.len()]) {
                if let Some(at) = head.find(&response[from..to]) {
                    prop_assert_eq!(found.replace(from + at), None);
                }
                from = to;
            }
            prop_assert_eq!(found, whole);
        }
    }
}
