//! CZIP: files that name their chunks by content, so that whatever holds a chunk can share it
//! (CZIP, USENIX ATC 2007).
//!
//! The format is in `docs/czip-format.md`.
#![forbid(unsafe_code)]

pub mod archive;
pub mod cache;
pub mod chunker;
pub mod container;
pub mod create;
pub mod crypt;
pub mod extract;
pub mod format;
pub mod get;
pub mod method;
pub mod mount;
mod plain_file;
mod records;
pub mod remote;
mod segments;
pub mod serve;
pub mod verify;
pub mod weave;
