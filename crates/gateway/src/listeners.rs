//! Where applications connect: forwards, SOCKS, the HTTP proxy, redirected connections, each a file that serves it ([`SERVERS`]).
//!
//! Each accepted connection becomes a flow to a target at the other end. The first bytes
//! travel with the opening where the client has sent them already; a refusal is passed on
//! in the words of the client's protocol.

mod direct;
pub(crate) mod dns_answers;
mod door;
mod forward;
pub(crate) mod held;
mod http;
mod http2;
mod opened;
mod socks;
mod start_tls;
mod transparent;

use std::{
    future::Future,
    hash::Hash,
    io,
    mem::discriminant,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use refrain_admission::Visit;
use refrain_proto::ResetReason;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    acceptor::Acceptor,
    descriptors::{FlowDescriptor, UNPROVEN_CLIENTS_MAX},
    flow::{FlowHandle, connection::Connection},
    gateway::Gateway,
    intercept::handling::{Carriage, ClientAddress},
    keys::PublicKey,
    link::Standing,
    options::{FORWARD, HTTP_PROXY, OptionSpec, SERVICE, SOCKS5, TRANSPARENT},
    policy::Policy,
    rate_limited_log::RateLimitedLog,
    redirected::Redirected,
    refusal::Refusal,
    target::{FlowTarget, Target},
    way_in::WayIn,
};

/// A client has this long for its greeting or its request's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How much longer than its time-out the other end may take to report it.
const REPORT_TIME: Duration = Duration::from_millis(500);

/// A client's connection, served up to its end.
type Serving = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

type Serve = fn(Client) -> Serving;

/// What serves the clients of the listeners that an option names: a file below here, and a line here.
static SERVERS: &[(&OptionSpec, Serve)] = &[
    (&FORWARD, |client| Box::pin(client.forward())),
    (&SOCKS5, |client| Box::pin(client.socks())),
    (&HTTP_PROXY, |client| Box::pin(client.http_proxy())),
    (&SERVICE, |client| Box::pin(client.service())),
    (&TRANSPARENT, |client| Box::pin(client.transparent())),
];

/// A listener for applications.
pub(crate) struct Listener {
    way_in: WayIn,
    /// The names that its clients' destinations may stand for, of `refrain run`.
    redirected: Option<Redirected>,
    gateway: Arc<Gateway>,
    outsiders: RateLimitedLog,
    refused_logins: RateLimitedLog,
    refusals: RateLimitedLog,
}

impl Listener {
    /// Serves the connections of `socket` until the task is aborted.
    pub(crate) async fn serve(
        socket: TcpListener,
        way_in: WayIn,
        redirected: Option<Redirected>,
        gateway: Arc<Gateway>,
    ) {
        let (address, descriptors) = (way_in.listen, &gateway.descriptors);
        let mut acceptor = Acceptor::new(socket, address, descriptors, UNPROVEN_CLIENTS_MAX);
        if *way_in.option == TRANSPARENT {
            let gateway = Arc::clone(&gateway);
            acceptor = acceptor.of_redirected(move |is_accepted| {
                gateway.gate.count_progress();
                if !is_accepted {
                    gateway.gate.suspend();
                }
            });
        }
        let mut servers = SERVERS.iter();
        let server = servers.find(|(option, _)| *option == way_in.option);
        let (_, serve) = server.expect("each way in has a server");
        let warnings = || RateLimitedLog::new(|line| tracing::warn!("{line}"));
        let listener = Arc::new(Listener {
            way_in,
            redirected,
            gateway,
            outsiders: warnings(),
            refused_logins: warnings(),
            refusals: RateLimitedLog::new(|line| tracing::info!("{line}")),
        });
        loop {
            let (tcp, visit, address) = acceptor.accept(|client| listener.admit(client)).await;
            let client = Client {
                connection: tcp.into(),
                address,
                visit: Arc::clone(&visit),
                descriptor: Mutex::new(None),
                exchanges: None,
                listener: Arc::clone(&listener),
            };
            let serving = serve(client);
            tokio::spawn(async move {
                tokio::select! {
                    () = visit.displaced() => {}
                    served = serving => if let Err(error) = served {
                        tracing::debug!(%error, "a client's connection failed");
                    }
                }
            });
        }
    }

    /// Logs that a client was refused because of this error.
    fn refuse<E: 'static>(&self, error: &E, reason: String) {
        self.log(discriminant(error), reason);
    }

    /// Logs that a redirected connection goes direct, since the link does not take it because of this refusal.
    fn pass_by(&self, refusal: &Refusal, server: SocketAddr) {
        self.note_limit(refusal);
        let reason = refusal.describe(self.gateway.config.role.peer());
        let event = format!("a redirected connection to {server} goes direct: {reason}");
        self.log((discriminant(refusal), "direct"), event);
    }

    /// Has further connections go direct for a while, if one was refused by a limit.
    fn note_limit(&self, refusal: &Refusal) {
        if matches!(refusal, Refusal::Limit(_)) {
            self.gateway.gate.suspend();
        }
    }

    fn log<K: Hash + 'static>(&self, kind: K, event: String) {
        let event = match &self.redirected {
            // Users do not know the listener of `refrain run`.
            Some(_) => event,
            None => format!("listener {}: {event}", self.way_in.listen),
        };
        self.refusals.add(kind, event);
    }

    fn policy(&self) -> Arc<Policy> {
        self.gateway.policy.load()
    }
}

