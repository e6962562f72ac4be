//! Small things on a web server, each at an address of its own below one: asked for whole.
//!
//! Unlike a [`Remote`](super::Remote) there is no file whose version could change: what comes is for the
//! caller to check. Nothing is tried twice here.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use hyper::HeaderMap;
use url::Url;

use super::{
    address::{checked_base, parse, shown},
    agent::Answer,
    attempts::Attempts,
    client::Client,
    counters::Counters,
    error::RemoteError,
    lock,
    options::RemoteOptions,
    runtime::wait,
};

/// A body that comes more slowly than this, beyond a first wait, does not come.
const BYTES_PER_SECOND_MIN: u64 = 1 << 10;

/// A web server, and an address of it.
pub struct Host {
    /// The path of its address ends with a slash.
    client: Client,
    was_reached: AtomicBool,
}

impl Host {
    /// What is below `base`. Headers that the options name are sent.
    ///
    /// # Errors
    /// If `base` or an option cannot be used.
    pub fn new(base: &str, options: RemoteOptions) -> Result<Self, RemoteError> {
        let client = Client::new(checked_base(parse(base)?)?, options)?;
        Ok(Self {
            client,
            was_reached: AtomicBool::new(false),
        })
    }

    /// The address that all is below.
    pub fn url(&self) -> &str {
        self.client.url.as_str()
    }

    /// What was asked for and got so far.
    pub fn counters(&self) -> Counters {
        *lock(&self.client.tally)
    }

    /// A count of failures in a row, for [`failed`](Self::failed).
    pub fn attempts(&self) -> Attempts {
        self.client.attempts()
    }

    /// The pause before the next attempt, after one that failed, or the error if there is none.
    pub fn failed(
        &self,
        attempts: &mut Attempts,
        error: RemoteError,
    ) -> Result<Duration, RemoteError> {
        // Its connections were broken here: the server did nothing.
        if self.client.agents.is_closed() {
            return Err(error);
        }
        (self.client).failed(attempts, error, self.was_reached.load(Relaxed))
    }

    /// Breaks all connections: who waits for one fails, now and later.
    pub fn close(&self) {
        self.client.agents.close();
    }

    /// Waits, unless connections are broken.
    pub async fn pause(&self, pause: Duration) {
        self.client.agents.pause(pause).await;
    }

    /// What is at `path`, if there is something. Waits in the thread that calls it, which must not be one
    /// that runs futures.
    ///
    /// # Errors
    /// If the server cannot be asked, answers with a status that brings nothing, sends more than
    /// `bytes_max`, or sends too slowly.
    pub fn get(&self, path: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, RemoteError> {
        wait(self.fetch(path, bytes_max))
    }

    /// The same, for those who run futures.
    pub async fn fetch(&self, path: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, RemoteError> {
        let mut url = self.client.url.clone();
        url.set_path(&format!("{}{path}", url.path()));
        let no_more = HeaderMap::new();
        let (url, answer) = self.client.follow(url, &no_more).await?;
        let status = answer.status.as_u16();
        if status != 200 {
            let refusal = answer.refusal(&url);
            answer.skip().await;
            return match status {
                404 | 410 => {
                    self.was_reached.store(true, Relaxed);
                    Ok(None)
                }
                _ => Err(refusal),
            };
        }
        self.was_reached.store(true, Relaxed);
        if let Some(encoding) = answer.encoding() {
            let url = shown(&url);
            return Err(RemoteError::Encoded { url, encoding });
        }
        self.read(&url, answer, bytes_max).await.map(Some)
    }

    async fn read(
        &self,
        url: &Url,
        mut answer: Answer,
        bytes_max: u64,
    ) -> Result<Vec<u8>, RemoteError> {
        let begun = Instant::now();
        let announced = answer.length().unwrap_or(0);
        let mut all = Vec::new();
        loop {
            if announced.max(all.len() as u64) > bytes_max {
                let url = shown(url);
                return Err(RemoteError::TooLong { url, bytes_max });
            }
            let came = answer.body.next().await;
            let came = came.map_err(|source| RemoteError::Connection {
                url: shown(url),
                source: Box::new(source),
            })?;
            if came.is_empty() {
                return Ok(all);
            }
            lock(&self.client.tally).body_bytes += came.len() as u64;
            all.extend_from_slice(&came);
            let (bytes, taken) = (all.len() as u64, begun.elapsed());
            let worth = Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
            if taken > self.client.options.progress_timeout + worth {
                let url = shown(url);
                return Err(RemoteError::Slow { url, bytes, taken });
            }
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host")
            .field(&shown(&self.client.url))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicUsize};

    use super::*;
    use crate::OnRetry;

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
