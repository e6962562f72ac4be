//! Archives that somebody damaged or made to do harm: each gives an error or the right content, never
//! another byte, a panic, a loop without end or memory without bound.

mod bombs;
mod damage;
mod draft;
mod lies;
mod memory;
mod reading;
mod sources;
