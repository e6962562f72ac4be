//! What all links of a gateway have carried since it started, those included that are over.
//!
//! A link leaves its last counts when it is dropped, and not when its gateway forgets it: what its
//! tasks still move in between is counted too.

use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::{link::SharedLink, status::Total};

/// The counts of a gateway's links.
#[derive(Default)]
pub struct Totals {
    links: Mutex<Links>,
}

#[derive(Default)]
struct Links {
    /// The sum of those that are over.
    over: Total,
    present: Vec<Present>,
}

/// A link that is not over.
struct Present {
    link: Weak<SharedLink>,
    /// What it had carried when it was last asked.
    last: Total,
}

impl Totals {
    /// Counts `link` from now on.
    pub fn begin(&self, link: Weak<SharedLink>) {
        let last = Total::default();
        self.lock().present.push(Present { link, last });
    }

    /// `link` is being dropped, and carried `counts`.
    pub fn end(&self, link: *const SharedLink, counts: &Total) {
        let mut links = self.lock();
        links
            .present
            .retain(|present| !std::ptr::eq(present.link.as_ptr(), link));
        links.over.add(counts);
    }

    /// What was carried so far.
    pub fn sum(&self) -> Total {
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
            sum.add(&present.last);
        }
        drop(links);
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        // Counts are whole between any two lines, and links end while others panic.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
