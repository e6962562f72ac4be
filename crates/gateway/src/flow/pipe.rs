//! A connection between two tasks of this process: an HTTP/2 stream behaves to a flow like the connection of an
//! application.
//!
//! As with TCP, each direction ends by itself. An end that is dropped before it has ended its own is a reset.

use std::{
    io::{self, ErrorKind},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use h2::Reason;
use rustls::AlertDescription;
use tokio::sync::Notify;

/// The bytes that a direction holds for its reader.
const HELD_BYTES_MAX: usize = 64 << 10;

/// One end of a pipe. One task reads, and one writes.
pub(crate) struct PipeEnd {
    incoming: Arc<Direction>,
    outgoing: Arc<Direction>,
    common: Arc<Common>,
}

/// What both directions share.
#[derive(Default)]
struct Common {
    /// 0 before a reset, [`RESET`] or [`NO_CERTIFICATE`] after one, and [`RESET_BY_STREAM`] with the code of the stream that
    /// caused it.
    state: AtomicU64,
    reset: Notify,
}

const RESET: u64 = 1;
const NO_CERTIFICATE: u64 = 2;
const RESET_BY_STREAM: u64 = 1 << 32;

/// The reset of an HTTP/2 stream, as the error of its pipe.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP/2 stream was reset: {0}")]
pub(crate) struct StreamReset(pub Reason);

impl StreamReset {
    /// The code that an error of a pipe has.
    pub(crate) fn reason_in(error: &io::Error) -> Option<Reason> {
        let reset = error.get_ref()?.downcast_ref::<StreamReset>()?;
        Some(reset.0)
    }
}

/// The alert of a target that requires a certificate of the client. With TLS 1.3, it comes after the handshake.
pub(crate) const CERTIFICATE_REQUIRED: rustls::Error =
    rustls::Error::AlertReceived(AlertDescription::CertificateRequired);

/// Whether an error is this alert.
pub(crate) fn wants_certificate(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    inner == Some(&CERTIFICATE_REQUIRED)
}

#[derive(Default)]
struct Direction {
    state: Mutex<State>,
    readable: Notify,
    writable: Notify,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// How many of them were read.
    read: usize,
    has_ended: bool,
    /// Nobody reads it any more.
    is_unread: bool,
}

impl Direction {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("held for a moment")
    }
}

impl PipeEnd {
    /// Both ends of a new pipe.
    pub(crate) fn pair() -> (PipeEnd, PipeEnd) {
        let (one, other) = (Arc::<Direction>::default(), Arc::<Direction>::default());
        let common = Arc::<Common>::default();
        let end = |incoming: &Arc<Direction>, outgoing: &Arc<Direction>| PipeEnd {
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            common: Arc::clone(&common),
        };
        (end(&one, &other), end(&other, &one))
    }

    fn check(&self) -> io::Result<()> {
        match self.common.state.load(Ordering::Acquire) {
            0 => Ok(()),
            RESET => Err(ErrorKind::ConnectionReset.into()),
            NO_CERTIFICATE => Err(io::Error::other(CERTIFICATE_REQUIRED)),
            state => {
                let reset = StreamReset(Reason::from(state as u32));
                Err(io::Error::new(ErrorKind::ConnectionReset, reset))
            }
        }
    }

