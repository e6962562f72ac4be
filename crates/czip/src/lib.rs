//! CZIP: files that name their chunks by content, so that whatever holds a chunk can share it
//! (CZIP, USENIX ATC 2007).
//!
//! The format is in `docs/czip-format.md`.
//!
//! | feature | what it adds | what it needs |
//! |---|---|---|
//! | `encrypt` | keys: archives that recipients alone can read | age |
//! | `mount` | an archive as a folder | fuser |
//! | `remote` | archives read and fetched from web servers | hyper, rustls, tokio |
//! | `serve` | a server and a proxy of archives; needs `remote` | hyper, tokio |
#![forbid(unsafe_code)]
// Some of what reads archives is there for servers, downloads and keys alone.
#![cfg_attr(
    not(all(feature = "encrypt", feature = "serve")),
    allow(dead_code, unused_imports)
)]

pub mod archive;
pub mod cache;
pub mod create;
pub mod crypt;
pub mod extract;
#[cfg(feature = "remote")]
pub mod get;
#[cfg(feature = "mount")]
pub mod mount;
mod plain_file;
mod records;
mod segments;
#[cfg(feature = "serve")]
pub mod serve;
pub mod verify;

use refrain_czip_format::{self as format, chunker, container, method, weave};
#[cfg(feature = "remote")]
use refrain_http_ranges as remote;
