//! A server and a client of HTTP/2 inside TLS, which a test has in its hand.

use std::{
    future::Future,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use h2::{
    RecvStream, SendStream,
    client::{self, ResponseFuture, SendRequest},
    server::{self, SendResponse},
};
use http::{HeaderMap, Request, Response};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::common::PATIENCE;

pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Waits for something that must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let came = timeout(PATIENCE, future).await;
    came.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What the server has seen.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    /// Its connections.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Its streams.
    pub(crate) streams: Arc<AtomicUsize>,
    /// Connections that are to end before their first request.
    pub(crate) unwanted: Arc<AtomicUsize>,
    /// Why clients reset the streams of `/wait`.
    resets: Arc<std::sync::Mutex<Vec<h2::Reason>>>,
}

impl Seen {
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    pub(crate) fn resets(&self) -> Vec<h2::Reason> {
        self.resets.lock().expect("a lock").clone()
    }
}

/// Starts a server that offers these protocols, and answers by path.
///
/// | path | answer |
/// |---|---|
/// | `/seen` | the request's method, path and fields |
/// | `/echo` | the request's body as it comes, and a trailer with its bytes |
/// | `/only-trailers` | a head that is also the end |
/// | `/hints` | 103 before the answer |
/// | `/continue` | 100 before the body is read |
/// | `/early` | an answer, and none of the body is read |
/// | `/flood` | many interim answers |
/// | `/wait` | a head, and nothing more |
/// | `/reset` | a head, some bytes and a reset |
/// | `/refuse` | a reset |
/// | `/go-away` | an answer, and the end of the connection |
/// | `/NUMBER` | so many bytes |
pub(crate) fn serve(runtime: &Runtime, folder: &Path, protocols: &[&str]) -> (SocketAddr, Seen) {
    let certificate = CertificateDer::from_pem_file(folder.join("tls.crt")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(folder.join("tls.key")).expect("a key");
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate with its key");
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let seen = Seen::default();
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("an address");
    let address = listener.local_addr().expect("a bound socket's address");
    let counted = seen.clone();
    runtime.spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let (acceptor, seen) = (acceptor.clone(), counted.clone());
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else {
                    return;
                };
                seen.connections.fetch_add(1, Ordering::Relaxed);
                let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                match is_http2 {
                    true => serve_http2(tls, seen).await,
                    false => serve_http1(tls, seen).await,
                }
            });
        }
    });
    (address, seen)
}

/// A server of HTTP/1.1 that answers with the head of the request.
async fn serve_http1(mut tls: tokio_rustls::server::TlsStream<TcpStream>, seen: Seen) {
    let mut received = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if tls.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
        };
        seen.streams.fetch_add(1, Ordering::Relaxed);
        let head: Vec<u8> = received.drain(..end).collect();
        let path = head.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
        let answer = match path {
            b"/hints" => b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n"
                .to_vec(),
            b"/only-trailers" => b"HTTP/1.1 200 OK\r\nGrpc-Status: 5\r\nContent-Length: 0\r\n\r\n".to_vec(),
            b"/continue" => {
                let go_on = tls.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
                if go_on.is_err() || tls.flush().await.is_err() {
                    return;
                }
                while received.len() < 4 {
                    if tls.read_buf(&mut received).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                received.drain(..4);
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ngot 4".to_vec()
            }
            _ => {
                let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", head.len());
                [length.as_bytes(), &head].concat()
            }
        };
        if tls.write_all(&answer).await.is_err() || tls.flush().await.is_err() {
            return;
        }
    }
}

