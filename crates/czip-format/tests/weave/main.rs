//! Weaving and undoing it, through the public interface.

#[allow(dead_code)]
#[path = "../../../../tests/common/programs.rs"]
mod programs;

mod archives;
mod by_hand;
mod hostile;
mod layout;
mod others;
mod real_archives;
mod round_trips;
mod streams;
