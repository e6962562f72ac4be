//! Listeners: bound with errors that say what to do, and accepted from within bounds.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use refrain_admission::{Admission, Visit};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::sleep,
};

pub use crate::descriptors::SpareDescriptors;
use crate::{descriptors::Descriptors, rate_limited_log::RateLimitedLog};

/// After an error of accept(2), such as too many open files.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that wait in the kernel to be accepted: bursts of many are ordinary here.
const BACKLOG: u32 = 4096;

/// Binds a listener, and says its address, with the port that the system chose for port 0. An error
/// names the address and what to do.
pub fn bind(address: SocketAddr, what: &str) -> Result<(TcpListener, SocketAddr), BindError> {
    let bound = listen(address).and_then(|socket| {
        let address = socket.local_addr()?;
        Ok((socket, address))
    });
    bound.map_err(|error| BindError {
        what: what.to_owned(),
        address,
        error,
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let (socket, address) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, address),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => all_addresses(v6.port())?,
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, address),
    };
    // A restart need not wait for the old connections' last states.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A socket for all addresses of both families, whatever the system's default; of IPv4 where the
/// system has no IPv6.
fn all_addresses(port: u16) -> io::Result<(TcpSocket, SocketAddr)> {
    match TcpSocket::new_v6() {
        Ok(socket) => {
            SockRef::from(&socket).set_only_v6(false)?;
            Ok((socket, (Ipv6Addr::UNSPECIFIED, port).into()))
        }
        Err(_) => Ok((TcpSocket::new_v4()?, (Ipv4Addr::UNSPECIFIED, port).into())),
    }
}

/// A client's address. A listener on all addresses has those of IPv4 as `::ffff:192.0.2.1`.
fn own_address(client: SocketAddr) -> SocketAddr {
    match client.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), client.port()),
        IpAddr::V6(_) => client,
    }
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("--{}: cannot listen on {address}: {error}{}", what.replace('_', "-"), hint(error, address.port()))]
pub struct BindError {
    what: String,
    address: SocketAddr,
    error: io::Error,
}

fn hint(error: &io::Error, port: u16) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("; another program uses this port (find it: ss -tanp | grep :{port})")
        }
        io::ErrorKind::AddrNotAvailable => "; this machine does not have that address".to_owned(),
        io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges".to_owned(),
        _ => String::new(),
    }
}

/// Accepts a listener's connections, within its bounds.
pub struct Acceptor {
    socket: TcpListener,
    address: SocketAddr,
    admission: Arc<Admission>,
    spare: SpareDescriptors,
    failures: RateLimitedLog,
    displaced: RateLimitedLog,
    /// Whether clients that are turned away see a reset, as those of a server that refuses.
    resets: bool,
    /// Called for each connection, and each failure to accept one: whether it was accepted.
    on_progress: Box<dyn Fn(bool) + Send + Sync>,
}

impl Acceptor {
    /// Accepts the connections of `socket`, bound to `address`, and keeps at most `unproven_max`
    /// that have sent no request.
    pub fn new(
        socket: TcpListener,
        address: SocketAddr,
        descriptors: &Descriptors,
        unproven_max: usize,
    ) -> Acceptor {
        let warn = |line: &str| tracing::warn!("{line}");
        Acceptor {
            socket,
            address,
            admission: descriptors.admission(address, unproven_max),
            spare: SpareDescriptors::default(),
            failures: RateLimitedLog::new(warn),
            displaced: RateLimitedLog::new(warn),
            resets: false,
            on_progress: Box::new(|_| ()),
        }
    }

    /// The same for redirected connections: clients that are turned away see a reset. Calls `on_progress` for each
    /// connection, and for each failure to accept one, with whether it was accepted.
    pub(crate) fn of_redirected(
        self,
        on_progress: impl Fn(bool) + Send + Sync + 'static,
    ) -> Acceptor {
        Acceptor {
            resets: true,
            on_progress: Box::new(on_progress),
            ..self
        }
    }

    /// The next connection that `admits` something of: an unproven one. Others are closed, and
    /// displace none.
    pub async fn accept<T>(
        &self,
        admits: impl Fn(SocketAddr) -> Option<T>,
    ) -> (TcpStream, Arc<Visit>, T) {
        loop {
            self.admission.ready().await;
            let accepted = self.socket.accept().await;
            (self.on_progress)(accepted.is_ok());
            match accepted {
                Ok((tcp, from)) => {
                    let from = own_address(from);
                    let Some(tcp) = self.spare.keep(tcp) else {
                        continue;
                    };
                    let Some(admitted) = admits(from) else {
                        if self.resets {
                            let _ = SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
                        }
                        continue;
                    };
                    let (visit, displaces) = self.admission.enter(from);
                    if displaces {
                        let closed = format!(
                            "listener {}: too many connections without a request; closed the oldest \
                             (the newest is from {})",
                            self.address,
                            from.ip()
                        );
                        self.displaced.add((), closed);
                    }
                    return (tcp, Arc::new(visit), admitted);
                }
                Err(error) => {
                    let failed = format!(
                        "listener {}: cannot accept connections: {error} (if too many files are \
                         open, raise the limit: ulimit -n, LimitNOFILE)",
                        self.address
                    );
                    self.failures.add(error.raw_os_error(), failed);
                    if !self.spare.turn_away(&self.socket, &error).await {
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_client_of_ipv4_is_known_by_its_own_address() {
        let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let (listener, address) = bind(all, "listen").expect("a port");
        let descriptors = Descriptors::of_process(1);
        let acceptor = Acceptor::new(listener, address, &descriptors, 4);
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, address.port()));
        let (client, (_tcp, visit, from)) = tokio::join!(client, acceptor.accept(Some));
        let client = client.expect("it listens");
        let own = client.local_addr().expect("an address");
        assert_eq!((from, visit.address()), (own, own));
    }

    #[tokio::test]
    async fn a_burst_of_clients_waits_to_be_accepted() {
        let (_listener, address) = bind(([127, 0, 0, 1], 0).into(), "forward").expect("a port");
        let mut clients = Vec::new();
        for index in 0..300 {
            let connecting = timeout(Duration::from_secs(30), TcpStream::connect(address));
            let connected = connecting
                .await
                .unwrap_or_else(|_| panic!("client {index}"));
            clients.push(connected.expect("it listens"));
        }
    }
}
