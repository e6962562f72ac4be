//! Requests to the server of one address: what goes along with them, and where redirects lead.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use http_body_util::Empty;
use hyper::{
    HeaderMap, Request,
    header::{self, HeaderName, HeaderValue},
};
use tokio::time::timeout;
use url::Url;

use super::{
    address::{redirected, shown},
    agent::{Agents, Answer},
    attempts::Attempts,
    connector::Connector,
    content_range::{number, retry_after},
    counters::Tally,
    error::{RedirectProblem, RemoteError},
    lock,
    options::RemoteOptions,
};

/// Of an answer that is not wanted, so much is read to use its connection again, and for so long.
const UNWANTED_BYTES_MAX: usize = 16 << 10;
const UNWANTED_FOR: Duration = Duration::from_secs(1);

/// What requests have in common.
pub(super) struct Client {
    pub(super) options: RemoteOptions,
    pub(super) tally: Arc<Tally>,
    /// The address.
    pub(super) url: Url,
    headers: HeaderMap,
    pub(super) agents: Agents,
    chance: Mutex<fastrand::Rng>,
}

impl Client {
    /// For the server of `url`. Whether it can be asked as the options say is known afterwards.
    pub(super) fn new(url: Url, options: RemoteOptions) -> Result<Self, RemoteError> {
        let headers = headers(&options)?;
        let user_agent = HeaderValue::from_str(&options.user_agent);
        let user_agent = user_agent.map_err(|_| RemoteError::Header {
            name: "User-Agent".to_owned(),
        })?;
        let (roots, timeout) = (options.roots.clone(), options.connect_timeout);
        let connector = Connector::new(&options.proxy, roots, timeout);
        connector.proxy(&url)?;
        let chance = options.seed;
        let chance = chance.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Ok(Self {
            agents: Agents::new(connector, &options, user_agent),
            options,
            tally: Arc::default(),
            url,
            headers,
            chance: Mutex::new(chance),
        })
    }

    pub(super) fn attempts(&self) -> Attempts {
        Attempts::new(&self.options, lock(&self.chance).fork())
    }

    /// The pause before the next attempt, after one that failed, or the error if there is none.
    pub(super) fn failed(
        &self,
        attempts: &mut Attempts,
        error: RemoteError,
        was_reached: bool,
    ) -> Result<Duration, RemoteError> {
        let pause = attempts.failed(error, was_reached)?;
        lock(&self.tally).retries += 1;
        Ok(pause)
    }

    /// One request, with `more` headers.
    async fn send(&self, url: &Url, more: &HeaderMap) -> Result<Answer, RemoteError> {
        let mut request = Request::new(Empty::new());
        let headers = request.headers_mut();
        *headers = more.clone();
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        );
        // They are for this server, and for no other.
        if url.origin() == self.url.origin() {
            for (name, value) in &self.headers {
                headers.append(name, value.clone());
            }
        }
        lock(&self.tally).requests += 1;
        self.agents.send(url, request).await
    }

    /// A request to `url` with `more` headers, and those to which it is redirected. Gives the last answer,
    /// and from where it came.
    pub(super) async fn follow(
        &self,
        mut url: Url,
        more: &HeaderMap,
    ) -> Result<(Url, Answer), RemoteError> {
        for _ in 0..=self.options.redirects_max {
            let answer = self.send(&url, more).await?;
            if !matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((url, answer));
            }
            let location = answer.headers.get(header::LOCATION).cloned();
            answer.skip().await;
            let location = location.as_ref().map(HeaderValue::as_bytes);
            url = redirected(&url, location).map_err(|problem| RemoteError::Redirect {
                url: shown(&url),
                problem,
            })?;
        }
        Err(RemoteError::Redirect {
            url: shown(&self.url),
            problem: RedirectProblem::TooMany {
                max: self.options.redirects_max,
            },
        })
    }
}

impl Answer {
    /// Reads over a short one: its connection is used again only when its end was seen.
    pub(super) async fn skip(mut self) {
        let mut skipped = 0;
        let skip = async {
            while skipped < UNWANTED_BYTES_MAX {
                match self.body.next().await {
                    Ok(came) if !came.is_empty() => skipped += came.len(),
                    _ => break,
                }
            }
        };
        let _ = timeout(UNWANTED_FOR, skip).await;
    }

    /// What a status that brings nothing is.
    pub(super) fn refusal(&self, url: &Url) -> RemoteError {
        let asks = self.headers.get(header::RETRY_AFTER);
        let asks = asks.and_then(|asks| asks.to_str().ok());
        RemoteError::Status {
            url: shown(url),
            status: self.status.as_u16(),
            retry_after: asks.and_then(|text| retry_after(text, SystemTime::now())),
        }
    }

    /// How the body was encoded on its way, if it was.
    pub(super) fn encoding(&self) -> Option<String> {
        let encoding = self.headers.get(header::CONTENT_ENCODING)?.as_bytes();
        let plain = encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity");
        (!plain).then(|| String::from_utf8_lossy(encoding).into_owned())
    }

    /// How long the body is, if that is said.
    pub(super) fn length(&self) -> Option<u64> {
        if self.headers.contains_key(header::TRANSFER_ENCODING) {
            return None;
        }
        number(self.headers.get(header::CONTENT_LENGTH)?.to_str().ok()?)
    }
}

/// What is sent with each request to the address's origin.
fn headers(options: &RemoteOptions) -> Result<HeaderMap, RemoteError> {
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
    Ok(headers)
}
