//! The body of an answer: bytes of the file from some offset on.

use std::sync::Arc;

use super::{
    agent::Receiving,
    asked::Asked,
    counters::Tally,
    error::{ConnectionError, Lie, RemoteError},
    lock,
};

/// What is left of a body.
pub(super) struct Body {
    reader: Box<Receiving>,
    tally: Arc<Tally>,
    url: String,
    start: u64,
    /// The offset in the file of the next byte.
    position: u64,
    /// Where it ends. None if the server did not say.
    end: Option<u64>,
}

impl Body {
    pub(super) fn new(
        reader: Receiving,
        tally: Arc<Tally>,
        url: String,
        start: u64,
        end: Option<u64>,
    ) -> Self {
        Self {
            reader: Box::new(reader),
            tally,
            url,
            start,
            position: start,
            end,
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Reads some bytes, at most to the body's end. 0 is the end, where none was announced.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, RemoteError> {
        let left = self.end.map_or(u64::MAX, |end| end - self.position);
        let wanted = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let read = match self.read_raw(&mut buffer[..wanted]) {
            // How much is missing is known better here.
            Err(RemoteError::Connection { source, .. })
                if self.end.is_some() && *source == ConnectionError::EndedEarly =>
            {
                0
            }
            read => read?,
        };
        match self.end {
            Some(end) if read == 0 => Err(RemoteError::Truncated {
                url: self.url.clone(),
                at: self.position,
                missing: end - self.position,
            }),
            _ => Ok(read),
        }
    }

    /// Reads over what comes before `offset`, with `scratch` to read it into. False if the body ended.
    pub(super) fn skip_to(&mut self, offset: u64, scratch: &mut [u8]) -> Result<bool, RemoteError> {
        while self.position < offset {
            let left = usize::try_from(offset - self.position).unwrap_or(usize::MAX);
            let most = left.min(scratch.len());
            if self.read(&mut scratch[..most])? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes sure that nothing follows the last byte, which has been read. The connection is used again
    /// only when its end was seen.
    pub(super) fn finish(mut self) -> Result<(), RemoteError> {
        match self.read_raw(&mut [0]) {
            // What breaks now breaks too late to matter.
            Ok(0) | Err(_) => Ok(()),
            Ok(_) => {
                let range = self.start..self.end.unwrap_or(self.position);
                let expected = range.end - range.start;
                Err(RemoteError::Lie {
                    url: self.url,
                    asked: Asked::Bytes(range).to_string(),
                    lie: Lie::TooMany { expected },
                })
            }
        }
    }

    fn read_raw(&mut self, buffer: &mut [u8]) -> Result<usize, RemoteError> {
        let read = self
            .reader
            .read(buffer)
            .map_err(|error| RemoteError::Connection {
                url: self.url.clone(),
                source: Box::new(error),
            })?;
        lock(&self.tally).body_bytes += read as u64;
        self.position = self.position.saturating_add(read as u64);
        Ok(read)
    }
}
