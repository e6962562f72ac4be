//! Pure bytes to tokens to bytes: no I/O, no clock, no thread, no global.
//!
//! This is the codec of refrain's sender-driven redundancy elimination, after EndRE
//! (Aggarwal et al., NSDI 2010). Both ends of a link mirror a bounded FIFO log of plain
//! bytes; the [`Encoder`] replaces ranges that the log holds by tokens, the [`Decoder`]
//! looks them up. In the order in which a byte travels:
//!
//! ```text
//! block ─▶ marker ─▶ fingerprint ─▶ matching ─▶ token ─▶ (second stage, link) ─▶ decoder
//!             └────▶ chunk ─▶ chunk hash ─┘  ▲
//!                                     cache: log, tables
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod marker;

pub mod chunk;
pub mod fingerprint;

pub mod cache;
pub mod geometry;
#[allow(unsafe_code)]
mod memory;
mod position;

pub mod matching;
pub mod token;

mod decoder;
mod encoder;

pub mod entropy;
pub mod reference;
#[allow(unsafe_code)]
pub mod simd;

pub use decoder::{Block, DecodeError, Decoder};
pub use encoder::{EncodedBlock, Encoder, EncoderConfig};
pub use position::{LogPosition, LogRange};
pub use token::SourceCursor;

/// The check that each block carries: XXH3-64 of its plain bytes, seeded with the block's
/// number in its ordered stream, so that a block that is lost, repeated or out of turn fails
/// as well. It finds ends that diverged; it is no proof against an attacker, whom the lane's
/// encryption keeps out. [`Encoder::check`] and [`Decoder::check`] are quicker about it.
#[must_use]
pub fn check(number: u64, plain: &[u8]) -> u64 {
    simd::xxh3::xxh3(simd::Backend::PORTABLE, number, plain)
}
