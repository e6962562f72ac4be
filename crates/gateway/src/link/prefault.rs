//! Prefaults a link's caches while the link is quiet.
//!
//! The system clears memory before it gives it. In a link's first transfers that takes longer than all that the engine does
//! with a block that repeats ([decision 46](../../../../docs/decisions/0046-prefault.md)).

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{sync::Notify, task::spawn_blocking, time::sleep};

use super::SharedLink;

/// A link is quiet once nobody has called its engine for so long.
const QUIET: Duration = Duration::from_millis(50);

/// Runs until the link is dropped; notified by `wanted` of that too.
pub(super) async fn run(link: Weak<SharedLink>, wanted: Arc<Notify>) {
    while let Some(shared) = link.upgrade() {
        let quiet_in = shared.quiet_in();
        let turns = shared.memory.prefaulting();
        drop(shared);
        match quiet_in {
            None => wanted.notified().await,
            Some(time) if !time.is_zero() => sleep(time).await,
            Some(_) => {
                // One link of the gateway at a time: the others need its processors.
                let _turn = turns.acquire().await;
                let shared = link.upgrade();
                let is_quiet = |link: &Arc<SharedLink>| link.quiet_in() == Some(Duration::ZERO);
                let page = shared
                    .filter(is_quiet)
                    .and_then(|link| link.lock().link.poll_prefault());
                if let Some(page) = page {
                    // It fails only as the runtime ends.
                    let _ = spawn_blocking(|| page.run()).await;
                }
            }
        }
    }
}

impl SharedLink {
    /// When it will be quiet; `None` while there is nothing to prefault.
    fn quiet_in(&self) -> Option<Duration> {
        let state = self.lock();
        let quiet = self.now().saturating_sub(state.used_at.0);
        let wants = state.link.wants_prefault();
        wants.then(|| QUIET.saturating_sub(quiet))
    }
}
