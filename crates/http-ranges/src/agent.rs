//! Requests over connections that can be broken together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Uri,
    body::{Body, Incoming},
    client::conn::http1::SendRequest,
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{sync::watch, time::timeout};
use url::{Origin, Position, Url};

use super::{
    address::shown,
    connector::Connector,
    error::{ConnectionError, RemoteError},
    http1::http,
    lock,
    options::RemoteOptions,
    proxies::Proxy,
};

/// A connection that nobody used for so long is not used again.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// Connections that can be broken together.
pub(super) struct Agents {
    connector: Connector,
    idle: Arc<IdleConnections>,
    /// Whether they are broken.
    closed: watch::Sender<bool>,
    fields_max: usize,
    progress_timeout: Duration,
    user_agent: HeaderValue,
}

/// What requests go out by.
type Sender = SendRequest<Empty<Bytes>>;

/// Connections that wait for their next request, by their servers.
///
/// A connection is here when its last answer was read to its end, and not some time after that: so who
/// asks for one thing after another does so on one connection.
struct IdleConnections {
    /// For each server.
    connections_max: usize,
    by_server: Mutex<HashMap<Origin, Vec<(Instant, Sender)>>>,
}

impl IdleConnections {
    fn take(&self, server: &Origin) -> Option<Sender> {
        let mut by_server = lock(&self.by_server);
        let idle = by_server.get_mut(server)?;
        while let Some((since, sender)) = idle.pop() {
            if since.elapsed() < IDLE_MAX && !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    fn put(&self, server: Origin, sender: Sender) {
        let mut by_server = lock(&self.by_server);
        let idle = by_server.entry(server).or_default();
        if idle.len() < self.connections_max {
            idle.push((Instant::now(), sender));
        }
    }
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Receiving,
}

/// What is left of an answer's body.
pub(super) struct Receiving {
    body: Incoming,
    /// Received bytes that were not read yet.
    came: Bytes,
    /// What it comes by, until its end is seen.
    sender: Option<(Origin, Sender)>,
    idle: Arc<IdleConnections>,
    closed: watch::Receiver<bool>,
    progress_timeout: Duration,
}

impl Agents {
    /// Over connections that `connector` makes.
    pub(super) fn new(
        connector: Connector,
        options: &RemoteOptions,
        user_agent: HeaderValue,
    ) -> Self {
        Self {
            connector,
            idle: Arc::new(IdleConnections {
                connections_max: options.connections.max(1),
                by_server: Mutex::default(),
            }),
            closed: watch::Sender::new(false),
            fields_max: options.fields_max,
            progress_timeout: options.progress_timeout,
            user_agent,
        }
    }

    /// Whether they were broken.
    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Breaks all connections, those too that are only about to be made.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
        lock(&self.idle.by_server).clear();
    }

    /// Waits, unless they are broken.
    pub(super) async fn pause(&self, pause: Duration) {
        let mut closed = self.closed.subscribe();
        let _ = timeout(pause, closed.wait_for(|&is_closed| is_closed)).await;
    }

    /// Sends a request to `url`, and waits for the head of its answer.
    pub(super) async fn send(
        &self,
        url: &Url,
        mut request: Request<Empty<Bytes>>,
    ) -> Result<Answer, RemoteError> {
        let failed = |source| RemoteError::Connection {
            url: shown(url),
            source: Box::new(source),
        };
        let proxy = self.connector.proxy(url)?;
        self.address(url, proxy.as_ref(), &mut request)
            .map_err(failed)?;
        let mut closed = self.closed.subscribe();
        let asked = tokio::select! {
            biased;
            Ok(_) = closed.wait_for(|&is_closed| is_closed) => Err(ConnectionError::Closed),
            asked = self.exchange(url, proxy.as_ref(), request) => asked,
        };
        let (answer, sender) = asked.map_err(failed)?;
        let (head, body) = answer.into_parts();
        let mut body = Receiving {
            body,
            came: Bytes::new(),
            sender: Some((url.origin(), sender)),
            idle: self.idle.clone(),
            closed,
            progress_timeout: self.progress_timeout,
        };
        if body.body.is_end_stream() {
            body.end();
        }
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    /// Says in a request where it goes to, and through which proxy.
    fn address(
        &self,
        url: &Url,
        proxy: Option<&Proxy>,
        request: &mut Request<Empty<Bytes>>,
    ) -> Result<(), ConnectionError> {
        // A proxy that reads the request has to be told the server. Over a tunnel the server reads it.
        let proxy = proxy.filter(|proxy| proxy.is_http() && url.scheme() == "http");
        let target = match proxy {
            Some(_) => &url[..Position::AfterQuery],
            None => &url[Position::BeforePath..Position::AfterQuery],
        };
        *request.uri_mut() = target.parse::<Uri>().map_err(ConnectionError::invalid)?;
        let headers = request.headers_mut();
        if let Some(authorization) = proxy.and_then(Proxy::authorization) {
            headers.insert(header::PROXY_AUTHORIZATION, authorization.clone());
        }
        let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]);
        let host = host.map_err(ConnectionError::invalid)?;
        for (name, value) in [
            (header::HOST, &host),
            (header::USER_AGENT, &self.user_agent),
            (header::ACCEPT, &HeaderValue::from_static("*/*")),
        ] {
            headers.entry(name).or_insert_with(|| value.clone());
        }
        Ok(())
    }

