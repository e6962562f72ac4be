//! Connections to the origin, with and without TLS.

use std::{
    fs, io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower_service::Service;

use super::{Address, ProxyError, ProxyOptions};
use crate::remote::RemoteError;

/// Makes connections to the origin, and to nobody else.
#[derive(Clone)]
pub(super) struct Connector {
    host: Arc<str>,
    port: u16,
    timeout: Duration,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Connector {
    pub(super) fn new(address: &Address, options: &ProxyOptions) -> Result<Self, ProxyError> {
        let tls = match address.is_https {
            true => {
                let name = ServerName::try_from(address.host.clone());
                let name = name.map_err(|_| ProxyError::NoFolder {
                    url: options.origin.clone(),
                })?;
                Some((tls(options.roots.as_deref())?, name))
            }
            // What is wrong with them is said, though nothing needs them.
            false => match options.roots.as_deref() {
                Some(roots) => tls(Some(roots)).map(|_| None)?,
                None => None,
            },
        };
        Ok(Self {
            host: address.host.as_str().into(),
            port: address.port,
            timeout: options.connect_timeout,
            tls,
        })
    }

    async fn connect(self) -> io::Result<TokioIo<Stream>> {
        let connecting = async {
            let stream = TcpStream::connect((&*self.host, self.port)).await?;
            let _ = stream.set_nodelay(true);
            Ok(match self.tls {
                Some((connector, name)) => {
                    Stream::Tls(Box::new(connector.connect(name, stream).await?))
                }
                None => Stream::Plain(stream),
            })
        };
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(connected) => connected.map(TokioIo::new),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

fn tls(roots: Option<&Path>) -> Result<TlsConnector, RemoteError> {
    let certificates: Vec<CertificateDer<'static>> = match roots {
        Some(path) => {
            let refused = |source| RemoteError::Roots {
                path: path.to_owned(),
                source,
            };
            let pem = fs::read(path).map_err(refused)?;
            CertificateDer::pem_slice_iter(&pem)
                .collect::<Result<_, _>>()
                .map_err(|error| refused(io::Error::other(error)))?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut store = RootCertStore::empty();
    let (taken, _) = store.add_parsable_certificates(certificates);
    if taken == 0 {
        let path = roots.map(Path::to_owned);
        return Err(RemoteError::NoRoots { path });
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has what the versions need")
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

/// A connection to the origin.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
