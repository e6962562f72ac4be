//! An exchange of the HTTP proxy over a flow: a request to the origin, its answer to the client.
//! Between exchanges a flow may wait for the next one.

use std::{
    future::pending,
    io,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use refrain_proto::{Link, ResetReason, codes::reset};
use tokio::time::timeout;

use super::{Activity, FlowHandle, connection::Connection, subtask::Subtask};
use crate::{
    crumbs::Crumbs,
    http_proxy::{Answer, AnswerError, Body, Exchange, Progress, RequestHead},
    link::Standing,
};

/// How long an origin has to end its side of a flow that has ended here. Nobody waits for it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How an exchange ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The client has the whole answer.
    Complete {
        /// Whether the flow can carry another exchange.
        flow_stays: bool,
        /// Whether the client was told that its connection can.
        client_stays: bool,
    },
    /// The client and the origin speak another protocol from here on.
    Switched,
    /// The client has no final answer, and is to get another instead.
    Failed {
        failure: AnswerError,
        /// Whether the request may be sent again over another flow.
        may_repeat: bool,
    },
    /// The client has a part of the answer, and sees that by itself or not.
    Truncated { is_visible: bool },
    /// The client's connection failed.
    ClientFailed,
}

/// Why an exchange stops before its answer is complete.
enum Stop {
    Client(io::Error),
    /// The flow is over, nothing moves on it, or the request's body has no one reading.
    Flow(AnswerError),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Client(error)
    }
}

impl FlowHandle {
    /// Begins another exchange over a flow that was left open. Says how much of the request's head
    /// was sent; nothing where the flow is no longer as quiet as it was left.
    pub(crate) fn begin(&self, head: &RequestHead) -> Option<usize> {
        self.link.with(|link, now| {
            let is_quiet = self.is_quiet(link);
            is_quiet.then(|| self.write_head_to(link, now, head, 0))
        })
    }

    /// Waits until a flow that was left open is of no use any more: the origin has ended it, or
    /// said something that it was not asked for, or the link takes no new flows.
    pub(crate) async fn spoiled(&self) {
        let disturbed = async {
            while self.link.with(|link, _| self.is_quiet(link)) {
                self.signals.readable.notified().await;
            }
        };
        tokio::select! {
            () = disturbed => {}
            _ = self.signals.over() => {}
            () = self.link.draining() => {}
        }
    }

