//! The data that a relay's tasks and threads share: its links, its counts, and the signals of its switches.

use std::io;
use std::sync::Mutex;

use tokio::sync::{Notify, watch};

use crate::counts::Ledger;
use crate::door::Door;
use crate::link::{Link, lock};
use crate::{Direction, RelayConfig};

/// What the relay's tasks and threads share.
pub(crate) struct Shared {
    pub(crate) config: RelayConfig,
    pub(crate) up: Link,
    pub(crate) down: Link,
    pub(crate) ledger: Ledger,
    pub(crate) allowance: Allowance,
    pub(crate) door: Door,
    pub(crate) first_accepted: Notify,
    pub(crate) cuts: watch::Sender<()>,
}

impl Shared {
    pub(crate) fn cut(&self) {
        self.cuts.send_replace(());
    }

    pub(crate) fn link(&self, direction: Direction) -> &Link {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
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

/// How many bytes may still be handed on before the relay cuts by itself; `None` is any number.
pub(crate) struct Allowance(pub(crate) Mutex<Option<u64>>);

impl Allowance {
    /// Lets `write` hand on at most as many of `wanted` bytes as it is told. Returns its result,
    /// and whether that was the last byte.
    pub(crate) fn spend(
        &self,
        wanted: usize,
        write: impl FnOnce(usize) -> io::Result<usize>,
    ) -> (io::Result<usize>, bool) {
        let mut allowance = lock(&self.0);
        let Some(left) = *allowance else {
            drop(allowance);
            return (write(wanted), false);
        };
        let result = write(usize::try_from(left).unwrap_or(usize::MAX).min(wanted));
        let left = left - result.as_ref().map_or(0, |written| *written as u64);
        *allowance = (left > 0).then_some(left);
        (result, left == 0)
    }
}
