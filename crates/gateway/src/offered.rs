//! Flows that the other end opens: allowed targets are connected to, others refused.

mod http2;

pub(crate) use http2::Sites;

use std::{
    future::pending,
    io,
    mem::discriminant,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::{net::TcpStream, sync::mpsc, time::timeout};

use crate::{
    descriptors::PeerDescriptors,
    flow::{
        FlowHandle,
        connection::{Connection, InsideTls},
    },
    http_proxy::secrets::{Exchanges, PrivateAnswers},
    intercept::{self, ConnectError, answers::Answers},
    last_error::Trouble,
    link::{FlowOffer, SharedLink},
    lookups::PeerLookups,
    origin_tls::{OriginSessions, OriginTrust},
    policy::{Policy, SharedPolicy},
    rate_limited_log::RateLimitedLog,
    refusal::Refusal,
    start_tls::{MESSAGE_BYTES_MAX, MESSAGES_MAX, StartTls, Step},
    target::{FlowTarget, Host, OPENED, Protocols, SECRET, Target},
};

/// The time for a connection that finds out why a server did not answer a client's address.
const PROBE: Duration = Duration::from_secs(1);

/// Where a peer's flows may lead, and what they need on the way. All links of a peer share it, as
/// clones.
#[derive(Clone)]
pub(crate) struct Targets {
    pub(crate) policy: Arc<SharedPolicy>,
    pub(crate) lookups: PeerLookups,
    pub(crate) descriptors: PeerDescriptors,
    pub(crate) refusals: RateLimitedLog,
    pub(crate) answers: Arc<Answers>,
    /// The last connection from a client's address whose answers took another way, of all peers.
    pub(crate) answers_elsewhere: Arc<Trouble>,
    pub(crate) origin_sessions: OriginSessions,
    pub(crate) sites: Sites,
}

/// Serves the flows that are offered on `link`, until it ends.
pub(crate) async fn serve(
    link: Arc<SharedLink>,
    mut offers: mpsc::UnboundedReceiver<FlowOffer>,
    targets: Targets,
) {
    let targets = Arc::new(targets);
    let link = {
        // The receiver outlives the link otherwise.
        let weak = Arc::downgrade(&link);
        drop(link);
        weak
    };
    while let Some(offer) = offers.recv().await {
        let Some(link) = link.upgrade() else {
            return;
        };
        tokio::spawn(serve_flow(link, offer, Arc::clone(&targets)));
    }
}

/// A flow's connection to its target.
struct Connected {
    connection: Connection,
    /// The target's.
    address: Option<IpAddr>,
    /// What turns the flow's exchanges into streams, behind the connection. The flow's task has it too.
    exchanges: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Connected {
    fn at(connection: Connection, address: io::Result<SocketAddr>) -> Connected {
        Connected {
            connection,
            address: address.ok().map(|address| address.ip()),
            exchanges: None,
        }
    }
}

async fn serve_flow(link: Arc<SharedLink>, offer: FlowOffer, targets: Arc<Targets>) {
    let signals = link.offered_flow(offer.flow);
    let handle = FlowHandle::new(Arc::clone(&link), offer.flow, Arc::clone(&signals));
    let policy = targets.policy.load();
    let descriptor = match targets.descriptors.for_flow() {
        Ok(descriptor) => descriptor,
        Err(refusal) => return targets.refuse(&link, &offer, refusal),
    };
    let connected = tokio::select! {
        // Only connections that are being made have memory for that.
        connected = Box::pin(targets.connect(&offer.target, &policy)) => connected,
        // The other end no longer wants it.
        _ = signals.over() => return,
    };
    match connected {
        Ok((connected, asked)) => {
            let Connected {
                connection,
                address,
                exchanges,
            } = connected;
            let FlowTarget { target, client, .. } = asked;
            let host = target.host.to_string();
            let excluded = offer.excluded || policy.exclude.excludes(&host, address, target.port);
            link.with(|link, _| link.accept_flow(offer.flow, excluded));
            let answers_gone = async {
                match client {
                    Some(client) => targets.answers.gone(client).await,
                    None => pending().await,
                }
            };
            let idle = policy.timeouts.idle;
            let handle = match asked.exchanges {
                Some(_) => handle.with_exchanges(Exchanges::new(match asked.is_secret {
                    true => PrivateAnswers::SecretSafe,
                    false => policy.private_answers,
                })),
                None => handle,
            };
            let exchanging = async {
                if let Some(exchanges) = exchanges {
                    exchanges.await;
                }
                pending().await
            };
            tokio::select! {
                // It goes on until the exchanges have ended. If the flow is reset, they are dropped, and with them the
                // site's streams.
                _ = handle.run(connection, Vec::new(), idle) => {}
                () = exchanging => {}
                // It would wait for ever. Dropped, it is reset on both sides.
                () = answers_gone => targets.refusals.add(
                    "answers",
                    format!(
                        "reset a connection of the peer {} to {target} from its client's address: the answers no longer come \
                         here (did `refrain intercept off` remove the rules?)",
                        link.label()
                    ),
                ),
            }
            drop(descriptor);
        }
        Err(refusal) => targets.refuse(&link, &offer, refusal),
    }
}

impl Targets {
    /// Connects as the text asks for it.
    async fn connect(
        self: &Arc<Self>,
        text: &str,
        policy: &Policy,
    ) -> Result<(Connected, FlowTarget), Refusal> {
        let asked = FlowTarget::from_wire(text).map_err(|_| Refusal::NameNotResolved)?;
        if let Some(client) = asked.exchanges
            && asked.tls == Some(Protocols::http())
        {
            let connected = self.connect_for_exchanges(&asked, Some(client)).await?;
            return Ok((connected, asked));
        }
        let Some(protocols) = &asked.tls else {
            let tcp = connect(&asked, policy, &self.lookups).await?;
            let address = tcp.peer_addr();
            return Ok((Connected::at(tcp.into(), address), asked));
        };
        let connecting = async {
            match self.speak_tls(&asked, protocols, policy).await {
                // A client of HTTP/1.1, and a site that speaks only HTTP/2.
                Err(refusal)
                    if asked.exchanges.is_some()
                        && *protocols == Protocols::http1()
                        && OriginTrust::speaks_none_of(protocols, &refusal) =>
                {
                    self.connect_for_exchanges(&asked, None).await
                }
                inside => {
                    let inside = inside?;
                    let address = inside.peer_addr();
                    Ok(Connected::at(inside.into(), address))
                }
            }
        };
        // The other end waits no longer.
        let connected = timeout(policy.timeouts.connect, connecting).await;
        Ok((connected.map_err(|_| Refusal::TimedOut)??, asked))
    }

    /// Connects, and begins TLS with the target.
    async fn speak_tls(
        &self,
        asked: &FlowTarget,
        protocols: &Protocols,
        policy: &Policy,
    ) -> Result<Box<InsideTls>, Refusal> {
        let mut tcp = connect(asked, policy, &self.lookups).await?;
        if let Some(protocol) = asked.start {
            let connection = Connection::from(tcp);
            ask_for_tls(&connection, protocol).await?;
            tcp = match connection {
                Connection::Plain(tcp) => tcp,
                _ => return Err(Refusal::Other),
            };
        }
        let (trust, sessions) = (&policy.origin_trust, &self.origin_sessions);
        let (tcp, session) = trust.connect(tcp, asked, protocols, sessions).await?;
        Ok(InsideTls::new(tcp, session))
    }

    fn refuse(&self, link: &SharedLink, offer: &FlowOffer, refusal: Refusal) {
        let connection = shown(&offer.target).escape_debug().to_string();
        let refused = format!(
            "refused a connection for the peer {} to {connection}: {}",
            link.label(),
            refusal.in_own_words()
        );
        if refusal == Refusal::AnswersElsewhere {
            self.answers_elsewhere.note(connection);
        }
        self.refusals
            .add((discriminant(&refusal), refusal.kind()), refused);
        let text = refusal.wire_text();
        link.with(|link, _| link.refuse_flow(offer.flow, refusal.wire_code(), &text));
    }
}

/// A text that opens a flow, without the words that say how the target is spoken with.
fn shown(text: &str) -> String {
    let is_shown = |word: &&str| !word.contains('=') && ![OPENED, SECRET].contains(word);
    text.split(' ')
        .filter(is_shown)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Has the messages of a protocol before TLS.
async fn ask_for_tls(connection: &Connection, protocol: &StartTls) -> Result<(), Refusal> {
    let failed = |reason: String| Refusal::Tls(reason.into());
    let io_failed = |error: io::Error| failed(format!("the connection failed: {error}"));
    let mut dialogue = protocol.as_client();
    let mut answer = dialogue.greeting();
    let mut received = Vec::new();
    for _ in 0..MESSAGES_MAX {
        connection.write_all(&answer).await.map_err(io_failed)?;
        answer = loop {
            match dialogue.next(&mut received) {
                Step::More if received.len() < MESSAGE_BYTES_MAX => {
                    if connection
                        .read_buf(&mut received)
                        .await
                        .map_err(io_failed)?
                        == 0
                    {
                        return Err(failed("it closed the connection before TLS".to_owned()));
                    }
                }
                Step::Say(answer) => break answer,
                Step::Begin(_) if received.is_empty() => return Ok(()),
                Step::Begin(_) => return Err(failed("it sent bytes before TLS".to_owned())),
                Step::Refuse(_, reason) => return Err(Refusal::Tls(reason)),
                Step::More | Step::Direct | Step::Plain => {
                    let scheme = protocol.scheme;
                    return Err(failed(format!("it does not speak {scheme} at this port")));
                }
            }
        };
    }
    Err(failed("it sent too many messages before TLS".to_owned()))
}

/// Connects to the first address of `target` that is allowed and answers, from the address of the client that it may
/// name.
async fn connect(
    asked: &FlowTarget,
    policy: &Policy,
    lookups: &PeerLookups,
) -> Result<TcpStream, Refusal> {
    let FlowTarget { target, client, .. } = asked;
    let client = *client;
    client.map_or(Ok(()), |client| policy.judge_client(client))?;
    let connecting = async {
        let host = target.host.to_string();
        let mut refusal = Refusal::NotAllowed;
        for address in resolve(target, policy, lookups).await? {
            if let Err(reason) = policy.judge(&host, address) {
                refusal = reason;
                continue;
            }
            let connected = match client {
                Some(client) => intercept::connect_for(client, address).await,
                None => intercept::connect(address).await.map_err(ConnectError::Io),
            };
            match connected {
                Ok(tcp) => return Ok(tcp),
                Err(ConnectError::Client) => refusal = Refusal::ClientAddress,
                Err(ConnectError::Io(error)) => refusal = Refusal::from_connect_error(&error),
            }
        }
        Err(refusal)
    };
    let within = policy.timeouts.connect;
    // The other end waits no longer.
    let of_probe = client.map_or(Duration::ZERO, |_| PROBE.min(within / 4));
    match timeout(within - of_probe, connecting).await {
        Ok(connected) => connected,
        Err(_) => match target.socket_address().filter(|_| client.is_some()) {
            Some(address) => Err(why_client_is_not_answered(address, of_probe).await),
            None => Err(Refusal::TimedOut),
        },
    }
}

/// Whether a server that did not answer a client's address answers this end's own.
async fn why_client_is_not_answered(address: SocketAddr, within: Duration) -> Refusal {
    match timeout(within, intercept::connect(address)).await {
        Ok(Ok(_)) => Refusal::AnswersElsewhere,
        _ => Refusal::TimedOut,
    }
}

async fn resolve(
    target: &Target,
    policy: &Policy,
    lookups: &PeerLookups,
) -> Result<Vec<SocketAddr>, Refusal> {
    match &target.host {
        Host::Ipv4(address) => Ok(vec![SocketAddr::from((*address, target.port))]),
        Host::Ipv6(address) => Ok(vec![SocketAddr::from((*address, target.port))]),
        Host::Domain(name) if !policy.allow.may_allow(name, target.port) => {
            Err(Refusal::NotAllowed)
        }
        Host::Domain(name) => match lookups.resolve(name, target.port).await {
            Ok(addresses) if !addresses.is_empty() => Ok(addresses),
            _ => Err(Refusal::NameNotResolved),
        },
    }
}
