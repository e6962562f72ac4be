//! Flows that the other end opens: allowed targets are connected to, others refused.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpStream, lookup_host},
    sync::mpsc,
    time::timeout,
};

use crate::{
    flow::FlowHandle,
    link::{FlowOffer, SharedLink},
    policy::SharedPolicy,
    refusal::Refusal,
    target::{Host, Target},
};

/// Serves the flows that are offered on `link`, until it ends.
pub async fn serve(
    link: Arc<SharedLink>,
    mut offers: mpsc::UnboundedReceiver<FlowOffer>,
    policy: Arc<SharedPolicy>,
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
        tokio::spawn(serve_flow(link, offer, Arc::clone(&policy)));
    }
}

async fn serve_flow(link: Arc<SharedLink>, offer: FlowOffer, policy: Arc<SharedPolicy>) {
    let signals = link.offered_flow(offer.flow);
    let handle = FlowHandle::new(Arc::clone(&link), offer.flow, Arc::clone(&signals));
    let policy = policy.load();
    let connected = tokio::select! {
        connected = connect(&offer.target, &policy.allow, policy.timeouts.connect) => connected,
        // The other end no longer wants it.
        _ = signals.over() => return,
    };
    match connected {
        Ok((tcp, target)) => {
            let address = tcp.peer_addr().ok().map(|address| address.ip());
            let host = target.host.to_string();
            let excluded = offer.excluded || policy.exclude.excludes(&host, address, target.port);
            link.with(|link, _| link.accept_flow(offer.flow, excluded));
            handle.run(tcp, Vec::new(), policy.timeouts.idle).await;
        }
        Err(refusal) => {
            tracing::info!(
                peer = %link.peer,
                target = %offer.target,
                refusal = refusal.in_own_words(),
                "refused a connection for the peer"
            );
            let text = refusal.to_string();
            link.with(|link, _| link.refuse_flow(offer.flow, refusal.wire_code(), &text));
        }
    }
}

/// Connects to the first address of `target` that is allowed and answers.
async fn connect(
    target: &str,
    allow: &crate::rules::AllowRules,
    within: Duration,
) -> Result<(TcpStream, Target), Refusal> {
    let target = Target::from_wire(target.as_bytes()).map_err(|_| Refusal::NameNotResolved)?;
    let connecting = async {
        let addresses = resolve(&target).await?;
        let host = target.host.to_string();
        let mut refusal = Refusal::NotAllowed;
        for address in addresses
            .into_iter()
            .filter(|&address| allow.allows(&host, address))
        {
            match TcpStream::connect(address).await {
                Ok(tcp) => return Ok(tcp),
                Err(error) => refusal = Refusal::from_connect_error(&error),
            }
        }
        Err(refusal)
    };
    let tcp = timeout(within, connecting)
        .await
        .unwrap_or(Err(Refusal::TimedOut))?;
    Ok((tcp, target))
}

async fn resolve(target: &Target) -> Result<Vec<SocketAddr>, Refusal> {
    match &target.host {
        Host::Ipv4(address) => Ok(vec![SocketAddr::from((*address, target.port))]),
        Host::Ipv6(address) => Ok(vec![SocketAddr::from((*address, target.port))]),
        Host::Domain(name) => {
            let found = lookup_host((name.as_str(), target.port)).await;
            let addresses: Vec<_> = found.map_err(|_| Refusal::NameNotResolved)?.collect();
            if addresses.is_empty() {
                Err(Refusal::NameNotResolved)
            } else {
                Ok(addresses)
            }
        }
    }
}
