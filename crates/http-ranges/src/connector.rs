//! Connections to servers: straight or through a proxy, with and without TLS.

use std::{
    env,
    error::Error,
    fs,
    future::{Ready, ready},
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{
    Method, Request, Uri,
    header::{self, HeaderValue},
    upgrade,
};
use hyper_util::{
    client::legacy::connect::{
        Connected, Connection, HttpConnector,
        proxy::{SocksV4, SocksV5},
    },
    rt::TokioIo,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::lookup_host,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower_service::Service;
use url::Url;

use super::{
    error::{ConnectionError, RemoteError, causes},
    http1::{FIELDS_MAX, http},
    options::ProxyChoice,
    proxies::{Kind, Proxies, Proxy},
};

/// Makes connections. Clones share what they know.
#[derive(Clone)]
pub struct Connector(Arc<Shared>);

struct Shared {
    proxies: Proxies,
    roots: Option<PathBuf>,
    timeout: Duration,
    tcp: HttpConnector,
    /// Set once something needs it: reading the system's certificates takes time.
    tls: OnceLock<TlsConnector>,
}

impl Connector {
    /// Connections take at most `timeout`, from finding the name to the end of all handshakes.
    pub fn new(proxy: &ProxyChoice, roots: Option<PathBuf>, timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Shared out among the addresses that a name has.
        tcp.set_connect_timeout(Some(timeout));
        Self(Arc::new(Shared {
            proxies: Proxies::new(proxy),
            roots,
            timeout,
            tcp,
            tls: OnceLock::new(),
        }))
    }

    /// The proxy that requests for `url` go through. Then there is what it takes to connect there.
    pub(super) fn proxy(&self, url: &Url) -> Result<Option<Proxy>, RemoteError> {
        let proxy = self.0.proxies.of(url)?;
        if url.scheme() == "https" || proxy.as_ref().is_some_and(Proxy::is_secure) {
            self.load_certificates()?;
        }
        Ok(proxy)
    }

    /// Reads the certificates to trust.
    pub fn load_certificates(&self) -> Result<(), RemoteError> {
        if self.0.tls.get().is_none() {
            let made = tls(self.0.roots.as_deref())?;
            self.0.tls.get_or_init(|| made);
        }
        Ok(())
    }

    /// Connects to the server of `url`, through the `proxy` that it has.
    pub(super) async fn connect(
        &self,
        url: &Url,
        proxy: Option<&Proxy>,
    ) -> Result<Link, ConnectionError> {
        let connected = timeout(self.0.timeout, self.connect_patiently(url, proxy)).await;
        connected.unwrap_or_else(|_| {
            let error = self.too_late();
            Err(match proxy {
                Some(proxy) => failed(proxy, &error),
                None => error,
            })
        })
    }

    async fn connect_patiently(
        &self,
        url: &Url,
        proxy: Option<&Proxy>,
    ) -> Result<Link, ConnectionError> {
        let is_secure = url.scheme() == "https";
        let Some(proxy) = proxy else {
            return self.open(server(url, None)?).await;
        };
        let through = |error: &(dyn Error + 'static)| failed(proxy, error);
        let link = self.open(proxy.address.clone()).await;
        let link = link.map_err(|error| through(&error))?;
        let at = proxy.address.clone();
        let link = match proxy.kind.clone() {
            Kind::Http(_) if !is_secure => return Ok(link),
            Kind::Http(authorization) => {
                let opened = tunnel(link, url, authorization).await;
                opened.map_err(|error| through(&error))?
            }
            Kind::Socks4 { .. } => {
                let to = server(url, address_for(proxy, url).await?)?;
                let opened = SocksV4::new(at, Opened::new(link)).call(to).await;
                opened.map_err(|error| through(&error))?.into_inner()
            }
            Kind::Socks5 { user, .. } => {
                let to = server(url, address_for(proxy, url).await?)?;
                let mut socks = SocksV5::new(at, Opened::new(link));
                if let Some((name, password)) = user {
                    socks = socks.with_auth(name, password);
                }
                let opened = socks.call(to).await;
                opened.map_err(|error| through(&error))?.into_inner()
            }
        };
        match is_secure {
            true => self.secured(link, url.host_str().unwrap_or_default()).await,
            false => Ok(link),
        }
    }

    /// Connects to a server or a proxy itself, with TLS if its scheme is https.
    async fn open(&self, to: Uri) -> Result<Link, ConnectionError> {
        let mut tcp = self.0.tcp.clone();
        let connected = tcp.call(to.clone()).await;
        let link = connected.map_err(|error| match error.to_string().starts_with("dns") {
            true => ConnectionError::name(causes(&error)),
            false => match ConnectionError::of_source(&error) {
                // The reason is the HTTP library's own, of the limit that it has from here.
                ConnectionError::Io {
                    kind: io::ErrorKind::TimedOut,
                    ..
                } => self.too_late(),
                error => error,
            },
        })?;
        let link: Link = Box::new(link.into_inner());
        match to.scheme_str() == Some("https") {
            true => self.secured(link, to.host().unwrap_or_default()).await,
            false => Ok(link),
        }
    }

    fn too_late(&self) -> ConnectionError {
        ConnectionError::TooLate {
            limit: self.0.timeout,
        }
    }

    /// Speaks TLS with `host` over `link`.
    async fn secured(&self, link: Link, host: &str) -> Result<Link, ConnectionError> {
        let tls = self.0.tls.get().ok_or(ConnectionError::NoCertificates)?;
        let host = host.trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(ConnectionError::invalid)?;
        let stream = tls
            .connect(name, link)
            .await
            .map_err(ConnectionError::of_tls)?;
        Ok(Box::new(stream))
    }
}

fn failed(proxy: &Proxy, error: &(dyn Error + 'static)) -> ConnectionError {
    let why = causes(error);
    // The library has no types for these.
    let why = match &why {
        why if why.contains("does not support user/pass") => {
            "it asks for a user name and a password (such as all_proxy=socks5h://USER:PASSWORD@HOST:PORT)".to_owned()
        }
        why if why.contains("credentials not accepted") => "it refused the user name or the password".to_owned(),
        why => why.clone(),
    };
    ConnectionError::Proxy {
        proxy: proxy.to_string(),
        why,
    }
}

/// Has the proxy at the other end of `link` connect it to the server of `url`.
async fn tunnel(
    link: Link,
    url: &Url,
    authorization: Option<HeaderValue>,
) -> Result<Link, ConnectionError> {
    let to = server(url, None)?;
    let to = to.authority().map_or("", |authority| authority.as_str());
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() = to.parse::<Uri>().map_err(ConnectionError::invalid)?;
    let host = HeaderValue::from_str(to).map_err(ConnectionError::invalid)?;
    request.headers_mut().insert(header::HOST, host);
    if let Some(authorization) = authorization {
        (request.headers_mut()).insert(header::PROXY_AUTHORIZATION, authorization);
    }
    let made = http(FIELDS_MAX).handshake(TokioIo::new(link)).await;
    let (mut sender, connection) = made.map_err(|error| ConnectionError::of(&error))?;
    tokio::spawn(connection.with_upgrades());
    let answer = sender.send_request(request).await;
    let answer = answer.map_err(|error| ConnectionError::of(&error))?;
    if !answer.status().is_success() {
        return Err(ConnectionError::NoTunnel {
            status: answer.status().as_u16(),
        });
    }
    let opened = upgrade::on(answer).await;
    let opened = opened.map_err(|error| ConnectionError::of(&error))?;
    Ok(Box::new(TokioIo::new(opened)))
}

/// The address of the server of `url`, if the proxy takes no names.
async fn address_for(proxy: &Proxy, url: &Url) -> Result<Option<IpAddr>, ConnectionError> {
    let Some(takes) = proxy.takes_addresses() else {
        return Ok(None);
    };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let found = lookup_host((host, 0))
        .await
        .map_err(ConnectionError::name)?;
    let mut found = found.map(|address| address.ip());
    match found.find(takes) {
        Some(address) => Ok(Some(address)),
        None => Err(ConnectionError::NotFound {
            why: "it has no address of a kind that the proxy accepts".to_owned(),
        }),
    }
}

/// The server of `url`, or `address`, with its port: tunnels take that of https where there is none.
fn server(url: &Url, address: Option<IpAddr>) -> Result<Uri, ConnectionError> {
    let host = match address {
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => format!("[{address}]"),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    let port = url.port_or_known_default().unwrap_or_default();
    let to = format!("{}://{host}:{port}/", url.scheme()).parse();
    to.map_err(ConnectionError::invalid)
}

/// A connection to a proxy that is there already.
struct Opened(Option<TokioIo<Link>>);

impl Opened {
    fn new(link: Link) -> Self {
        Self(Some(TokioIo::new(link)))
    }
}

impl Service<Uri> for Opened {
    type Response = TokioIo<Link>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(
            self.0
                .take()
                .ok_or_else(|| io::ErrorKind::NotConnected.into()),
        )
    }
}

/// For clients that follow no proxies: what they are to connect to is an address as it is.
impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = ConnectionError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let connected = timeout(connector.0.timeout, connector.open(to)).await;
            connected
                .unwrap_or_else(|_| Err(connector.too_late()))
                .map(TokioIo::new)
        })
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
        None => {
            let mut found = rustls_native_certs::load_native_certs();
            // What cannot be read among the system's is not trusted. If that leaves none, it is reported. A file that the
            // user named is.
            let named = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
            if let (Some(path), Some(error)) = (named, found.errors.pop()) {
                let source = io::Error::other(error);
                return Err(RemoteError::Roots { path, source });
            }
            found.certs
        }
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

/// What a connection can do.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection, whatever it consists of.
pub(crate) type Link = Box<dyn Io>;

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
