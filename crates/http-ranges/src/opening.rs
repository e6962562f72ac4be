//! The first requests: whether a server has ranges, and how long the file is.

use std::thread;

use super::{Remote, body::Body, error::RemoteError, lock, part::Part, server::Answer};

impl Remote {
    /// The first request, tried as often as the options say.
    pub(super) fn ask_first(&self) -> Result<Answer, RemoteError> {
        let server = &self.server;
        let first = server.client.options.first_bytes.max(1) as u64;
        let mut attempts = server.attempts();
        loop {
            let error = match server.ask_first(first) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let pause = attempts.failed(error, server.was_reached())?;
            lock(&server.client.tally).retries += 1;
            thread::sleep(pause);
        }
    }

    pub(super) fn read_first(&self, body: Body) -> Result<Vec<u8>, RemoteError> {
        let first = self.server.client.options.first_bytes.max(1);
        let len = usize::try_from(self.len().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let range = 0..first.min(len) as u64;
        let mut read = Vec::new();
        let part = Part::begun(&self.server, range.clone(), body);
        self.read_part(part, range, &mut |_, bytes| read.extend_from_slice(bytes))?;
        Ok(read)
    }
}
