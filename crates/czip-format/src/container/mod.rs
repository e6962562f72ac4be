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
//! `cpio`, `zip`, `ar`) what it asks for; a shape tells a `Pieces` what the bytes are;
//! `loom` writes operations.

mod ar;
mod cpio;
mod cutter;
mod loom;
mod pieces;
mod shape;
mod tar;
mod tar_header;
mod weaver;
mod zip;

pub use loom::{RestartPoint, Woven};
use pieces::Pieces;
use shape::{Kind, Shape, Want};
pub use weaver::Weaver;

/// Bytes that tell any container, where a file has as many.
const HEAD_BYTES: usize = 512;

/// Defines what files are known to be; the first that a file begins like is taken.
macro_rules! containers {
    ($($module:ident::$shape:ident,)+) => {
        /// What a file is.
        enum Known {
            NotYet,
            Nothing,
            $($shape($module::$shape),)+
        }

        impl Known {
            /// What a file is that begins like this.
            fn of(head: &[u8]) -> Known {
                $(if let Some(shape) = $module::$shape::of(head) {
                    return Known::$shape(shape);
                })+
                Known::Nothing
            }
        }

        impl Shape for Known {
            fn want(&self) -> Want {
                match self {
                    Known::NotYet => Want::Head(HEAD_BYTES),
                    Known::Nothing => Want::Rest,
                    $(Known::$shape(shape) => shape.want(),)+
                }
            }

            fn head<P: Pieces>(
                &mut self,
                head: &[u8],
                pass: &mut Vec<(Kind, u64)>,
                out: &mut P,
            ) -> Result<usize, P::Error> {
                match self {
                    Known::NotYet | Known::Nothing => {
                        *self = Known::of(head);
                        Ok(0)
                    }
                    $(Known::$shape(shape) => shape.head(head, pass, out),)+
                }
            }

            fn found(&mut self) {
                match self {
                    Known::NotYet | Known::Nothing => {}
                    $(Known::$shape(shape) => shape.found(),)+
                }
            }

            fn end<P: Pieces>(&mut self, out: &mut P) -> Result<(), P::Error> {
                match self {
                    Known::NotYet | Known::Nothing => Ok(()),
                    $(Known::$shape(shape) => shape.end(out),)+
                }
            }
        }
    };
}

containers! {
    tar::Tar,
    cpio::Cpio,
    zip::Zip,
    ar::Ar,
}
