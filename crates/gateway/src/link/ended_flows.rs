//! The last flows of a gateway that ended, for `refrain explain`. Nothing of their content is kept.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use refrain_proto::link::FlowStatus;
use tokio::time::Instant;

use crate::keys::PublicKey;

/// How many are kept.
const KEPT: usize = 1000;

/// A flow that is over.
#[derive(Clone, Debug)]
pub(crate) struct EndedFlow {
    pub(crate) peer: PublicKey,
    pub(crate) ended: Instant,
    /// Its last state.
    pub(crate) flow: Box<FlowStatus>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct EndedFlows(Mutex<VecDeque<EndedFlow>>);

impl EndedFlows {
    pub(crate) fn add(&self, flow: EndedFlow) {
        let mut flows = self.lock();
        flows.truncate(KEPT - 1);
        flows.push_front(flow);
    }

    /// Those that `is_wanted`, the last first, at most `count`.
    pub(crate) fn find(
        &self,
        count: usize,
        is_wanted: impl Fn(&EndedFlow) -> bool,
    ) -> Vec<EndedFlow> {
        let flows = self.lock();
        let found = flows.iter().filter(|flow| is_wanted(flow)).take(count);
        found.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<EndedFlow>> {
        // A list is whole between any two lines.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
