//! One request, and whether its answer can be believed.
//!
//! What is asked for enters; what leaves is the body that holds it, or why there is none. Nothing is
//! tried twice here. A [`Server`] remembers what its answers said of the file: its length, its version,
//! and where redirects led to.

use std::{
    ops::Range,
    sync::{Mutex, OnceLock},
};

use hyper::{
    HeaderMap,
    header::{self, HeaderName, HeaderValue},
};
use tokio::time::sleep;
use url::Url;

use super::{
    address::{parse, shown},
    agent::Answer,
    asked::Asked,
    attempts::Attempts,
    body::Body,
    client::Client,
    content_range::ContentRange,
    error::{Lie, RemoteError, VersionField},
    lock,
    options::RemoteOptions,
    validator::Validator,
};

/// A file's server.
pub(super) struct Server {
    pub(super) client: Client,
    known: Mutex<Known>,
    /// The file's first bytes, by which it is known again.
    pub(super) first: OnceLock<Vec<u8>>,
}

/// Servers behind one address may say other things of equal files: so many are remembered.
const VERSIONS_MAX: usize = 16;

/// So often the first bytes are read again, so that they come from the server that said something else.
const LOOKS_MAX: u32 = 3;

/// What answers have said.
struct Known {
    /// Where redirects have led to.
    current: Url,
    len: Option<u64>,
    has_ranges: bool,
    /// All that was said of the file as it is. None before the first good answer.
    versions: Vec<Validator>,
}

impl Server {
    pub(super) fn new(url: &str, options: RemoteOptions) -> Result<Self, RemoteError> {
        let client = Client::new(parse(url)?, options)?;
        Ok(Self {
            known: Mutex::new(Known {
                current: client.url.clone(),
                len: None,
                has_ranges: true,
                versions: Vec::new(),
            }),
            first: OnceLock::new(),
            client,
        })
    }

    pub(super) fn len(&self) -> Option<u64> {
        lock(&self.known).len
    }

    /// Whether it has not sent all of the file instead of a part.
    pub(super) fn has_ranges(&self) -> bool {
        lock(&self.known).has_ranges
    }

    /// The address for messages.
    pub(super) fn shown(&self) -> String {
        shown(&self.client.url)
    }

    /// Where the last redirect led to.
    pub(super) fn current(&self) -> Url {
        lock(&self.known).current.clone()
    }

    /// A count of failures in a row, for [`pause_after`](Self::pause_after).
    pub(super) fn attempts(&self) -> Attempts {
        self.client.attempts()
    }

    /// Waits for the next attempt, after one that failed, or gives the error if there is none.
    pub(super) async fn pause_after(
        &self,
        attempts: &mut Attempts,
        error: RemoteError,
    ) -> Result<(), RemoteError> {
        let was_reached = !lock(&self.known).versions.is_empty();
        sleep(self.client.failed(attempts, error, was_reached)?).await;
        Ok(())
    }

    /// Asks for the first bytes, as many as the options say; for all where ranges cannot be used. Tried as
    /// often as they say.
    pub(super) async fn ask_first(&self) -> Result<Body, RemoteError> {
        let first = Asked::First(self.client.options.first_bytes.max(1) as u64);
        let mut attempts = self.attempts();
        loop {
            let asked = match self.ask(&first).await {
                // An empty file has no first byte.
                Err(RemoteError::Status { status: 416, .. }) => self.ask(&Asked::All).await,
                // An archive is read from its end, and nobody knows where that is.
                Ok(_) if self.has_ranges() && self.len().is_none() => self.ask(&Asked::All).await,
                asked => asked,
            };
            match asked {
                Ok(body) => return Ok(body),
                Err(error) => self.pause_after(&mut attempts, error).await?,
            }
        }
    }

