//! Starts a gateway: its listeners, and what dials and takes its lanes.

use std::{io, sync::Arc};

use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    acceptor::{self, BindError},
    config::Config,
    gateway::Gateway,
    history::{History, HistoryError},
    listeners::{Listener, dns_answers, held},
    options::TRANSPARENT,
    redirected::Redirected,
    way_in::WayIn,
};

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The store of what was received does not open.
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// The tasks of a gateway; dropped, they end.
#[derive(Debug, Default)]
pub struct Tasks {
    /// What takes new connections: ends when the gateway drains.
    pub listeners: JoinSet<()>,
    /// What keeps the gateway going: ends with it.
    pub services: JoinSet<()>,
}

/// Binds the listeners and starts to dial. They run in `tasks`.
pub async fn start(config: Config, tasks: &mut Tasks) -> Result<Arc<Gateway>, StartError> {
    let bind = |&address| acceptor::bind(address, "listen");
    let for_lanes = config.listen.iter().map(bind);
    let for_lanes = for_lanes.collect::<Result<Vec<_>, _>>()?;
    let mut for_applications = Vec::new();
    for mut way_in in config.ways_in.clone() {
        let (socket, address) = acceptor::bind(way_in.listen, way_in.option.key)?;
        way_in.listen = address;
        for_applications.push((socket, way_in));
    }
    let history = match &config.history {
        Some(options) => Some(History::open(options).await?),
        None => None,
    };
    let lanes = for_lanes.iter().map(|&(_, address)| address);
    let ways_in = for_applications.iter().map(|(_, way_in)| way_in.listen);
    let gateway = Gateway::new(config, history, lanes.chain(ways_in).collect());
    held::start(&gateway, &mut tasks.listeners);
    dns_answers::start(&gateway, &mut tasks.listeners);
    gateway.keep(&mut tasks.services);
    for (_, address) in &for_lanes {
        tracing::info!(kind = "lanes", %address, "listening");
    }
    if let Some(names) = gateway.config.opens() {
        tracing::info!(%names, "opening TLS to these names, by the CA of --ca");
    }
    for (socket, way_in) in for_applications {
        let (kind, address) = (way_in.kind(), way_in.listen);
        // `target` is a field of each line already: the module that logs it.
        let forward_target = way_in.target.as_ref().map(tracing::field::display);
        let sites = way_in.sites();
        let sites = (!sites.is_empty()).then(|| sites.join(" "));
        tracing::info!(kind, %address, forward_target, sites, "listening");
        let serving = Listener::serve(socket, way_in, None, Arc::clone(&gateway));
        tasks.listeners.spawn(serving);
    }
    for listener in for_lanes {
        tasks.listeners.spawn(Arc::clone(&gateway).accept(listener));
    }
    Ok(gateway)
}

/// Has `gateway` take the connections that a firewall redirects to `socket`, and carry them to their original
/// destinations.
pub fn take_redirected(
    gateway: &Arc<Gateway>,
    socket: TcpListener,
    redirected: Redirected,
    tasks: &mut Tasks,
) -> io::Result<()> {
    let way_in = WayIn::any_target(&TRANSPARENT, socket.local_addr()?);
    let serving = Listener::serve(socket, way_in, Some(redirected), Arc::clone(gateway));
    tasks.listeners.spawn(serving);
    Ok(())
}
