//! Pieces of a file over several connections at a time, handed on in their order.

use std::{ops::Range, panic::resume_unwind, sync::Arc};

use tokio::task::JoinSet;

use super::{
    Sink,
    body::Body,
    error::RemoteError,
    part::Part,
    runtime::wait,
    server::Server,
    window::{Next, Window},
};

/// Fetches `pieces`, which are in order, and hands on their bytes with their offsets, in order, in this
/// thread. If the server turns out to have no ranges, that ends it, and the body with all of the file is
/// returned.
pub(super) fn fetch<E: From<RemoteError>>(
    server: &Arc<Server>,
    pieces: Vec<Range<u64>>,
    hand_on: &mut Sink<'_, E>,
) -> Result<Option<Body>, E> {
    let options = &server.client.options;
    let connections = options.connections.clamp(1, pieces.len().max(1));
    let window = Arc::new(Window::new(options.window_bytes, pieces));
    // They end with it, and so do their connections.
    let mut workers = JoinSet::new();
    wait(async {
        for _ in 0..connections {
            workers.spawn(work(server.clone(), window.clone()));
        }
        Ok(())
    })?;
    let mut failed = None;
    loop {
        match wait(next(&window, &mut workers, &mut failed))? {
            Next::Block(offset, block) => {
                hand_on(offset, &block)?;
                window.release(block);
            }
            Next::Done => return Ok(None),
            Next::Whole(body) => return Ok(Some(body)),
        }
    }
}

type Workers = JoinSet<Result<Option<Body>, RemoteError>>;

/// What to do next. What arrived before a failure counts: who goes on later need not have it sent again.
async fn next(
    window: &Window,
    workers: &mut Workers,
    failed: &mut Option<RemoteError>,
) -> Result<Next, RemoteError> {
    loop {
        let changed = window.changed();
        let ended = match workers.try_join_next() {
            Some(ended) => ended,
            None => {
                if let Some(next) = window.next() {
                    return Ok(next);
                }
                if let Some(error) = failed.take() {
                    return Err(error);
                }
                tokio::select! {
                    () = changed => continue,
                    Some(ended) = workers.join_next() => ended,
                }
            }
        };
        match ended {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(body))) => return Ok(Next::Whole(body)),
            Ok(Err(error)) => {
                failed.get_or_insert(error);
            }
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
}

/// Fetches pieces until there are no more. Gives the whole body that came instead of one. After that, or a
/// failure, the others ask for nothing more.
async fn work(server: Arc<Server>, window: Arc<Window>) -> Result<Option<Body>, RemoteError> {
    while let Some((number, piece)) = window.claim() {
        let mut part = Part::new(&server, piece, None);
        while part.left_bytes() > 0 {
            let room = window.reserve(&server, number, part.left_bytes()).await;
            let mut block = Vec::with_capacity(room);
            while block.len() < room {
                match part.read(room - block.len(), false).await {
                    Ok(came) if came.is_empty() => {
                        window.stop();
                        return Ok(part.body);
                    }
                    Ok(came) => block.extend_from_slice(&came),
                    Err(error) => {
                        window.stop();
                        if !block.is_empty() {
                            window.put(number, block);
                        }
                        return Err(error);
                    }
                }
            }
            window.put(number, block);
        }
    }
    Ok(None)
}
