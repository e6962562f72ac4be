//! Sites that speak HTTP/2: the exchanges of a client's flows are streams of one connection.

use std::{
    collections::HashMap,
    future::poll_fn,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use h2::{
    RecvStream, SendStream,
    client::{self, ResponseFuture, SendRequest},
};
use http::{Method, Request, Response};
use socket2::SockRef;
use tokio::{select, time::timeout};

use super::{Connected, Targets};
use crate::{
    client_hello::HTTP2,
    flow::{
        connection::{Connection, InsideTls},
        http2::{Messages, Stop, receive_body},
        pipe::PipeEnd,
        subtask::Subtask,
    },
    http_proxy::{
        self, Body, HEAD_BYTES_MAX, Origin,
        http2::{self, Malformed},
    },
    refusal::Refusal,
    target::{FlowTarget, Protocols, Target},
};

/// What a site may send of an answer before it is read.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// The same of all answers of a connection, so that none holds up another: a client has 100 requests at most.
const CONNECTION_WINDOW_BYTES: u32 = 100 * STREAM_WINDOW_BYTES;

/// What waits of a request for a site that does not read.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Interim answers to a request.
const INTERIM_MAX: usize = 16;

/// How long a site may be silent about what it was sent. Later requests of the client would wait for it.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How often a request is sent which the site has not looked at, since it was about to close the connection.
const ATTEMPTS: usize = 2;

/// The sites that flows lead to, each by a client's connection.
#[derive(Clone, Default)]
pub(crate) struct Sites(Arc<Mutex<KnownSites>>);

/// By the number of the client's connection, too.
type KnownSites = HashMap<(Target, u32), Weak<Site>>;

/// A site for the flows of one client's connection. It is forgotten with the last of them, and its connection closed.
#[derive(Default)]
struct Site {
    /// Held while a connection is made, so that the first flows do not make several.
    version: tokio::sync::Mutex<Version>,
}

#[derive(Default)]
enum Version {
    #[default]
    Unknown,
    /// Each flow has a connection of its own.
    Http1,
    Http2 {
        sender: SendRequest<Bytes>,
        address: Option<IpAddr>,
    },
}

/// A flow's connection to a site.
enum Reached {
    Http1(Box<InsideTls>),
    Http2(SendRequest<Bytes>, Option<IpAddr>),
}

impl Sites {
    fn of(&self, target: &Target, client: u32) -> Arc<Site> {
        let mut sites = self.0.lock().expect("held for a moment");
        let known = sites.get(&(target.clone(), client));
        if let Some(site) = known.and_then(Weak::upgrade) {
            return site;
        }
        sites.retain(|_, site| site.strong_count() > 0);
        let site = Arc::new(Site::default());
        sites.insert((target.clone(), client), Arc::downgrade(&site));
        site
    }
}

impl Targets {
    /// Reaches the site of a flow with exchanges of the client's connection that has this number. Without a number, the
    /// flow shares its connection to the site with no other.
    pub(super) async fn connect_for_exchanges(
        self: &Arc<Self>,
        asked: &FlowTarget,
        client: Option<u32>,
    ) -> Result<Connected, Refusal> {
        let of_client = |client| self.sites.of(&asked.target, client);
        let site = client.map_or_else(Arc::default, of_client);
        match self.reach(asked, &site).await? {
            Reached::Http1(inside) => {
                let address = inside.peer_addr();
                Ok(Connected::at(inside.into(), address))
            }
            Reached::Http2(sender, address) => {
                let (outer, inner) = PipeEnd::pair();
                let flow = SiteFlow {
                    targets: Arc::clone(self),
                    asked: asked.clone(),
                    site,
                };
                let exchanges = async move {
                    if let Err(error) = flow.serve(&outer, sender).await {
                        if let Some(reason) = error.stream_reset() {
                            outer.reset_by_stream(reason);
                        } else if error.is_without_certificate() {
                            outer.reset_without_certificate();
                        }
                        tracing::debug!(target = %flow.asked, %error, "an exchange ended");
                    }
                };
                Ok(Connected {
                    connection: inner.into(),
                    address,
                    exchanges: Some(Box::pin(exchanges)),
                })
            }
        }
    }

    async fn reach(&self, asked: &FlowTarget, site: &Site) -> Result<Reached, Refusal> {
        let policy = self.policy.load();
        let reaching = async {
            let mut version = site.version.lock().await;
            match &*version {
                Version::Http2 { sender, address } => {
                    if let Ok(sender) = sender.clone().ready().await {
                        return Ok(Reached::Http2(sender, *address));
                    }
                }
                Version::Http1 => {
                    drop(version);
                    let inside = self.speak_tls(asked, &Protocols::http1(), &policy).await?;
                    return Ok(Reached::Http1(inside));
                }
                Version::Unknown => {}
            }
            let inside = self.speak_tls(asked, &Protocols::http(), &policy).await?;
            if !inside.speaks(HTTP2) {
                *version = Version::Http1;
                return Ok(Reached::Http1(inside));
            }
            let address = inside.peer_addr().ok().map(|address| address.ip());
            let sender = begin(inside).await?;
            *version = Version::Http2 {
                sender: sender.clone(),
                address,
            };
            Ok(Reached::Http2(sender, address))
        };
        // The other end waits no longer.
        let reached = timeout(policy.timeouts.connect, reaching).await;
        reached.map_err(|_| Refusal::TimedOut)?
    }
}

/// Begins HTTP/2 on a connection, which lives as long as somebody uses it.
async fn begin(inside: Box<InsideTls>) -> Result<SendRequest<Bytes>, Refusal> {
    let connection = Connection::from(inside);
    connection.prepare();
    let _ = connection.close_in_order();
    let Connection::InsideTls(inside) = connection else {
        return Err(Refusal::Other);
    };
    // Best effort: without it, the kernel gives up after some 15 minutes.
    let _ = SockRef::from(inside.tcp()).set_tcp_user_timeout(Some(SILENCE_MAX));
    let handshake = client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .handshake(*inside)
        .await;
    let (sender, connection) =
        handshake.map_err(|error| Refusal::Tls(format!("HTTP/2 failed: {error}").into()))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an HTTP/2 connection to a site failed");
        }
    });
    Ok(sender)
}

