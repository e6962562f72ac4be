//! The framing of answers once more, as obvious as it can be: all bytes at once, a reader that goes
//! back and forth in them. What [`Answer`](super::Answer) does is compared with it.

use super::{AnswerError, AnswerTerms, Progress};

/// What a client gets of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Framed {
    /// How many heads.
    pub heads: usize,
    /// What stands behind the last.
    pub body: Vec<u8>,
    pub progress: Progress,
    /// Of a complete answer: whether the origin's connection can be used again.
    pub origin_stays: bool,
    pub client_stays: bool,
}

/// Cuts what a client got behind its first `heads` heads; gives how many there were.
pub(super) fn split_heads(client: &[u8], heads: usize) -> (usize, Vec<u8>) {
    let mut rest = client;
    for head in 0..heads {
        match rest.windows(4).position(|four| four == b"\r\n\r\n") {
            Some(end) => rest = &rest[end + 4..],
            None => return (head, rest.to_vec()),
        }
    }
    (heads, rest.to_vec())
}

/// Frames all that an origin sends, whose heads have only well-formed lines. `ends` says whether its
/// connection ends behind it.
pub(super) fn frame(origin: &[u8], terms: AnswerTerms, ends: bool) -> Framed {
    let mut rest = origin;
    let mut heads = 0;
    loop {
        let (lines, behind) = head_of(rest);
        let code: u16 = lines[0][9..12].parse().unwrap();
        if code < 200 {
            heads += usize::from(terms.client_minor == 1);
            rest = behind;
            continue;
        }
        return match final_answer(&lines, code, behind, terms, ends) {
            Some(framed) => Framed {
                heads: heads + 1,
                ..framed
            },
            None => Framed {
                heads,
                body: Vec::new(),
                progress: Progress::Failed(AnswerError::Malformed),
                origin_stays: false,
                client_stays: false,
            },
        };
    }
}

fn head_of(bytes: &[u8]) -> (Vec<String>, &[u8]) {
    let mut lines = Vec::new();
    let mut rest = bytes;
    loop {
        let end = rest.iter().position(|&byte| byte == b'\n').unwrap();
        let line = String::from_utf8(rest[..end].to_vec()).unwrap();
        rest = &rest[end + 1..];
        match line.trim_end_matches('\r') {
            "" => return (lines, rest),
            line => lines.push(line.to_owned()),
        }
    }
}

/// The elements of the lists that the fields of that name are together.
fn list(lines: &[String], name: &str) -> Vec<String> {
    let mut elements = Vec::new();
    for line in &lines[1..] {
        let (field, value) = line.split_once(':').unwrap();
        if field.eq_ignore_ascii_case(name) {
            let items = value.split(',').map(|item| item.trim().to_lowercase());
            elements.extend(items);
        }
    }
    elements
}

fn final_answer(
    lines: &[String],
    code: u16,
    behind: &[u8],
    terms: AnswerTerms,
    ends: bool,
) -> Option<Framed> {
    let mut lengths = Vec::new();
    for length in list(lines, "Content-Length") {
        let is_number = !length.is_empty() && length.chars().all(|char| char.is_ascii_digit());
        lengths.push(length.parse::<u64>().ok().filter(|_| is_number)?);
    }
    lengths.dedup();
    let codings = list(lines, "Transfer-Encoding");
    let chunked = codings.iter().filter(|&coding| coding == "chunked").count();
    let chunks_last = codings.last().is_some_and(|coding| coding == "chunked");
    let is_ambiguous = lengths.len() > 1 || chunked > 1 || chunked == 1 && !chunks_last;
    let old = terms.client_minor == 0;
    if is_ambiguous || old && codings.len() > chunked {
        return None;
    }

    let truncated = |is_visible| match ends {
        true => Progress::Truncated { is_visible },
        false => Progress::Passing,
    };
    let (used, body, progress, ends_by_itself) = if terms.is_head || code == 204 || code == 304 {
        (0, Vec::new(), Progress::Complete, true)
    } else if chunks_last {
        let mut reader = Reader {
            bytes: behind,
            at: 0,
            content: Vec::new(),
        };
        let progress = match reader.chunks() {
            Ok(()) => Progress::Complete,
            Err(Stop::Short) => truncated(!old),
            Err(Stop::Malformed) => Progress::Truncated { is_visible: !old },
        };
        let body = match old {
            true => reader.content,
            false => behind[..reader.at].to_vec(),
        };
        (reader.at, body, progress, true)
    } else if codings.is_empty() && lengths.len() == 1 {
        let length = usize::try_from(lengths[0]).unwrap_or(usize::MAX);
        let used = length.min(behind.len());
        let progress = match used == length {
            true => Progress::Complete,
            false => truncated(true),
        };
        (used, behind[..used].to_vec(), progress, true)
    } else {
        let progress = match ends {
            true => Progress::Complete,
            false => Progress::Passing,
        };
        (behind.len(), behind.to_vec(), progress, false)
    };

    let options = list(lines, "Connection");
    let has = |option: &str| options.iter().any(|other| other == option);
    let keeps = !has("close") && (lines[0].starts_with("HTTP/1.1") || has("keep-alive"));
    let is_complete = progress == Progress::Complete;
    let is_faulty = lines[0].starts_with("HTTP/1.0") && !codings.is_empty();
    let client_has_end =
        ends_by_itself && !(old && chunks_last && !terms.is_head && code != 204 && code != 304);
    Some(Framed {
        heads: 0,
        body,
        progress,
        origin_stays: is_complete
            && keeps
            && ends_by_itself
            && !is_faulty
            && used == behind.len()
            && !ends,
        client_stays: is_complete && terms.client_stays && client_has_end,
    })
}

/// Why a body is not whole.
enum Stop {
    Short,
    Malformed,
}

/// Reads chunks from the front.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    content: Vec<u8>,
}

impl Reader<'_> {
    fn chunks(&mut self) -> Result<(), Stop> {
        loop {
            let mut size = 0_u64;
            let mut digits = 0;
            while digits < 16 && self.peek()?.is_ascii_hexdigit() {
                let digit = (self.peek()? as char).to_digit(16).unwrap();
                size = size * 16 + u64::from(digit);
                digits += 1;
                self.at += 1;
            }
            if digits == 0 {
                return Err(Stop::Malformed);
            }
            while matches!(self.peek()?, b' ' | b'\t') {
                self.at += 1;
            }
            if self.peek()? == b';' {
                self.rest_of_line()?;
            }
            self.line_end()?;
            if size == 0 {
                break;
            }
            let length = usize::try_from(size).unwrap_or(usize::MAX);
            let there = length.min(self.bytes.len() - self.at);
            self.content.extend(&self.bytes[self.at..self.at + there]);
            self.at += there;
            if there < length {
                return Err(Stop::Short);
            }
            self.line_end()?;
        }
        while self.peek()? != b'\r' {
            self.rest_of_line()?;
            self.line_end()?;
        }
        self.line_end()
    }

    fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::Short)
    }

    fn rest_of_line(&mut self) -> Result<(), Stop> {
        while self.peek()? != b'\r' {
            if self.peek()? == b'\n' {
                return Err(Stop::Malformed);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn line_end(&mut self) -> Result<(), Stop> {
        for expected in *b"\r\n" {
            if self.peek()? != expected {
                return Err(Stop::Malformed);
            }
            self.at += 1;
        }
        Ok(())
    }
}
