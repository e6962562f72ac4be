//! A body of another server's, passed on as it comes.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};

use super::ServeError;
use crate::remote::causes;

/// A body of the origin's, on its way.
pub(super) struct Passing {
    body: Incoming,
    timeout: Duration,
    /// Runs while a piece is waited for.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Called with the bytes of each piece.
    count: Box<dyn Fn(u64) + Send + Sync>,
}

impl Passing {
    pub(super) fn new(
        body: Incoming,
        timeout: Duration,
        count: Box<dyn Fn(u64) + Send + Sync>,
    ) -> Self {
        Self {
            body,
            timeout,
            waiting: None,
            count,
        }
    }

    /// The next piece; none at the end.
    pub(super) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ServeError>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(error))) => {
                    let error = causes(&error);
                    return Poll::Ready(Err(ServeError::Origin { error }));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    self.waiting = None;
                    // Trailers were not promised, and are not passed.
                    if let Ok(piece) = frame.into_data() {
                        (self.count)(piece.len() as u64);
                        return Poll::Ready(Ok(Some(piece)));
                    }
                }
                Poll::Pending => {
                    let timeout = self.timeout;
                    let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout)));
                    return waiting.as_mut().poll(context).map(|()| {
                        let error = "nothing came for too long".to_owned();
                        Err(ServeError::Origin { error })
                    });
                }
            }
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
