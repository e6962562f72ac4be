//! A range of the file, asked for, and asked for again from the byte at which it broke.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use super::{asked::Asked, attempts::Attempts, body::Body, error::RemoteError, server::Server};

/// What is left of a range.
pub(super) struct Part {
    server: Arc<Server>,
    pub(super) left: Range<u64>,
    /// What brings it, if that is here.
    pub(super) body: Option<Body>,
    attempts: Attempts,
}

impl Part {
    /// A range of which `body` may bring the beginning.
    pub(super) fn new(server: &Arc<Server>, range: Range<u64>, body: Option<Body>) -> Self {
        Self {
            server: server.clone(),
            left: range,
            body,
            attempts: server.attempts(),
        }
    }

    pub(super) fn left_bytes(&self) -> usize {
        usize::try_from(self.left.end - self.left.start).unwrap_or(usize::MAX)
    }

    /// The next bytes, at most `most`. None are the end of a file whose length was not announced; or nothing
    /// was read, where a whole body came that is not wanted (`takes_whole`).
    pub(super) async fn read(
        &mut self,
        most: usize,
        takes_whole: bool,
    ) -> Result<Bytes, RemoteError> {
        loop {
            match self.try_read(most, takes_whole).await {
                Err(error) => (self.server.pause_after(&mut self.attempts, error)).await?,
                read => return read,
            }
        }
    }

    async fn try_read(&mut self, most: usize, takes_whole: bool) -> Result<Bytes, RemoteError> {
        let begin = self.left.start;
        let mut body = match self.body.take().filter(|body| body.position <= begin) {
            Some(body) => body,
            None if self.server.has_ranges() => {
                self.server.ask(&Asked::Bytes(self.left.clone())).await?
            }
            None => self.server.ask(&Asked::All).await?,
        };
        let is_whole = body.part.is_none();
        let read = match takes_whole || !is_whole {
            true if body.skip_to(begin).await? => body.read(most.min(self.left_bytes())).await?,
            _ => Bytes::new(),
        };
        self.left.start += read.len() as u64;
        self.attempts.gained(read.len() as u64);
        match self.left.is_empty() && !is_whole {
            true => body.finish().await?,
            false => self.body = Some(body),
        }
        Ok(read)
    }
}
