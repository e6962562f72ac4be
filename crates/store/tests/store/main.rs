//! Chunk stores from outside: what all do alike, and what the one on disk endures.

mod bound;
mod common;
mod conformance;
mod crash;
mod model;
mod read_only;
