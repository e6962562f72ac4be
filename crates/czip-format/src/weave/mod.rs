//! The weave: what makes the plain content out of the streams content, fields and times.
//!
//! In: readers of four streams, at the beginning or at a restart point. Out: the plain content, in
//! any pieces. Why: what containers say of their members differs from release to release, what is
//! in the members does not, and so the two are kept apart (CZIP, section 3, which has plain content
//! only). The chapter "The weave" of `docs/czip-format.md` is what this room reads; what writes it
//! is in [`container`](crate::container).
//!
//! All that comes from an archive is hostile here: an operation that cannot be is an error, and
//! nothing is allocated but four buffers, the models of headers (512 bytes for each of 256 types)
//! and the text of an extended header of at most 64 KiB. A weave may well say more plain content
//! than there is room for: who reads stops at the number of the archive's header.

mod error;
mod operation;
mod stream;
pub(crate) mod tar;
mod unweaver;

pub use error::WeaveError;
pub(crate) use operation::Operation;
pub use stream::{StreamReader, Streams};
pub use unweaver::Step;
pub use unweaver::Unweaver;

/// An extended tar header whose text is longer is none for the operation of tar members.
pub(crate) const EXTENDED_TEXT_BYTES_MAX: u64 = 64 << 10;
