//! The body of an answer, and the line of the log that is written at its end.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    sync::OwnedSemaphorePermit,
    task::{JoinHandle, spawn_blocking},
};

use super::{
    ServeError, counters::Counters, encoding::Encoder, passing::Passing, sending::Sending,
    socket::Answering,
};

pub(super) struct AnswerBody {
    kind: Kind,
    record: Option<Record>,
}

enum Kind {
    Bytes(Bytes),
    Sending(Box<Sending>, u64),
    Encoding(Box<Encoding>),
    Passing(Box<Passing>),
}

impl AnswerBody {
    pub(super) fn empty() -> Self {
        Self::bytes(Bytes::new())
    }

    pub(super) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::of(Kind::Bytes(bytes.into()))
    }

    /// So many bytes, as they come.
    pub(super) fn sending(sending: Sending, bytes: u64) -> Self {
        Self::of(Kind::Sending(Box::new(sending), bytes))
    }

    /// As many as there are, encoded. The permit is given back at the end.
    pub(super) fn encoding(
        sending: Sending,
        encoder: Encoder,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self::of(Kind::Encoding(Box::new(Encoding {
            sending,
            state: State::Idle(Box::new(encoder)),
            _permit: permit,
        })))
    }

    /// What comes from an origin, as it comes.
    pub(super) fn passing(passing: Passing) -> Self {
        Self::of(Kind::Passing(Box::new(passing)))
    }

    fn of(kind: Kind) -> Self {
        Self { kind, record: None }
    }

    /// Says at the end what became of the request.
    pub(super) fn with_record(mut self, record: Record) -> Self {
        self.record = Some(record);
        self
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = ServeError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ServeError>>> {
        let polled = match &mut self.kind {
            Kind::Bytes(bytes) => Ok(Some(bytes.split_off(0)).filter(|bytes| !bytes.is_empty())),
            Kind::Sending(sending, left) => match ready!(sending.poll_piece(context)) {
                Ok(Some(piece)) => {
                    *left -= piece.len() as u64;
                    Ok(Some(piece))
                }
                other => other,
            },
            Kind::Encoding(encoding) => ready!(encoding.poll_piece(context)),
            Kind::Passing(passing) => ready!(passing.poll_piece(context)),
        };
        let is_over = !matches!(polled, Ok(Some(_)));
        if is_over {
            self.kind = Kind::Bytes(Bytes::new());
        }
        if let Some(record) = &mut self.record {
            match &polled {
                Ok(Some(piece)) => record.sent(piece.len() as u64),
                Ok(None) => {}
                Err(error) => record.failed(error),
            }
        }
        Poll::Ready(polled.transpose().map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Bytes(bytes) => bytes.is_empty(),
            Kind::Sending(_, left) => *left == 0,
            Kind::Encoding(_) => false,
            Kind::Passing(passing) => passing.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Sending(_, left) => SizeHint::with_exact(*left),
            Kind::Encoding(_) => SizeHint::default(),
            Kind::Passing(passing) => passing.size_hint(),
        }
    }
}

struct Encoding {
    sending: Sending,
    state: State,
    _permit: OwnedSemaphorePermit,
}

enum State {
    Idle(Box<Encoder>),
    /// Encoding takes time: a thread does it.
    Working(JoinHandle<io::Result<Encoded>>),
    Over,
}

/// What was made, and the encoder if there is more to come.
type Encoded = (Option<Box<Encoder>>, Vec<u8>);

impl Encoding {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ServeError>> {
        loop {
            if let State::Working(work) = &mut self.state {
                let done = ready!(Pin::new(work).poll(context));
                self.state = State::Over;
                let (encoder, encoded) = done.map_err(|_| ServeError::Stopped)??;
                if let Some(encoder) = encoder {
                    self.state = State::Idle(encoder);
                }
                if !encoded.is_empty() {
                    return Poll::Ready(Ok(Some(encoded.into())));
                }
            }
            if let State::Over = self.state {
                return Poll::Ready(Ok(None));
            }
            let piece = ready!(self.sending.poll_piece(context))?;
            let State::Idle(mut encoder) = std::mem::replace(&mut self.state, State::Over) else {
                unreachable!("it is neither at work nor over");
            };
            self.state = State::Working(spawn_blocking(move || match piece {
                Some(piece) => {
                    let encoded = encoder.encode(&piece)?;
                    Ok((Some(encoder), encoded))
                }
                None => Ok((None, encoder.finish()?)),
            }));
        }
    }
}

/// What is known of a request when its answer's head goes out.
pub(super) struct Record {
    pub(super) counters: Arc<Counters>,
    pub(super) client: std::net::SocketAddr,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) status: u16,
    pub(super) began: Instant,
    pub(super) bytes: u64,
    pub(super) is_failed: bool,
    pub(super) answering: Answering,
}

impl Record {
    fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
        Counters::add(&self.counters.sent_bytes, bytes);
    }

    fn failed(&mut self, error: &ServeError) {
        self.is_failed = true;
        tracing::error!(path = self.path, %error, "cannot send what was asked for");
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let is_cut_off = self.is_failed || self.answering.is_cut_off();
        if is_cut_off || self.status >= 500 {
            Counters::add(&self.counters.requests_failed, 1);
        }
        tracing::info!(
            client = %self.client,
            method = self.method,
            path = self.path,
            status = self.status,
            bytes = self.bytes,
            ms = self.began.elapsed().as_millis() as u64,
            is_cut_off,
            "request"
        );
    }
}
