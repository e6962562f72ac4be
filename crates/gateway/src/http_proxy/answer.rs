//! An origin's answer on its way to the client: framed by RFC 9112, section 6.3, so that both know
//! where it ends, its head made to say what becomes of the client's connection.
//!
//! What an origin sends behind the end of its answer never reaches the client, which would take it
//! for the answer to its next request.

use httparse::{Header, Response};

use super::{
    Body, HEAD_BYTES_MAX, HEAD_KIB_MAX, Served, WEBSOCKET, end_of_head, fields, links::Rewriter,
    response,
};

/// What of a request its answer depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerTerms {
    /// Whether it is a HEAD: the answer has no body, whatever its length says.
    pub is_head: bool,
    /// Whether the origin may switch to WebSocket.
    pub may_switch: bool,
    /// The client speaks HTTP/1.`client_minor`. HTTP/1.0 knows neither chunks nor interim answers.
    pub client_minor: u8,
    /// Whether the client wants to keep its connection.
    pub client_stays: bool,
}

/// An origin's answer. See [`Progress`] for what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    terms: AnswerTerms,
    served: Option<Served>,
    state: State,
    has_begun: bool,
    has_excess: bool,
    origin_stays: bool,
    client_stays: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// What came of a head, less than [`HEAD_BYTES_MAX`] bytes.
    Head(Vec<u8>),
    /// The head is passed, and this much of the body is still to come.
    Body(Body),
    /// The same, and only the content passes, in another form.
    Content(Body, Form),
    /// Nothing of it is to come.
    Over(Progress),
}

/// How the content of a body is passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Form {
    /// What changes it.
    rewriter: Option<Rewriter>,
    /// Whether it goes in chunks of our own.
    is_chunked: bool,
}

/// How far an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The client has got interim answers at most: it can be answered otherwise.
    Awaited,
    /// The client has got the head, and not yet the whole body.
    Passing,
    /// The client has got all of it.
    Complete,
    /// All that comes is another protocol's, and passes as it is.
    Switched,
    /// It is no answer, and the client has got nothing of it.
    Failed(AnswerError),
    /// It ended too early, or its chunks are malformed, when the client had got its head.
    Truncated {
        /// Whether the client sees that by itself, from the length or the chunks that are missing.
        /// If not, its connection must not end as if all were well.
        is_visible: bool,
    },
}

/// Why a client gets no answer of the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Its head is malformed, or frames the body in several ways.
    #[error("the origin's answer is not well-formed HTTP/1")]
    Malformed,
    /// Its head is longer than [`HEAD_BYTES_MAX`].
    #[error("the head of the origin's answer is too large (limit {HEAD_KIB_MAX} KiB)")]
    HeadTooLarge,
    /// Its first bytes are of another protocol.
    #[error("the origin does not speak HTTP/1")]
    NotHttp,
    /// It never came.
    #[error("the origin closed the connection before it answered")]
    Closed,
    /// Not all of its head came.
    #[error("the origin closed the connection within the head of its answer")]
    ClosedInHead,
    /// The origin's connection failed.
    #[error("the origin reset the connection before it answered")]
    Reset,
    /// The origin wants to know the client by a certificate.
    #[error("the origin requires a client certificate, and the far end has none")]
    ClientCertificate,
    /// The peer's gateway gave up on it.
    #[error("the far end closed the connection before the origin answered")]
    EndedByPeer,
    /// The lane that carried it died.
    #[error("the link to the far end broke before the origin answered")]
    LinkBroken,
    /// Nothing moved for the idle time-out.
    #[error("the origin did not answer within the idle time-out")]
    TimedOut,
    /// The client's request has a body that has no one reading, so that it could not be sent.
    #[error("the end of the request's body is ambiguous")]
    RequestBody,
}

/// A head as the client is to see it.
enum Rewritten {
    /// Another head follows (RFC 9110, section 15.2).
    Interim(Vec<u8>),
    /// The protocol changes.
    Switch(Vec<u8>),
    /// The answer itself.
    Final {
        head: Vec<u8>,
        body: Body,
        form: Option<Form>,
        origin_stays: bool,
        client_stays: bool,
    },
}

