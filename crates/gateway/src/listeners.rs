//! Where applications connect: forwards, SOCKS5, the HTTP proxy.
//!
//! Each accepted connection becomes a flow to a target at the other end. The first bytes
//! travel with the opening where the client has sent them already; a refusal is passed on
//! in the words of the client's protocol.

mod forward;
mod http;
mod socks5;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpSocket, TcpStream},
    time::{Instant, sleep, timeout},
};

use crate::{
    flow::FlowHandle,
    link::{SharedLink, Standing},
    policy::SharedPolicy,
    refusal::Refusal,
    target::Target,
};

/// A client has this long for its greeting or its request's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A new flow waits this long for a link that is down; then it is refused.
const LINK_WAIT: Duration = Duration::from_millis(500);

/// After an error of accept(2), such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where a listener's flows go.
pub trait Links: Send + Sync + 'static {
    /// The link of the moment, if there is one.
    fn link(&self) -> Option<Arc<SharedLink>>;
}

/// What a listener speaks with its clients.
#[derive(Debug, Clone)]
pub enum Service {
    /// Every connection goes to one target.
    Forward(Target),
    /// SOCKS5.
    Socks5,
    /// An HTTP proxy.
    HttpProxy,
}

/// Connections that wait in the kernel to be accepted: bursts of many are ordinary here.
const BACKLOG: u32 = 4096;

/// Binds a listener; an error names the address and what to do.
pub fn bind(address: SocketAddr, what: &str) -> Result<TcpListener, BindError> {
    listen(address).map_err(|error| BindError {
        what: what.to_owned(),
        address,
        error,
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restart need not wait for the old connections' last states.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
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

/// Serves a listener until its task is aborted.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    links: Arc<dyn Links>,
    policy: Arc<SharedPolicy>,
) {
    let mut complaint = AcceptComplaint::default();
    let Ok(address) = listener.local_addr() else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => {
                let client = Client {
                    tcp,
                    listener: address,
                    links: Arc::clone(&links),
                    policy: Arc::clone(&policy),
                };
                let service = service.clone();
                tokio::spawn(async move {
                    if let Err(error) = client.serve(service).await {
                        tracing::debug!(%error, "a client's connection ended early");
                    }
                });
            }
            Err(error) => {
                complaint.say(&error);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Says that accept(2) fails, once in a while: it fails many times a second.
#[derive(Debug, Default)]
pub struct AcceptComplaint {
    said_at: Option<Instant>,
}

impl AcceptComplaint {
    /// How long nothing more is said.
    const QUIET: Duration = Duration::from_secs(60);

    /// Logs `error`, unless that was done not long ago.
    pub fn say(&mut self, error: &io::Error) {
        if self.said_at.is_none_or(|at| at.elapsed() > Self::QUIET) {
            self.said_at = Some(Instant::now());
            tracing::warn!(
                %error,
                "cannot accept connections; if too many files are open, raise the limit \
                 (ulimit -n, LimitNOFILE)"
            );
        }
    }
}

/// A client's connection before it is a flow.
struct Client {
    tcp: TcpStream,
    /// Which listener took it, for the log.
    listener: SocketAddr,
    links: Arc<dyn Links>,
    policy: Arc<SharedPolicy>,
}

impl Client {
    async fn serve(self, service: Service) -> io::Result<()> {
        match service {
            Service::Forward(target) => self.forward(&target).await,
            Service::Socks5 => self.socks5().await,
            Service::HttpProxy => self.http_proxy().await,
        }
    }

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

    async fn open(&self, target: &Target) -> Result<Opened, Refusal> {
        let link = self.link().await?;
        let excluded =
            self.policy
                .load()
                .exclude
                .excludes(&target.host.to_string(), None, target.port);
        let (id, signals) = link
            .open_flow(&target.to_string(), excluded)
            .map_err(|error| match error {
                refrain_proto::link::OpenError::LinkDown => Refusal::LinkDown,
                refrain_proto::link::OpenError::Draining => Refusal::Draining,
                refrain_proto::link::OpenError::TooManyFlows => Refusal::Limit,
                refrain_proto::link::OpenError::TargetTooLong => Refusal::Other,
            })?;
        Ok(Opened {
            flow: FlowHandle::new(link, id, signals),
            early_bytes: 0,
        })
    }

    /// Opens a flow, sends `early` with it, and waits until the target was reached.
    async fn open_and_wait(&self, target: &Target, early: &[u8]) -> Result<Opened, Refusal> {
        let mut opened = self.open(target).await?;
        opened.early_bytes = opened.flow.write_first(early);
        let within = self.policy.load().timeouts.connect + LINK_WAIT;
        match timeout(within, opened.flow.signals().opened()).await {
            Ok(Standing::Open) => Ok(opened),
            Ok(Standing::Refused(refusal)) => Err(refusal),
            Ok(Standing::Opening | Standing::Reset(_)) => Err(Refusal::LinkDown),
            Err(_) => Err(Refusal::TimedOut),
        }
    }

    /// A link that has a lane, now or very soon.
    async fn link(&self) -> Result<Arc<SharedLink>, Refusal> {
        let up = async {
            loop {
                if let Some(link) = self.links.link()
                    && *link.lanes_up().borrow() > 0
                {
                    return link;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LINK_WAIT, up).await.map_err(|_| Refusal::LinkDown)
    }

    async fn run(self, flow: FlowHandle, rest: Vec<u8>) -> Option<Refusal> {
        let idle = self.policy.load().timeouts.idle;
        flow.run(self.tcp, rest, idle).await
    }
}

/// A flow that is opening or open.
struct Opened {
    flow: FlowHandle,
    early_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_burst_of_clients_waits_to_be_accepted() {
        let listener = bind(([127, 0, 0, 1], 0).into(), "forward").expect("a port");
        let address = listener.local_addr().expect("its address");
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
