//! Clients that speak HTTP/2. Each of their requests is an exchange over a flow of its own, so that none holds up another.
//!
//! A stream is a client of its own to what serves exchanges: it has a pipe for its connection.

use std::{
    future::poll_fn,
    io,
    net::IpAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use h2::{
    Reason, RecvStream,
    server::{self, SendResponse},
};
use refrain_admission::Visit;
use tokio::{
    select,
    time::{Instant, interval, sleep_until, timeout},
};

use super::{
    Client, Listener, REQUEST_TIMEOUT,
    http::{Kept, Next},
};
use crate::{
    descriptors::FlowDescriptor,
    flow::{
        connection::Connection,
        http2::{Messages, Stop, receive_body},
        pipe::PipeEnd,
        subtask::Subtask,
    },
    http_proxy::{
        self, Addressing, Body, HEAD_BYTES_MAX, HttpProxyError, Service,
        http2::{AnswerHead, AsksFor, Malformed, RequestText},
    },
    random::random_number,
};

/// The requests of a client at once.
const STREAMS_MAX: u32 = 100;

/// What a client may send of a request's body before it is read.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;

/// The same of all its requests, so that none holds up another.
const CONNECTION_WINDOW_BYTES: u32 = STREAMS_MAX * STREAM_WINDOW_BYTES;

/// What waits of an answer for a client that does not read.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Interim answers to a request.
const INTERIM_MAX: usize = 16;

/// How long the last bytes of an answer may take.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a request may take that continues after its answer.
const LINGER: Duration = Duration::from_secs(1);

/// How often flows are looked at that are open for a next request.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Flows that are open for a client's next requests.
const KEPT_MAX: usize = 16;

/// Requests in succession that a client may give up before they are answered, within a minute.
const GIVEN_UP_MAX: usize = 200;
const MINUTE: Duration = Duration::from_secs(60);

/// A new number of a client's connection, see [`crate::target::FlowTarget::exchanges`].
pub(super) fn number() -> u32 {
    random_number() as u32
}

/// A client's connection.
struct Session {
    listener: Arc<Listener>,
    address: IpAddr,
    visit: Arc<Visit>,
    service: Arc<Service>,
    number: u32,
    kept: Mutex<Vec<Kept>>,
    /// The connection's own, while it has streams.
    descriptor: Mutex<Option<FlowDescriptor>>,
}

impl Client {
    /// Serves the requests of a client of HTTP/2 to a site. One may use a flow that is open.
    pub(super) async fn http2(self, service: Arc<Service>, kept: Option<Kept>) -> io::Result<()> {
        self.connection.prepare();
        // An end without that of a stream is no end of an answer.
        self.connection.close_in_order()?;
        let Connection::InsideTls(inside) = self.connection else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let session = Arc::new(Session {
            listener: self.listener,
            address: self.address,
            visit: self.visit,
            service,
            number: self.exchanges.unwrap_or_else(number),
            kept: Mutex::new(kept.into_iter().collect()),
            descriptor: Mutex::new(None),
        });
        let handshake = server::Builder::new()
            .max_concurrent_streams(STREAMS_MAX)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .enable_connect_protocol()
            .handshake(*inside);
        let connection = timeout(REQUEST_TIMEOUT, handshake).await;
        let mut connection = connection
            .map_err(|_| io::ErrorKind::TimedOut)?
            .map_err(io::Error::other)?;
        // In the connection's task, which reads and writes for all of them. Dropped, they end.
        let mut streams = FuturesUnordered::new();
        let mut is_idle = pin!(sleep_until(Instant::now() + REQUEST_TIMEOUT));
        let mut look = interval(LOOK_INTERVAL);
        let (mut is_closing, mut given_up, mut since) = (false, 0, Instant::now());
        let result = loop {
            select! {
                request = connection.accept() => match request {
                    Some(Ok((request, mut respond))) => match session.has_descriptor() {
                        true => {
                            // Here, since as the stream's it would have memory up to the answer.
                            let (request, body) = request.into_parts();
                            let text = RequestText::of(&request, !body.is_end_stream());
                            streams.push(Arc::clone(&session).stream(text, body, respond));
                        }
                        false => respond.send_reset(Reason::REFUSED_STREAM),
                    },
                    Some(Err(error)) => break Err(io::Error::other(error)),
                    None => break Ok(()),
                },
                Some(is_given_up) = streams.next() => {
                    if !is_given_up || since.elapsed() > MINUTE {
                        (given_up, since) = (0, Instant::now());
                    } else {
                        given_up += 1;
                    }
                    if given_up > GIVEN_UP_MAX {
                        // CVE-2023-44487: each costs a flow, and the client nothing.
                        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                        given_up = 0;
                    }
                    if streams.is_empty() {
                        session.awaits_request();
                        is_idle.as_mut().reset(Instant::now() + REQUEST_TIMEOUT);
                    }
                }
                _ = look.tick() => session.close_spoiled(),
                () = &mut is_idle, if streams.is_empty() => {
                    if is_closing {
                        break Ok(());
                    }
                    // What is on its way is answered.
                    is_closing = true;
                    connection.graceful_shutdown();
                    is_idle.as_mut().reset(Instant::now() + REQUEST_TIMEOUT);
                }
            }
        };
        for kept in session.kept().drain(..) {
            kept.close();
        }
        result
    }

    /// Serves the one request that a stream is.
    async fn serve_stream(self, head: Vec<u8>, session: &Session) -> io::Result<()> {
        let addressing = Addressing::Service(Arc::clone(&session.service));
        let policy = self.listener.policy();
        let asking = |target: &_| policy.accept_encoding(target);
        let parsed = http_proxy::parse_head(&head, &addressing, asking);
        drop((head, addressing, policy));
        let request = match parsed.and_then(|parsed| parsed.ok_or(HttpProxyError::Malformed)) {
            Ok((request, _)) => request,
            Err(error) => return self.refuse_request(&error).await,
        };
        let kept = session.take(&request.origin);
        if let Next::Request(client, _, kept) = self.serve(request, Vec::new(), kept).await? {
            kept.into_iter().for_each(|kept| session.keep(kept));
            // Its answer is whole.
            Box::pin(client.connection.finish()).await?;
        }
        Ok(())
    }
}

impl Session {
    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().expect("held for a moment")
    }

    /// Whether the connection has a descriptor for its requests.
    fn has_descriptor(&self) -> bool {
        let mut descriptor = self.descriptor.lock().expect("held for a moment");
        if descriptor.is_none() {
            *descriptor = self.listener.gateway.descriptors.for_flow().ok();
        }
        if descriptor.is_some() {
            self.visit.prove();
        }
        descriptor.is_some()
    }

    /// The client has no request: it keeps its place only as long as no other needs it.
    fn awaits_request(&self) {
        self.visit.wait();
        *self.descriptor.lock().expect("held for a moment") = None;
    }

    /// Closes flows that are of no use for a next request.
    fn close_spoiled(&self) {
        let spoiled: Vec<Kept> = self
            .kept()
            .extract_if(.., |kept| kept.is_spoiled())
            .collect();
        spoiled.into_iter().for_each(Kept::close);
    }

    /// A flow for a request to this origin.
    fn take(&self, origin: &http_proxy::Origin) -> Option<Kept> {
        self.close_spoiled();
        let mut kept = self.kept();
        let nth = kept.iter().position(|kept| kept.origin == *origin)?;
        Some(kept.swap_remove(nth))
    }

    fn keep(&self, flow: Kept) {
        let mut kept = self.kept();
        match kept.len() < KEPT_MAX {
            true => kept.push(flow),
            false => flow.close(),
        }
    }

    /// Has a request answered. Says whether the client gave it up.
    async fn stream(
        self: Arc<Session>,
        text: Result<RequestText, Malformed>,
        mut body: RecvStream,
        mut respond: SendResponse<Bytes>,
    ) -> bool {
        let Ok(RequestText {
            head,
            framing,
            asks_for,
        }) = text
        else {
            respond.send_reset(Reason::PROTOCOL_ERROR);
            return true;
        };
        let (outer, inner) = PipeEnd::pair();
        let client = Client {
            connection: inner.into(),
            address: self.address,
            visit: Arc::clone(&self.visit),
            descriptor: Mutex::new(None),
            listener: Arc::clone(&self.listener),
            exchanges: Some(self.number),
        };
        // What is waited for together would have the memory of each part several times.
        let mut serving = Box::pin(client.serve_stream(head, &self));
        let mut is_served = false;
        let answered = {
            let mut answering = pin!(answer(&outer, &mut respond, &asks_for));
            let mut receiving = Subtask::new(async {
                match receive_body(&mut body, framing, &outer).await {
                    Ok(()) if matches!(asks_for, AsksFor::WebSocket(_)) => outer.finish(),
                    // The request is not read any further.
                    Ok(()) | Err(Stop::Pipe(_)) => {}
                    Err(_) => outer.reset(),
                }
            });
            let mut is_late = pin!(sleep_until(Instant::now()));
            loop {
                select! {
                    biased;
                    served = &mut serving, if !is_served => {
                        if let Err(error) = served {
                            tracing::debug!(%error, "a client's HTTP/2 stream failed");
                        }
                        is_served = true;
                        is_late.as_mut().reset(Instant::now() + LAST_BYTES_TIMEOUT);
                    }
                    answered = &mut answering => break answered,
                    () = &mut is_late, if is_served => break Err(Unanswered::Broken),
                    () = receiving.end() => {}
                }
            }
        };
        match answered {
            // An answer may be complete before its request is. Then the rest of the request has no reader.
            Ok(()) if !is_served => drop(timeout(LINGER, serving).await),
            Ok(()) => {}
            // Its flow is reset.
            Err(reason) => {
                drop(serving);
                let of_site = outer.stream_reset();
                respond.send_reset(of_site.unwrap_or(reason.into()));
                return reason == Unanswered::GivenUp;
            }
        }
        false
    }
}

