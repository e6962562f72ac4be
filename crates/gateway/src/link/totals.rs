//! What all links of a gateway have carried since it started, those included that are over.
//!
//! A link leaves its last counts when it is dropped, and not when its gateway forgets it: what its
//! tasks still move in between is counted too.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError, Weak},
};

use refrain_proto::{
    counters::{Count, LinkCounters},
    targets::TargetCounts,
};

use super::{SharedLink, ended_flows::EndedFlows};
use crate::keys::PublicKey;

/// What links counted, by their peers, and what they carried by target and class.
pub(crate) type Counted = (BTreeMap<PublicKey, LinkCounters>, TargetCounts);

/// The counts of a gateway's links.
#[derive(Default)]
pub(crate) struct Totals {
    links: Mutex<Links>,
    /// The last flows that ended.
    pub(crate) ended_flows: EndedFlows,
}

#[derive(Default)]
struct Links {
    /// The sum of those that are over.
    over: Counted,
    present: Vec<Present>,
}

/// A link that is not over.
struct Present {
    link: Weak<SharedLink>,
    /// What it had carried when it was last asked.
    last: Counted,
}

impl Totals {
    /// Counts `link` from now on.
    pub(crate) fn begin(&self, link: Weak<SharedLink>) {
        let last = Counted::default();
        self.lock().present.push(Present { link, last });
    }

    /// `link` is being dropped, and carried `counts`.
    pub(crate) fn end(&self, link: *const SharedLink, counts: &Counted) {
        let mut links = self.lock();
        links
            .present
            .retain(|present| !std::ptr::eq(present.link.as_ptr(), link));
        add(&mut links.over, counts);
    }

    /// What was carried so far.
    pub(crate) fn sum(&self) -> Counted {
        // One of which nobody else holds anything any more ends here, and that takes the lock.
        let mut held = Vec::new();
        let mut links = self.lock();
        let mut sum = links.over.clone();
        for present in &mut links.present {
            // One that is just being dropped is as it was last: a sum never falls.
            if let Some(link) = present.link.upgrade() {
                present.last = link.counts();
                held.push(link);
            }
            add(&mut sum, &present.last);
        }
        drop(links);
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        // Counts are whole between any two lines, and links end while others panic.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add((by_peer, targets): &mut Counted, other: &Counted) {
    for (peer, counters) in &other.0 {
        by_peer.entry(*peer).or_default().add(counters);
    }
    targets.add(&other.1);
}
