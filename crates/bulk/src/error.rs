//! Why nothing was looked for.

use std::io;

use cudarc::driver::DriverError;
use thiserror::Error;

/// Why there is no GPU to be had.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum NoGpu {
    /// No driver, or no device.
    #[error("no CUDA device")]
    None,
    /// It does not do what it is told.
    #[error("cannot use the CUDA device: {0:?}")]
    Driver(#[from] DriverError),
}

/// Why a method cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BulkError {
    /// It needs a GPU, and there is none that can be used.
    #[error(transparent)]
    NoGpu(#[from] NoGpu),
    /// The system starts no more threads.
    #[error("cannot start a thread: {0} (use fewer)")]
    Thread(io::Error),
}
