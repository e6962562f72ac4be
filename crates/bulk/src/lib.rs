//! Finds all redundancy in large inputs as fast as memory delivers them, after HARENS (Diao,
//! Papapanagiotou and Hacker, CloudCom 2016).
//!
//! Files enter; how much of them repeats leaves, and which chunks do. In the order in which a byte
//! travels:
//!
//! ```text
//! input ─▶ fetch ─▶ scan ─▶ cut ─▶ hash ─▶ match ─▶ outcome
//!          plans,   anchors chunks  names   64 shards, each with
//!          reads                            its least recently seen
//! ```
//!
//! Each stage has threads of its own, with bounded queues between them. What is read at once, a
//! *batch*, goes through all of them; its bytes stay where they were read to. Scanning, hashing and
//! matching are done by many threads at once, and no result depends on which of them was faster:
//! batches have numbers, and are put back in order where that matters.
//!
//! - Deviation: windows of 48 bytes, as CZIP and LBFS have them, instead of 32.
//! - Deviation: a chunk of the paper may have any length; here the longest is four times the
//!   average, and what then ends it is chosen by content as well
//!   ([`stream`](refrain_codec::chunk::stream)).
//! - Deviation: the paper's chunks are no shorter than the distance of anchors; here they have a
//!   quarter of it at least, unless [`Chunking::with_bounds`](refrain_codec::chunk::chunking::Chunking::with_bounds)
//!   says what the paper does.
//! - Deviation: chunks end where files do.
#![deny(unsafe_code)]

mod auto;
mod batch;
mod cuda;
mod cut;
mod error;
mod fetch;
mod hash_match;
mod in_order;
mod input;
mod naive;
mod noise;
mod options;
mod outcome;
mod pipeline;
mod scan;
mod sink;
mod tally;

use std::ops::ControlFlow;

use cuda::Gpus;
use tally::Tally;

pub use auto::{Choice, Why, choose};
pub use cuda::GpuTrial;
pub use error::{BulkError, NoGpu};
pub use hash_match::SHARDS;
pub use input::{Bounds, Input, Item, Opens, Skips};
pub use options::{BulkOptions, Method, Threads, UnknownMethod};
pub use outcome::{Failed, Histogram, Outcome, Progress, Redundancy, StageTime};
pub use sink::{Chunks, Sink};

/// Finds the redundancy of `inputs`. `sink`, if there is one, takes what was read and cut; `progress` is told
/// how far it is. Both say whether to go on.
///
/// ```
/// use std::{io::Cursor, ops::ControlFlow};
///
/// use refrain_bulk::{BulkOptions, Input, Method, find_redundancy};
///
/// let verse: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect();
/// let input = || Input::Stream("song".into(), Box::new(Cursor::new(verse.repeat(2))));
/// let share = |method| {
///     let options = BulkOptions { method, ..BulkOptions::default() };
///     let outcome = find_redundancy(vec![input()], &options, None, &mut |_| ControlFlow::Continue(()));
///     outcome.expect("no GPU is needed").redundancy.share()
/// };
/// assert!(share(Method::Pipeline) > 0.45);
/// assert_eq!(share(Method::Pipeline), share(Method::Naive));
/// ```
///
/// # Errors
/// If the method needs a GPU, and there is none that can be used; or the system starts no more threads.
pub fn find_redundancy<'a>(
    inputs: Vec<Input>,
    options: &BulkOptions,
    sink: Option<&'a mut dyn Sink>,
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Outcome, BulkError> {
    let tally = Tally::new(sink, progress);
    match options.method {
        Method::Naive => Ok(naive::run(inputs, options, tally)),
        Method::Pipeline => pipeline::run(inputs, options, None, tally),
        Method::Cuda => {
            let gpus = Gpus::open(options.chunking)?;
            cuda::serial::run(inputs, options, &gpus, tally)
        }
        Method::Harens => {
            let gpus = Gpus::open(options.chunking)?;
            pipeline::run(inputs, options, Some(&gpus), tally)
        }
    }
}