impl AnswerError {
    /// The response instead of the answer.
    pub fn response(&self) -> Vec<u8> {
        let status = match self {
            AnswerError::TimedOut => "504 Gateway Timeout",
            AnswerError::RequestBody => "400 Bad Request",
            _ => "502 Bad Gateway",
        };
        response(status, &self.to_string())
    }
}

impl Answer {
    /// Awaits the answer to a request.
    pub fn new(terms: AnswerTerms) -> Answer {
        Answer {
            terms,
            served: None,
            state: State::Head(Vec::new()),
            has_begun: false,
            has_excess: false,
            origin_stays: false,
            client_stays: false,
        }
    }

    /// The same of a service's host.
    #[must_use]
    pub fn served_from(self, served: Option<Served>) -> Answer {
        Answer { served, ..self }
    }

    /// Takes the next bytes of the origin, and leaves those that the client is to get now.
    /// `is_request_sent` says whether the whole request has left: a client that still sends is told
    /// that its connection ends, since the origin may never take the rest.
    pub fn pass(&mut self, bytes: &mut Vec<u8>, is_request_sent: bool) {
        self.has_begun |= !bytes.is_empty();
        if let State::Head(held) = &mut self.state {
            let searched = held.len();
            held.append(bytes);
            self.pass_heads(searched, bytes, is_request_sent);
            return;
        }
        self.pass_body(bytes, 0);
    }

