//! The data that a relay's tasks share: its links, its counts, and the signal that cuts.

use std::sync::Arc;

use tokio::sync::watch;

use crate::RelayConfig;
use crate::counts::Ledger;
use crate::door::Door;
use crate::link::Link;

/// What the relay's tasks share.
pub(crate) struct Shared {
    pub(crate) config: RelayConfig,
    /// From the side that connected to the relay towards the relay's target.
    pub(crate) up: Arc<Link>,
    /// From the relay's target back.
    pub(crate) down: Arc<Link>,
    pub(crate) ledger: Ledger,
    pub(crate) door: Door,
    pub(crate) cuts: watch::Sender<()>,
}

impl Shared {
    pub(crate) fn cut(&self) {
        self.cuts.send_replace(());
    }
}

/// Fires when the relay cuts its connections.
pub(crate) struct CutSignal(pub(crate) watch::Receiver<()>);

impl CutSignal {
    pub(crate) async fn fired(&mut self) {
        // An error means that the relay is gone, and its connections go with it.
        let _ = self.0.changed().await;
    }
}
