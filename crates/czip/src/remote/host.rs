//! Small things on a web server, each at an address of its own below one: asked for whole.
//!
//! Unlike a [`Remote`](super::Remote) there is no file whose version could change: what comes is for the
//! caller to check. Nothing is tried twice here.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Method,
    header::{self, HeaderValue},
};
use url::Url;

use super::{
    address::{checked_base, parse, shown},
    agent::{Agents, Answer},
    attempts::Attempts,
    body::Body,
    client::Client,
    counters::Counters,
    error::RemoteError,
    options::RemoteOptions,
};

/// A body that comes more slowly than this, beyond a first wait, does not come.
const BYTES_PER_SECOND_MIN: u64 = 1 << 10;

/// A web server, and an address of it.
///
/// Its methods wait in the thread that calls them, which must not be one that runs futures.
pub struct Host {
    /// The path of its address ends with a slash.
    client: Client,
    agents: Agents,
    was_reached: AtomicBool,
}

/// What is left of a thing that comes.
pub struct HostBody {
    body: Body,
    begun: Instant,
    patience: Duration,
}

impl Host {
    /// What is below `base`. Headers that the options name are sent.
    ///
    /// # Errors
    /// If `base` or an option cannot be used.
    pub fn new(base: &str, options: RemoteOptions) -> Result<Self, RemoteError> {
        let client = Client::new(checked_base(parse(base)?)?, options)?;
        Ok(Self {
            agents: client.agents(),
            client,
            was_reached: AtomicBool::new(false),
        })
    }

    /// The address that all is below.
    pub(crate) fn url(&self) -> &str {
        self.client.url().as_str()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.client.tally.counters()
    }

    pub(crate) fn attempts(&self) -> Attempts {
        self.client.attempts()
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
        self.client.tally.retry();
        Ok(pause)
    }

    /// Breaks all connections: who waits for one fails, now and later.
    pub(crate) fn close(&self) {
        self.agents.close();
    }

    /// Asks for what is at `path`. None if there is nothing.
    ///
    /// # Errors
    /// If the server cannot be asked, or answers with a status that brings nothing.
    pub fn get(&self, path: &str) -> Result<Option<HostBody>, RemoteError> {
        let (method, url) = (&Method::GET, self.below(path));
        let (url, answer) = self
            .client
            .follow(&self.agents, method, url, &HeaderMap::new)?;
        self.body(&url, answer)
    }

    /// Sends `body` to what is at `path`. None if there is nothing. Redirects are not followed.
    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Result<Option<HostBody>, RemoteError> {
        let url = self.below(path);
        let media_type = HeaderValue::from_static("application/octet-stream");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, media_type)]);
        let body = Bytes::copy_from_slice(body);
        let answer = (self.client).send(&self.agents, Method::POST, &url, headers, body)?;
        self.body(&url, answer)
    }

    fn below(&self, path: &str) -> Url {
        let mut url = self.client.url().clone();
        url.set_path(&format!("{}{path}", url.path()));
        url
    }

    fn body(&self, url: &Url, answer: Answer) -> Result<Option<HostBody>, RemoteError> {
        match answer.status.as_u16() {
            200 => {}
            404 | 410 => {
                self.was_reached.store(true, Relaxed);
                answer.skip();
                return Ok(None);
            }
            _ => {
                let error = answer.refusal(url);
                answer.skip();
                return Err(error);
            }
        }
        self.was_reached.store(true, Relaxed);
        if let Some(encoding) = answer.encoding() {
            let url = shown(url);
            return Err(RemoteError::Encoded { url, encoding });
        }
        let announced = answer.length();
        let tally = self.client.tally.clone();
        Ok(Some(HostBody {
            body: Body::new(answer.body, tally, shown(url), 0, announced),
            begun: Instant::now(),
            patience: self.client.options.progress_timeout,
        }))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host")
            .field(&shown(self.client.url()))
            .finish()
    }
}

impl fmt::Debug for HostBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBody")
            .field("url", &self.body.url())
            .field("read_bytes", &self.body.position())
            .finish_non_exhaustive()
    }
}

impl HostBody {
    /// Reads some bytes. 0 is the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, RemoteError> {
        let read = self.body.read(buffer)?;
        let bytes = self.body.position();
        let taken = self.begun.elapsed();
        let worth = Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
        if taken > self.patience + worth {
            return Err(RemoteError::Slow {
                url: self.body.url().to_owned(),
                bytes,
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
                        at: self.body.position(),
                        missing: (buffer.len() - filled) as u64,
                    });
                }
                read => filled += read,
            }
        }
        Ok(())
    }

    /// All that is left, if it is at most `bytes_max`.
    ///
    /// # Errors
    /// If it does not come, or too slowly.
    pub fn read_all(mut self, bytes_max: u64) -> Result<Option<Vec<u8>>, RemoteError> {
        if self.body.end().is_some_and(|bytes| bytes > bytes_max) {
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
        match self.body.end() {
            // Its end is seen, so that its connection is used again.
            Some(_) => self.body.finish().map(|()| Some(all)),
            None => Ok(Some(all)),
        }
    }

    /// Whether nothing follows.
    pub(crate) fn ends(mut self) -> Result<bool, RemoteError> {
        match self.body.end() {
            Some(bytes) if bytes != self.body.position() => Ok(false),
            Some(_) => self.body.finish().map(|()| true),
            None => Ok(self.read(&mut [0])? == 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicUsize};

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