    /// The origin has ended. Appends the last bytes that the client is to get.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.origin_stays = false;
        let progress = match &mut self.state {
            State::Body(Body::UntilClose) => Progress::Complete,
            State::Content(Body::UntilClose, form) => {
                let mut last = Vec::new();
                form.pass(&mut last, true, self.served.as_ref());
                out.append(&mut last);
                Progress::Complete
            }
            _ => self.broken(),
        };
        self.state = State::Over(progress);
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        match self.state {
            State::Head(_) => Progress::Awaited,
            State::Body(_) | State::Content(..) => Progress::Passing,
            State::Over(progress) => progress,
        }
    }

    /// How far it has come if the connection breaks now: an answer that continues up to the
    /// connection's end is not complete then.
    pub fn broken(&self) -> Progress {
        let is_visible = match &self.state {
            State::Body(body) => matches!(body, Body::Counted(_) | Body::Chunked(_)),
            State::Content(_, form) => form.is_chunked,
            _ => false,
        };
        match self.state {
            State::Head(ref held) if held.is_empty() => Progress::Failed(AnswerError::Closed),
            State::Head(_) => Progress::Failed(AnswerError::ClosedInHead),
            State::Body(_) | State::Content(..) => Progress::Truncated { is_visible },
            State::Over(progress) => progress,
        }
    }

    /// Whether anything came of it.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the origin has sent more than its answer, which is complete.
    pub(crate) fn has_excess(&self) -> bool {
        self.has_excess
    }

    /// Whether the origin keeps its connection for another request, and can be believed.
    pub fn origin_stays(&self) -> bool {
        self.origin_stays && !self.has_excess
    }

    /// Whether the client was told that its connection stays open.
    pub fn client_stays(&self) -> bool {
        self.client_stays
    }

    /// Moves the heads that are complete from the held bytes to `out`, and what of the body is
    /// there; the first `searched` of them contain no head's end.
    fn pass_heads(&mut self, mut searched: usize, out: &mut Vec<u8>, is_request_sent: bool) {
        let State::Head(held) = &mut self.state else {
            return;
        };
        let over = loop {
            let end = end_of_head(held, searched);
            // Only this much counts: what stands behind it may come later.
            let head = &held[..end.unwrap_or(held.len())];
            if !may_be_answer(head) {
                // A server of another protocol may wait for the client now, for ever.
                break Progress::Failed(AnswerError::NotHttp);
            }
            let end = match end {
                Some(end) if end <= HEAD_BYTES_MAX => end,
                None if held.len() < HEAD_BYTES_MAX => return,
                Some(_) | None => break Progress::Failed(AnswerError::HeadTooLarge),
            };
            let (terms, served) = (self.terms, self.served.as_ref());
            let rewritten = rewrite(&held[..end], terms, served, is_request_sent);
            match rewritten {
                Ok(Rewritten::Interim(head)) => {
                    if self.terms.client_minor > 0 {
                        out.extend(head);
                    }
                    held.drain(..end);
                    searched = 0;
                }
                // In the midst of a request nothing else can begin.
                Ok(Rewritten::Switch(head)) if is_request_sent => {
                    out.extend(head);
                    out.extend(&held[end..]);
                    break Progress::Switched;
                }
                Ok(Rewritten::Final {
                    head,
                    body,
                    form,
                    origin_stays,
                    client_stays,
                }) => {
                    self.origin_stays = origin_stays;
                    self.client_stays = client_stays;
                    let head_end = out.len() + head.len();
                    out.extend(head);
                    out.extend(&held[end..]);
                    self.state = match form {
                        Some(form) => State::Content(body, form),
                        None => State::Body(body),
                    };
                    self.pass_body(out, head_end);
                    return;
                }
                Ok(Rewritten::Switch(_)) | Err(Malformed) => {
                    break Progress::Failed(AnswerError::Malformed);
                }
            }
        };
        self.state = State::Over(over);
    }

    /// Leaves of what is behind the first `from` bytes what the client is to get.
    fn pass_body(&mut self, bytes: &mut Vec<u8>, from: usize) {
        let came = bytes.len() - from;
        let (taken, body) = match &mut self.state {
            State::Body(body) => {
                let taken = body.take(&bytes[from..]);
                bytes.truncate(from + taken);
                (taken, body)
            }
            State::Content(body, form) => {
                let mut content = bytes.split_off(from);
                let taken = body.take_content(&mut content);
                form.pass(&mut content, body.has_ended(), self.served.as_ref());
                bytes.append(&mut content);
                (taken, body)
            }
            State::Over(Progress::Switched) => return,
            State::Head(_) | State::Over(_) => {
                self.has_excess |= came > 0 && self.progress() == Progress::Complete;
                bytes.truncate(from);
                return;
            }
        };
        if body.has_ended() {
            self.has_excess = taken < came;
            self.state = State::Over(Progress::Complete);
        } else if *body == Body::Malformed {
            self.origin_stays = false;
            let is_visible = match &self.state {
                State::Content(_, form) => form.is_chunked,
                _ => true,
            };
            self.state = State::Over(Progress::Truncated { is_visible });
        }
    }
}

impl Form {
    /// Takes the next content, and leaves the bytes that the client is to get.
    fn pass(&mut self, content: &mut Vec<u8>, is_last: bool, served: Option<&Served>) {
        if let (Some(rewriter), Some(served)) = (&mut self.rewriter, served) {
            rewriter.pass(content, is_last, served);
        }
        if !self.is_chunked {
            return;
        }
        if !content.is_empty() {
            let size = format!("{:x}\r\n", content.len());
            content.splice(..0, size.into_bytes());
            content.extend(b"\r\n");
        }
        if is_last {
            content.extend(b"0\r\n\r\n");
        }
    }
}

/// What came is not an answer that has one reading.
struct Malformed;

/// Whether what came may be the beginning of an answer of HTTP/1.
fn may_be_answer(held: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"HTTP/1.";
    let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let begins = held.iter().position(|byte| !is_line_end(byte));
    let line = &held[begins.unwrap_or(held.len())..];
    let known = line.len().min(BEGINNING.len());
    line[..known] == BEGINNING[..known]
}

