//! CZIP: files that name their chunks by content, so that whatever holds a chunk can share it
//! (CZIP, USENIX ATC 2007).
//!
//! The format is in `docs/czip-format.md`.
#![forbid(unsafe_code)]

pub mod container;
pub mod crypt;
mod index;
pub mod weave;

pub use index::{BEYOND_BUDGET_BYTES, IndexError, NAME_BYTES, NameIndex, Numbered};