    /// Whether that is the case now.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.link.is_draining() || !self.link.with(|link, _| self.is_quiet(link))
    }

    /// Whether a flow is open and nothing has come on it. What has come is lost.
    fn is_quiet(&self, link: &mut Link) -> bool {
        let mut unasked = Vec::new();
        link.take_ready(self.id, &mut unasked);
        link.taken(self.id, unasked.len());
        unasked.is_empty() && !link.take_end(self.id) && link.is_open(self.id)
    }

    /// Sends a request, of whose head `sent` bytes have gone, and passes the answer to the client.
    /// `received` is what has come of the client behind the head; what is left there belongs to its
    /// next request.
    pub(crate) async fn exchange(
        &mut self,
        client: &Connection,
        received: &mut Vec<u8>,
        exchange: &mut Exchange,
        sent: usize,
        idle: Duration,
    ) -> Ended {
        let activity = Activity::new();
        let mut answer = Answer::new(exchange.terms).served_from(exchange.served.clone());
        let steps = Steps {
            is_begun: AtomicBool::new(sent > 0),
            ..Steps::default()
        };
        let head = (&exchange.head, sent);
        let both = self.both(
            client,
            (head, received, &mut exchange.body),
            &mut answer,
            &steps,
            &activity,
        );
        let stop = tokio::select! {
            biased;
            result = both => result.err(),
            () = activity.idle_for(idle) => Some(Stop::Flow(AnswerError::TimedOut)),
        };
        let progress = match stop {
            None => answer.progress(),
            // What the client has not got of an answer is missing, whatever came of it here.
            Some(_) if steps.is_writing.load(Ordering::Relaxed) => {
                Progress::Truncated { is_visible: false }
            }
            Some(_) => answer.broken(),
        };
        if answer.has_excess() {
            // Whatever it was, it is not for this client, and what follows it neither.
            self.reset(reset::GATEWAY);
        }
        let is_whole = steps.is_whole.load(Ordering::Relaxed);
        let is_half_closed = steps.is_half_closed.load(Ordering::Relaxed);
        match (stop, progress) {
            (Some(Stop::Client(error)), _) => {
                tracing::debug!(flow = self.id.0, %error, "a client's connection failed");
                self.reset(reset::APPLICATION);
                Ended::ClientFailed
            }
            (stop, Progress::Complete) => Ended::Complete {
                flow_stays: stop.is_none() && is_whole && !is_half_closed && answer.origin_stays(),
                client_stays: is_whole && answer.client_stays(),
            },
            // One that has ended its side can say nothing in another protocol.
            (_, Progress::Switched) if is_half_closed => Ended::Truncated { is_visible: false },
            (_, Progress::Switched) => Ended::Switched,
            (_, Progress::Truncated { is_visible }) => Ended::Truncated { is_visible },
            (_, Progress::Awaited | Progress::Passing) => Ended::Truncated { is_visible: false },
            (stop, Progress::Failed(error)) => {
                let failure = match stop {
                    Some(Stop::Flow(error)) => error,
                    _ => error,
                };
                let may_repeat = match failure {
                    // Nothing was sent.
                    _ if !steps.is_begun.load(Ordering::Relaxed) => true,
                    _ if answer.has_begun() => false,
                    // The origin may still be at it.
                    AnswerError::TimedOut | AnswerError::RequestBody => false,
                    _ => exchange.may_repeat,
                };
                Ended::Failed {
                    failure,
                    may_repeat,
                }
            }
        }
    }

    /// Sends and answers at the same time, until the client has the answer and its request has
    /// been sent, or neither can be.
    async fn both(
        &self,
        client: &Connection,
        (head, received, body): ((&RequestHead, usize), &mut Vec<u8>, &mut Body),
        answer: &mut Answer,
        steps: &Steps,
        activity: &Activity,
    ) -> Result<(), Stop> {
        let mut answering = pin!(self.pass_answer(client, answer, steps, activity));
        let mut sending = Subtask::new(async {
            self.send_head(client, head, steps).await?;
            self.send_body(client, received, body, steps, activity)
                .await
        });
        let mut watching = pin!(self.watch(client, steps));
        let progress = loop {
            let is_sent = sending.has_ended();
            tokio::select! {
                biased;
                result = sending.end() => result?,
                result = &mut answering => break result?,
                error = &mut watching, if is_sent => return Err(error.into()),
            }
        };
        if !sending.has_ended() && progress == Progress::Complete {
            // Boxed, since few requests need it.
            let rest = async {
                // The answer says that the connection ends, so the client sees its end; and the
                // origin may still want the rest.
                client.finish().await?;
                tokio::select! {
                    result = sending.end() => result,
                    _ = self.signals.over() => Ok(()),
                }
            };
            return Box::pin(rest).await;
        }
        Ok(())
    }

    /// Sends the rest of a head of which `sent` bytes have gone.
    async fn send_head(
        &self,
        client: &Connection,
        (head, mut sent): (&RequestHead, usize),
        steps: &Steps,
    ) -> Result<(), Stop> {
        while sent < head.bytes.len() {
            self.room(client).await?;
            steps.is_begun.store(true, Ordering::Relaxed);
            sent += self.write_head(head, sent);
        }
        Ok(())
    }

    /// From the client to the link, up to the body's end.
    async fn send_body(
        &self,
        client: &Connection,
        received: &mut Vec<u8>,
        body: &mut Body,
        steps: &Steps,
        activity: &Activity,
    ) -> Result<(), Stop> {
        let own = body.take(received);
        let own: Vec<u8> = received.drain(..own).collect();
        self.write_all(client, &own).await?;
        drop(own);
        let mut crumbs = Crumbs::default();
        while !body.has_ended() {
            if *body == Body::Malformed {
                return Err(Stop::Flow(AnswerError::RequestBody));
            }
            let bytes_max = body.readable_bytes();
            let own = |bytes: &[u8]| {
                let own = body.take(bytes);
                received.extend(&bytes[own..]);
                own
            };
            let read = self.pass_in(client, bytes_max, own, activity, &mut crumbs);
            if read.await? == 0 {
                // The origin sees that the body is not whole.
                self.half_close(steps);
                return Ok(());
            }
        }
        steps.is_whole.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Passes a client's end on: it may have lost interest. Returns when its connection failed.
    async fn watch(&self, client: &Connection, steps: &Steps) -> io::Error {
        match client.has_more().await {
            Ok(false) => self.half_close(steps),
            // The next request.
            Ok(true) => {}
            Err(error) => return error,
        }
        pending().await
    }

    fn half_close(&self, steps: &Steps) {
        steps.is_half_closed.store(true, Ordering::Relaxed);
        self.link.with(|link, _| link.finish(self.id));
    }

    /// From the link to the client, up to the answer's end.
    async fn pass_answer(
        &self,
        client: &Connection,
        answer: &mut Answer,
        steps: &Steps,
        activity: &Activity,
    ) -> Result<Progress, Stop> {
        let mut buffer = Vec::new();
        loop {
            let finished = self.take(&mut buffer);
            let came = buffer.len();
            if came > 0 {
                activity.note();
                answer.pass(&mut buffer, steps.is_whole.load(Ordering::Relaxed));
            }
            if finished {
                answer.finish(&mut buffer);
            }
            steps.is_writing.store(true, Ordering::Relaxed);
            self.pass_on(client, &buffer, came, activity).await?;
            steps.is_writing.store(false, Ordering::Relaxed);
            match answer.progress() {
                Progress::Awaited | Progress::Passing if came > 0 => {}
                // Only here: what has come is the client's, also when the flow is over.
                Progress::Awaited | Progress::Passing => tokio::select! {
                    biased;
                    result = self.readable(client) => result?,
                    standing = self.signals.over() => return Err(Stop::Flow(error_of(&standing))),
                },
                progress => return Ok(progress),
            }
        }
    }

    /// Ends a flow whose exchange is over: what was sent arrives, and the origin has a moment to
    /// end its side. If it says more instead, or takes longer, the flow is reset.
    pub(crate) fn close(self) {
        if self.is_over {
            return;
        }
        self.link.with(|link, _| link.finish(self.id));
        tokio::spawn(self.closing());
    }

    async fn closing(mut self) {
        let ended = timeout(CLOSE_TIMEOUT, self.other_end()).await;
        self.is_over = ended.unwrap_or(false);
    }

    /// Waits for the origin's end; false if it says something first.
    async fn other_end(&self) -> bool {
        let mut unasked = Vec::new();
        loop {
            let finished = self.take(&mut unasked);
            if finished || !unasked.is_empty() {
                return finished && unasked.is_empty();
            }
            tokio::select! {
                () = self.signals.readable.notified() => {}
                _ = self.signals.over() => return true,
            }
        }
    }
}

/// How far an exchange has come, for those who are to know when it stops.
#[derive(Default)]
struct Steps {
    /// Something of the request was sent.
    is_begun: AtomicBool,
    /// All of it was sent.
    is_whole: AtomicBool,
    /// The origin was told that nothing else comes.
    is_half_closed: AtomicBool,
    /// The client has not yet got all that came of the answer.
    is_writing: AtomicBool,
}

/// What a flow's end means to somebody who waits for an answer.
fn error_of(standing: &Standing) -> AnswerError {
    match standing {
        Standing::Reset(ResetReason::ByPeer(reset::APPLICATION | reset::HTTP2..)) => {
            AnswerError::Reset
        }
        Standing::Reset(ResetReason::ByPeer(reset::IDLE)) => AnswerError::TimedOut,
        Standing::Reset(ResetReason::ByPeer(reset::CLIENT_CERTIFICATE)) => {
            AnswerError::ClientCertificate
        }
        Standing::Reset(ResetReason::LaneLost) => AnswerError::LinkBroken,
        Standing::Reset(ResetReason::ByPeer(_) | ResetReason::Misconfirmed)
        | Standing::Refused(_)
        | Standing::Opening
        | Standing::Open => AnswerError::EndedByPeer,
    }
}
