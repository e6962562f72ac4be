//! Archives of every kind, kept for ever, and a second reader for them.
//!
//! `testdata/NAME.czip` is an archive of each feature, `testdata/NAME.listing` what is in it.
//! `REFRAIN_BLESS=1 cargo test -p refrain-czip --test suite vectors` makes those that are missing; what is
//! there is never made anew, since archives like it are on somebody's disk. Encrypted ones have other
//! keys each time, and are no more than read.

mod features;
mod kept;
mod listing;
mod second_reader;
mod tar;
mod worked_example;

use crate::programs;
