//! Sans-I/O engines of the refrain protocol.
//!
//! Two [`Link`]s, one at each end, exchange flows over lanes. An engine never reads a
//! clock, opens a socket or draws a number: time, bytes and instances are arguments, and
//! the answer is bytes to send, events, and the next deadline. The gateway, the simulator
//! and the fuzzers drive the same engines.
//!
//! ```text
//! hello, frame        what lanes carry
//! codes               every number on the wire that stands for something
//! link                lanes and flows of one link, at one end
//! fault               what can end a lane or a link
//! predictions         predictions: sender and receiver, offers, learning
//! terms               hints, signatures and digests of predictions, which both ends compute
//! matching            the mirrored cache: sender and receiver, books, second stage
//! flow, in_order      one flow, and its bytes from several lanes
//! credit              how much may be sent on a flow
//! mode                which end finds what repeats
//! traffic, effort     how a flow is treated, how hard we try
//! targets             what was carried, by target and class
//! arrivals            which lane is held up by loss
//! limits              every bound, in one place
//! planted             bugs on purpose, for the simulator to find
//! ```
#![forbid(unsafe_code)]

pub mod codes;
pub mod frame;
pub mod hello;
pub mod link;

mod arrivals;
pub mod counters;
mod credit;
pub mod effort;
mod fault;
mod flow;
mod in_order;
pub mod limits;
mod matching;
mod mode;
mod moment;
mod pending;
pub mod planted;
pub mod predictions;
pub mod targets;
pub mod terms;
mod traffic;

pub use fault::{CacheViolation, Fault, LaneFault, LinkFault, Violation};
pub use frame::{FlowId, LaneId};
pub use link::{Event, Link, LinkConfig, ResetReason, Role};
pub use mode::Mode;
pub use moment::Moment;
pub use traffic::{Exclusion, TrafficClass};
