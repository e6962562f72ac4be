//! Messages of HTTP/2 streams through pipes, in the form of HTTP/1.1 ([`crate::http_proxy::http2`]).

use std::{future::poll_fn, io, mem};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use tokio::select;

use super::pipe::{CERTIFICATE_REQUIRED, PipeEnd};
use crate::http_proxy::{
    self, Body, HEAD_BYTES_MAX,
    http2::{self, Framing, Malformed},
};

/// What is read of a pipe, or sent by a stream, at once.
const PIECE_BYTES: usize = 16 << 10;

/// Why a message does not pass to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// The other side reset the stream.
    #[error("the HTTP/2 stream was reset")]
    Reset,
    /// The stream or its connection has failed.
    #[error("the HTTP/2 stream ended: {0}")]
    Stream(#[from] h2::Error),
    /// The pipe was reset.
    #[error("{0}")]
    Pipe(#[from] io::Error),
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// The message ended too early.
    #[error("the message is not whole")]
    Truncated,
}

impl Stop {
    /// Whether the other side requires a certificate of the client. Of errors of a connection, h2 keeps the text.
    pub(crate) fn is_without_certificate(&self) -> bool {
        match self {
            Stop::Stream(error) if error.is_io() => error
                .to_string()
                .contains(&CERTIFICATE_REQUIRED.to_string()),
            _ => false,
        }
    }

    /// The code with which the other side reset the stream.
    pub(crate) fn stream_reset(&self) -> Option<Reason> {
        match self {
            Stop::Stream(error) if error.is_reset() && error.is_remote() => error.reason(),
            _ => None,
        }
    }
}

/// Messages that come out of a pipe.
pub(crate) struct Messages<'a> {
    pipe: &'a PipeEnd,
    /// Received bytes that were not used.
    received: Vec<u8>,
}

impl<'a> Messages<'a> {
    pub(crate) fn of(pipe: &'a PipeEnd) -> Messages<'a> {
        Messages {
            pipe,
            received: Vec::new(),
        }
    }

    /// Reads more; false at the end.
    async fn fill(&mut self) -> io::Result<bool> {
        if self.received.is_empty() {
            // While nothing comes, it has no memory.
            self.received = Vec::new();
        }
        self.pipe.readable().await?;
        let received = &mut self.received;
        let read = self
            .pipe
            .try_read_with(PIECE_BYTES, |bytes| received.extend(bytes));
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            read => Ok(read? > 0),
        }
    }

    /// Reads the next head; nothing at the end. May be given up at any time.
    pub(crate) async fn head(&mut self) -> Result<Option<Vec<u8>>, Stop> {
        let mut searched = 0;
        loop {
            if let Some(end) = http_proxy::end_of_head(&self.received, searched) {
                let rest = self.received.split_off(end);
                return Ok(Some(mem::replace(&mut self.received, rest)));
            }
            if self.received.len() > HEAD_BYTES_MAX {
                return Err(Malformed.into());
            }
            searched = self.received.len();
            if !self.fill().await? {
                return match self.received.is_empty() {
                    true => Ok(None),
                    false => Err(Stop::Truncated),
                };
            }
        }
    }

    /// Sends a body, up to its end.
    pub(crate) async fn send_body(
        &mut self,
        mut body: Body,
        stream: &mut SendStream<Bytes>,
    ) -> Result<(), Stop> {
        let mut trailers = Vec::new();
        loop {
            let mut content = Vec::new();
            let taken = body.split(&self.received, &mut content, &mut trailers);
            self.received.drain(..taken);
            if body == Body::Malformed || trailers.len() > HEAD_BYTES_MAX {
                return Err(Malformed.into());
            }
            let has_ended = body.has_ended();
            let is_last = has_ended && trailers.is_empty();
            if is_last || !content.is_empty() {
                send(content.into(), is_last, stream, self.pipe).await?;
            }
            if has_ended {
                if !trailers.is_empty() {
                    stream.send_trailers(http2::trailers(trailers)?)?;
                }
                return Ok(());
            }
            let more = select! {
                more = self.fill() => more?,
                reset = poll_fn(|context| stream.poll_reset(context)) => {
                    reset?;
                    return Err(Stop::Reset);
                }
            };
            if !more {
                return match body {
                    Body::UntilClose => send(Bytes::new(), true, stream, self.pipe).await,
                    _ => Err(Stop::Truncated),
                };
            }
        }
    }
}

/// Sends content as fast as the other side takes it, unless the pipe fails that it came from.
async fn send(
    mut content: Bytes,
    is_last: bool,
    stream: &mut SendStream<Bytes>,
    pipe: &PipeEnd,
) -> Result<(), Stop> {
    while !content.is_empty() {
        stream.reserve_capacity(content.len());
        while stream.capacity() == 0 {
            // Boxed: most streams have room.
            let waiting = Box::pin(async {
                select! {
                    capacity = poll_fn(|context| stream.poll_capacity(context)) => Ok(capacity),
                    error = pipe.failed() => Err(error),
                }
            });
            waiting.await?.ok_or(Stop::Reset)??;
        }
        let piece = content.split_to(stream.capacity().min(content.len()));
        let ends = is_last && content.is_empty();
        stream.send_data(piece, ends)?;
        if ends {
            return Ok(());
        }
    }
    if is_last {
        stream.send_data(Bytes::new(), true)?;
    }
    Ok(())
}

/// Writes the body of a stream behind its head, up to its end. Its other side may send as much as the pipe takes.
pub(crate) async fn receive_body(
    stream: &mut RecvStream,
    framing: Framing,
    pipe: &PipeEnd,
) -> Result<(), Stop> {
    let is_chunked = framing == Framing::Chunked;
    while let Some(data) = stream.data().await {
        let data = data?;
        if is_chunked && !data.is_empty() {
            pipe.write_all(format!("{:x}\r\n", data.len()).as_bytes())
                .await?;
        }
        pipe.write_all(&data).await?;
        if is_chunked && !data.is_empty() {
            pipe.write_all(b"\r\n").await?;
        }
        stream.flow_control().release_capacity(data.len())?;
    }
    let trailers = stream.trailers().await?;
    if is_chunked {
        let lines = trailers.as_ref().map(http2::trailer_lines);
        let lines = lines.unwrap_or_default();
        pipe.write_all(&[b"0\r\n", &lines[..], b"\r\n"].concat())
            .await?;
    }
    Ok(())
}
