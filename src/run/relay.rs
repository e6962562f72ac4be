//! Relays connections of the program to a SOCKS5 proxy.

use std::{io, str::FromStr, sync::Arc, time::Duration};

use refrain_gateway::{
    address::parse_admin,
    redirected::original_target,
    target::{Host, Target, TargetError},
    virtual_names::VirtualNames,
};
use socket2::SockRef;
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_socks::{TargetAddr, tcp::Socks5Stream};

/// How long the proxy may take to connect to a target.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// After an error of accept(2), such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The buffer of each direction of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// A SOCKS5 proxy.
#[derive(Debug, Clone)]
pub(super) struct Proxy {
    address: Target,
    login: Option<(String, String)>,
}

/// Why a text is not a proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    #[error("the user has no password: expected USER:PASSWORD@HOST:PORT")]
    NoPassword,
    #[error(transparent)]
    Address(#[from] TargetError),
}

impl Proxy {
    /// One that asks for no password.
    pub(super) fn at(address: Target) -> Proxy {
        Proxy {
            address,
            login: None,
        }
    }

    /// A connection to `target`.
    async fn open(&self, target: &Target) -> Result<TcpStream, tokio_socks::Error> {
        let proxy = TcpStream::connect(self.address.to_string()).await?;
        proxy.set_nodelay(true)?;
        let port = target.port;
        let target = match target.host.clone() {
            Host::Domain(name) => TargetAddr::Domain(name.into(), port),
            Host::Ipv4(address) => TargetAddr::Ip((address, port).into()),
            Host::Ipv6(address) => TargetAddr::Ip((address, port).into()),
        };
        let opened = match &self.login {
            Some((user, password)) => {
                Socks5Stream::connect_with_password_and_socket(proxy, target, user, password).await
            }
            None => Socks5Stream::connect_with_socket(proxy, target).await,
        };
        opened.map(Socks5Stream::into_inner)
    }
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Proxy, ProxyError> {
        let text = ["socks5://", "socks5h://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme))
            .unwrap_or(text)
            .trim_end_matches('/');
        let (login, address) = match text.rsplit_once('@') {
            Some((login, address)) => {
                let (user, password) = login.split_once(':').ok_or(ProxyError::NoPassword)?;
                (Some((user.to_owned(), password.to_owned())), address)
            }
            None => (None, text),
        };
        Ok(Proxy {
            address: parse_admin(address)?,
            login,
        })
    }
}

/// The open connections. Each holds a sender of a channel that carries nothing.
pub(super) struct Relays(mpsc::Receiver<()>);

impl Relays {
    /// Waits until all have ended, but not longer than `within`.
    pub(super) async fn ended(mut self, within: Duration) {
        let _ = timeout(within, self.0.recv()).await;
    }
}

/// Relays the connections that come to `listener`, until `services` ends.
pub(super) fn serve(
    listener: TcpListener,
    proxy: Proxy,
    names: Arc<VirtualNames>,
    services: &mut JoinSet<()>,
) -> Relays {
    let (open, relays) = mpsc::channel(1);
    services.spawn(async move {
        loop {
            match listener.accept().await {
                Ok((client, _)) => {
                    let (proxy, names, open) = (proxy.clone(), Arc::clone(&names), open.clone());
                    tokio::spawn(async move {
                        relay(client, proxy, &names).await;
                        drop(open);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    Relays(relays)
}

async fn relay(mut client: TcpStream, proxy: Proxy, names: &VirtualNames) {
    // Whatever ends it early, the program sees a reset and not an end.
    let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    let target = match original_target(&client, Some(names)) {
        Ok(target) => target,
        Err(error) => return tracing::info!("reset a connection: {error}"),
    };
    let opened = timeout(CONNECT_TIMEOUT, proxy.open(&target)).await;
    let opened = opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
    let mut server = match opened {
        Ok(server) => server,
        Err(error) => {
            let proxy = &proxy.address;
            return tracing::info!("reset a connection to {target}: proxy {proxy}: {error}");
        }
    };
    let copied =
        copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES);
    match copied.await {
        Ok(_) => {
            let _ = SockRef::from(&client).set_linger(None);
        }
        Err(error) => {
            tracing::debug!(%target, %error, "a connection failed");
            let _ = SockRef::from(&server).set_linger(Some(Duration::ZERO));
        }
    }
}