async fn serve_http2(tls: tokio_rustls::server::TlsStream<TcpStream>, seen: Seen) {
    let Ok(mut connection) = server::handshake(tls).await else {
        return;
    };
    let (goes, mut go_away) = mpsc::unbounded_channel();
    let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
    let is_unwanted = seen
        .unwanted
        .fetch_update(success, failure, |n| n.checked_sub(1));
    if is_unwanted.is_ok() {
        connection.abrupt_shutdown(h2::Reason::NO_ERROR);
        let _ = connection.accept().await;
        // Closed at once, it would look broken before the frame is read.
        return tokio::time::sleep(Duration::from_millis(500)).await;
    }
    loop {
        tokio::select! {
            request = connection.accept() => {
                let Some(Ok((request, respond))) = request else {
                    return;
                };
                seen.streams.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(answer(request, respond, seen.clone(), goes.clone()));
            }
            Some(()) = go_away.recv() => connection.graceful_shutdown(),
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    seen: Seen,
    goes: mpsc::UnboundedSender<()>,
) -> Option<()> {
    let (request, mut body) = request.into_parts();
    let ok = || Response::builder().header("x-method", request.method.as_str());
    let path = request.uri.path();
    match path {
        "/seen" => {
            let mut text = format!("{} {}\n", request.method, request.uri);
            for (name, value) in &request.headers {
                text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
            }
            let mut stream = respond.send_response(ok().body(()).ok()?, false).ok()?;
            stream.send_data(text.into(), true).ok()
        }
        "/echo" => {
            let mut stream = respond.send_response(ok().body(()).ok()?, false).ok()?;
            let mut bytes = 0;
            while let Some(data) = body.data().await {
                let data = data.ok()?;
                body.flow_control().release_capacity(data.len()).ok()?;
                bytes += data.len();
                send(&mut stream, data).await?;
            }
            let mut trailers = body.trailers().await.ok()?.unwrap_or_default();
            trailers.insert("x-bytes", bytes.to_string().parse().ok()?);
            stream.send_trailers(trailers).ok()
        }
        "/only-trailers" => {
            let head = ok().header("grpc-status", "5").body(()).ok()?;
            respond.send_response(head, true).ok().map(drop)
        }
        "/hints" => {
            let hints = Response::builder().status(103).header("link", "x");
            respond.send_informational(hints.body(()).ok()?).ok()?;
            let mut stream = respond.send_response(ok().body(()).ok()?, false).ok()?;
            stream.send_data("ok".into(), false).ok()?;
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", "7".parse().ok()?);
            stream.send_trailers(trailers).ok()
        }
        "/continue" => {
            let go_on = Response::builder().status(100).body(()).ok()?;
            respond.send_informational(go_on).ok()?;
            let mut bytes = 0;
            while let Some(data) = body.data().await {
                let data = data.ok()?;
                body.flow_control().release_capacity(data.len()).ok()?;
                bytes += data.len();
            }
            let mut stream = respond.send_response(ok().body(()).ok()?, false).ok()?;
            stream.send_data(format!("got {bytes}").into(), true).ok()
        }
        "/early" => {
            let head = Response::builder().status(413).body(()).ok()?;
            let mut stream = respond.send_response(head, false).ok()?;
            stream.send_data("too large".into(), true).ok()
        }
        "/flood" => {
            for _ in 0..1000 {
                let hints = Response::builder().status(103).header("link", "x");
                respond.send_informational(hints.body(()).ok()?).ok()?;
            }
            respond
                .send_response(ok().body(()).ok()?, true)
                .ok()
                .map(drop)
        }
        "/wait" => {
            let mut stream = respond.send_response(ok().body(()).ok()?, false).ok()?;
            let reason = std::future::poll_fn(|context| stream.poll_reset(context)).await;
            seen.resets.lock().expect("a lock").push(reason.ok()?);
            Some(())
        }
        "/reset" => {
            let mut stream = respond.send_response(ok().body(()).ok()?, false).ok()?;
            stream.send_data("some".into(), false).ok()?;
            tokio::time::sleep(Duration::from_millis(50)).await;
            stream.send_reset(h2::Reason::ENHANCE_YOUR_CALM);
            Some(())
        }
        "/refuse" => {
            respond.send_reset(h2::Reason::HTTP_1_1_REQUIRED);
            Some(())
        }
        "/go-away" => {
            let mut stream = respond.send_response(ok().body(()).ok()?, false).ok()?;
            goes.send(()).ok()?;
            stream.send_data("gone".into(), true).ok()
        }
        path => {
            let bytes: usize = path[1..].parse().ok()?;
            let head = ok().header("content-length", bytes).body(()).ok()?;
            let is_head = bytes == 0 || request.method == "HEAD";
            let mut stream = respond.send_response(head, is_head).ok()?;
            if !is_head {
                send(&mut stream, content(bytes).into()).await?;
                stream.send_data(Bytes::new(), true).ok()?;
            }
            Some(())
        }
    }
}

/// What the server sends of so many bytes.
pub(crate) fn content(bytes: usize) -> Vec<u8> {
    crate::common::content::letters(bytes as u64, bytes)
}

/// Sends as fast as the other side takes it.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Option<()> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        while stream.capacity() == 0 {
            std::future::poll_fn(|context| stream.poll_capacity(context))
                .await?
                .ok()?;
        }
        let piece = data.split_to(stream.capacity().min(data.len()));
        stream.send_data(piece, false).ok()?;
    }
    Some(())
}

