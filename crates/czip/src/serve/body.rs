//! The body of an answer, and the line of the log that is written at its end.

use std::{
    future::ready,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::stream::{Stream, TryStreamExt, try_unfold};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking, time::timeout};

use super::{
    ServeError, counters::Counters, encoding::Encoder, names::CHUNK_PATH, sending::Sending,
    socket::Answering,
};
use crate::remote::causes;

pub(super) struct AnswerBody {
    pieces: Pieces,
    /// Bytes that are left, if that is known.
    left: Option<u64>,
    record: Option<Record>,
}

enum Pieces {
    One(Bytes),
    AsTheyCome(Pin<Box<dyn Stream<Item = Result<Bytes, ServeError>> + Send>>),
}

impl AnswerBody {
    pub(super) fn empty() -> Self {
        Self::bytes(Bytes::new())
    }

    pub(super) fn bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self {
            left: Some(bytes.len() as u64),
            pieces: Pieces::One(bytes),
            record: None,
        }
    }

    /// So many bytes, as they come.
    pub(super) fn sending(sending: Sending, bytes: u64) -> Self {
        let pieces = try_unfold(sending, async |mut sending| {
            let piece = sending.next().await?;
            Ok(piece.map(|piece| (piece, sending)))
        });
        Self::of(pieces, Some(bytes))
    }

    /// As many as there are, encoded. The permit is given back at the end.
    pub(super) fn encoding(
        sending: Sending,
        encoder: Encoder,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let all = (sending, Some(encoder), permit);
        let pieces = try_unfold(all, async |(mut sending, encoder, permit)| {
            // It is gone when the end was encoded.
            let Some(mut encoder) = encoder else {
                return Ok(None);
            };
            let piece = sending.next().await?;
            // Encoding takes time: a thread does it.
            let encoded = spawn_blocking(move || match piece {
                Some(piece) => encoder
                    .encode(&piece)
                    .map(|encoded| (encoded, Some(encoder))),
                None => encoder.finish().map(|encoded| (encoded, None)),
            });
            let (encoded, encoder) = encoded.await.map_err(|_| ServeError::Stopped)??;
            Ok(Some((Bytes::from(encoded), (sending, encoder, permit))))
        });
        let pieces = pieces.try_filter(|piece| ready(!piece.is_empty()));
        Self::of(pieces, None)
    }

    /// What comes from an origin, as it comes, each piece within `patience`. `count` is called with the bytes
    /// of each.
    pub(super) fn passing(
        body: Incoming,
        patience: Duration,
        count: impl Fn(usize) + Send + 'static,
    ) -> Self {
        let bytes = body.size_hint().exact();
        let pieces = try_unfold((body, count), move |(mut body, count)| async move {
            let broke_off = |error| ServeError::Origin { error };
            loop {
                let frame = timeout(patience, body.frame()).await;
                let late = |_| broke_off("no data was received for too long".to_owned());
                let Some(frame) = frame.map_err(late)? else {
                    return Ok(None);
                };
                let frame = frame.map_err(|error| broke_off(causes(&error)))?;
                // Trailers were not promised, and are not passed.
                if let Ok(piece) = frame.into_data() {
                    count(piece.len());
                    return Ok(Some((piece, (body, count))));
                }
            }
        });
        Self::of(pieces, bytes)
    }

    fn of(
        pieces: impl Stream<Item = Result<Bytes, ServeError>> + Send + 'static,
        left: Option<u64>,
    ) -> Self {
        Self {
            pieces: Pieces::AsTheyCome(Box::pin(pieces)),
            left,
            record: None,
        }
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
        let polled = match &mut self.pieces {
            Pieces::One(bytes) if bytes.is_empty() => None,
            Pieces::One(bytes) => Some(Ok(std::mem::take(bytes))),
            Pieces::AsTheyCome(pieces) => ready!(pieces.as_mut().poll_next(context)),
        };
        if !matches!(polled, Some(Ok(_))) {
            self.pieces = Pieces::One(Bytes::new());
        }
        if let (Some(Ok(piece)), Some(left)) = (&polled, &mut self.left) {
            *left -= piece.len() as u64;
        }
        match (&mut self.record, &polled) {
            (Some(record), Some(Ok(piece))) => record.sent(piece.len() as u64),
            (Some(record), Some(Err(error))) => record.failed(error),
            _ => {}
        }
        Poll::Ready(polled.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        (self.left).map_or_else(SizeHint::default, SizeHint::with_exact)
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
        tracing::error!(path = self.path, %error, "cannot send the requested data");
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let is_cut_off = self.is_failed || self.answering.is_cut_off();
        if is_cut_off || self.status >= 500 {
            Counters::add(&self.counters.requests_failed, 1);
        }
        /// A macro has its level fixed.
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    client = %self.client,
                    method = self.method,
                    path = self.path,
                    status = self.status,
                    bytes = self.bytes,
                    ms = self.began.elapsed().as_millis() as u64,
                    is_cut_off = is_cut_off.then_some(true),
                    "request"
                )
            };
        }
        // A download has thousands.
        match self.path.starts_with(CHUNK_PATH) {
            true => log!(debug),
            false => log!(info),
        }
    }
}
