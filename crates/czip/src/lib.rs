//! CZIP: files that name their chunks by content, so that whatever holds a chunk can share it
//! (CZIP, USENIX ATC 2007).
//!
//! The format is in `docs/czip-format.md`.
#![forbid(unsafe_code)]

pub mod archive;
pub mod create;
pub mod crypt;
pub mod extract;
pub mod get;
pub mod mount;
mod plain_file;
mod records;
mod segments;
pub mod serve;
pub mod verify;

pub use refrain_czip_format::{self as format, chunker, container, method, weave};
pub use refrain_http_ranges as remote;
