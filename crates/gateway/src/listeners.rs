//! Where applications connect: forwards, SOCKS, the HTTP proxy, each a file that serves it ([`Serve`]).
//!
//! Each accepted connection becomes a flow to a target at the other end. The first bytes
//! travel with the opening where the client has sent them already; a refusal is passed on
//! in the words of the client's protocol.

mod forward;
mod http;
mod socks;

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use refrain_admission::{Admission, Visit};
use socket2::SockRef;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use crate::{
    descriptors::{Descriptors, FlowDescriptor, UNPROVEN_CLIENTS_MAX},
    door::{Door, Visitor},
    flow::FlowHandle,
    keys::PublicKey,
    link::{SharedLink, Standing},
    options::OptionSpec,
    policy::SharedPolicy,
    rate_limited_log::RateLimitedLog,
    refusal::Refusal,
    target::Target,
    way_in::WayIn,
};

/// A client has this long for its greeting or its request's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How much longer than its time-out the other end may take to report it.
const REPORT_TIME: Duration = Duration::from_millis(500);

/// After an error of accept(2), such as too many open files.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where a listener's flows go.
pub trait Links: Send + Sync + 'static {
    /// The link for a flow to `target`: to the peer that the listener names, or to the first that may
    /// have it and is up. While any may still be reached, this waits; it fails as soon as all are
    /// known to be gone now.
    fn link<'a>(
        &'a self,
        target: &'a Target,
        named: Option<PublicKey>,
    ) -> BoxFuture<'a, Result<Arc<SharedLink>, Refusal>>;
}

/// A future that a trait object returns.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An address that a gateway listens on, and the purpose of it.
#[derive(Debug, Clone)]
pub struct Listening {
    /// What is served there: `socks5`, `http proxy`, `forward` or `lanes`.
    pub kind: String,
    /// The address, with the port that the system chose where port 0 was asked for.
    pub address: SocketAddr,
    /// Where a forward's connections go.
    pub target: Option<Target>,
}

impl Listening {
    pub(crate) fn of(way_in: &WayIn) -> Listening {
        Listening {
            kind: way_in.kind(),
            address: way_in.listen,
            target: way_in.target.clone(),
        }
    }

    pub(crate) fn lanes(address: SocketAddr) -> Listening {
        Listening {
            kind: "lanes".to_owned(),
            address,
            target: None,
        }
    }

    /// Logs that it is listened on.
    pub fn log(&self) {
        let Listening {
            kind,
            address,
            target,
        } = self;
        match target {
            Some(target) => tracing::info!(kind, %address, %target, "listening"),
            None => tracing::info!(kind, %address, "listening"),
        }
    }
}

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

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{what}: cannot listen on {address}: {error}{}", hint(error))]
pub struct BindError {
    what: String,
    address: SocketAddr,
    error: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program listens there: stop it, or choose another port"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges",
        _ => "",
    }
}

/// Serves the clients of one kind of listener: a file below here, and a line in [`SERVERS`].
trait Serve: Sync {
    /// The option that names the listeners.
    fn option(&self) -> &'static OptionSpec;

    /// Serves a client's connection up to its end.
    fn serve(&self, client: Client) -> BoxFuture<'static, io::Result<()>>;
}

const SERVERS: &[&dyn Serve] = &[&forward::Forward, &socks::Socks, &http::HttpProxy];

/// A listener for applications and what its connections need.
pub struct Listener {
    way_in: WayIn,
    /// Where its flows go.
    links: Arc<dyn Links>,
    /// Rules and time-outs.
    policy: Arc<SharedPolicy>,
    descriptors: Arc<Descriptors>,
    refusals: RateLimitedLog,
}

impl Listener {
    /// A listener whose flows go by `links`.
    pub(crate) fn new(
        way_in: WayIn,
        links: Arc<dyn Links>,
        policy: Arc<SharedPolicy>,
        descriptors: Arc<Descriptors>,
    ) -> Listener {
        Listener {
            way_in,
            links,
            policy,
            descriptors,
            refusals: RateLimitedLog::new(|line| tracing::info!("{line}")),
        }
    }

    /// Serves the connections of `socket` until the task is aborted.
    pub async fn serve(self, socket: TcpListener) {
        let address = self.way_in.listen;
        let acceptor = Acceptor::new(socket, address, &self.descriptors, UNPROVEN_CLIENTS_MAX);
        let door = Door::new(&self.way_in, &self.policy);
        let mut servers = SERVERS.iter();
        let server = servers.find(|server| server.option() == self.way_in.option);
        let server = server.expect("each way in has a server");
        let listener = Arc::new(self);
        loop {
            let (tcp, visit, visitor) = acceptor.accept(|client| door.admit(client)).await;
            let client = Client {
                tcp,
                visitor,
                visit: Arc::clone(&visit),
                descriptor: Mutex::new(None),
                listener: Arc::clone(&listener),
            };
            let serving = server.serve(client);
            tokio::spawn(async move {
                tokio::select! {
                    () = visit.displaced() => {}
                    served = serving => if let Err(error) = served {
                        tracing::debug!(%error, "a client's connection ended early");
                    }
                }
            });
        }
    }

