//! A connection to a far end, up to the handshake.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use crate::{
    intercept,
    keys::PublicKey,
    target::Target,
    tls::{ClientTls, TlsError},
    via_proxy::{TunnelError, ViaProxy},
    wire::LaneStream,
};

/// Why there is no lane to a far end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Its name cannot be looked up.
    #[error(
        "cannot resolve {peer}: {} (check the name, and this machine's DNS)",
        cause(error)
    )]
    Name {
        /// The far end.
        peer: String,
        /// Why.
        error: io::Error,
    },
    /// Its name has no address.
    #[error("cannot resolve {0}: the name has no address")]
    NoAddress(String),
    /// No connection opens.
    #[error("cannot connect to the far end at {address}: {}", reason(error))]
    Tcp {
        /// The last address that was tried.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// No connection opens in time.
    #[error("{peer} did not answer within {within:?}")]
    TimedOut {
        /// The far end.
        peer: String,
        /// The time that it had.
        within: Duration,
    },
    /// The link has as many lanes as it may have.
    #[error("the link already has its maximum number of lanes")]
    NoLaneLeft,
    /// The connection failed, or what answers is not the peer.
    #[error("{}{}", .0, hint(.0))]
    Tls(#[from] TlsError),
    /// The proxy makes no tunnel to the far end.
    #[error("cannot connect to {peer} through the proxy {proxy}: {error}")]
    Proxy {
        /// The far end.
        peer: String,
        /// The proxy.
        proxy: String,
        /// Why.
        error: TunnelError,
    },
    /// The connection through a proxy failed, or what answers is not the peer.
    #[error("{}{}", .0, hint_of_tunnel(.0))]
    Tunnel(TlsError),
}

/// What to look at if a connection ended before its handshake, or nothing answered: listeners for applications end it so.
fn hint(error: &TlsError) -> &'static str {
    match error {
        TlsError::Closed { .. } | TlsError::Io { .. } | TlsError::TimedOut { .. } => {
            " (is this the --listen port of refrain far?)"
        }
        _ => "",
    }
}

/// What to look at if what answers through a proxy is not the far end.
fn hint_of_tunnel(error: &TlsError) -> &'static str {
    match error {
        TlsError::NotTls { .. } | TlsError::Incompatible { .. } => {
            " (a proxy that decrypts TLS cannot carry lanes: it must leave this connection unchanged)"
        }
        error => hint(error),
    }
}

/// The system's reason why a name has no address.
fn cause(error: &io::Error) -> String {
    let whole = error.to_string();
    whole.rsplit(": ").next().unwrap_or(&whole).to_owned()
}

/// Why no connection opens, with what to do where that is known.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "connection refused (is refrain far running, and does it listen there?)".to_owned()
        }
        _ => error.to_string(),
    }
}

impl ConnectError {
    /// Whether it says no more than that the far end does not run.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            ConnectError::Tls(error) | ConnectError::Tunnel(error) => error.is_absence(),
            ConnectError::Proxy { error, .. } => error.is_absence(),
            ConnectError::NoLaneLeft => false,
            _ => true,
        }
    }

    /// Whether it says that there is no far end to be had, and not only that none answered yet.
    pub(super) fn is_definite(&self) -> bool {
        match self {
            ConnectError::Tcp { error, .. } => error.kind() != io::ErrorKind::TimedOut,
            ConnectError::Tls(error) | ConnectError::Tunnel(error) => {
                !matches!(error, TlsError::TimedOut { .. })
            }
            ConnectError::Proxy { .. } => true,
            _ => false,
        }
    }
}

/// Connects to a far end, through a proxy if there is one, and makes the handshake. Calls `answered` once its machine has
/// taken the connection. Returns the peer's address too, and the proxy, in words.
pub async fn connect(
    peer: &Target,
    proxy: Option<&ViaProxy>,
    tls: &ClientTls,
    within: Duration,
    answered: impl Fn(),
) -> Result<(LaneStream, String), ConnectError> {
    let connected = timeout(within, tunnel(peer, proxy)).await;
    let (tcp, address) = connected.unwrap_or_else(|_| {
        Err(match proxy {
            Some(proxy) => not_through(peer, proxy, TunnelError::Silent(within)),
            None => ConnectError::TimedOut {
                peer: peer.to_string(),
                within,
            },
        })
    })?;
    let address = match proxy {
        Some(proxy) => format!("{peer} through the proxy {proxy}"),
        None => address.to_string(),
    };
    answered();
    let (stream, _key): (_, PublicKey) = match tls.connect(tcp, &address, within).await {
        Ok(connected) => connected,
        Err(error) if proxy.is_some() => return Err(ConnectError::Tunnel(error)),
        Err(error) => return Err(error.into()),
    };
    Ok((stream, address))
}

fn not_through(peer: &Target, proxy: &ViaProxy, error: TunnelError) -> ConnectError {
    ConnectError::Proxy {
        peer: peer.to_string(),
        proxy: proxy.to_string(),
        error,
    }
}

/// Connects, and has the proxy connect further.
async fn tunnel(
    peer: &Target,
    proxy: Option<&ViaProxy>,
) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let Some(proxy) = proxy else {
        return open(peer).await;
    };
    let not_through = |error| not_through(peer, proxy, error);
    let (mut tcp, address) = open(proxy.address()).await.map_err(|error| match error {
        ConnectError::Tcp { error, .. } => not_through(TunnelError::Unreached(error)),
        ConnectError::Name { error, .. } => {
            let reason = format!("cannot resolve its name: {}", cause(&error));
            not_through(TunnelError::Unreached(io::Error::other(reason)))
        }
        error => error,
    })?;
    let opened = proxy.open(&mut tcp, peer).await;
    opened.map_err(not_through)?;
    Ok((tcp, address))
}

/// Connects to the first address that takes the connection.
async fn open(host: &Target) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let host = host.to_string();
    let addresses = lookup_host(&host)
        .await
        .map_err(|error| ConnectError::Name {
            peer: host.clone(),
            error,
        })?;
    let mut failure = ConnectError::NoAddress(host.clone());
    for address in addresses {
        match intercept::connect(address).await {
            Ok(tcp) => {
                // A handshake is small writes by turns.
                let _ = tcp.set_nodelay(true);
                return Ok((tcp, address));
            }
            Err(error) => failure = ConnectError::Tcp { address, error },
        }
    }
    Err(failure)
}