/// A client's connection before it is a flow.
struct Client {
    connection: Connection,
    address: IpAddr,
    visit: Arc<Visit>,
    /// The connection's own, once it has sent a whole request.
    descriptor: Mutex<Option<FlowDescriptor>>,
    /// The listener that took it.
    listener: Arc<Listener>,
    /// The number of the connection, if its exchanges may share one by HTTP/2 at the other end.
    exchanges: Option<u32>,
}

impl Client {
    /// The client has sent a whole request: it keeps its place, and a file descriptor.
    fn request_came(&self) -> Result<(), Refusal> {
        self.visit.prove();
        let mut descriptor = self.descriptor.lock().expect("held for a moment");
        if descriptor.is_none() {
            *descriptor = Some(self.listener.gateway.descriptors.for_flow()?);
        }
        Ok(())
    }

    /// The client may be silent from here on: it keeps its place only as long as no other needs it.
    fn awaits_request(&self) {
        self.visit.wait();
        *self.descriptor.lock().expect("held for a moment") = None;
    }

    /// How the link carries a flow to `target` if no rule of interception is about it.
    fn plain_carriage(&self, target: &Target) -> Carriage {
        Carriage {
            is_excluded: self.listener.policy().excludes(target),
            ..Carriage::default()
        }
    }

    async fn open(&self, target: &Target, how: Carriage) -> Result<FlowHandle, Refusal> {
        self.open_as(target.clone().into(), how).await
    }

    async fn open_as(&self, asked: FlowTarget, how: Carriage) -> Result<FlowHandle, Refusal> {
        self.request_came()?;
        let Listener {
            gateway, way_in, ..
        } = &*self.listener;
        if let Some(server) = asked
            .target
            .socket_address()
            .filter(|_| *way_in.option == TRANSPARENT)
            && let Ok(client) = self.connection.tcp().and_then(TcpStream::peer_addr)
            && let Some(flow) = gateway.held.claim(client, server)
        {
            return Ok(flow);
        }
        let within = self.listener.policy().timeouts.connect;
        open_flow(gateway, asked, way_in.peer, self.address, how, within).await
    }

    /// Opens a flow, has `write` send what it takes of the first bytes with it, and waits until the target was reached.
    /// Says how many bytes it took.
    async fn open_and_wait(
        &self,
        asked: FlowTarget,
        write: impl FnOnce(&FlowHandle) -> usize,
    ) -> Result<(FlowHandle, usize), Refusal> {
        let (is_for_tls, how) = (asked.tls.is_some(), self.plain_carriage(&asked.target));
        let flow = self.open_as(asked, how).await?;
        let sent = write(&flow);
        let within = self.listener.policy().timeouts.connect + REPORT_TIME;
        match timeout(within, flow.signals().opened()).await {
            Ok(Standing::Open) => Ok((flow, sent)),
            // So an earlier version refuses it.
            Ok(Standing::Refused(Refusal::NameNotResolved))
                if is_for_tls && !flow.peer_speaks_tls_to_targets() =>
            {
                Err(Refusal::TlsUnknown)
            }
            Ok(Standing::Refused(refusal)) => Err(refusal),
            // The flow may have gone along with this end's hello, which the peer has not answered, or refused.
            Ok(Standing::Reset(ResetReason::LaneLost) | Standing::Opening) | Err(_)
                if !flow.is_link_up() =>
            {
                Err(Refusal::LinkDown)
            }
            Ok(Standing::Reset(reason)) => Err(Refusal::from_reset(reason)),
            Ok(Standing::Opening) | Err(_) => Err(Refusal::TimedOut),
        }
    }

    async fn run(self, flow: FlowHandle, rest: Vec<u8>) -> Option<Refusal> {
        let idle = self.listener.policy().timeouts.idle;
        flow.run(self.connection, rest, idle).await
    }
}

/// Opens a flow of a client, for which a link may have to come up: within so long.
async fn open_flow(
    gateway: &Gateway,
    asked: FlowTarget,
    peer: Option<PublicKey>,
    client: IpAddr,
    how: Carriage,
    within: Duration,
) -> Result<FlowHandle, Refusal> {
    let link = timeout(within, gateway.link(&asked.target, peer)).await;
    let link = link.map_err(|_| Refusal::LinkDown)??;
    let client = match how.client_address {
        ClientAddress::Keep => Some(client),
        ClientAddress::Hidden | ClientAddress::ProxyV2 => None,
    };
    let is_secret = asked.exchanges.is_some() && gateway.policy.load().is_secret_safe;
    let target = FlowTarget {
        client,
        is_secret,
        ..asked
    };
    let target = target.to_string();
    let (id, signals) = link
        .open_flow(&target, how.is_excluded)
        .map_err(|error| match error {
            refrain_proto::link::OpenError::LinkDown => Refusal::LinkDown,
            refrain_proto::link::OpenError::Draining => {
                match link.with(|link, _| link.peer_is_draining()) {
                    true => Refusal::Draining,
                    false => Refusal::OwnDraining,
                }
            }
            refrain_proto::link::OpenError::TooManyFlows => {
                Refusal::by_own_limit(link.with(|link, _| link.flows_limit()))
            }
            refrain_proto::link::OpenError::TargetTooLong => Refusal::Other,
        })?;
    let handle = FlowHandle::new(link, id, signals);
    Ok(match is_secret {
        true => handle.with_secret_bytes(),
        false => handle,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_in_has_one_server() {
        for option in crate::options::ways_in() {
            let servers = SERVERS.iter().filter(|(served, _)| *served == option);
            assert_eq!(servers.count(), 1, "{}", option.key);
        }
    }
}
