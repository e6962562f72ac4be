//! CZIP: files that name their chunks by content, so that whatever holds a chunk can share it
//! (CZIP, USENIX ATC 2007).
//!
//! Files become an archive, and an archive files again; between the two it lies on a disk or a web server. In
//! the order in which a byte travels:
//!
//! ```text
//! create              files and folders in, an archive out
//! crypt               keys: parts and frames sealed and opened
//! serve, serve::proxy archives over HTTP: one's own, and those on another web server
//! cache               chunks by name in a directory that processes share
//! archive             an archive read at any place, from any source
//! get                 an archive there, or its files, less what is here
//! verify              whether an archive is whole
//! extract, mount      its files, as files or as a file system
//! ```
//!
//! The bytes of the format are in `refrain-czip-format` and in `docs/czip-format.md`; files on web servers
//! are read by `refrain-http-ranges`.
//!
//! ```
//! use std::{io::Cursor, ops::ControlFlow};
//!
//! use refrain_czip::{
//!     archive::{Archive, CacheBytes, FileSource},
//!     create::{CreateOptions, Input, Output, create},
//! };
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("song.czip");
//! let song = b"It was the best of times, it was the worst of times. ".repeat(1_000);
//! let input = Input::Stream(Box::new(Cursor::new(song.clone())));
//! let go_on = &mut |_: refrain_czip::create::CreateProgress<'_>| ControlFlow::Continue(());
//! create(vec![input], Output::File(path.clone()), &CreateOptions::default(), go_on)?;
//!
//! let archive = Archive::open(FileSource::new(std::fs::File::open(&path)?)?, CacheBytes::default())?;
//! assert!(archive.header().archive_bytes < song.len() as u64 / 10);
//! // From any place on.
//! let mut end = [0; 16];
//! archive.content(song.len() as u64 - 16)?.read(&mut end)?;
//! assert_eq!(&end, b"worst of times. ");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
#[cfg(any(feature = "mount", feature = "serve"))]
pub mod tree;
pub mod verify;

use refrain_czip_format::{self as format, chunker, container, method, weave};
#[cfg(feature = "remote")]
use refrain_http_ranges as remote;