/// Begins TLS with `server`, which has the certificate in `folder`, and offers these protocols.
pub(crate) async fn tls(
    server: SocketAddr,
    folder: &Path,
    protocols: &[&str],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(folder.join("tls.crt")).expect("a certificate");
    roots.add(certificate).expect("a certificate");
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let tcp = TcpStream::connect(server).await.expect("a listener");
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, tcp).await.expect("TLS")
}

/// A client's connection.
pub(crate) struct Client {
    pub(crate) sender: SendRequest<Bytes>,
    authority: String,
    /// How the connection ends.
    pub(crate) ended: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: http::response::Parts,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whether its head was the end.
    pub(crate) is_only_head: bool,
}

impl Client {
    pub(crate) async fn connect(server: SocketAddr, folder: &Path) -> Client {
        let tls = tls(server, folder, &["h2"]).await;
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        // Streams that are not read hold up no other.
        let mut builder = client::Builder::new();
        builder.initial_connection_window_size(16 << 20);
        let (sender, connection) = builder.handshake(tls).await.expect("HTTP/2");
        Client {
            sender,
            authority: format!("localhost:{}", server.port()),
            ended: tokio::spawn(connection),
        }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let uri = format!("https://{}{path}", self.authority);
        Request::builder().method(method).uri(uri)
    }

    /// Asks for a WebSocket (RFC 8441).
    pub(crate) async fn websocket(&self, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
        let enabled = async {
            while !self.sender.is_extended_connect_protocol_enabled() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon("the setting", enabled).await;
        let request = self.request("CONNECT", path);
        let request = request.header("sec-websocket-version", "13");
        let mut request = request.body(()).expect("a request");
        let protocol = h2::ext::Protocol::from_static("websocket");
        request.extensions_mut().insert(protocol);
        let mut sender = self.sender.clone();
        sender.send_request(request, false).expect("a stream")
    }

    /// What comes of a request without a body.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, h2::Error> {
        let request = self.request("GET", path).body(()).expect("a request");
        self.ask(request, None).await
    }

    /// What comes of a request, with this body.
    pub(crate) async fn ask(
        &self,
        request: Request<()>,
        body: Option<Bytes>,
    ) -> Result<Answer, h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut stream) = sender.send_request(request, body.is_none())?;
        let sending = async {
            if let Some(body) = body {
                let _ = send(&mut stream, body).await;
                let _ = stream.send_data(Bytes::new(), true);
            }
        };
        let receiving = async {
            let (head, mut stream) = response.await?.into_parts();
            let is_only_head = stream.is_end_stream();
            let mut body = Vec::new();
            while let Some(data) = stream.data().await {
                let data = data?;
                stream.flow_control().release_capacity(data.len())?;
                body.extend(data);
            }
            let trailers = stream.trailers().await?;
            Ok(Answer {
                head,
                body,
                trailers,
                is_only_head,
            })
        };
        let (answer, ()) = soon("an answer", async { tokio::join!(receiving, sending) }).await;
        answer
    }
}
