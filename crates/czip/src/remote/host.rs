//! Small things on a web server, each at an address of its own below one: asked for whole.
//!
//! Unlike a [`Remote`](super::Remote) there is no file whose version could change: what comes is for the
//! caller to check. Nothing is tried twice here.

use std::{
    io::Read,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use ureq::http::{HeaderMap, Method, Request, Response, header};
use url::Url;

use super::{
    address::{checked_base, parse, redirected, shown},
    agent::Agents,
    attempts::Attempts,
    body::Body,
    content_range::retry_after,
    counters::{Counters, Tally},
    error::{RedirectProblem, RemoteError},
    options::RemoteOptions,
    server::{encoding, headers, length, lock},
};

/// A body that comes more slowly than this, beyond a first wait, does not come.
const BYTES_PER_SECOND_MIN: u64 = 1 << 10;

/// Of an answer that is not wanted, so much is read to use its connection again, and for so long.
const UNWANTED_BYTES_MAX: u64 = 16 << 10;
const UNWANTED_FOR: Duration = Duration::from_secs(1);

/// A web server, and an address of it.
pub(crate) struct Host {
    options: RemoteOptions,
    tally: Arc<Tally>,
    /// Its path ends with a slash.
    base: Url,
    headers: HeaderMap,
    agents: Agents,
    chance: Mutex<fastrand::Rng>,
    was_reached: AtomicBool,
}

/// What is left of a thing that comes.
pub(crate) struct HostBody {
    body: Body,
    announced: Option<u64>,
    begun: Instant,
    patience: Duration,
    read_bytes: u64,
}

impl Host {
    /// What is below `base`. Headers that the options name are sent.
    pub(crate) fn new(base: &str, options: RemoteOptions) -> Result<Self, RemoteError> {
        let base = checked_base(parse(base)?)?;
        let headers = headers(&options)?;
        let chance = options
            .seed
            .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Ok(Self {
            options,
            tally: Arc::default(),
            base,
            headers,
            agents: Agents::default(),
            chance: Mutex::new(chance),
            was_reached: AtomicBool::new(false),
        })
    }

    /// The address that all is below.
    pub(crate) fn url(&self) -> &str {
        self.base.as_str()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.tally.counters()
    }

    pub(crate) fn attempts(&self) -> Attempts {
        Attempts::new(&self.options, lock(&self.chance).fork())
    }

    /// The pause before the next attempt, after one that failed, or the error if there is none.
    pub(crate) fn failed(
        &self,
        attempts: &mut Attempts,
        error: RemoteError,
    ) -> Result<Duration, RemoteError> {
        // Its connections were broken here: the server did nothing.
        if self.agents.is_closed() {
            return Err(error);
        }
        let pause = attempts.failed(error, self.was_reached.load(Relaxed))?;
        self.tally.retry();
        Ok(pause)
    }

    /// Breaks all connections: who waits for one fails, now and later.
    pub(crate) fn close(&self) {
        self.agents.close();
    }

    /// Asks for what is at `path`. None if there is nothing.
    pub(crate) fn get(&self, path: &str) -> Result<Option<HostBody>, RemoteError> {
        let mut url = self.below(path);
        for _ in 0..=self.options.redirects_max {
            let request = Request::builder().method(Method::GET).uri(url.as_str());
            let response = self.send(&url, request, &[])?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return self.answer(&url, response);
            }
            let location = response.headers().get(header::LOCATION).cloned();
            skip(response);
            let location = location.as_ref().map(|location| location.as_bytes());
            url = redirected(&url, location).map_err(|problem| RemoteError::Redirect {
                url: shown(&url),
                problem,
            })?;
        }
        Err(RemoteError::Redirect {
            url: shown(&self.below(path)),
            problem: RedirectProblem::TooMany {
                max: self.options.redirects_max,
            },
        })
    }

    /// Sends `body` to what is at `path`. None if there is nothing. Redirects are not followed.
    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Result<Option<HostBody>, RemoteError> {
        let url = self.below(path);
        let request = Request::builder().method(Method::POST).uri(url.as_str());
        let request = request.header(header::CONTENT_TYPE, "application/octet-stream");
        let response = self.send(&url, request, body)?;
        self.answer(&url, response)
    }

    fn below(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path()));
        url
    }

    fn send(
        &self,
        url: &Url,
        request: ureq::http::request::Builder,
        body: &[u8],
    ) -> Result<Response<ureq::Body>, RemoteError> {
        let failed = |source| RemoteError::Connection {
            url: shown(url),
            source: Box::new(source),
        };
        let mut request = request.header(header::ACCEPT_ENCODING, "identity");
        if url.origin() == self.base.origin()
            && let Some(headers) = request.headers_mut()
        {
            for (name, value) in &self.headers {
                headers.append(name, value.clone());
            }
        }
        let agent = self.agents.get(url.scheme(), &self.options)?;
        self.tally.request();
        let built = |error: ureq::http::Error| failed(error.into());
        match body {
            [] => agent.run(request.body(()).map_err(built)?),
            body => agent.run(request.body(body).map_err(built)?),
        }
        .map_err(failed)
    }

    fn answer(
        &self,
        url: &Url,
        response: Response<ureq::Body>,
    ) -> Result<Option<HostBody>, RemoteError> {
        let status = response.status().as_u16();
        match status {
            200 => {}
            404 | 410 => {
                self.was_reached.store(true, Relaxed);
                skip(response);
                return Ok(None);
            }
            _ => {
                let asks = response.headers().get(header::RETRY_AFTER);
                let asks = asks.and_then(|asks| asks.to_str().ok());
                let error = RemoteError::Status {
                    url: shown(url),
                    status,
                    retry_after: asks
                        .and_then(|text| retry_after(text, std::time::SystemTime::now())),
                };
                skip(response);
                return Err(error);
            }
        }
        self.was_reached.store(true, Relaxed);
        if let Some(encoding) = encoding(response.headers()) {
            let url = shown(url);
            return Err(RemoteError::Encoded { url, encoding });
        }
        let announced = length(response.headers());
        let reader = response.into_body().into_reader();
        Ok(Some(HostBody {
            body: Body::new(reader, self.tally.clone(), shown(url), 0, announced),
            announced,
            begun: Instant::now(),
            patience: self.options.progress_timeout,
            read_bytes: 0,
        }))
    }
}

