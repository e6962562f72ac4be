//! The body of an answer: bytes of the file from some offset on.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use super::{
    agent::Receiving,
    asked::Asked,
    counters::Tally,
    error::{ConnectionError, Lie, RemoteError},
    lock,
};

/// What is left of a body.
pub(super) struct Body {
    pub(super) reader: Box<Receiving>,
    pub(super) tally: Arc<Tally>,
    pub(super) url: String,
    /// The bytes of the file that it has. None: all of them.
    pub(super) part: Option<Range<u64>>,
    /// The offset in the file of the next byte.
    pub(super) position: u64,
    /// Where it ends. None if the server did not say.
    pub(super) end: Option<u64>,
}

impl Body {
    /// The next bytes, at most `most` and up to the body's end. None are the end, where none was announced.
    pub(super) async fn read(&mut self, most: usize) -> Result<Bytes, RemoteError> {
        let left = self.end.map_or(u64::MAX, |end| end - self.position);
        let wanted = most.min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let read = match self.read_raw(wanted).await {
            // How much is missing is known better here.
            Err(RemoteError::Connection { source, .. })
                if self.end.is_some() && *source == ConnectionError::EndedEarly =>
            {
                Bytes::new()
            }
            read => read?,
        };
        match self.end {
            Some(end) if read.is_empty() => Err(RemoteError::Truncated {
                url: self.url.clone(),
                at: self.position,
                missing: end - self.position,
            }),
            _ => Ok(read),
        }
    }

    /// Reads over what comes before `offset`. False if the body ended.
    pub(super) async fn skip_to(&mut self, offset: u64) -> Result<bool, RemoteError> {
        while self.position < offset {
            let left = usize::try_from(offset - self.position).unwrap_or(usize::MAX);
            if self.read(left).await?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes sure that nothing follows the last byte, which has been read. The connection is used again
    /// only when its end was seen.
    pub(super) async fn finish(mut self) -> Result<(), RemoteError> {
        match self.read_raw(1).await {
            Ok(more) if !more.is_empty() => {
                let range = self.part.unwrap_or(0..self.position);
                let expected = range.end - range.start;
                Err(RemoteError::Lie {
                    url: self.url,
                    asked: Asked::Bytes(range).to_string(),
                    lie: Lie::TooMany { expected },
                })
            }
            // What breaks now breaks too late to matter.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn read_raw(&mut self, most: usize) -> Result<Bytes, RemoteError> {
        let read = self.reader.read(most).await;
        let read = read.map_err(|error| RemoteError::Connection {
            url: self.url.clone(),
            source: Box::new(error),
        })?;
        lock(&self.tally).body_bytes += read.len() as u64;
        self.position = self.position.saturating_add(read.len() as u64);
        Ok(read)
    }
}