/// Why a request has no answer, or only a part of one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unanswered {
    /// The client gave it up.
    GivenUp,
    Broken,
}

impl From<Unanswered> for Reason {
    fn from(unanswered: Unanswered) -> Reason {
        match unanswered {
            Unanswered::GivenUp => Reason::CANCEL,
            Unanswered::Broken => Reason::INTERNAL_ERROR,
        }
    }
}

/// Sends the answer that comes out of the pipe, up to its end.
async fn answer(
    pipe: &PipeEnd,
    respond: &mut SendResponse<Bytes>,
    asks_for: &AsksFor,
) -> Result<(), Unanswered> {
    let broken = |_| Unanswered::Broken;
    let mut messages = Messages::of(pipe);
    let mut interim = 0;
    let (answer, body) = loop {
        let head = select! {
            head = messages.head() => head,
            _ = poll_fn(|context| respond.poll_reset(context)) => return Err(Unanswered::GivenUp),
        };
        let head = head.ok().flatten().ok_or(Unanswered::Broken)?;
        match AnswerHead::of(&head, asks_for).map_err(|_| Unanswered::Broken)? {
            AnswerHead::Interim(answer) if interim < INTERIM_MAX => {
                interim += 1;
                respond.send_informational(answer).map_err(broken)?;
            }
            // They wait without a bound for a client that does not read.
            AnswerHead::Interim(_) => return Err(Unanswered::Broken),
            AnswerHead::Switched(answer) => break (answer, Body::UntilClose),
            AnswerHead::Final(answer, body) => break (answer, body),
        }
    };
    let is_empty = body.has_ended();
    let mut stream = respond.send_response(answer, is_empty).map_err(broken)?;
    if is_empty {
        return Ok(());
    }
    // Boxed, so that requests without an answer have no memory for it.
    let sent = Box::pin(messages.send_body(body, &mut stream)).await;
    sent.map_err(|stop| match stop {
        Stop::Reset => Unanswered::GivenUp,
        _ => Unanswered::Broken,
    })
}
