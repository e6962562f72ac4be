//! Chunk stores from outside: what all do alike, and what the one on disk endures.

mod bound;
mod common;
mod conformance;
mod crash;
mod damage;
mod files;
mod folder;
mod format;
mod hashes;
mod kill;
mod links;
mod memory_folder;
mod model;
mod read_only;
mod unreadable;
