//! A range of the file, asked for, and asked for again from the byte at which it broke.

use std::{ops::Range, sync::Arc, time::Duration};

use super::{
    agent::Agents,
    asked::Asked,
    attempts::Attempts,
    body::Body,
    error::RemoteError,
    lock,
    server::{Answer, Server},
};

/// What is left of a range.
pub(super) struct Part<'a> {
    server: &'a Server,
    agents: Arc<Agents>,
    left: Range<u64>,
    body: Option<Body>,
    attempts: Attempts,
}

/// What reading brings.
pub(super) enum Got {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now: read again after a pause.
    Pause(Duration),
    /// The server has no ranges: it sent the file from its beginning.
    Whole(Body),
}

impl<'a> Part<'a> {
    /// Reads over `agents` while they work.
    pub(super) fn new(server: &'a Server, agents: Arc<Agents>, range: Range<u64>) -> Self {
        Self {
            server,
            agents,
            left: range,
            body: None,
            attempts: server.attempts(),
        }
    }

    /// The same, where `body` already brings what is at its beginning.
    pub(super) fn begun(server: &'a Server, range: Range<u64>, body: Body) -> Self {
        Self {
            body: Some(body),
            ..Self::new(server, server.agents(), range)
        }
    }

    pub(super) fn left_bytes(&self) -> u64 {
        self.left.end - self.left.start
    }

    /// Reads some of what is left into `buffer`, which is not longer than that, nor empty.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<Got, RemoteError> {
        self.try_read(buffer).or_else(|error| {
            self.body = None;
            let was_broken = self.agents.is_closed();
            self.agents = self.server.agents();
            if was_broken {
                // Another fetch of the file failed, and broke all connections: the server did nothing.
                return Ok(Got::Pause(Duration::ZERO));
            }
            let pause = self.attempts.failed(error, self.server.was_reached())?;
            lock(&self.server.client.tally).retries += 1;
            Ok(Got::Pause(pause))
        })
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> Result<Got, RemoteError> {
        let mut body = match self.body.take() {
            Some(body) => body,
            None => match self
                .server
                .ask(&self.agents, &Asked::Bytes(self.left.clone()))?
            {
                Answer::Part(body) => body,
                Answer::Whole(body) => return Ok(Got::Whole(body)),
            },
        };
        let read = body.read(buffer)?;
        self.left.start += read as u64;
        self.attempts.gained(read as u64);
        if self.left.is_empty() {
            body.finish()?;
        } else {
            self.body = Some(body);
        }
        Ok(Got::Bytes(read))
    }
}
