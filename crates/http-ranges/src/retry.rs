//! Who wants to know that something is tried again.

use std::{fmt, sync::Arc, time::Duration};

use super::error::RemoteError;

/// An attempt failed, and another follows.
#[derive(Clone, Copy, Debug)]
pub struct Retry<'a> {
    /// How it failed.
    pub error: &'a RemoteError,
    /// The number of the next attempt, of those in a row that bring next to nothing: at least 2.
    pub attempt: u32,
    /// After so many it is given up.
    pub attempts_max: u32,
    /// The pause before the next one.
    pub pause: Duration,
}

/// Is told of each retry, before the pause; or nobody is.
#[derive(Clone, Default)]
pub struct OnRetry(Option<Arc<Told>>);

type Told = dyn Fn(Retry<'_>) + Send + Sync;

impl OnRetry {
    /// Has `told` called for each, perhaps by a thread that drives connections: it must not wait for them.
    pub fn new(told: impl Fn(Retry<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    pub(super) fn tell(&self, retry: Retry<'_>) {
        if let Some(told) = &self.0 {
            told(retry);
        }
    }
}

impl fmt::Debug for OnRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_told = self.0.is_some();
        f.debug_tuple("OnRetry").field(&is_told).finish()
    }
}
