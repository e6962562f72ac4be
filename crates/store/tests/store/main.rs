//! Chunk stores from outside: what all do alike, and what the one on disk endures.

mod bound;
mod common;
mod compact;
mod conformance;
mod crash;
mod files;
mod folder;
mod format;
mod hashes;
mod interrupt;
mod kill;
mod links;
mod model;
mod read_only;
mod unreadable;
mod watched;
