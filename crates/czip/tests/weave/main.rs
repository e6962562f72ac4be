//! Weaving and undoing it, through the public interface.

mod archives;
mod hostile;
mod layout;
mod others;
mod real_archives;
mod round_trips;
mod streams;
