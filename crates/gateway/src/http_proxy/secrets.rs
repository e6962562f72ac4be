//! The secret bytes of answers on a flow with exchanges, as the end sees them that connects: fields with which others
//! could act as the client, and bodies that shared caches must not keep (RFC 9111, sections 3.5 and 5.2.2). No I/O.
//!
//! Secret bytes are neither cached nor compressed nor searched for repeats. So what an attacker knows or guesses of them
//! does not change their length (CRIME, BREACH), and no other answer shows that it has the same bytes.
//!
//! Both directions are read, since an answer depends on its request. Where one has no one reading, all that follows is
//! secret.

use std::collections::VecDeque;

use httparse::{Header, Status};
use refrain_codec::names;

use super::{
    Body, HEAD_BYTES_MAX,
    answer::{Framed, framed_answer},
    end_of_head, fields, names_digest,
    request::framed_body,
};

/// Requests whose answers have not come. The other end of the pair sends one after the other.
const ASKED_MAX: usize = 16;

names! {
    /// How bodies are sent that shared caches must not keep.
    pub enum PrivateAnswers {
        /// As secret bytes.
        Bypass = "bypass",
        /// As others.
        Cache = "cache",
        /// As secret bytes, like all other bytes of answers, except answers that are for all clients.
        SecretSafe = "secret-safe",
    }
}

/// Bytes of an answer, which are secret or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether they are secret.
    pub is_secret: bool,
}

/// The exchanges of a flow, one after the other.
#[derive(Debug)]
pub struct Exchanges {
    private_answers: PrivateAnswers,
    sent: Sent,
    asked: VecDeque<Asked>,
    came: Came,
}

/// A request's part in what its answer is.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    is_head: bool,
    is_authorized: bool,
    /// Its path has a digest: a client that knows the path has the content, or its name.
    names_digest: bool,
}

/// How far the requests have come.
#[derive(Debug)]
enum Sent {
    Head(Vec<u8>),
    Body(Body),
    /// They have no one reading.
    Lost,
}

/// How far the answers have come.
#[derive(Debug)]
enum Came {
    Head(Vec<u8>),
    Body {
        body: Body,
        is_secret: bool,
    },
    /// Another protocol.
    Switched,
    Lost,
}

impl Exchanges {
    /// Those of a new flow.
    pub fn new(private_answers: PrivateAnswers) -> Exchanges {
        Exchanges {
            private_answers,
            sent: Sent::Head(Vec::new()),
            asked: VecDeque::new(),
            came: Came::Head(Vec::new()),
        }
    }

    /// These bytes of requests go to the origin.
    pub fn sent(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match &mut self.sent {
                Sent::Lost => return,
                Sent::Body(body) => {
                    bytes = &bytes[body.take(bytes)..];
                    self.sent = match body {
                        Body::Malformed => Sent::Lost,
                        body if body.has_ended() => Sent::Head(Vec::new()),
                        _ => return,
                    };
                }
                Sent::Head(held) => {
                    let searched = held.len();
                    held.extend(bytes);
                    let Some(end) = end_of_head(held, searched) else {
                        if held.len() > HEAD_BYTES_MAX {
                            self.sent = Sent::Lost;
                        }
                        return;
                    };
                    bytes = &bytes[end - searched..];
                    let asked = read_request(&held[..end]);
                    self.sent = match asked.filter(|_| self.asked.len() < ASKED_MAX) {
                        None => Sent::Lost,
                        Some((asked, body)) => {
                            self.asked.push_back(asked);
                            match body.has_ended() {
                                true => Sent::Head(Vec::new()),
                                false => Sent::Body(body),
                            }
                        }
                    };
                }
            }
        }
    }

    /// These bytes of answers came. Appends what is to be passed on, in order.
    pub fn came(&mut self, mut bytes: &[u8], parts: &mut Vec<Part>) {
        while !bytes.is_empty() {
            match &mut self.came {
                Came::Switched => {
                    let is_secret = self.private_answers == PrivateAnswers::SecretSafe;
                    return push(parts, bytes, is_secret);
                }
                Came::Lost => return push(parts, bytes, true),
                Came::Body { body, is_secret } => {
                    let taken = body.take(bytes);
                    push(parts, &bytes[..taken], *is_secret);
                    bytes = &bytes[taken..];
                    self.came = match body {
                        Body::Malformed => Came::Lost,
                        body if body.has_ended() => Came::Head(Vec::new()),
                        _ => return,
                    };
                }
                Came::Head(held) => {
                    let searched = held.len();
                    held.extend(bytes);
                    let Some(end) = end_of_head(held, searched) else {
                        if held.len() > HEAD_BYTES_MAX {
                            push(parts, held, true);
                            self.came = Came::Lost;
                        }
                        return;
                    };
                    bytes = &bytes[end - searched..];
                    let mut head = std::mem::take(held);
                    head.truncate(end);
                    self.head_came(&head, parts);
                }
            }
        }
    }

    /// The origin has ended. Appends what was held.
    pub fn finish(&mut self, parts: &mut Vec<Part>) {
        if let Came::Head(held) = &self.came {
            push(parts, held, true);
        }
    }

    fn head_came(&mut self, head: &[u8], parts: &mut Vec<Part>) {
        let asked = match self.sent {
            Sent::Lost => None,
            _ => self.asked.front().copied(),
        };
        let Some((asked, framed)) = asked.and_then(|asked| {
            let framed = framed_answer(head, asked.is_head)?;
            Some((asked, framed))
        }) else {
            push(parts, head, true);
            self.came = Came::Lost;
            return;
        };
        let is_secret = match (self.private_answers, audience(head, asked)) {
            (PrivateAnswers::Cache, _) => false,
            (PrivateAnswers::Bypass, audience) => audience == Audience::Client,
            (PrivateAnswers::SecretSafe, audience) => audience != Audience::All,
        };
        if is_secret && self.private_answers == PrivateAnswers::SecretSafe {
            push(parts, head, true);
        } else {
            let [plain, secret] = split_fields(head);
            push(parts, &plain, false);
            push(parts, &secret, true);
        }
        self.came = match framed {
            Framed::Interim => Came::Head(Vec::new()),
            Framed::Switched => Came::Switched,
            Framed::Final(body) => {
                self.asked.pop_front();
                match body.has_ended() {
                    true => Came::Head(Vec::new()),
                    false => Came::Body { body, is_secret },
                }
            }
        };
    }
}