fn rewrite(
    head: &[u8],
    terms: AnswerTerms,
    served: Option<&Served>,
    is_request_sent: bool,
) -> Result<Rewritten, Malformed> {
    let unfolded;
    let head = match has_folds(head) {
        true => {
            unfolded = unfold(head)?;
            &unfolded
        }
        false => head,
    };
    fields::with_room(head, |room| {
        let mut answer = Response::new(room);
        // RFC 9112, section 5.1: for a proxy to mend.
        let mut lenient = httparse::ParserConfig::default();
        lenient.allow_spaces_after_header_name_in_responses(true);
        match lenient.parse_response(&mut answer, head) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            _ => return Err(Malformed),
        }
        let (Some(code @ 100..), Some(minor)) = (answer.code, answer.version) else {
            return Err(Malformed);
        };
        let of_file = served
            .filter(|_| terms.is_head)
            .and_then(|served| served.fields_of_file(code, answer.headers));
        let (code, reason, received) = match &of_file {
            Some(fields) => (200, "OK", &fields[..]),
            None => (code, answer.reason.unwrap_or_default(), &*answer.headers),
        };
        let mut rewritten = Vec::with_capacity(head.len() + 64);
        rewritten.extend(b"HTTP/1.1 ");
        rewritten.extend(code.to_string().as_bytes());
        rewritten.push(b' ');
        rewritten.extend(reason.as_bytes());
        rewritten.extend(b"\r\n");
        let line = (code, minor);
        frame(rewritten, line, received, terms, served, is_request_sent)
    })
}

/// What follows the head of an answer.
pub(super) enum Framed {
    /// Another head.
    Interim,
    /// Another protocol.
    Switched,
    Final(Body),
}

/// Reads the head of an answer, as [`Answer`] does.
pub(super) fn framed_answer(head: &[u8], is_head: bool) -> Option<Framed> {
    let terms = AnswerTerms {
        is_head,
        may_switch: true,
        client_minor: 1,
        client_stays: true,
    };
    match rewrite(head, terms, None, true).ok()? {
        Rewritten::Interim(_) => Some(Framed::Interim),
        Rewritten::Switch(_) => Some(Framed::Switched),
        Rewritten::Final { body, .. } => Some(Framed::Final(body)),
    }
}

/// Appends the fields to `head`, and says what follows.
fn frame(
    mut head: Vec<u8>,
    (code, minor): (u16, u8),
    received: &[Header],
    terms: AnswerTerms,
    served: Option<&Served>,
    is_request_sent: bool,
) -> Result<Rewritten, Malformed> {
    let length = length_of(received)?;
    let coding = coding_of(received)?;
    if terms.client_minor == 0 && !matches!(coding, Coding::None | Coding::Chunked) {
        // Nothing could tell the client what its body is coded in.
        return Err(Malformed);
    }
    let has_no_length = (100..200).contains(&code) || code == 204;
    let body = match coding {
        _ if has_no_length || code == 304 || terms.is_head => Body::NONE,
        Coding::Chunked | Coding::OthersInChunks => Body::CHUNKED,
        Coding::Other => Body::UntilClose,
        Coding::None => length.map_or(Body::UntilClose, Body::Counted),
    };
    let rewriter = served.and_then(|served| served.rewriter(code, received));
    let rewriter = rewriter.filter(|_| length != Some(0));
    let is_changed = rewriter.is_some();
    let form = match body {
        Body::NONE => None,
        Body::Chunked(_) if terms.client_minor == 0 => Some(false),
        _ => is_changed.then_some(terms.client_minor > 0),
    };
    let form = form.map(|is_chunked| Form {
        rewriter,
        is_chunked,
    });
    let only_content = form.as_ref().is_some_and(|form| !form.is_chunked);

    // RFC 9110, section 8.6, and RFC 9112, section 6.1: neither says anything in these, and a
    // length beside a coding does not count.
    let has_length = !has_no_length && coding == Coding::None && !is_changed;
    let mut without = vec!["Content-Length"];
    if has_no_length || terms.client_minor == 0 {
        without.push("Transfer-Encoding");
    }
    if let Some(served) = served {
        without.extend(served.fields());
        without.extend(served.fields_of_index(code, is_changed));
    }
    let secret = fields::push_end_to_end(&mut head, received, &without, minor);
    head.extend(secret);
    if let Some(served) = served {
        served.push_fields(&mut head, received);
        if !served.fields_of_index(code, is_changed).is_empty() {
            served.push_fields_of_index(&mut head, received, is_changed);
        }
    }
    if form.as_ref().is_some_and(|form| form.is_chunked) {
        fields::push(&mut head, "Transfer-Encoding", b"chunked");
    }
    if let Some(length) = length.filter(|_| has_length) {
        fields::push(&mut head, "Content-Length", length.to_string().as_bytes());
    }

    if code == SWITCHING_PROTOCOLS {
        if !(terms.may_switch && fields::lists(received, "Upgrade", WEBSOCKET)) {
            return Err(Malformed);
        }
        fields::push(&mut head, "Connection", b"Upgrade");
        fields::push(&mut head, "Upgrade", WEBSOCKET.as_bytes());
        head.extend(b"\r\n");
        return Ok(Rewritten::Switch(head));
    }
    if (100..200).contains(&code) {
        head.extend(b"\r\n");
        return Ok(Rewritten::Interim(head));
    }
    let ends_by_itself = body != Body::UntilClose;
    let client_stays = terms.client_stays && is_request_sent && ends_by_itself && !only_content;
    match (client_stays, terms.client_minor) {
        (false, _) => fields::push(&mut head, "Connection", b"close"),
        (true, 0) => fields::push(&mut head, "Connection", b"keep-alive"),
        (true, _) => {}
    }
    head.extend(b"\r\n");
    // RFC 9112, section 6.1: chunks from HTTP/1.0 are the work of somebody who does not know them.
    let is_faulty = minor == 0 && coding != Coding::None;
    Ok(Rewritten::Final {
        head,
        body,
        form,
        origin_stays: fields::keep_open(received, minor) && ends_by_itself && !is_faulty,
        client_stays,
    })
}

