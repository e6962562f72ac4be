//! Flows that the other end opens: allowed targets are connected to, others refused.

use std::{future::pending, mem::discriminant, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpStream, sync::mpsc, time::timeout};

use crate::{
    descriptors::PeerDescriptors,
    flow::{
        FlowHandle,
        connection::{Connection, InsideTls},
    },
    intercept::{self, ConnectError, answers::Answers},
    link::{FlowOffer, SharedLink},
    lookups::PeerLookups,
    origin_tls::OriginSessions,
    policy::{Policy, SharedPolicy},
    rate_limited_log::RateLimitedLog,
    refusal::Refusal,
    target::{FlowTarget, Host, Target},
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
    pub(crate) origin_sessions: OriginSessions,
}

/// Serves the flows that are offered on `link`, until it ends.
pub(crate) async fn serve(
    link: Arc<SharedLink>,
    mut offers: mpsc::UnboundedReceiver<FlowOffer>,
    targets: Targets,
) {
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
        tokio::spawn(serve_flow(link, offer, targets.clone()));
    }
}

async fn serve_flow(link: Arc<SharedLink>, offer: FlowOffer, targets: Targets) {
    let signals = link.offered_flow(offer.flow);
    let handle = FlowHandle::new(Arc::clone(&link), offer.flow, Arc::clone(&signals));
    let policy = targets.policy.load();
    let descriptor = match targets.descriptors.for_flow() {
        Ok(descriptor) => descriptor,
        Err(refusal) => return targets.refuse(&link, &offer, refusal),
    };
    let connected = tokio::select! {
        connected = targets.connect(&offer.target, &policy) => connected,
        // The other end no longer wants it.
        _ = signals.over() => return,
    };
    match connected {
        Ok((connected, FlowTarget { target, client, .. })) => {
            let address = connected.tcp().peer_addr().ok().map(|address| address.ip());
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
            tokio::select! {
                _ = handle.run(connected, Vec::new(), idle) => {}
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
        &self,
        text: &str,
        policy: &Policy,
    ) -> Result<(Connection, FlowTarget), Refusal> {
        let asked = FlowTarget::from_wire(text).map_err(|_| Refusal::NameNotResolved)?;
        let connecting = connect(&asked, policy, &self.lookups);
        let Some(protocols) = &asked.tls else {
            return Ok((connecting.await?.into(), asked));
        };
        let connecting = async {
            let tcp = connecting.await?;
            let (trust, sessions) = (&policy.origin_trust, &self.origin_sessions);
            trust.connect(tcp, &asked.target, protocols, sessions).await
        };
        // The other end waits no longer.
        let tls = timeout(policy.timeouts.connect, connecting).await;
        let (tcp, session) = tls.map_err(|_| Refusal::TimedOut)??;
        Ok((InsideTls::new(tcp, session).into(), asked))
    }

    fn refuse(&self, link: &SharedLink, offer: &FlowOffer, refusal: Refusal) {
        let refused = format!(
            "refused a connection for the peer {} to {}: {}",
            link.label(),
            offer.target.escape_debug(),
            refusal.in_own_words()
        );
        self.refusals
            .add((discriminant(&refusal), refusal.kind()), refused);
        let text = refusal.wire_text();
        link.with(|link, _| link.refuse_flow(offer.flow, refusal.wire_code(), &text));
    }
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