fn push(parts: &mut Vec<Part>, bytes: &[u8], is_secret: bool) {
    match parts.last_mut() {
        _ if bytes.is_empty() => {}
        Some(last) if last.is_secret == is_secret => last.bytes.extend(bytes),
        _ => parts.push(Part {
            bytes: bytes.to_vec(),
            is_secret,
        }),
    }
}

/// Reads a request's head: its part in the answer, and its body.
fn read_request(head: &[u8]) -> Option<(Asked, Body)> {
    fields::with_room(head, |room| {
        let mut request = httparse::Request::new(room);
        match request.parse(head) {
            Ok(Status::Complete(length)) if length == head.len() => {}
            _ => return None,
        }
        let body = framed_body(request.headers, request.version?).ok()?;
        let asked = Asked {
            is_head: request.method? == "HEAD",
            is_authorized: request.headers.iter().any(is_authorization),
            names_digest: names_digest(request.path?),
        };
        Some((asked, body))
    })
}

/// Whether a field is a client's right to an answer. Cookies do not count, as in RFC 9111: most have no such meaning.
fn is_authorization(field: &Header) -> bool {
    fields::is_secret(field.name) && !field.name.eq_ignore_ascii_case("Cookie")
}

/// The head without the fields that are secret, and those with the end of the head, if there are some. The order of fields
/// with different names has no meaning (RFC 9110, section 5.3).
fn split_fields(head: &[u8]) -> [Vec<u8>; 2] {
    let mut split = [Vec::with_capacity(head.len()), Vec::new()];
    let mut is_secret = false;
    let lines = head.split_inclusive(|&byte| byte == b'\n');
    for (nth, line) in lines.enumerate() {
        let is_end = line.trim_ascii().is_empty();
        let continues = matches!(line.first(), Some(b' ' | b'\t')) && !is_end;
        if is_end {
            is_secret = !split[1].is_empty();
        } else if nth > 0 && !continues {
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            is_secret = fields::is_secret(name.trim()) || is_secret_of_answers(name.trim());
        }
        split[usize::from(is_secret)].extend(line);
    }
    split
}

fn is_secret_of_answers(name: &str) -> bool {
    const NAMES: [&str; 5] = [
        "Set-Cookie",
        "WWW-Authenticate",
        "Proxy-Authenticate",
        "Authentication-Info",
        "Proxy-Authentication-Info",
    ];
    NAMES.iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// The clients that an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Shared caches must not keep it.
    Client,
    /// It does not state that.
    Unknown,
    /// Shared caches may keep it, or its path has a digest.
    All,
}

fn audience(head: &[u8], asked: Asked) -> Audience {
    fields::with_room(head, |room| {
        let mut answer = httparse::Response::new(room);
        let mut lenient = httparse::ParserConfig::default();
        lenient.allow_spaces_after_header_name_in_responses(true);
        if lenient.parse_response(&mut answer, head).is_err() {
            return Audience::Client;
        }
        let has = |names: &[&str]| has_directive(answer.headers, names);
        match has(&["no-store", "private"]) {
            true => Audience::Client,
            false if has(&["public", "s-maxage", "immutable"]) || asked.names_digest => {
                Audience::All
            }
            false if asked.is_authorized => Audience::Client,
            false => Audience::Unknown,
        }
    })
}

/// Whether `Cache-Control` has one of these directives, with a value or without.
fn has_directive(headers: &[Header], names: &[&str]) -> bool {
    fields::elements(headers, "Cache-Control").any(|directive| {
        let name = directive
            .split(|&byte| byte == b'=')
            .next()
            .unwrap_or_default();
        let name = name.trim_ascii();
        names
            .iter()
            .any(|other| other.as_bytes().eq_ignore_ascii_case(name))
    })
}

#[cfg(test)]
mod tests;
