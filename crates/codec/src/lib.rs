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
//!
//! # Embedding it
//! For an x86-64 target without SSE2 (kernels, bootloaders), the `polyval` crate needs
//! `--cfg polyval_backend="soft"`.
//!
//! What a program needs that has a transport of its own:
//!
//! | to | take |
//! |---|---|
//! | encode blocks against a cache, and decode them | [`Encoder`], [`Decoder`], [`SourceCursor`] a flow |
//! | say what may be referred to, where blocks may be lost | [`matching::Reach`] |
//! | find chunks in a stream that is fed in pieces | [`chunk::stream::StreamChunks`], [`chunk::hash::ChunkHasher`] |
//! | know chunks again, in bounded memory | [`chunk::recent::RecentChunks`] |
//! | see that two ends hold the same bytes | [`universal::UniversalHasher`] |
//! | cut a file into longer chunks, by PACK or by Rabin fingerprints | [`chunk::stream::StreamChunks::by`] |
//! | find markers or anchors alone | [`marker::MarkerFinder`], [`marker::AnchorFinder`], [`marker::ModpAnchorFinder`] |
//! | choose the processor's instructions | [`simd::Backend`]; by default the machine's best |
//!
//! A block is encoded and decoded like this; the two ends share nothing but what is sent, here
//! position, length, check and the two streams:
//!
//! ```
//! use refrain_codec::{
//!     Block, Decoder, EncodedBlock, Encoder, EncoderConfig, SourceCursor,
//!     geometry::CacheGeometry, matching::Everything,
//! };
//!
//! let geometry = CacheGeometry::new(4 << 20).expect("1 MiB to 4 GiB");
//! let mut encoder = Encoder::new(EncoderConfig::with_defaults(geometry));
//! let mut decoder = Decoder::new(geometry);
//! // One of each for every flow, at either end.
//! let (mut sender_cursor, mut receiver_cursor) = Default::default();
//!
//! let release: Vec<u8> = (0..20_000_u32).flat_map(|n| (n * n).to_le_bytes()).collect();
//! let mut patched = release.clone();
//! patched[40_000] ^= 1;
//!
//! let mut sent_bytes = Vec::new();
//! for (number, file) in [release, patched].iter().enumerate() {
//!     let mut encoded = EncodedBlock::default();
//!     let number = number as u64;
//!     let at = encoder.encode(number, file, &Everything, &mut sender_cursor, &mut encoded);
//!     sent_bytes.push(encoded.tokens.len() + encoded.literals.len());
//!
//!     let block = Block {
//!         number,
//!         at,
//!         len: file.len(),
//!         tokens: &encoded.tokens,
//!         literals: &encoded.literals,
//!         check: encoded.check,
//!     };
//!     let mut plain = Vec::new();
//!     decoder.decode(block, &mut receiver_cursor, &mut plain)?;
//!     assert_eq!(&plain, file);
//! }
//! println!("{} bytes for the first, {} for the second", sent_bytes[0], sent_bytes[1]);
//! assert!(sent_bytes[1] <= sent_bytes[0]);
//! # Ok::<(), refrain_codec::DecodeError>(())
//! ```
//!
//! A stream that comes in pieces has the same chunks however it is split:
//!
//! ```
//! use refrain_codec::chunk::{
//!     hash::ChunkHasher,
//!     stream::{ChunkBounds, StreamChunks},
//! };
//! use refrain_codec::{marker::PackMask, simd::Backend};
//!
//! let stream: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect();
//! let mut cutter = StreamChunks::new(PackMask::DEFAULT, ChunkBounds::DEFAULT);
//! let mut chunks = Vec::new();
//! for piece in stream.chunks(1_448) {
//!     cutter.feed(piece, &mut chunks);
//! }
//! cutter.finish(&mut chunks);
//! assert_eq!(chunks.first().map(|chunk| chunk.start), Some(0));
//! assert_eq!(chunks.last().map(|chunk| chunk.end), Some(300_000));
//!
//! // Here the stream is at hand as a whole; all its chunks are hashed at once.
//! let chunks: Vec<_> = chunks.iter().map(|c| c.start as usize..c.end as usize).collect();
//! let mut hashes = Vec::new();
//! ChunkHasher::default().hash_all(Backend::best(), &stream, &chunks, &mut hashes);
//! assert_eq!(hashes.len(), chunks.len());
//! ```
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[macro_use]
mod names;

pub mod marker;
mod sampling;

pub mod chunk;
mod fingerprint;

mod cache;
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
pub mod universal;

pub use cache::seen_windows::MissedRepeats;
pub use decoder::{Block, DecodeError, Decoder};
pub use encoder::{EncodedBlock, Encoder, EncoderConfig};
pub use memory::Prefault;
pub use names::UnknownName;
pub use position::{LogPosition, LogRange};
pub use token::SourceCursor;

/// The check that each block carries: XXH3-64 of its plain bytes, seeded with the block's
/// number in its ordered stream, so that a block that is lost, repeated or out of turn fails
/// as well. It finds ends that diverged; it is no proof against an attacker, whom the lane's
/// encryption keeps out. [`check_on`] is quicker about it.
#[must_use]
pub fn check(number: u64, plain: &[u8]) -> u64 {
    check_on(simd::Backend::PORTABLE, number, plain)
}

/// The same on the kernels of `backend`.
#[must_use]
pub fn check_on(backend: simd::Backend, number: u64, plain: &[u8]) -> u64 {
    simd::xxh3::xxh3(backend, number, plain)
}
