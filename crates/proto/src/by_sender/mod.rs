//! Sender-driven elimination: the sender finds repeats, the receiver looks them up
//! (EndRE, sections 4 to 6).
//!
//! [`sender`] and [`receiver`] mirror each other: who changes one reads the other. What
//! positions a block gets, what it may refer to and why no decoder waits is in
//! `docs/architecture.md`, "The mirrored cache".

pub(crate) mod books;
pub(crate) mod receiver;
pub(crate) mod second_stage;
pub(crate) mod sender;