    /// One request, and those to which it is redirected.
    pub(super) async fn ask(&self, asked: &Asked) -> Result<Body, RemoteError> {
        // Each time something new was said of the file, and it turned out to be the same.
        for _ in 0..=VERSIONS_MAX {
            let (url, answer) = self.send(asked).await?;
            if !matches!(answer.status.as_u16(), 200 | 206) {
                return Err(self.refused(&url, &answer));
            }
            if let Some(encoding) = answer.encoding() {
                let url = shown(&url);
                return Err(RemoteError::Encoded { url, encoding });
            }
            // A changed file first: all else about it may be different.
            match self.compare(&url, &answer.headers) {
                Ok(()) => return self.believe(asked, &url, answer),
                Err(changed) => {
                    let version = Validator::of(&answer.headers);
                    drop(answer);
                    if !self.is_same(&version).await? {
                        return Err(changed);
                    }
                }
            }
        }
        Err(RemoteError::Unsteady { url: self.shown() })
    }

    /// The body of an answer about the file as it is known, if the rest of it can be believed.
    fn believe(&self, asked: &Asked, url: &Url, answer: Answer) -> Result<Body, RemoteError> {
        let lie = |lie| RemoteError::Lie {
            url: shown(url),
            asked: asked.to_string(),
            lie,
        };
        let announced = answer.length();
        let (part, total) = if answer.status.as_u16() == 200 {
            (None, announced)
        } else {
            let (range, total) = part(asked, &answer.headers).map_err(lie)?;
            let expected = range.end - range.start;
            if let Some(said) = announced.filter(|said| *said != expected) {
                return Err(lie(Lie::ContentLength { said, expected }));
            }
            (Some(range), total)
        };
        self.learn(url, &answer.headers, total)?;
        if part.is_none() {
            lock(&self.known).has_ranges = false;
        }
        Ok(Body {
            reader: Box::new(answer.body),
            tally: self.client.tally.clone(),
            url: shown(url),
            position: part.as_ref().map_or(0, |part| part.start),
            end: part.as_ref().map_or(announced, |part| Some(part.end)),
            part,
        })
    }

    /// Whether the file of which `version` is said is still the one that was opened: it is if its length and
    /// its first bytes are the same, and those lead to digests of all others.
    async fn is_same(&self, version: &Validator) -> Result<bool, RemoteError> {
        let first = self.first.get().filter(|first| !first.is_empty());
        let Some(first) = first.filter(|_| self.client.options.has_digests) else {
            return Ok(false);
        };
        for _ in 0..LOOKS_MAX {
            let asked = Asked::First(first.len() as u64);
            let (url, answer) = self.send_for(&asked, None).await?;
            if !matches!(answer.status.as_u16(), 200 | 206) {
                return Err(self.refused(&url, &answer));
            }
            let found = Validator::of(&answer.headers);
            if !self.begins_with(first, &asked, answer).await {
                return Ok(false);
            }
            let is_it = found.difference(version).is_none();
            self.accept(found);
            if is_it {
                return Ok(true);
            }
        }
        // Whichever server was asked has the same. What this one sends is checked as well.
        self.accept(version.clone());
        Ok(true)
    }

    async fn begins_with(&self, first: &[u8], asked: &Asked, mut answer: Answer) -> bool {
        if answer.encoding().is_some() {
            return false;
        }
        let total = match answer.status.as_u16() {
            200 => answer.length(),
            _ => match part(asked, &answer.headers) {
                Ok((_, total)) => total,
                Err(_) => return false,
            },
        };
        if length_changed(&self.client.url, self.len(), total).is_some() {
            return false;
        }
        let mut left = first;
        while !left.is_empty() {
            match answer.body.read(left.len()).await {
                Ok(read) if !read.is_empty() && left.starts_with(&read) => {
                    lock(&self.client.tally).body_bytes += read.len() as u64;
                    left = &left[read.len()..];
                }
                _ => return false,
            }
        }
        // It is the file, whatever becomes of the connection.
        answer.skip().await;
        true
    }

