//! Where connections are driven, for callers that wait in threads of their own.

use std::{io, num::NonZero, sync::LazyLock, thread::available_parallelism};

use tokio::runtime::{Builder, Runtime};

use super::error::RemoteError;

/// Threads that drive connections, and put the bytes into blocks. Callers work on these in threads of their own.
const THREADS_MAX: usize = 4;

/// Shared by all: connections outlive the requests that they were made for, and threads cost memory.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    let threads = available_parallelism().map_or(1, NonZero::get);
    Builder::new_multi_thread()
        .worker_threads(threads.min(THREADS_MAX))
        .thread_name("remote")
        .enable_all()
        .build()
});

/// Waits for `future` in this thread, which must not be one that runs futures.
pub fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    match &*RUNTIME {
        Ok(runtime) => Ok(runtime.handle().block_on(future)),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}

/// The same where what is waited for may fail.
pub(super) fn wait<T>(
    future: impl Future<Output = Result<T, RemoteError>>,
) -> Result<T, RemoteError> {
    block_on(future).map_err(|source| RemoteError::Thread { source })?
}