/// Reads over a short answer: its connection is used again only when its end was seen.
fn skip(response: Response<ureq::Body>) {
    let begun = Instant::now();
    let mut body = response.into_body().into_reader().take(UNWANTED_BYTES_MAX);
    let mut block = [0; 4 << 10];
    while begun.elapsed() < UNWANTED_FOR && body.read(&mut block).is_ok_and(|read| read > 0) {}
}

impl HostBody {
    /// Reads some bytes. 0 is the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, RemoteError> {
        let read = self.body.read(buffer)?;
        self.read_bytes += read as u64;
        let taken = self.begun.elapsed();
        let worth = Duration::from_secs(self.read_bytes / BYTES_PER_SECOND_MIN);
        if taken > self.patience + worth {
            return Err(RemoteError::Slow {
                url: self.body.url().to_owned(),
                bytes: self.read_bytes,
                taken,
            });
        }
        Ok(read)
    }

    /// Fills `buffer`.
    pub(crate) fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), RemoteError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..])? {
                0 => {
                    return Err(RemoteError::Truncated {
                        url: self.body.url().to_owned(),
                        at: self.read_bytes,
                        missing: (buffer.len() - filled) as u64,
                    });
                }
                read => filled += read,
            }
        }
        Ok(())
    }

    /// All that is left, if it is at most `bytes_max`.
    pub(crate) fn read_all(mut self, bytes_max: u64) -> Result<Option<Vec<u8>>, RemoteError> {
        if self.announced.is_some_and(|bytes| bytes > bytes_max) {
            return Ok(None);
        }
        let mut all = Vec::new();
        let mut block = [0; 16 << 10];
        loop {
            match self.read(&mut block)? {
                0 => break,
                read => all.extend_from_slice(&block[..read]),
            }
            if all.len() as u64 > bytes_max {
                return Ok(None);
            }
        }
        match self.announced {
            // Its end is seen, so that its connection is used again.
            Some(_) => self.body.finish().map(|()| Some(all)),
            None => Ok(Some(all)),
        }
    }

    /// Whether nothing follows.
    pub(crate) fn ends(mut self) -> Result<bool, RemoteError> {
        match self.announced {
            Some(bytes) if bytes != self.read_bytes => Ok(false),
            Some(_) => self.body.finish().map(|()| true),
            None => Ok(self.read(&mut [0])? == 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::remote::OnRetry;

    #[test]
    fn nobody_is_told_to_wait_for_a_server_whose_connections_were_broken_here() {
        let told = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&told);
        let options = RemoteOptions {
            on_retry: OnRetry::new(move |_| {
                counted.fetch_add(1, Relaxed);
            }),
            ..RemoteOptions::default()
        };
        let host = Host::new("http://127.0.0.1:9/", options).expect("an address");
        let error = || RemoteError::Status {
            url: String::new(),
            status: 503,
            retry_after: None,
        };
        let mut attempts = host.attempts();
        host.failed(&mut attempts, error()).expect("a pause");
        assert_eq!(told.load(Relaxed), 1);
        host.close();
        host.failed(&mut attempts, error()).expect_err("no pause");
        assert_eq!(told.load(Relaxed), 1);
    }
}
