//! Connections of HTTP clients, of the proxy and of services: one exchange after the other, up to a tunnel or an end.
//!
//! A flow to an origin stays open for the client's next request to the same one, and for nobody
//! else: an origin may know a client by its connection.

use std::{future::pending, io, sync::Arc, time::Duration};

use rustls::{AlertDescription, ServerConfig, server::Accepted};
use tokio::time::{Instant, timeout, timeout_at};

use super::{Client, Listener, REQUEST_TIMEOUT};
use crate::{
    client_hello::{Beginning, HANDSHAKE, HTTP2},
    flow::{
        Ended, FlowHandle,
        connection::{Connection, InsideTls},
    },
    http_proxy::{
        self, Addressing, Exchange, HEAD_BYTES_MAX, HttpProxyError, Origin, ProxyRequest, Purpose,
        Service,
    },
    own_certificate::HandshakeError,
    refusal::Refusal,
    target::Host,
    way_in::Named,
};

/// Room for what a client sends at once. More is made for a head that needs it.
const READ_BYTES: usize = 4 << 10;

/// How long a client whose connection ends may be silent before it is closed. What it still sends is
/// read: unread bytes would turn the close into a reset, and the client might lose the answer.
const LINGER: Duration = Duration::from_secs(1);

/// A flow that the client's next request may use.
pub(super) struct Kept {
    pub(super) origin: Origin,
    pub(super) flow: ExchangeFlow,
}

/// A flow for exchanges with an origin.
pub(super) struct ExchangeFlow {
    pub(super) handle: FlowHandle,
    /// Whether the other end may speak HTTP/2 with the origin, which knows no upgrade of a connection.
    pub(super) may_be_http2: bool,
}

/// What follows a request that was served.
pub(super) enum Next {
    /// Another one: its client, what came of it, and a flow that it may use.
    Request(Client, Vec<u8>, Option<Kept>),
    Tunnel(Tunnel),
    /// The client's connection has ended.
    Nothing,
}

/// A tunnel that a client asks for.
pub(super) struct Tunnel {
    client: Client,
    origin: Origin,
    /// The client's bytes after its request.
    received: Vec<u8>,
}

impl Kept {
    pub(super) fn close(self) {
        self.flow.handle.close();
    }

    /// Whether it is of no use any more.
    pub(super) fn is_spoiled(&self) -> bool {
        self.flow.handle.is_spoiled()
    }

    /// Begins an exchange with `origin`, if the flow leads there and is of use.
    fn begin(self, origin: &Origin, exchange: &Exchange) -> Option<(ExchangeFlow, usize)> {
        let is_fit = !(self.flow.may_be_http2 && exchange.terms.may_switch);
        let sent = match self.origin == *origin && is_fit {
            true => self.flow.handle.begin(&exchange.head),
            false => None,
        };
        if sent.is_none() {
            self.close();
            return None;
        }
        Some((self.flow, sent?))
    }
}

impl Client {
    pub(super) async fn http_proxy(self) -> io::Result<()> {
        let Some(tunnel) = self.http(Addressing::Proxy, None).await? else {
            return Ok(());
        };
        let Tunnel {
            client,
            origin,
            received,
        } = tunnel;
        let target = &origin.target;
        let unopened = client.open_listed(target, http_proxy::TUNNEL_OPEN, received);
        match unopened.await? {
            Ok(()) => Ok(()),
            Err(unopened) => unopened.tunnel(&origin).await,
        }
    }

    pub(super) async fn service(mut self) -> io::Result<()> {
        let listener = Arc::clone(&self.listener);
        if let Some(site) = &listener.way_in.start_tls {
            return self.start_tls(site).await;
        }
        if let Some(service) = &listener.way_in.service {
            let addressing = Addressing::Service(Arc::clone(service));
            self.http(addressing, None).await?;
            return Ok(());
        }
        let mut early = Vec::new();
        let hello = timeout(REQUEST_TIMEOUT, self.hello(&mut early)).await;
        let Some(accepted) = hello.map_err(|_| io::ErrorKind::TimedOut)?? else {
            if early.first() == Some(&HANDSHAKE) {
                self.log_handshake(&HandshakeError::Incompatible);
                return self.answer(&alert(AlertDescription::ProtocolVersion)).await;
            }
            self.log_handshake(&HandshakeError::NotTls);
            return self.answer(&http_proxy::tls_response()).await;
        };
        let asked = accepted.client_hello().server_name().map(str::to_owned);
        let Some(named) = listener.named(asked.as_deref()) else {
            self.log_handshake(&HandshakeError::OtherName(asked.unwrap_or_default()));
            return self
                .answer(&alert(AlertDescription::UnrecognisedName))
                .await;
        };
        let config = Arc::clone(&named.certificate.config);
        match self.accept_or_log(*accepted, config).await? {
            Some(client) => client.site(Arc::clone(&named.service), None).await,
            None => Ok(()),
        }
    }

