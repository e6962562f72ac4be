//! Why nothing was looked for.

use std::io;

use thiserror::Error;

use crate::cuda::NoGpu;

/// Why a method cannot be had.
#[derive(Debug, Error)]
pub enum BulkError {
    /// It needs a GPU, and there is none that can be used.
    #[error(transparent)]
    NoGpu(#[from] NoGpu),
    /// The system starts no more threads.
    #[error("a thread cannot be started: {0}; ask for fewer")]
    Thread(io::Error),
}
