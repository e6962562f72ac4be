//! A connection to a far end, up to the handshake.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{net::lookup_host, time::timeout};

use crate::{
    intercept,
    keys::PublicKey,
    tls::{ClientTls, TlsError},
    wire::LaneStream,
};

/// Why there is no lane to a far end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Its name cannot be looked up.
    #[error(
        "cannot resolve {peer}: {} (check the name, and this machine's DNS)",
        cause(source)
    )]
    Name {
        /// The far end.
        peer: String,
        /// Why.
        source: io::Error,
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
            ConnectError::Tls(error) => error.is_absence(),
            ConnectError::NoLaneLeft => false,
            _ => true,
        }
    }

    /// Whether it says that there is no far end to be had, and not only that none answered yet.
    pub(super) fn is_definite(&self) -> bool {
        match self {
            ConnectError::Tcp { error, .. } => error.kind() != io::ErrorKind::TimedOut,
            ConnectError::Tls(error) => !matches!(error, TlsError::TimedOut { .. }),
            _ => false,
        }
    }
}

/// Connects to a far end and makes the handshake. Calls `answered` once its machine has taken the
/// connection.
pub async fn connect(
    peer: &str,
    tls: &ClientTls,
    within: Duration,
    answered: impl Fn(),
) -> Result<(LaneStream, SocketAddr), ConnectError> {
    let connecting = async {
        let addresses = lookup_host(peer)
            .await
            .map_err(|source| ConnectError::Name {
                peer: peer.to_owned(),
                source,
            })?;
        let mut failure = ConnectError::NoAddress(peer.to_owned());
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
    };
    let connected = timeout(within, connecting).await;
    let (tcp, address) = connected.map_err(|_| ConnectError::TimedOut {
        peer: peer.to_owned(),
        within,
    })??;
    answered();
    let (stream, _key): (_, PublicKey) = tls.connect(tcp, address, within).await?;
    Ok((stream, address))
}
