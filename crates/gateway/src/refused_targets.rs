//! Targets that far ends refused: redirected connections to them go direct for a while.

use std::{collections::HashMap, net::SocketAddr, sync::Mutex, time::Duration};

use tokio::time::Instant;

/// How long connections to a target that the far end refused go direct at once.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Targets that are remembered.
const TARGETS_MAX: usize = 4096;

/// Targets that the far end refused, with the times.
#[derive(Debug, Default)]
pub(crate) struct RefusedTargets(Mutex<HashMap<SocketAddr, Instant>>);

impl RefusedTargets {
    pub(crate) fn contains(&self, target: SocketAddr) -> bool {
        let targets = self.0.lock().expect("held for a moment");
        targets
            .get(&target)
            .is_some_and(|at| at.elapsed() < REMEMBERED)
    }

    pub(crate) fn add(&self, target: SocketAddr) {
        let mut targets = self.0.lock().expect("held for a moment");
        if targets.len() >= TARGETS_MAX {
            targets.retain(|_, at| at.elapsed() < REMEMBERED);
        }
        if targets.len() < TARGETS_MAX {
            targets.insert(target, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refused_targets_are_remembered_for_a_while_and_their_number_is_bounded() {
        let targets = RefusedTargets::default();
        let target = |port: usize| SocketAddr::from(([10, 0, 0, 1], port as u16));
        for port in 0..TARGETS_MAX {
            targets.add(target(port));
        }
        targets.add(target(TARGETS_MAX));
        assert!(targets.contains(target(0)) && !targets.contains(target(TARGETS_MAX)));
        tokio::time::advance(REMEMBERED).await;
        assert!(!targets.contains(target(0)));
        targets.add(target(TARGETS_MAX));
        assert!(targets.contains(target(TARGETS_MAX)));
    }
}
