//! Containers taken apart: plain content to streams, what [`weave`](crate::weave) undoes.
//!
//! In: the bytes of one file after the other, in pieces of any size. Out: to a [`Woven`], what the
//! streams content, fields, times and weave get, where members end, and where restart points are. Why:
//! successive releases differ in the headers of all members and in few members (CZIP, section 3;
//! the paper leaves containers alone). Kept apart, the members of two releases are the same bytes.
//!
//! Containers are known by their first bytes, never by name. What is odd in one goes to
//! content as it is: the result is always the bytes that went in. How the input was split changes
//! nothing. Held are at most a header, or an extended tar header's text, twice: a member is looked into, for
//! where its own members end, and no deeper.
//!
//! The files, from the outside in: `weaver` drives; `cutter` hands a shape (one of `tar`,
//! `cpio`, `zip`, `ar`) what it asks for; a shape says what the bytes are;
//! `loom` writes operations.

mod ar;
mod cpio;
mod cutter;
mod loom;
mod shape;
mod tar;
mod tar_header;
mod weaver;
mod zip;

pub use loom::{RestartPoint, Woven};
use shape::Shape;
pub use weaver::Weaver;

/// Bytes that tell any container, where a file has as many.
const HEAD_BYTES: usize = 512;

/// What says whether a file that begins so is of a kind of container.
type Of = fn(&[u8]) -> Option<Box<dyn Shape>>;

/// What files are known to be; the first that a file begins like is taken.
const CONTAINERS: &[Of] = &[tar::Tar::of, cpio::Cpio::of, zip::Zip::of, ar::Ar::of];
