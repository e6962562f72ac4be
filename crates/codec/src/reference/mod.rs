//! Slow, obvious versions, straight from the papers, that the fast ones are tested against.
//!
//! Nothing here is on the way of a byte, unless somebody asks to see how slow that was.

pub mod markers;
pub mod max_match;
pub mod pack;
pub mod rolling;