    /// Reads what is there, 0 bytes at the end.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read_with(buffer.len(), |bytes| {
            buffer[..bytes.len()].copy_from_slice(bytes);
        })
    }

    /// The same of at most `bytes_max` bytes, which are given to `take`.
    pub(crate) fn try_read_with(
        &self,
        bytes_max: usize,
        take: impl FnOnce(&[u8]),
    ) -> io::Result<usize> {
        self.check()?;
        let mut state = self.incoming.state();
        let there = state.bytes.len() - state.read;
        let read = there.min(bytes_max);
        if read == 0 {
            return match state.has_ended || bytes_max == 0 {
                true => Ok(0),
                false => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let from = state.read;
        take(&state.bytes[from..from + read]);
        state.read += read;
        if read == there {
            state.read = 0;
            // Most pipes wait for long.
            state.bytes = Vec::new();
        }
        drop(state);
        self.incoming.writable.notify_one();
        Ok(read)
    }

    /// Takes some of `bytes`.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        let mut state = self.outgoing.state();
        if state.has_ended || state.is_unread {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let room = HELD_BYTES_MAX - (state.bytes.len() - state.read);
        let taken = room.min(bytes.len());
        if taken == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        if state.bytes.len() + taken > state.bytes.capacity() {
            let read = std::mem::take(&mut state.read);
            state.bytes.drain(..read);
        }
        state.bytes.extend(&bytes[..taken]);
        drop(state);
        self.outgoing.readable.notify_one();
        Ok(taken)
    }

    /// How many bytes a write takes now.
    pub(crate) fn room(&self) -> usize {
        let state = self.outgoing.state();
        HELD_BYTES_MAX - (state.bytes.len() - state.read)
    }

    /// Waits until a read finds something, or the end.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        let something = async {
            while {
                let state = self.incoming.state();
                state.bytes.len() == state.read && !state.has_ended
            } {
                self.incoming.readable.notified().await;
            }
        };
        tokio::select! {
            () = something => Ok(()),
            error = self.failed() => Err(error),
        }
    }

    /// Waits until a write takes something. Boxed, so that tasks have no memory for it while they do not wait.
    pub(crate) fn writable(&self) -> impl Future<Output = io::Result<()>> {
        let room = async {
            while {
                let state = self.outgoing.state();
                !state.is_unread && state.bytes.len() - state.read >= HELD_BYTES_MAX
            } {
                self.outgoing.writable.notified().await;
            }
        };
        Box::pin(async {
            tokio::select! {
                () = room => Ok(()),
                error = self.failed() => Err(error),
            }
        })
    }

    /// Writes all of `bytes`.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until something can be read, and leaves it; false at the end.
    pub(crate) async fn has_more(&self) -> io::Result<bool> {
        self.readable().await?;
        self.check()?;
        let state = self.incoming.state();
        Ok(state.bytes.len() > state.read)
    }

    /// Waits for a reset.
    pub(crate) async fn failed(&self) -> io::Error {
        loop {
            let mut reset = std::pin::pin!(self.common.reset.notified());
            // One that comes between the check and the wait is not missed.
            reset.as_mut().enable();
            if let Err(error) = self.check() {
                return error;
            }
            reset.await;
        }
    }

    /// Ends the outgoing direction.
    pub(crate) fn finish(&self) {
        self.outgoing.state().has_ended = true;
        self.outgoing.readable.notify_one();
    }

    /// Resets both directions. What was not read is lost.
    pub(crate) fn reset(&self) {
        self.reset_as(RESET);
    }

    /// The same, since a stream was reset with this code.
    pub(crate) fn reset_by_stream(&self, reason: Reason) {
        self.reset_as(RESET_BY_STREAM | u64::from(u32::from(reason)));
    }

    /// The same, since a site requires a certificate of the client.
    pub(crate) fn reset_without_certificate(&self) {
        self.reset_as(NO_CERTIFICATE);
    }

    /// The first one counts.
    fn reset_as(&self, state: u64) {
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        let _ = self
            .common
            .state
            .compare_exchange(0, state, success, failure);
        self.common.reset.notify_waiters();
    }

    /// The code of the stream that reset it.
    pub(crate) fn stream_reset(&self) -> Option<Reason> {
        self.check().err().as_ref().and_then(StreamReset::reason_in)
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        if !self.outgoing.state().has_ended {
            return self.reset();
        }
        self.incoming.state().is_unread = true;
        self.incoming.writable.notify_one();
    }
}

#[cfg(test)]
mod tests;