    fn accept(&self, version: Validator) {
        let versions = &mut lock(&self.known).versions;
        if versions
            .iter()
            .all(|known| known.difference(&version).is_some())
        {
            // The oldest may be of a server that is gone.
            if versions.len() == VERSIONS_MAX {
                versions.remove(0);
            }
            versions.push(version);
        }
    }

    /// Sends a request, follows redirects, and gives what comes at their end, and from where.
    async fn send(&self, asked: &Asked) -> Result<(Url, Answer), RemoteError> {
        // Where equal files have several versions, a server that has one of them would send all of it.
        let version = match &lock(&self.known).versions[..] {
            [version] => version.if_range().map(str::to_owned),
            _ => None,
        };
        self.send_for(asked, version.as_deref()).await
    }

    /// The same for a part of this version only, if one is given.
    async fn send_for(
        &self,
        asked: &Asked,
        version: Option<&str>,
    ) -> Result<(Url, Answer), RemoteError> {
        let mut headers = HeaderMap::new();
        if *asked != Asked::All {
            let range = asked.to_string().try_into();
            headers.insert(header::RANGE, range.expect("it has no other characters"));
            // It came as a header's value.
            if let Some(version) = version.and_then(|it| HeaderValue::from_str(it).ok()) {
                headers.insert(header::IF_RANGE, version);
            }
        }
        self.client.follow(self.current(), &headers).await
    }

    /// Whether what an answer says of the file's version is what was said of it before.
    fn compare(&self, url: &Url, headers: &HeaderMap) -> Result<(), RemoteError> {
        let known = lock(&self.known);
        let version = Validator::of(headers);
        let mut differences = known
            .versions
            .iter()
            .map(|known| known.difference(&version));
        match differences.clone().any(|difference| difference.is_none()) {
            true => Ok(()),
            false => match differences.next().flatten() {
                None => Ok(()),
                Some(found) => Err(RemoteError::Changed {
                    url: shown(url),
                    what: found.what,
                    was: found.was,
                    is: found.is,
                }),
            },
        }
    }

    /// Remembers what a good answer says.
    fn learn(&self, url: &Url, headers: &HeaderMap, len: Option<u64>) -> Result<(), RemoteError> {
        let mut known = lock(&self.known);
        if let Some(changed) = length_changed(url, known.len, len) {
            return Err(changed);
        }
        known.len = known.len.or(len);
        if known.versions.is_empty() {
            known.versions.push(Validator::of(headers));
        }
        known.current = url.clone();
        Ok(())
    }

    /// What to make of a status that brings nothing.
    fn refused(&self, url: &Url, answer: &Answer) -> RemoteError {
        let status = answer.status.as_u16();
        let range = answer.headers.get(header::CONTENT_RANGE);
        let range = range.and_then(|text| text.to_str().ok());
        if status == 416
            && let Some(range) = range.and_then(ContentRange::parse)
            && let Some(changed) = length_changed(url, self.len(), range.total)
        {
            return changed;
        }
        // Where a redirect leads is often open for some minutes only: ask anew where it leads to.
        if matches!(status, 401 | 403 | 404 | 410) {
            let mut known = lock(&self.known);
            if known.current == *url && known.current != self.client.url {
                known.current = self.client.url.clone();
                let url = shown(url);
                return RemoteError::RedirectExpired { url, status };
            }
        }
        answer.refusal(url)
    }
}

/// That the file had another length, if it had.
fn length_changed(url: &Url, was: Option<u64>, is: Option<u64>) -> Option<RemoteError> {
    let (was, is) = (was?, is?);
    (was != is).then(|| RemoteError::Changed {
        url: shown(url),
        what: VersionField::Length,
        was: was.to_string(),
        is: is.to_string(),
    })
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
        Asked::All => (false, None),
    };
    match is_right {
        true => Ok((range, total)),
        false => Err(Lie::OtherRange { said }),
    }
}
