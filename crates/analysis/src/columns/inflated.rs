//! An upper bound for compressed content: the engine over the inflated bytes of gzip, zlib and zip.
//!
//! Bodies of HTTP/1.1 are followed through their heads and chunks. Content of other protocols counts if it is all that a
//! connection sends in a direction, as FTP does. The bytes that a receiver would need to restore the compressed form exactly
//! are not counted, so no real way reaches this.

mod content;

use std::collections::HashMap;

use refrain_capture::{Direction, FlowNumber};
use refrain_proto::effort::EffortMode;

use super::{Column, Outcome, engine::Engine};
use crate::{
    blocks::{BLOCK_BYTES_MAX, Step},
    protocol::Protocol,
};
use content::Content;

/// Longer heads of messages are not believed.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// See the module.
pub(super) struct Inflated {
    engine: Engine,
    streams: HashMap<(FlowNumber, Direction), Stream>,
    out: Vec<u8>,
}

/// A direction of a connection.
pub struct Stream {
    part: Part,
    content: Content,
}

enum Part {
    /// The head of a message.
    Head(Vec<u8>),
    /// Bytes of a body, of which so many are left.
    Body(u64),
    /// A line with the size of a chunk, or one that ends a chunk.
    ChunkLine(Vec<u8>),
    /// Bytes of a chunk.
    Chunk(u64),
    /// Content up to the end of the connection.
    Rest,
}

impl Inflated {
    pub(super) fn new() -> Self {
        Self {
            engine: Engine::new(EffortMode::Auto),
            streams: HashMap::new(),
            out: Vec::new(),
        }
    }
}

impl Column for Inflated {
    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Block { .. } => {}
            Step::Bytes {
                flow,
                direction,
                at,
                bytes,
            } => {
                let stream = self
                    .streams
                    .entry((flow.number, direction))
                    .or_insert_with(|| Stream::new(flow.protocol == Protocol::Http));
                let (engine, out) = (&mut self.engine, &mut self.out);
                let mut flush = |out: &mut Vec<u8>| {
                    engine.step(Step::Bytes {
                        flow,
                        direction,
                        at,
                        bytes: out,
                    });
                    out.clear();
                };
                stream.take(bytes, &mut |bytes| {
                    out.extend_from_slice(bytes);
                    if out.len() >= BLOCK_BYTES_MAX {
                        flush(out);
                    }
                });
                flush(out);
            }
            Step::Closed(flow, _) => {
                self.streams.remove(&(flow.number, Direction::Up));
                self.streams.remove(&(flow.number, Direction::Down));
                self.engine.step(step);
            }
        }
    }

    fn finish(self: Box<Self>) -> Outcome {
        Box::new(self.engine).finish()
    }
}

impl Stream {
    /// Nothing came so far. `is_http` tells whether heads of HTTP/1.1 precede its content.
    #[must_use]
    pub fn new(is_http: bool) -> Self {
        Self {
            part: match is_http {
                true => Part::Head(Vec::new()),
                false => Part::Rest,
            },
            content: Content::default(),
        }
    }

    /// Gives the bytes to `give`, inflated where they can be.
    pub fn take(&mut self, mut bytes: &[u8], give: &mut dyn FnMut(&[u8])) {
        while !bytes.is_empty() {
            bytes = match &mut self.part {
                Part::Rest => {
                    self.content.take(bytes, give);
                    &[]
                }
                Part::Body(left) | Part::Chunk(left) => {
                    let (own, rest) = bytes.split_at(
                        bytes
                            .len()
                            .min(usize::try_from(*left).unwrap_or(usize::MAX)),
                    );
                    *left -= own.len() as u64;
                    self.content.take(own, give);
                    if *left == 0 {
                        self.part = match self.part {
                            Part::Chunk(_) => Part::ChunkLine(Vec::new()),
                            _ => {
                                self.content.end(give);
                                Part::Head(Vec::new())
                            }
                        };
                    }
                    rest
                }
                Part::Head(head) => {
                    let before = head.len();
                    head.extend_from_slice(bytes);
                    let Some(end) = find(head, before, b"\r\n\r\n") else {
                        if head.len() > HEAD_BYTES_MAX {
                            self.part = Part::Rest;
                            self.content = Content::plain();
                        }
                        give(bytes);
                        return;
                    };
                    let (own, rest) = bytes.split_at(end - before);
                    give(own);
                    head.truncate(end);
                    let part = after_head(head);
                    self.content = Content::default();
                    self.part = part;
                    rest
                }
                Part::ChunkLine(line) => {
                    let before = line.len();
                    line.extend_from_slice(bytes);
                    // The line end of the chunk before comes first.
                    let from = if line.starts_with(b"\r\n") { 2 } else { 0 };
                    let Some(end) = find(&line[from..], before.saturating_sub(from), b"\r\n")
                    else {
                        if line.len() > HEAD_BYTES_MAX {
                            self.part = Part::Rest;
                            self.content = Content::plain();
                        }
                        give(bytes);
                        return;
                    };
                    let (own, rest) = bytes.split_at((from + end).saturating_sub(before));
                    give(own);
                    let size = line[from..from + end]
                        .split(|byte| b"; \r".contains(byte))
                        .next();
                    let size = size.and_then(|size| std::str::from_utf8(size).ok());
                    self.part = match size.and_then(|size| u64::from_str_radix(size, 16).ok()) {
                        // Fields and an empty line follow, as in a head.
                        Some(0) => {
                            self.content.end(give);
                            Part::Head(b"\r\n".to_vec())
                        }
                        Some(size) => Part::Chunk(size),
                        None => {
                            self.content = Content::plain();
                            Part::Rest
                        }
                    };
                    rest
                }
            };
        }
    }
}

