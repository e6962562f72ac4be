//! One request, and whether its answer can be believed.
//!
//! What is asked for enters; what leaves is the body that holds it, or why there is none. Nothing is
//! tried twice here. A [`Server`] remembers what its answers said of the file: its length, its version,
//! and where redirects led to.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use ureq::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use url::Url;

use super::{
    address::{parse, redirected, shown},
    agent::Agents,
    attempts::Attempts,
    body::Body,
    content_range::{ContentRange, number, retry_after},
    counters::Tally,
    error::{Lie, RedirectProblem, RemoteError},
    options::RemoteOptions,
    validator::Validator,
};

/// What to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// These bytes. The file has them.
    Bytes(Range<u64>),
    /// So many bytes, at least one, or all if the file has fewer.
    First(u64),
    /// The last byte.
    Last,
    /// The file.
    All,
}

/// What came.
pub(super) enum Answer {
    /// What was asked for.
    Part(Body),
    /// All of the file instead, from its first byte on.
    Whole(Body),
}

/// A file's server.
pub(super) struct Server {
    pub(super) options: RemoteOptions,
    pub(super) tally: Arc<Tally>,
    url: Url,
    headers: HeaderMap,
    agents: Mutex<Arc<Agents>>,
    known: Mutex<Known>,
    chance: Mutex<fastrand::Rng>,
}

/// What answers have said.
struct Known {
    /// Where redirects have led to.
    current: Url,
    len: Option<u64>,
    /// None before the first good answer.
    validator: Option<Validator>,
}

impl Server {
    pub(super) fn new(url: &str, options: RemoteOptions) -> Result<Self, RemoteError> {
        let url = parse(url)?;
        let headers = headers(&options)?;
        let chance = options
            .seed
            .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let known = Known {
            current: url.clone(),
            len: None,
            validator: None,
        };
        Ok(Self {
            options,
            tally: Arc::default(),
            url,
            headers,
            agents: Mutex::default(),
            known: Mutex::new(known),
            chance: Mutex::new(chance),
        })
    }

    pub(super) fn len(&self) -> Option<u64> {
        lock(&self.known).len
    }

    /// The address for messages.
    pub(super) fn shown(&self) -> String {
        shown(&self.url)
    }

    /// Where the last redirect led to.
    pub(super) fn current(&self) -> Url {
        lock(&self.known).current.clone()
    }

    pub(super) fn was_reached(&self) -> bool {
        lock(&self.known).validator.is_some()
    }

    pub(super) fn attempts(&self) -> Attempts {
        Attempts::new(&self.options, lock(&self.chance).fork())
    }

    /// The connections to use now.
    pub(super) fn agents(&self) -> Arc<Agents> {
        lock(&self.agents).clone()
    }

    /// Breaks `agents`' connections: who waits for one fails. Who asks for connections later gets others.
    pub(super) fn interrupt(&self, agents: &Arc<Agents>) {
        agents.close();
        let mut current = lock(&self.agents);
        if Arc::ptr_eq(&current, agents) {
            *current = Arc::default();
        }
    }

    /// One request, and those to which it is redirected.
    pub(super) fn ask(&self, agents: &Agents, asked: &Asked) -> Result<Answer, RemoteError> {
        let (url, response) = self.send(agents, Method::GET, asked)?;
        let status = response.status().as_u16();
        if !matches!(status, 200 | 206) {
            return Err(self.refused(url, &response));
        }
        if let Some(encoding) = encoding(response.headers()) {
            let url = shown(&url);
            return Err(RemoteError::Encoded { url, encoding });
        }
        let lie = |lie| RemoteError::Lie {
            url: shown(&url),
            asked: asked.to_string(),
            lie,
        };
        // A changed file first: all else about it may be different.
        self.compare(&url, response.headers())?;
        let announced = length(response.headers());
        let (range, total) = if status == 200 {
            (None, announced)
        } else {
            let (range, total) = part(asked, response.headers()).map_err(lie)?;
            let expected = range.end - range.start;
            if let Some(said) = announced.filter(|said| *said != expected) {
                return Err(lie(Lie::ContentLength { said, expected }));
            }
            (Some(range), total)
        };
        self.learn(&url, response.headers(), total)?;
        let reader = response.into_body().into_reader();
        let body = |start, end| Body::new(reader, self.tally.clone(), shown(&url), start, end);
        Ok(match range {
            Some(range) => Answer::Part(body(range.start, Some(range.end))),
            None => Answer::Whole(body(0, announced)),
        })
    }

