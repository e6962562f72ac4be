//! Weaving and undoing it, through the public interface.

mod archives;
mod hostile;
mod layout;
mod round_trips;
mod streams;
