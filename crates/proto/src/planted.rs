//! Bugs on purpose, which the simulator must find: `crates/sim/planted`. One at a time can be
//! planted, and only in a build with the feature `planted`; in any other there are none, and
//! asking costs nothing.

#[cfg(feature = "planted")]
use std::sync::atomic::{AtomicU8, Ordering};

#[cfg(feature = "planted")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// Blocks refer to bytes that another lane carries and that may not have come.
    ReferAcrossLanes = 1,
    /// What was on a dead lane counts as applied.
    NoSettlement,
    /// Holes are made before the receiver has said that it reads no more: late blocks overwrite
    /// newer bytes.
    EarlyHoles,
    /// A flow's credit leaks, until it stands still.
    CreditLeak,
    /// Offers are let go while a confirmation of them may still come, on another lane.
    EarlyRelease,
}

impl Bug {
    pub(crate) fn is_planted(self) -> bool {
        #[cfg(feature = "planted")]
        return PLANTED.load(Ordering::Relaxed) == self as u8;
        #[cfg(not(feature = "planted"))]
        return false;
    }

    /// The bug of this name.
    #[cfg(feature = "planted")]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "refer-across-lanes" => Some(Self::ReferAcrossLanes),
            "no-settlement" => Some(Self::NoSettlement),
            "early-holes" => Some(Self::EarlyHoles),
            "credit-leak" => Some(Self::CreditLeak),
            "early-release" => Some(Self::EarlyRelease),
            _ => None,
        }
    }

    /// Plants it for all of the process.
    #[cfg(feature = "planted")]
    pub fn plant(self) {
        PLANTED.store(self as u8, Ordering::Relaxed);
    }
}