/// The place after the first `end`. The first `seen` bytes have none.
fn find(bytes: &[u8], seen: usize, end: &[u8]) -> Option<usize> {
    let from = (seen + 1).saturating_sub(end.len());
    let mut windows = bytes[from.min(bytes.len())..].windows(end.len());
    let at = windows.position(|window| window == end)?;
    Some(from + at + end.len())
}

/// The part after the head of a message.
fn after_head(head: &[u8]) -> Part {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let (mut length, mut is_chunked) = (None, false);
    for line in lines {
        match line.split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse().ok(),
            Some(("transfer-encoding", value)) => is_chunked |= value.contains("chunked"),
            _ => {}
        }
    }
    let is_answer = first.starts_with("http/");
    let code = first.split(' ').nth(1).unwrap_or_default();
    let is_empty = is_answer && (code.starts_with('1') || ["204", "304"].contains(&code));
    match (is_chunked, length) {
        _ if is_empty => Part::Head(Vec::new()),
        (true, _) => Part::ChunkLine(Vec::new()),
        (false, Some(1..)) => Part::Body(length.unwrap_or_default()),
        (false, None) if is_answer => Part::Rest,
        _ => Part::Head(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).expect("memory");
        encoder.finish().expect("memory")
    }

    fn inflated(parts: &[&[u8]]) -> Vec<u8> {
        let mut stream = Stream::new(true);
        let mut out = Vec::new();
        for part in parts {
            stream.take(part, &mut |bytes| out.extend_from_slice(bytes));
        }
        out
    }

    fn answer(fields: &str, body: &[u8]) -> Vec<u8> {
        [
            format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").as_bytes(),
            body,
        ]
        .concat()
    }

    #[test]
    fn bodies_of_http_are_inflated() {
        let text = b"to be or not to be ".repeat(100);
        let body = gzip(&text);
        let fields = format!("Content-Length: {}\r\nContent-Encoding: gzip", body.len());
        let one = answer(&fields, &body);
        let expected = answer(&fields, &text);
        // Two, and one without a body between them.
        let empty = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 12\r\n\r\n".to_vec();
        let all = [&one[..], &empty, &one].concat();
        assert_eq!(
            inflated(&[&all]),
            [&expected[..], &empty, &expected].concat()
        );
    }

    #[test]
    fn chunks_are_followed() {
        let text = b"the quick brown fox ".repeat(50);
        let body = gzip(&text);
        let (first, second) = body.split_at(10);
        let chunk =
            |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let body = [chunk(first), chunk(second), b"0\r\n\r\n".to_vec()].concat();
        let fields = "Transfer-Encoding: chunked";
        let one = answer(fields, &body);
        let out = inflated(&[&[&one[..], &one].concat()]);
        let times = out
            .windows(text.len())
            .filter(|window| *window == text)
            .count();
        assert_eq!(times, 2, "{}", String::from_utf8_lossy(&out));
    }

    #[test]
    fn a_bomb_stays_compressed() {
        let bomb = gzip(&vec![0; 30 << 20]);
        let fields = format!("Content-Length: {}", bomb.len());
        let out = inflated(&[&answer(&fields, &bomb)]);
        assert!(out.len() < 15 << 20, "{}", out.len());
    }

    proptest! {
        #[test]
        fn plain_bytes_pass_in_any_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 0..400_usize) {
            let all = answer(&format!("Content-Length: {}", bytes.len()), &bytes);
            let all = [&all[..], &all].concat();
            let (one, other) = all.split_at(cut.min(all.len()));
            // Random bytes hardly begin as a compressed file does.
            prop_assume!(!bytes.starts_with(&[0x1f, 0x8b]) && !bytes.starts_with(b"PK") && !bytes.starts_with(&[0x78]));
            prop_assert_eq!(inflated(&[one, other]), all);
        }

        #[test]
        fn nothing_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            inflated(&[&bytes]);
            inflated(&[&answer("Transfer-Encoding: chunked", &bytes)]);
            inflated(&[&answer("A: b", &[&[0x1f, 0x8b, 8, 0], &bytes[..]].concat())]);
            inflated(&[&answer("A: b", &[&b"PK\x03\x04"[..], &bytes].concat())]);
        }
    }
}
