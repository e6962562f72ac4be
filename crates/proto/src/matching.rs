//! Sender-driven elimination: the sender finds repeats, the receiver looks them up
//! (EndRE, sections 4 to 6).
//!
//! [`sender`] and [`receiver`] mirror each other: who changes one reads the other. What
//! positions a block gets, what it may refer to and why no decoder waits is in
//! `docs/architecture.md`, "The mirrored cache".

use crate::frame::FlowId;

pub(crate) mod books;
pub(crate) mod receiver;
pub(crate) mod second_stage;
pub(crate) mod sender;
pub(crate) mod unproven;

/// What seeds a block's check: its number on its lane, its flow and its offset there, so that
/// a block that turns up in another's place is found out.
fn check_seed(number: u64, flow: FlowId, offset: u64) -> u64 {
    number ^ flow.0.rotate_left(32) ^ offset.rotate_left(16)
}