const SWITCHING_PROTOCOLS: u16 = 101;

/// What `Transfer-Encoding` says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    None,
    Chunked,
    /// Its last coding is `chunked`, and no other.
    OthersInChunks,
    /// Something that ends with the connection.
    Other,
}

/// RFC 9112, section 6.3: the last coding decides. Chunks within others, or within chunks, have no
/// one reading.
fn coding_of(received: &[Header]) -> Result<Coding, Malformed> {
    const NAME: &str = "Transfer-Encoding";
    if fields::values(received, NAME).next().is_none() {
        return Ok(Coding::None);
    }
    let count = fields::elements(received, NAME).count();
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    match fields::elements(received, NAME).position(is_chunked) {
        Some(0) if count == 1 => Ok(Coding::Chunked),
        Some(at) if at + 1 == count => Ok(Coding::OthersInChunks),
        None if count > 0 => Ok(Coding::Other),
        _ => Err(Malformed),
    }
}

/// The one length that all `Content-Length` give.
fn length_of(received: &[Header]) -> Result<Option<u64>, Malformed> {
    const NAME: &str = "Content-Length";
    let mut one = None;
    for value in fields::values(received, NAME) {
        for item in value.split(|&byte| byte == b',') {
            let length = fields::decimal(item.trim_ascii()).ok_or(Malformed)?;
            if one.replace(length).is_some_and(|other| other != length) {
                return Err(Malformed);
            }
        }
    }
    Ok(one)
}

/// Whether a field goes over several lines.
fn has_folds(head: &[u8]) -> bool {
    head.windows(2)
        .any(|two| two[0] == b'\n' && matches!(two[1], b' ' | b'\t'))
}

/// The head with each field on one line (RFC 9112, section 5.2).
fn unfold(head: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut unfolded = head.to_vec();
    let mut is_first_line = true;
    for at in 0..head.len() {
        if head[at] != b'\n' {
            continue;
        }
        if matches!(head.get(at + 1), Some(b' ' | b'\t')) {
            // Nothing is there that could go on.
            if is_first_line {
                return Err(Malformed);
            }
            unfolded[at] = b' ';
            if head[at - 1] == b'\r' {
                unfolded[at - 1] = b' ';
            }
        }
        is_first_line = false;
    }
    Ok(unfolded)
}

#[cfg(test)]
mod tests;
