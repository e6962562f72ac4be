//! The head of an origin's answer, made to say what holds on the client's side: that its
//! connection ends with this answer, or that it is a tunnel from here on.
//!
//! An origin may keep its own connection open, whatever it was told. A client that took that
//! for the proxy's would send its next request, for another origin, to this one.

use httparse::{EMPTY_HEADER, Header, ParserConfig, Response};

use super::{HEAD_BYTES_MAX, fields, request::WEBSOCKET, response};

/// What comes from an origin, on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    may_switch: bool,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// What came of a head, at most [`HEAD_BYTES_MAX`] bytes.
    Head(Vec<u8>),
    /// The head is passed, the rest passes as it is.
    Passing,
    /// What came was no answer; the client has got one of ours.
    Replaced,
}

/// A head as the client is to see it.
struct Rewritten {
    head: Vec<u8>,
    /// Whether another head follows (RFC 9110, section 15.2).
    is_interim: bool,
}

/// What came is not an answer that has one reading.
struct Malformed;

impl Answer {
    /// Awaits the answer to a request, which `may_switch` to WebSocket.
    pub fn new(may_switch: bool) -> Answer {
        Answer {
            may_switch,
            state: State::Head(Vec::new()),
        }
    }

    /// What needs no head: a tunnel's bytes.
    pub const TUNNELLED: Answer = Answer {
        may_switch: false,
        state: State::Passing,
    };

    /// Whether all that still comes passes as it is.
    pub fn passes_all(&self) -> bool {
        self.state == State::Passing
    }

    /// Takes the next bytes of the origin, and leaves those that the client is to get now.
    pub fn pass(&mut self, bytes: &mut Vec<u8>) {
        match &mut self.state {
            State::Passing => {}
            State::Replaced => bytes.clear(),
            State::Head(held) => {
                let searched = held.len();
                held.append(bytes);
                self.rewrite_heads(searched, bytes);
            }
        }
    }

    /// The origin has ended: what the client is to get for a head that never came whole.
    pub fn finish(&mut self) -> Vec<u8> {
        match self.state {
            State::Head(_) => self.replace("the origin closed the connection before it answered"),
            State::Passing | State::Replaced => Vec::new(),
        }
    }

    /// Moves what is complete from the held bytes to `out`; the first `searched` of them
    /// contain no head's end.
    fn rewrite_heads(&mut self, mut searched: usize, out: &mut Vec<u8>) {
        let State::Head(held) = &mut self.state else {
            return;
        };
        loop {
            match end_of_head(held, searched) {
                Some(end) if end <= HEAD_BYTES_MAX => {
                    match rewrite(&held[..end], self.may_switch) {
                        Ok(rewritten) => {
                            out.extend(rewritten.head);
                            held.drain(..end);
                            searched = 0;
                            if !rewritten.is_interim {
                                out.append(held);
                                self.state = State::Passing;
                                return;
                            }
                        }
                        Err(Malformed) => {
                            out.extend(
                                self.replace("what the origin answered is not well-formed HTTP/1"),
                            );
                            return;
                        }
                    }
                }
                None if held.len() < HEAD_BYTES_MAX => return,
                Some(_) | None => {
                    out.extend(self.replace("the head of the origin's answer is too large"));
                    return;
                }
            }
        }
    }

    fn replace(&mut self, reason: &str) -> Vec<u8> {
        self.state = State::Replaced;
        response("502 Bad Gateway", reason)
    }
}

