//! The first requests: whether a server has ranges, and how long the file is.

use std::thread;

use super::{
    Remote,
    asked::Asked,
    body::Body,
    error::RemoteError,
    part::Part,
    server::{Answer, Server},
    whole::Whole,
};

impl Remote {
    /// The first request, tried as often as the options say.
    pub(super) fn ask_first(&self) -> Result<Answer, RemoteError> {
        let first = self.server.client.options.first_bytes.max(1) as u64;
        self.try_often(
            |server| match server.ask(&server.agents(), &Asked::First(first)) {
                // An empty file has no first byte.
                Err(RemoteError::Status { status: 416, .. }) => {
                    server.ask(&server.agents(), &Asked::All)
                }
                answer => answer,
            },
        )
    }

    /// Finds out how long the file is, where the first answer does not say.
    pub(super) fn ask_length(&self) -> Result<(), RemoteError> {
        self.try_often(Server::ask_length)?;
        if self.len().is_some() {
            return Ok(());
        }
        match self.try_often(|server| server.ask(&server.agents(), &Asked::Last))? {
            Answer::Part(_) => Ok(()),
            Answer::Whole(body) => {
                self.remember_whole(Whole::begun(body));
                Ok(())
            }
        }
    }

    fn try_often<T>(
        &self,
        mut attempt: impl FnMut(&Server) -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        let mut attempts = self.server.attempts();
        loop {
            match attempt(&self.server) {
                Ok(done) => return Ok(done),
                Err(error) => {
                    let pause = attempts.failed(error, self.server.was_reached())?;
                    self.server.client.tally.retry();
                    thread::sleep(pause);
                }
            }
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
