//! What both gateways have in common for those who run and watch them.

use std::{sync::Arc, time::Duration};

use refrain_codec::simd::InstructionSet;
use refrain_proto::{Mode, planted::Bug};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    descriptors::Descriptors,
    history::{HistoryError, HistoryReport},
    keys::PublicKey,
    last_error::LastError,
    link::{Counted, SharedLink},
    listeners::BindError,
};

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
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

/// A gateway, as its admin page sees it.
pub trait Gateway: Send + Sync + 'static {
    /// `near` or `far`.
    fn role(&self) -> &'static str;

    /// When it started.
    fn started(&self) -> Instant;

    /// The instructions that its kernels use.
    fn kernels(&self) -> InstructionSet;

    /// The bound on memory and what of it nobody has reserved, in bytes.
    fn memory(&self) -> (u64, u64);

    /// Which end finds what repeats.
    fn mode(&self) -> Mode;

    /// What it keeps to predict from, if it does.
    fn history(&self) -> Option<HistoryReport>;

    /// What all its links carried, those included that it has forgotten.
    fn counted(&self) -> Counted;

    /// How it shares out the process's file descriptors.
    fn descriptors(&self) -> Arc<Descriptors>;

    /// Its peers and their links.
    fn peers(&self) -> Vec<PeerReport>;
}

/// A peer and its link, if it has one.
pub struct PeerReport {
    /// The peer's key.
    pub key: PublicKey,
    /// Its name, or at a near end its address.
    pub name: Option<String>,
    /// Where a near end finds it.
    pub address: Option<String>,
    /// The link.
    pub link: Option<Arc<SharedLink>>,
    /// The last thing that went wrong, until it goes well again.
    pub last_error: Option<LastError>,
}

/// Takes no new flows, and waits until the open ones have ended and the peers have their last
/// bytes, or `within` has passed. Says how many flows were left.
pub async fn drain(gateway: &dyn Gateway, within: Duration) -> usize {
    let deadline = Instant::now() + within;
    loop {
        let links = gateway.peers().into_iter().filter_map(|peer| peer.link);
        let (mut flows, mut blocks) = (0, 0);
        for link in links {
            link.drain();
            link.with(|link, _| {
                flows += link.flows_open();
                // A flow may be over at this end while its last bytes wait in a socket, and
                // would die with it. Without a lane, nothing is on its way.
                blocks += match link.lanes_up() {
                    0 => 0,
                    _ => link.blocks_outstanding(),
                };
            });
        }
        if flows + blocks == 0 || Instant::now() >= deadline {
            return flows;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// A link's instance: never 0, never the same twice, and known to nobody before the hello, since the
/// keys of hashes are made of both ends' instances.
pub(crate) fn random_instance() -> u64 {
    if Bug::KnownInstance.is_planted() {
        return 1;
    }
    loop {
        match random_number() {
            0 => {}
            instance => return instance,
        }
    }
}

/// Any number, each as likely as the others.
pub(crate) fn random_number() -> u64 {
    let mut bytes = [0; 8];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has random numbers");
    u64::from_le_bytes(bytes)
}