/// Where the first head ends: behind an empty line, of CRLF or of LF alone, as sloppy origins
/// write it.
fn end_of_head(held: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(2);
    (from..held.len()).find_map(|at| match &held[at..] {
        [b'\n', b'\n', ..] => Some(at + 2),
        [b'\n', b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

fn rewrite(head: &[u8], may_switch: bool) -> Result<Rewritten, Malformed> {
    let mut parsed_fields = [EMPTY_HEADER; fields::FIELDS_MAX];
    let mut answer = Response::new(&mut parsed_fields);
    // RFC 9112, sections 5.1 and 5.2: both are for a proxy to mend.
    let mut lenient = ParserConfig::default();
    lenient
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true);
    let parsed = lenient.parse_response(&mut answer, head);
    match parsed {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        _ => return Err(Malformed),
    }
    let (Some(code), Some(minor)) = (answer.code, answer.version) else {
        return Err(Malformed);
    };
    let unfolded: Vec<Vec<u8>> = answer
        .headers
        .iter()
        .map(|field| unfold(field.value))
        .collect();
    let mut received: Vec<Header> = answer
        .headers
        .iter()
        .zip(&unfolded)
        .map(|(field, value)| Header {
            name: field.name,
            value,
        })
        .collect();
    settle_length(&mut received)?;
    let switches = code == SWITCHING_PROTOCOLS;
    if switches && !(may_switch && fields::lists(&received, "Upgrade", WEBSOCKET)) {
        return Err(Malformed);
    }

    let reason = answer.reason.unwrap_or_default();
    let mut head = format!("HTTP/1.1 {code:03} {reason}\r\n").into_bytes();
    fields::push_end_to_end(&mut head, &received, minor);
    let is_interim = (100..200).contains(&code) && !switches;
    if switches {
        fields::push(&mut head, "Connection", b"Upgrade");
        fields::push(&mut head, "Upgrade", WEBSOCKET.as_bytes());
    } else if !is_interim {
        fields::push(&mut head, "Connection", b"close");
    }
    head.extend(b"\r\n");
    Ok(Rewritten { head, is_interim })
}

const SWITCHING_PROTOCOLS: u16 = 101;

/// The value of a field that may go over several lines, on one.
fn unfold(value: &[u8]) -> Vec<u8> {
    let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let unfolded = value
        .iter()
        .map(|byte| if is_line_end(byte) { b' ' } else { *byte });
    unfolded.collect()
}

/// RFC 9112, section 6.3: a length beside chunks does not count, two different ones are none.
fn settle_length(received: &mut Vec<Header>) -> Result<(), Malformed> {
    if fields::values(received, "Transfer-Encoding")
        .next()
        .is_some()
    {
        received.retain(|field| !field.name.eq_ignore_ascii_case("Content-Length"));
    }
    let mut lengths = fields::values(received, "Content-Length");
    let Some(first) = lengths.next() else {
        return Ok(());
    };
    let is_length = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    match is_length && lengths.all(|length| length == first) {
        true => Ok(()),
        false => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the client gets of `text`, which comes at once and ends.
    fn passed(answer: &mut Answer, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        answer.pass(&mut bytes);
        bytes.extend(answer.finish());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_client_is_told_that_its_connection_ends() {
        let text = "HTTP/1.1 200 OK\r\n\
             Connection: keep-alive, X-Hop\r\n\
             Keep-Alive: timeout=5\r\n\
             X-Hop: 1\r\n\
             Content-Length: 4\r\n\r\nbody";
        let expected = "HTTP/1.1 200 OK\r\n\
             Content-Length: 4\r\n\
             Via: 1.1 refrain\r\n\
             Connection: close\r\n\r\nbody";
        assert_eq!(passed(&mut Answer::new(false), text), expected);
    }

    #[test]
    fn interim_answers_come_before_the_answer() {
        let text = "HTTP/1.1 100 Continue\r\n\r\n\
             HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
             HTTP/1.1 204 No Content\r\n\r\n";
        let expected = "HTTP/1.1 100 Continue\r\nVia: 1.1 refrain\r\n\r\n\
             HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nVia: 1.1 refrain\r\n\r\n\
             HTTP/1.1 204 No Content\r\nVia: 1.1 refrain\r\nConnection: close\r\n\r\n";
        assert_eq!(passed(&mut Answer::new(false), text), expected);
    }

    #[test]
    fn a_switch_that_was_asked_for_makes_a_tunnel() {
        let text = "HTTP/1.1 101 Switching Protocols\r\n\
             Upgrade: WebSocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: x\r\n\r\n\x01\x02";
        let mut answer = Answer::new(true);
        let expected = "HTTP/1.1 101 Switching Protocols\r\n\
             Sec-WebSocket-Accept: x\r\nVia: 1.1 refrain\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x01\x02";
        assert_eq!(passed(&mut answer, text), expected);
        assert!(answer.passes_all());
        let unasked = passed(&mut Answer::new(false), text);
        assert!(unasked.starts_with("HTTP/1.1 502 "), "{unasked}");
        let other = passed(
            &mut Answer::new(true),
            &text.replace("WebSocket\r", "h2c\r"),
        );
        assert!(other.starts_with("HTTP/1.1 502 "), "{other}");
    }

    #[test]
    fn an_upgrade_that_is_refused_ends_the_connection_too() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert!(passed(&mut Answer::new(true), text).contains("\r\nConnection: close\r\n"));
    }

    #[test]
    fn sloppy_heads_are_mended() {
        let text = "HTTP/1.0 200\nContent-Length : 4\nX: 1\n  2\n\nbody";
        let expected = "HTTP/1.1 200 \r\n\
             Content-Length: 4\r\nX: 1   2\r\n\
             Via: 1.0 refrain\r\nConnection: close\r\n\r\nbody";
        assert_eq!(passed(&mut Answer::new(false), text), expected);
    }

    #[test]
    fn a_length_beside_chunks_does_not_count() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
        let head = passed(&mut Answer::new(false), text);
        assert!(head.contains("Transfer-Encoding: chunked") && !head.contains("Content-Length"));
    }

    #[test]
    fn what_is_no_answer_becomes_one_of_ours() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n",
            "SSH-2.0-other\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nX\r\n\r\nbody",
        ] {
            let mut answer = Answer::new(false);
            let passed = passed(&mut answer, text);
            assert!(passed.starts_with("HTTP/1.1 502 "), "{text:?}: {passed}");
            let mut later = b"more".to_vec();
            answer.pass(&mut later);
            assert_eq!(later, b"");
        }
    }

    #[test]
    fn a_head_without_end_is_not_waited_for() {
        let mut answer = Answer::new(false);
        let mut bytes = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
        bytes.resize(HEAD_BYTES_MAX - 1, b'a');
        answer.pass(&mut bytes);
        assert_eq!(bytes, b"");
        let mut bytes = b"a".to_vec();
        answer.pass(&mut bytes);
        assert!(bytes.starts_with(b"HTTP/1.1 502 "));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(cut in 0.0..1.0) {
            let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: 1\n\n\r\n\r\nbody\n\n";
            let at = (text.len() as f64 * cut) as usize;
            let mut answer = Answer::new(false);
            let (mut first, mut second) = (text[..at].into(), text[at..].into());
            answer.pass(&mut first);
            answer.pass(&mut second);
            let pieces = String::from_utf8([first, second].concat()).unwrap();
            prop_assert_eq!(pieces, passed(&mut Answer::new(false), text));
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut answer = Answer::new(true);
            answer.pass(&mut [b"HTTP/1.1 200 ", &bytes[..]].concat());
            answer.finish();
            let mut answer = Answer::new(true);
            answer.pass(&mut bytes.clone());
            answer.finish();
        }
    }
}