    /// Asks for the length alone. Who does not want to tell leaves it as it was.
    pub(super) fn ask_length(&self) -> Result<(), RemoteError> {
        let (url, response) = self.send(&self.agents(), Method::HEAD, &Asked::All)?;
        let headers = response.headers();
        if response.status().as_u16() != 200 || encoding(headers).is_some() {
            return Ok(());
        }
        self.compare(&url, headers)?;
        self.learn(&url, headers, length(headers))
    }

    /// Sends a request, follows redirects, and gives what comes at their end, and from where.
    fn send(
        &self,
        agents: &Agents,
        method: Method,
        asked: &Asked,
    ) -> Result<(Url, Response<ureq::Body>), RemoteError> {
        let mut url = self.current();
        for _ in 0..=self.options.redirects_max {
            let response = self.send_once(agents, method.clone(), asked, &url)?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((url, response));
            }
            let location = response.headers().get(header::LOCATION);
            url = redirected(&url, location.map(HeaderValue::as_bytes)).map_err(|problem| {
                let url = shown(&url);
                RemoteError::Redirect { url, problem }
            })?;
        }
        Err(RemoteError::Redirect {
            url: self.shown(),
            problem: RedirectProblem::TooMany {
                max: self.options.redirects_max,
            },
        })
    }

    fn send_once(
        &self,
        agents: &Agents,
        method: Method,
        asked: &Asked,
        url: &Url,
    ) -> Result<Response<ureq::Body>, RemoteError> {
        let failed = |source| RemoteError::Connection {
            url: shown(url),
            source: Box::new(source),
        };
        let mut request = Request::builder().method(method).uri(url.as_str());
        request = request.header(header::ACCEPT_ENCODING, "identity");
        if *asked != Asked::All {
            request = request.header(header::RANGE, asked.to_string());
            let known = lock(&self.known);
            if let Some(version) = known.validator.as_ref().and_then(Validator::if_range) {
                request = request.header(header::IF_RANGE, version);
            }
        }
        let mut request = request.body(()).map_err(|error| failed(error.into()))?;
        if url.origin() == self.url.origin() {
            for (name, value) in &self.headers {
                request.headers_mut().append(name, value.clone());
            }
        }
        let agent = agents.get(url.scheme(), &self.options)?;
        self.tally.request();
        agent.run(request).map_err(failed)
    }

    /// Whether what an answer says of the file's version is what the first said.
    fn compare(&self, url: &Url, headers: &HeaderMap) -> Result<(), RemoteError> {
        let known = lock(&self.known);
        let Some(validator) = &known.validator else {
            return Ok(());
        };
        match validator.difference(&Validator::of(headers)) {
            None => Ok(()),
            Some(found) => Err(RemoteError::Changed {
                url: shown(url),
                what: found.what,
                was: found.was,
                is: found.is,
            }),
        }
    }

    /// Remembers what a good answer says.
    fn learn(&self, url: &Url, headers: &HeaderMap, len: Option<u64>) -> Result<(), RemoteError> {
        let mut known = lock(&self.known);
        if let (Some(was), Some(is)) = (known.len, len)
            && was != is
        {
            return Err(RemoteError::Changed {
                url: shown(url),
                what: "length",
                was: was.to_string(),
                is: is.to_string(),
            });
        }
        known.len = known.len.or(len);
        known
            .validator
            .get_or_insert_with(|| Validator::of(headers));
        known.current = url.clone();
        Ok(())
    }

    /// What to make of a status that brings nothing.
    fn refused<T>(&self, url: Url, response: &Response<T>) -> RemoteError {
        let status = response.status().as_u16();
        let text = |name| {
            response
                .headers()
                .get(name)
                .and_then(|text| text.to_str().ok())
        };
        let known_len = self.len();
        if status == 416
            && let Some(is) = text(header::CONTENT_RANGE).and_then(ContentRange::parse)
            && let (Some(was), Some(is)) = (known_len, is.total)
            && was != is
        {
            return RemoteError::Changed {
                url: shown(&url),
                what: "length",
                was: was.to_string(),
                is: is.to_string(),
            };
        }
        // Where a redirect leads is often open for some minutes only: ask anew where it leads to.
        if matches!(status, 401 | 403 | 404 | 410) {
            let mut known = lock(&self.known);
            if known.current == url && known.current != self.url {
                known.current = self.url.clone();
                let url = shown(&url);
                return RemoteError::RedirectExpired { url, status };
            }
        }
        let asks = text(header::RETRY_AFTER);
        RemoteError::Status {
            url: shown(&url),
            status,
            retry_after: asks.and_then(|text| retry_after(text, SystemTime::now())),
        }
    }
}