    /// The head of the answer to a request, and what its body comes by.
    async fn exchange(
        &self,
        url: &Url,
        proxy: Option<&Proxy>,
        mut request: Request<Empty<Bytes>>,
    ) -> Result<(Response<Incoming>, Sender), ConnectionError> {
        let patience = self.progress_timeout;
        let server = url.origin();
        while let Some(mut sender) = self.idle.take(&server) {
            let asked = async {
                match sender.ready().await {
                    Ok(()) => sender.try_send_request(request).await.map_err(|mut error| {
                        let unsent = error.take_message();
                        unsent.ok_or_else(|| ConnectionError::of(&error.into_error()))
                    }),
                    Err(_) => Err(Ok(request)),
                }
            };
            match timeout(patience, asked).await {
                Ok(Ok(answer)) => return Ok((answer, sender)),
                // The server closed the connection before it was used again.
                Ok(Err(Ok(unsent))) => request = unsent,
                Ok(Err(Err(error))) => return Err(error),
                Err(_) => return Err(ConnectionError::Silence),
            }
        }
        let link = self.connector.connect(url, proxy).await?;
        let made = http(self.fields_max).handshake(TokioIo::new(link)).await;
        let (mut sender, connection) = made.map_err(|error| ConnectionError::of(&error))?;
        // It ends with the sender and the body. What fails is reported by them.
        tokio::spawn(connection);
        match timeout(patience, sender.send_request(request)).await {
            Ok(Ok(answer)) => Ok((answer, sender)),
            Ok(Err(error)) => Err(ConnectionError::of(&error)),
            Err(_) => Err(ConnectionError::Silence),
        }
    }
}

impl Receiving {
    /// The next bytes. None are the end.
    pub(super) async fn next(&mut self) -> Result<Bytes, ConnectionError> {
        loop {
            let frame = tokio::select! {
                biased;
                Ok(_) = self.closed.wait_for(|&is_closed| is_closed) => Err(ConnectionError::Closed),
                frame = timeout(self.progress_timeout, self.body.frame()) => match frame {
                    Ok(frame) => frame.transpose().map_err(|error| ConnectionError::of(&error)),
                    Err(_) => Err(ConnectionError::Silence),
                },
            };
            match frame?.map(|frame| frame.into_data().unwrap_or_default()) {
                // Trailers promise nothing.
                Some(came) if came.is_empty() => {}
                Some(came) => return Ok(came),
                None => {
                    self.end();
                    return Ok(Bytes::new());
                }
            }
        }
    }

    /// The next bytes, at most `most`. None are the end.
    pub(super) async fn read(&mut self, most: usize) -> Result<Bytes, ConnectionError> {
        if self.came.is_empty() {
            self.came = self.next().await?;
        }
        Ok(self.came.split_to(most.min(self.came.len())))
    }

    /// All of it came: another request may use the connection.
    fn end(&mut self) {
        if let Some((server, sender)) = self.sender.take() {
            self.idle.put(server, sender);
        }
    }
}
