//! Both ends of a link under a virtual clock: seeds in, broken promises out.
//!
//! A run draws everything from its seed: the transports' delays and rates, what the
//! applications do, what breaks, when, and who hears of it. It drives the same engines as
//! the gateway, in the way that their documentation asks for, and holds them to two
//! promises. P1: delivered bytes equal sent bytes, or the flow ends with an error. And
//! nothing waits for ever: once nothing breaks any more, all flows end, and both ends
//! agree on every block, and on what they counted. Counters never fall.
//!
//! ```text
//! schedule    what happens next
//! content     what applications send
//! ledger      what was written and what was delivered: where P1 is checked
//! application one end of one flow
//! counters    what a link counts, at both ends
//! transport   what carries a lane, and what it does to bytes
//! world       both ends, their links, and the run's loop
//! trouble     what breaks
//! suite       many runs
//! ```
#![forbid(unsafe_code)]

mod application;
mod content;
mod counters;
pub mod efforts;
mod failure;
mod kinds;
mod ledger;
pub mod paced;
pub mod remembered;
mod schedule;
mod suite;
mod transport;
mod trouble;
mod world;

use core::fmt;

pub use failure::{FailedRun, Failure};
pub use kinds::{Kind, Kinds};
pub use suite::{Suite, run_many, run_seed};

/// One end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It dials.
    Near,
    /// It accepts.
    Far,
}

impl End {
    pub(crate) const BOTH: [Self; 2] = [Self::Near, Self::Far];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Near => "near",
            Self::Far => "far",
        })
    }
}