    /// Logs that a client was refused.
    fn refuse(&self, reason: String) {
        let address = self.way_in.listen;
        self.refusals.add(format!("listener {address}: {reason}"));
    }
}

/// Accepts a listener's connections, within its bounds.
pub struct Acceptor {
    socket: TcpListener,
    address: SocketAddr,
    admission: Arc<Admission>,
    failures: RateLimitedLog,
    displaced: RateLimitedLog,
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
            failures: RateLimitedLog::new(warn),
            displaced: RateLimitedLog::new(warn),
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
            match self.socket.accept().await {
                Ok((tcp, from)) => {
                    let Some(admitted) = admits(from) else {
                        continue;
                    };
                    let (visit, displaces) = self.admission.enter(from);
                    if displaces {
                        self.displaced.add(format!(
                            "listener {}: too many connections without a request; closed the oldest \
                             (the last came from {})",
                            self.address,
                            from.ip()
                        ));
                    }
                    return (tcp, Arc::new(visit), admitted);
                }
                Err(error) => {
                    self.failures.add(format!(
                        "listener {}: cannot accept connections: {error} (if too many files are \
                         open, raise the limit: ulimit -n, LimitNOFILE)",
                        self.address
                    ));
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// A client's connection before it is a flow.
struct Client {
    tcp: TcpStream,
    /// What it may do here.
    visitor: Visitor,
    visit: Arc<Visit>,
    /// The connection's own, once it has sent a whole request.
    descriptor: Mutex<Option<FlowDescriptor>>,
    /// The listener that took it.
    listener: Arc<Listener>,
}

impl Client {
    /// Reads until `parse` has a whole message; `received` keeps what follows it.
    async fn request<T, E>(
        &mut self,
        received: &mut Vec<u8>,
        bytes_max: usize,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> io::Result<Result<T, E>> {
        let reading = async {
            loop {
                match parse(received) {
                    Ok(Some((message, bytes))) => {
                        received.drain(..bytes);
                        return Ok(Ok(message));
                    }
                    Ok(None) if received.len() > bytes_max => {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    Ok(None) => {}
                    Err(error) => return Ok(Err(error)),
                }
                if self.tcp.read_buf(received).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        };
        timeout(REQUEST_TIMEOUT, reading)
            .await
            .map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// The client has sent a whole request: it keeps its place, and a file descriptor.
    fn request_came(&self) -> Result<(), Refusal> {
        self.visit.prove();
        let mut descriptor = self.descriptor.lock().expect("held for a moment");
        if descriptor.is_none() {
            *descriptor = Some(self.listener.descriptors.for_flow()?);
        }
        Ok(())
    }

    /// The client may be silent from here on: it keeps its place only as long as no other needs it.
    fn awaits_request(&self) {
        self.visit.wait();
        *self.descriptor.lock().expect("held for a moment") = None;
    }

    async fn open(&self, target: &Target) -> Result<FlowHandle, Refusal> {
        self.request_came()?;
        let within = self.listener.policy.load().timeouts.connect;
        let Listener { links, way_in, .. } = &*self.listener;
        let link = timeout(within, links.link(target, way_in.peer)).await;
        let link = link.map_err(|_| Refusal::LinkDown)??;
        let excluded = self.listener.policy.load().exclude.excludes(
            &target.host.to_string(),
            None,
            target.port,
        );
        let (id, signals) = link
            .open_flow(&target.to_string(), excluded)
            .map_err(|error| match error {
                refrain_proto::link::OpenError::LinkDown => Refusal::LinkDown,
                refrain_proto::link::OpenError::Draining => Refusal::Draining,
                refrain_proto::link::OpenError::TooManyFlows => {
                    Refusal::by_own_limit(link.with(|link, _| link.flows_limit()))
                }
                refrain_proto::link::OpenError::TargetTooLong => Refusal::Other,
            })?;
        Ok(FlowHandle::new(link, id, signals))
    }

    /// Opens a flow, sends what it takes of `early` with it, and waits until the target was reached.
    /// Says how many bytes it took.
    async fn open_and_wait(
        &self,
        target: &Target,
        early: &[u8],
    ) -> Result<(FlowHandle, usize), Refusal> {
        let flow = self.open(target).await?;
        let sent = flow.write_first(early);
        let within = self.listener.policy.load().timeouts.connect + REPORT_TIME;
        match timeout(within, flow.signals().opened()).await {
            Ok(Standing::Open) => Ok((flow, sent)),
            Ok(Standing::Refused(refusal)) => Err(refusal),
            Ok(Standing::Reset(reason)) => Err(Refusal::from_reset(reason)),
            Ok(Standing::Opening) | Err(_) => Err(Refusal::TimedOut),
        }
    }

    async fn run(self, flow: FlowHandle, rest: Vec<u8>) -> Option<Refusal> {
        let idle = self.listener.policy.load().timeouts.idle;
        flow.run(self.tcp, rest, idle).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_in_has_one_server() {
        for option in crate::options::ways_in() {
            let serves = |server: &&&dyn Serve| server.option() == option;
            assert_eq!(SERVERS.iter().filter(serves).count(), 1, "{}", option.key);
        }
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
