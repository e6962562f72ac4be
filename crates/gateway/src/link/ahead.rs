//! Takes the memory that a link's caches need next, while the link is quiet.
//!
//! The system clears memory before it gives it. In a link's first transfers that takes longer than all that the engine does
//! with a block that repeats.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use refrain_codec::Ahead;
use tokio::{sync::Notify, task::spawn_blocking, time::sleep};

use super::SharedLink;

/// A link is quiet once nobody has called its engine for so long.
const QUIET: Duration = Duration::from_millis(50);

/// What is to be done next.
enum Next {
    Take(Ahead),
    WaitForQuiet(Duration),
    Nothing,
}

/// Runs until the link is dropped; `wanted` is told when there is something to take, and then.
pub(super) async fn run(link: Weak<SharedLink>, wanted: Arc<Notify>) {
    while let Some(next) = link.upgrade().map(|link| link.next_ahead()) {
        match next {
            // It fails only as the runtime ends.
            Next::Take(ahead) => drop(spawn_blocking(|| ahead.take()).await),
            Next::WaitForQuiet(time) => sleep(time).await,
            Next::Nothing => wanted.notified().await,
        }
    }
}

impl SharedLink {
    fn next_ahead(&self) -> Next {
        let mut state = self.lock();
        if !state.link.wants_ahead() {
            return Next::Nothing;
        }
        let quiet = self.now().saturating_sub(state.used_at.0);
        if quiet < QUIET {
            return Next::WaitForQuiet(QUIET - quiet);
        }
        state.link.poll_ahead().map_or(Next::Nothing, Next::Take)
    }
}