/// A flow whose exchanges become streams, one after the other.
struct SiteFlow {
    targets: Arc<Targets>,
    asked: FlowTarget,
    site: Arc<Site>,
}

impl SiteFlow {
    /// Serves them up to the flow's end.
    async fn serve(&self, pipe: &PipeEnd, sender: SendRequest<Bytes>) -> Result<(), Stop> {
        let mut messages = Messages::of(pipe);
        let mut sender = Some(sender);
        while let Some(head) = messages.head().await? {
            let is_whole = select! {
                is_whole = self.exchange(head, &mut messages, pipe, &mut sender) => is_whole?,
                // Dropped, the stream is cancelled.
                error = pipe.failed() => return Err(error.into()),
            };
            if !is_whole {
                break;
            }
        }
        pipe.finish();
        Ok(())
    }

    /// Has a request answered. Says whether both have passed whole, so that another may follow.
    async fn exchange(
        &self,
        head: Vec<u8>,
        messages: &mut Messages<'_>,
        pipe: &PipeEnd,
        sender: &mut Option<SendRequest<Bytes>>,
    ) -> Result<bool, Stop> {
        for attempt in 1.. {
            let reached = match sender.take() {
                Some(sender) => Ok(sender),
                None => Box::pin(self.sender()).await,
            };
            let sent = match reached {
                // Read again for each attempt: a head takes less memory as text.
                Ok(reached) => http2::request(&head).map(|request| send(request, reached)),
                Err(refusal) => {
                    let origin = Origin::of_tls(self.asked.target.clone());
                    let response = http_proxy::refused_response(refusal, &origin);
                    return answer(pipe, response).await;
                }
            };
            let Ok(sent) = sent else {
                return answer(pipe, http_proxy::malformed_response()).await;
            };
            let has_begun = AtomicBool::new(false);
            let (may_repeat, passed) = match sent {
                Ok(sent) => (
                    sent.body.has_ended(),
                    pass(sent, messages, pipe, &has_begun).await,
                ),
                // Nothing of the body was read.
                Err(error) => (true, Err(error.into())),
            };
            match passed {
                Err(Stop::Stream(error))
                    if may_repeat
                        && attempt < ATTEMPTS
                        && !has_begun.load(Ordering::Relaxed)
                        && was_not_looked_at(&error) => {}
                passed => return passed,
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn sender(&self) -> Result<SendRequest<Bytes>, Refusal> {
        match self.targets.reach(&self.asked, &self.site).await? {
            Reached::Http2(sender, _) => Ok(sender),
            // A site that no longer speaks HTTP/2 gets a connection with the next flow.
            Reached::Http1(_) => Err(Refusal::TargetReset),
        }
    }
}

/// Answers in the place of a site. No other exchange follows.
fn answer(pipe: &PipeEnd, response: Vec<u8>) -> impl Future<Output = Result<bool, Stop>> {
    // Boxed, so that exchanges have no memory for it.
    Box::pin(async move {
        pipe.write_all(&response).await?;
        Ok(false)
    })
}

/// A request whose head was sent.
struct Sent {
    is_head: bool,
    body: Body,
    stream: SendStream<Bytes>,
    response: ResponseFuture,
}

fn send(
    (request, body): (Request<()>, Body),
    mut sender: SendRequest<Bytes>,
) -> Result<Sent, h2::Error> {
    let is_head = request.method() == Method::HEAD;
    let (response, stream) = sender.send_request(request, body.has_ended())?;
    Ok(Sent {
        is_head,
        body,
        stream,
        response,
    })
}

/// Sends a request's body, and passes its answer, which may have begun. Says whether all of both has passed.
async fn pass(
    sent: Sent,
    messages: &mut Messages<'_>,
    pipe: &PipeEnd,
    has_begun: &AtomicBool,
) -> Result<bool, Stop> {
    let Sent {
        is_head,
        body,
        mut stream,
        response,
    } = sent;
    let mut is_whole = body.has_ended();
    let mut sending = match is_whole {
        true => Subtask::none(),
        false => Subtask::new(messages.send_body(body, &mut stream)),
    };
    let mut answering = pin!(pass_answer(response, pipe, has_begun, is_head));
    loop {
        select! {
            biased;
            result = sending.end() => match result {
                // The answer may say why.
                Err(Stop::Reset | Stop::Stream(_)) => {}
                result => {
                    result?;
                    is_whole = true;
                }
            },
            answered = &mut answering => {
                answered?;
                return Ok(is_whole);
            }
        }
    }
}

async fn pass_answer(
    mut response: ResponseFuture,
    pipe: &PipeEnd,
    has_begun: &AtomicBool,
    is_head: bool,
) -> Result<(), Stop> {
    let mut count = 0;
    while let Some(interim) = poll_fn(|context| response.poll_informational(context)).await {
        let (interim, ()) = interim?.into_parts();
        count += 1;
        if count > INTERIM_MAX {
            return Err(Malformed.into());
        }
        let (text, _) = http2::answer_text(&interim, is_head, false)?;
        has_begun.store(true, Ordering::Relaxed);
        // Without room, it is left out: others would wait in memory meanwhile.
        if pipe.room() >= text.len() {
            pipe.write_all(&text).await?;
        }
    }
    let (answer, mut body): (_, RecvStream) = Response::into_parts(response.await?);
    let has_ended = body.is_end_stream();
    let (text, framing) = http2::answer_text(&answer, is_head, has_ended)?;
    has_begun.store(true, Ordering::Relaxed);
    pipe.write_all(&text).await?;
    match has_ended {
        true => Ok(()),
        false => Box::pin(receive_body(&mut body, framing, pipe)).await,
    }
}

/// Whether a site says that it has done nothing about a request (RFC 9113, section 8.7).
fn was_not_looked_at(error: &h2::Error) -> bool {
    let is_refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || is_refused)
}
