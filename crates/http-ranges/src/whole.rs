//! The file of a server without ranges: one body, read from its beginning.
//!
//! The body is kept between reads: who reads onward gets all from one request. Who goes back makes the
//! server send all again.

use std::thread;

use super::{
    asked::Asked,
    attempts::Attempts,
    body::Body,
    error::RemoteError,
    lock,
    server::{Answer, Server},
};

const SCRATCH_BYTES: usize = 64 << 10;

/// How far the file was read.
#[derive(Default)]
pub(super) struct Whole {
    body: Option<Body>,
}

impl Whole {
    pub(super) fn begun(body: Body) -> Self {
        Self { body: Some(body) }
    }

    /// Reads some bytes at `offset`. 0 is the file's end.
    pub(super) fn read(
        &mut self,
        server: &Server,
        attempts: &mut Attempts,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, RemoteError> {
        loop {
            match self.try_read(server, offset, buffer) {
                Ok(read) => {
                    attempts.gained(read as u64);
                    return Ok(read);
                }
                Err(error) => {
                    self.body = None;
                    let pause = attempts.failed(error, server.was_reached())?;
                    lock(&server.client.tally).retries += 1;
                    thread::sleep(pause);
                }
            }
        }
    }

    fn try_read(
        &mut self,
        server: &Server,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, RemoteError> {
        let usable = self.body.take().filter(|body| body.position() <= offset);
        let mut body = match usable {
            Some(body) => body,
            None => match server.ask(&server.agents(), &Asked::All)? {
                Answer::Whole(body) | Answer::Part(body) => body,
            },
        };
        if body.position() < offset && !body.skip_to(offset, &mut vec![0; SCRATCH_BYTES])? {
            return Ok(0);
        }
        let read = body.read(buffer)?;
        self.body = Some(body);
        Ok(read)
    }
}
