//! Prefaults a link's caches while little moves.
//!
//! The system clears memory before it gives it. In a link's first transfers that takes longer than all that the engine does
//! with a block that repeats ([decision 46](../../../../docs/decisions/0046-prefault.md)).

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{sync::Notify, task::spawn_blocking, time::sleep};

use super::SharedLink;

/// For so long a link is watched before its caches are prefaulted.
const WATCH: Duration = Duration::from_millis(50);

/// What applications may send and receive in that time. A link that is faster needs the processors for itself.
const LITTLE_BYTES: u64 = 1 << 20;

/// Runs until the link is dropped; notified by `wanted` of that too.
pub(super) async fn run(link: Weak<SharedLink>, wanted: Arc<Notify>) {
    while let Some(shared) = link.upgrade() {
        let turns = shared.memory.prefaulting();
        let before = shared.carried_bytes();
        drop(shared);
        let Some(before) = before else {
            wanted.notified().await;
            continue;
        };
        sleep(WATCH).await;
        // One link of the gateway at a time: the others need its processors.
        let _turn = turns.acquire().await;
        while let Some(shared) = link.upgrade() {
            let moved = shared
                .carried_bytes()
                .map(|bytes| bytes.saturating_sub(before));
            let page = match moved {
                Some(..=LITTLE_BYTES) => shared.lock().link.poll_prefault(),
                _ => None,
            };
            drop(shared);
            let Some(page) = page else { break };
            // It fails only as the runtime ends.
            let _ = spawn_blocking(|| page.run()).await;
            if moved != Some(0) {
                break;
            }
        }
    }
}

impl SharedLink {
    /// How many bytes applications have sent and received; `None` while there is nothing to prefault.
    fn carried_bytes(&self) -> Option<u64> {
        let state = self.lock();
        let wants = state.link.wants_prefault();
        wants.then(|| {
            let counters = state.link.counters();
            counters.sent.layers.app_bytes + counters.received.layers.app_bytes
        })
    }
}
