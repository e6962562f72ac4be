//! Which method is the fastest on this machine: the pipeline, with its GPUs or without.

use std::{
    io::{self, Read},
    ops::ControlFlow,
    path::PathBuf,
    time::Duration,
};

use refrain_codec::chunk::chunking::ChunkingMethod;
use thiserror::Error;

use crate::{
    cuda::Gpus,
    error::{BulkError, NoGpu},
    input::Input,
    noise::Noise,
    options::{BulkOptions, Method},
    outcome::Progress,
    pipeline,
    tally::Tally,
};

/// With less, all is done before a GPU is ready and was measured.
const MEASURED_FROM_BYTES: u64 = 4 << 30;

/// What both are measured with.
const SAMPLE_BYTES: u64 = 64 << 20;

/// The method that is the fastest, and why.
#[derive(Debug)]
pub struct Choice {
    /// The method.
    pub method: Method,
    /// Why it is that.
    pub why: Why,
}

/// What decided.
#[derive(Debug, Error)]
pub enum Why {
    /// So few bytes that no GPU is asked.
    #[error("the default for less than {:.1} GB", MEASURED_FROM_BYTES as f64 / 1e9)]
    Few(u64),
    /// Fixed chunks, which no GPU has anything to find for.
    #[error("a GPU has nothing to search for with fixed chunks")]
    Fixed,
    /// There is no GPU that could be taken.
    #[error(transparent)]
    NoGpu(NoGpu),
    /// No threads to measure with could be started.
    #[error("cannot start a thread for the measurement: {0}")]
    NoThread(io::Error),
    /// Both were measured, in bytes a second.
    #[error("measured {:.1} GB/s without GPUs, {:.1} GB/s with GPUs", pipeline / 1e9, harens / 1e9)]
    Measured {
        /// Without GPUs.
        pipeline: f64,
        /// With GPUs.
        harens: f64,
    },
}

/// Chooses a method for `bytes`, if it is known how many there are. `options` are for the pipeline,
/// `with_gpus` the same for GPUs.
#[must_use]
pub fn choose(options: &BulkOptions, with_gpus: &BulkOptions, bytes: Option<u64>) -> Choice {
    let pipeline = |why| Choice {
        method: Method::Pipeline,
        why,
    };
    if let Some(bytes) = bytes
        && bytes < MEASURED_FROM_BYTES
    {
        return pipeline(Why::Few(bytes));
    }
    if options.chunking.method() == ChunkingMethod::Fixed {
        return pipeline(Why::Fixed);
    }
    let measure = || -> Result<(f64, f64), BulkError> {
        let gpus = Gpus::open(options.chunking)?;
        let with = speed(with_gpus, Some(&gpus))?;
        Ok((speed(options, None)?, with))
    };
    match measure() {
        Err(BulkError::NoGpu(reason)) => pipeline(Why::NoGpu(reason)),
        Err(BulkError::Thread(error)) => pipeline(Why::NoThread(error)),
        Ok((without, with)) => Choice {
            method: match with > without {
                true => Method::Harens,
                false => Method::Pipeline,
            },
            why: Why::Measured {
                pipeline: without,
                harens: with,
            },
        },
    }
}

/// Bytes a second.
fn speed(options: &BulkOptions, gpus: Option<&Gpus>) -> Result<f64, BulkError> {
    let bytes = Noise(1).take(SAMPLE_BYTES);
    let sample = Input::Stream(PathBuf::from("sample"), Box::new(bytes));
    let mut go_on = |_: Progress<'_>| ControlFlow::Continue(());
    let outcome = pipeline::run(vec![sample], options, gpus, Tally::new(None, &mut go_on))?;
    let elapsed = outcome.elapsed.max(Duration::from_micros(1));
    Ok(outcome.redundancy.bytes as f64 / elapsed.as_secs_f64())
}