    /// Reads a whole ClientHello; nothing if the client says something else.
    pub(super) async fn hello(&mut self, early: &mut Vec<u8>) -> io::Result<Option<Box<Accepted>>> {
        loop {
            match Beginning::of(early) {
                Beginning::Hello(accepted) => return Ok(Some(accepted)),
                Beginning::Other => return Ok(None),
                Beginning::More => {
                    early.reserve(READ_BYTES);
                    if self.connection.read_buf(early).await? == 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Makes the handshake with a client whose hello came.
    pub(super) async fn accept(
        self,
        accepted: Accepted,
        config: Arc<ServerConfig>,
    ) -> io::Result<Result<Client, io::Error>> {
        let Client {
            connection,
            address,
            visit,
            descriptor,
            listener,
            exchanges,
        } = self;
        let Connection::Plain(tcp) = connection else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // Boxed, so that connections whose handshake was made have no memory for it.
        let accepting = Box::pin(InsideTls::accept(tcp, accepted, config));
        let accepted = timeout(REQUEST_TIMEOUT, accepting).await;
        let accepted = accepted.map_err(|_| io::ErrorKind::TimedOut)?;
        Ok(accepted.map(|inside| Client {
            connection: inside.into(),
            address,
            visit,
            descriptor,
            listener,
            exchanges,
        }))
    }

    /// The same, where a failure is only logged.
    pub(super) async fn accept_or_log(
        self,
        accepted: Accepted,
        config: Arc<ServerConfig>,
    ) -> io::Result<Option<Client>> {
        let (listener, address) = (Arc::clone(&self.listener), self.address);
        Ok(match self.accept(accepted, config).await? {
            Ok(client) => Some(client),
            Err(error) => {
                let error = HandshakeError::from(error);
                listener.refuse(&error, format!("TLS with {address} failed: {error}"));
                None
            }
        })
    }

    /// Serves requests to a site, of either version of HTTP. The first may use a flow that is open.
    pub(super) async fn site(self, service: Arc<Service>, kept: Option<Kept>) -> io::Result<()> {
        match &self.connection {
            Connection::InsideTls(inside) if inside.speaks(HTTP2) => {
                self.http2(service, kept).await
            }
            _ => {
                self.http(Addressing::Service(service), kept).await?;
                Ok(())
            }
        }
    }

    pub(super) fn log_handshake(&self, error: &HandshakeError) {
        let event = format!("TLS with {} failed: {error}", self.address);
        self.listener.refuse(error, event);
    }
}

/// The record of a fatal alert, as it ends a handshake before its first answer (RFC 8446, sections 5.1 and 6): the kind,
/// the version, the length, the level and the description.
fn alert(description: AlertDescription) -> [u8; 7] {
    [21, 3, 1, 0, 2, 2, description.into()]
}

impl Listener {
    /// The site that a client asks for, or the first if it names none.
    fn named(&self, name: Option<&str>) -> Option<&Named> {
        let mut named = self.way_in.named.iter();
        let Some(name) = name else {
            return named.next();
        };
        let name = Host::from_name(name).ok()?;
        named.find(|named| named.service.site.target.host == name)
    }
}

impl Client {
    /// Serves one exchange after the other, up to an end or a tunnel. The first may use a flow that is open.
    pub(super) async fn http(
        mut self,
        addressing: Addressing,
        mut kept: Option<Kept>,
    ) -> io::Result<Option<Tunnel>> {
        self.connection.prepare();
        let mut received = Vec::new();
        let mut deadline = Instant::now() + REQUEST_TIMEOUT;
        loop {
            let next = self.next_head(&addressing, &mut received, &mut kept, deadline);
            let request = match next.await? {
                None => {
                    kept.into_iter().for_each(Kept::close);
                    return self.end().await.map(|()| None);
                }
                Some(Ok(request)) => request,
                Some(Err(error)) => {
                    kept.into_iter().for_each(Kept::close);
                    return self.refuse_request(&error).await.map(|()| None);
                }
            };
            if addressing == Addressing::Proxy
                && let Err(refused) = self.sign_in_basic(request.credentials.as_deref()).await
            {
                kept.into_iter().for_each(Kept::close);
                let response = http_proxy::sign_in_response(refused);
                return self.answer(&response).await.map(|()| None);
            }
            (self, received, kept) = match self.serve(request, received, kept).await? {
                Next::Request(client, received, kept) => (client, received, kept),
                Next::Tunnel(tunnel) => return Ok(Some(tunnel)),
                Next::Nothing => return Ok(None),
            };
            deadline = Instant::now() + REQUEST_TIMEOUT;
        }
    }

    pub(super) async fn refuse_request(self, error: &HttpProxyError) -> io::Result<()> {
        let reason = format!("refused an HTTP client: {error}");
        self.listener.refuse(error, reason);
        self.answer(&error.response()).await
    }

    /// Has a request answered. `received` is what came behind its head, and `kept` a flow that it may use.
    pub(super) fn serve(
        self,
        request: ProxyRequest,
        mut received: Vec<u8>,
        kept: Option<Kept>,
    ) -> impl Future<Output = io::Result<Next>> {
        let ProxyRequest {
            origin, purpose, ..
        } = request;
        // An `async fn` would have each of these twice in memory.
        async move {
            if let Err(refusal) = self.request_came() {
                let response = self.refused(&origin, refusal);
                return self.answer(&response).await.map(|()| Next::Nothing);
            }
            let mut exchange = match purpose {
                Purpose::Exchange(exchange) => exchange,
                Purpose::Tunnel => {
                    kept.into_iter().for_each(Kept::close);
                    return Ok(Next::Tunnel(Tunnel {
                        client: self,
                        origin,
                        received,
                    }));
                }
            };
            // Boxed, so that clients that wait for a request have no memory for it.
            let exchanging = self.exchange(&origin, &mut exchange, &mut received, kept);
            let result = Box::pin(exchanging).await;
            let (ended, flow) = match result {
                Ok(ended) => ended,
                Err(refusal) => {
                    let response = self.refused(&origin, refusal);
                    let response = response_to(&exchange, &response);
                    return self.answer(response).await.map(|()| Next::Nothing);
                }
            };
            match ended {
                Ended::Complete {
                    flow_stays: true,
                    client_stays: true,
                } => {
                    let kept = Kept { origin, flow };
                    return Ok(Next::Request(self, received, Some(kept)));
                }
                Ended::Complete { client_stays, .. } => {
                    flow.handle.close();
                    if client_stays {
                        return Ok(Next::Request(self, received, None));
                    }
                    self.end().await?;
                }
                Ended::Switched => {
                    Box::pin(self.run(flow.handle, received)).await;
                }
                Ended::Failed { .. } | Ended::Truncated { .. } if self.pass_stream_reset(&flow) => {
                }
                Ended::Failed { failure, .. } => {
                    drop(flow);
                    let reason = format!("a request to {origin} failed: {failure}");
                    self.listener.refuse(&failure, reason);
                    let response = failure.response();
                    self.answer(response_to(&exchange, &response)).await?;
                }
                Ended::Truncated { is_visible: true } => {
                    drop(flow);
                    self.end().await?;
                }
                // The connection is reset, see `prepare`.
                Ended::Truncated { is_visible: false } | Ended::ClientFailed => {}
            }
            Ok(Next::Nothing)
        }
    }

    /// If the site reset the stream of a request, and the client's is a stream too, it is reset with the same code. Says
    /// whether that is so.
    fn pass_stream_reset(&self, flow: &ExchangeFlow) -> bool {
        match (&self.connection, flow.handle.stream_reset()) {
            (Connection::Piped(stream), Some(reason)) => {
                stream.reset_by_stream(reason);
                true
            }
            _ => false,
        }
    }

    /// Reads the head of the client's next request; nothing if none begins before `deadline`. What
    /// the client sends behind it stays in `received`.
    async fn next_head(
        &mut self,
        addressing: &Addressing,
        received: &mut Vec<u8>,
        kept: &mut Option<Kept>,
        mut deadline: Instant,
    ) -> io::Result<Option<Result<ProxyRequest, HttpProxyError>>> {
        if received.is_empty() {
            let is_first = received.capacity() == 0;
            if received.capacity() > 2 * READ_BYTES {
                // What one large head needed is not kept for the next.
                received.shrink_to(0);
            }
            received.reserve(READ_BYTES);
            self.awaits_request();
            if !self.has_more(received, kept, deadline).await? {
                return Ok(None);
            }
            if !is_first {
                // The client was idle, and is not slow.
                deadline = Instant::now() + REQUEST_TIMEOUT;
            }
        }
        let mut searched = 0;
        loop {
            // The first bytes show what is not HTTP, which would never have an end. After that it
            // is enough to look when the head is whole.
            let is_worth_parsing = searched == 0
                || received.len() >= HEAD_BYTES_MAX
                || http_proxy::end_of_head(received, searched).is_some();
            if is_worth_parsing {
                let policy = self.listener.policy();
                let asking = |target: &_| policy.accept_encoding(target);
                match http_proxy::parse_head(received, addressing, asking) {
                    Ok(Some((request, bytes))) => {
                        received.drain(..bytes);
                        return Ok(Some(Ok(request)));
                    }
                    Ok(None) => {}
                    Err(error) => return Ok(Some(Err(error))),
                }
            }
            searched = received.len();
            received.reserve(READ_BYTES);
            let read = timeout_at(deadline, self.connection.read_buf(received)).await;
            if read.map_err(|_| io::ErrorKind::TimedOut)?? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Waits for more of the client, and gives up a flow that is of no use any more.
    async fn has_more(
        &mut self,
        received: &mut Vec<u8>,
        kept: &mut Option<Kept>,
        deadline: Instant,
    ) -> io::Result<bool> {
        let mut is_over = std::pin::pin!(tokio::time::sleep_until(deadline));
        loop {
            let spoiled = async {
                match kept {
                    Some(kept) => kept.flow.handle.spoiled().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                read = self.connection.read_buf(received) => return Ok(read? > 0),
                () = spoiled => {}
                () = &mut is_over => return Ok(false),
            }
            kept.take().into_iter().for_each(Kept::close);
        }
    }

    /// Has a request answered over the flow that was kept, if it leads there, or over a new one.
    async fn exchange(
        &self,
        origin: &Origin,
        exchange: &mut Exchange,
        received: &mut Vec<u8>,
        kept: Option<Kept>,
    ) -> Result<(Ended, ExchangeFlow), Refusal> {
        let idle = self.listener.policy().timeouts.idle;
        if let Some((mut flow, sent)) = kept.and_then(|kept| kept.begin(origin, exchange)) {
            let ended = flow
                .handle
                .exchange(&self.connection, received, exchange, sent, idle)
                .await;
            if !matches!(
                ended,
                Ended::Failed {
                    may_repeat: true,
                    ..
                }
            ) {
                return Ok((ended, flow));
            }
            // The origin has ended an idle connection while the request was on its way (RFC 9112,
            // section 9.3.1). A new one answers or does not: the request is not sent a third time.
        }
        let write = |flow: &FlowHandle| flow.write_head(&exchange.head, 0);
        let shared_by = self.exchanges.filter(|_| !exchange.terms.may_switch);
        let target = origin.flow_target(shared_by);
        let may_be_http2 = shared_by.is_some();
        let (mut handle, sent) = Box::pin(self.open_and_wait(target, write)).await?;
        let ended = handle
            .exchange(&self.connection, received, exchange, sent, idle)
            .await;
        let flow = ExchangeFlow {
            handle,
            may_be_http2,
        };
        Ok((ended, flow))
    }

    pub(super) fn refused(&self, origin: &Origin, refusal: Refusal) -> Vec<u8> {
        let reason = format!("refused a connection to {origin}: {refusal}");
        self.listener.refuse(&refusal, reason);
        http_proxy::refused_response(refusal, origin)
    }

    pub(super) fn answer(self, response: &[u8]) -> impl Future<Output = io::Result<()>> {
        // Boxed, so that requests that are served have no memory for it. The same holds for `end`.
        Box::pin(async move {
            self.connection.write_all(response).await?;
            self.end().await
        })
    }

    /// Ends the connection such that the client gets all that was written.
    fn end(self) -> impl Future<Output = io::Result<()>> {
        Box::pin(async move {
            self.connection.close_in_order()?;
            self.connection.finish().await?;
            if let Connection::Piped(_) = self.connection {
                return Ok(());
            }
            let mut discarded = Vec::with_capacity(READ_BYTES);
            let deadline = Instant::now() + REQUEST_TIMEOUT;
            while Instant::now() < deadline
                && let Ok(read) = timeout(LINGER, self.connection.read_buf(&mut discarded)).await
                && read? > 0
            {
                discarded.clear();
            }
            Ok(())
        })
    }
}

/// As much of a response of ours as the request wants: a HEAD has no body.
fn response_to<'a>(exchange: &Exchange, response: &'a [u8]) -> &'a [u8] {
    let head_bytes = http_proxy::end_of_head(response, 0).unwrap_or(response.len());
    match exchange.terms.is_head {
        true => &response[..head_bytes],
        false => response,
    }
}