/// What is set with each request to the file's origin.
pub(super) fn headers(options: &RemoteOptions) -> Result<HeaderMap, RemoteError> {
    let mut headers = HeaderMap::new();
    let bearer = options.bearer.as_ref().map(|token| {
        let value = format!("Bearer {token}");
        ("Authorization".to_owned(), value)
    });
    for (name, value) in options.headers.iter().chain(&bearer) {
        let refused = || RemoteError::Header { name: name.clone() };
        let value = HeaderValue::from_str(value).map_err(|_| refused())?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        headers.append(name, value);
    }
    if HeaderValue::from_str(&options.user_agent).is_err() {
        let name = "User-Agent".to_owned();
        return Err(RemoteError::Header { name });
    }
    Ok(headers)
}

/// How the file was encoded on its way, if it was.
pub(super) fn encoding(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(header::CONTENT_ENCODING)?.as_bytes();
    let plain = encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity");
    (!plain).then(|| String::from_utf8_lossy(encoding).into_owned())
}

/// How long the body is, if that is said.
pub(super) fn length(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    number(headers.get(header::CONTENT_LENGTH)?.to_str().ok()?)
}

/// The range that an answer with status 206 names, if it is what was asked for, and the file's length.
fn part(asked: &Asked, headers: &HeaderMap) -> Result<(Range<u64>, Option<u64>), Lie> {
    let text = |name: HeaderName| {
        let value = headers.get(name).map(HeaderValue::as_bytes);
        String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
    };
    if *asked == Asked::All {
        return Err(Lie::PartOfAll);
    }
    if !headers.contains_key(header::CONTENT_RANGE) {
        let content_type = text(header::CONTENT_TYPE);
        return Err(Lie::NoContentRange { content_type });
    }
    let said = text(header::CONTENT_RANGE);
    let Some(ContentRange {
        range: Some(range),
        total,
    }) = ContentRange::parse(&said)
    else {
        return Err(Lie::Malformed { said });
    };
    let ends = total == Some(range.end);
    let (is_right, total) = match asked {
        Asked::Bytes(bytes) => (range == *bytes, total),
        Asked::First(most) => {
            let all = ends && range.end < *most;
            (range.start == 0 && (range.end == *most || all), total)
        }
        Asked::Last => {
            let is_last = range.end - range.start == 1 && (ends || total.is_none());
            (is_last, Some(range.end))
        }
        Asked::All => (false, None),
    };
    match is_right {
        true => Ok((range, total)),
        false => Err(Lie::OtherRange { said }),
    }
}

impl fmt::Display for Asked {
    /// As the value of a `Range` header.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(range) => write!(f, "bytes={}-{}", range.start, range.end - 1),
            Self::First(bytes) => write!(f, "bytes=0-{}", bytes - 1),
            Self::Last => write!(f, "bytes=-1"),
            Self::All => write!(f, "all of it"),
        }
    }
}

/// What is behind these locks is whole between any two statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
