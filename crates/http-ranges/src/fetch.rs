//! Pieces of a file over several connections at a time, handed on in their order.

use std::{mem, ops::Range, sync::Arc, thread};

use super::{
    Sink,
    agent::Agents,
    body::Body,
    error::RemoteError,
    part::{Got, Part},
    server::Server,
    window::{Next, Window},
};

/// How a fetch ended.
pub(super) enum Fetched {
    /// All was handed on.
    All,
    /// The server has no ranges, and sends the file from its beginning.
    NoRanges(Body),
}

/// Fetches `pieces`, which are in order, and hands on their bytes with their offsets, in order, in this
/// thread.
pub(super) fn fetch<E: From<RemoteError>>(
    server: &Server,
    pieces: &[Range<u64>],
    hand_on: &mut Sink<'_, E>,
) -> Result<Fetched, E> {
    let window = Window::new(
        server.client.options.window_bytes,
        pieces.len(),
        &server.client.tally,
    );
    let agents = server.agents();
    let workers = server
        .client
        .options
        .connections
        .clamp(1, pieces.len().max(1));
    thread::scope(|threads| {
        // Also when `hand_on` panics: the scope waits for workers, and those for room.
        let _stop = Stop(&window);
        let mut started = 0;
        for _ in 0..workers {
            let builder = thread::Builder::new().name("remote".to_owned());
            match builder.spawn_scoped(threads, || work(server, &agents, pieces, &window)) {
                Ok(_) => started += 1,
                Err(source) if started == 0 => return Err(RemoteError::Thread { source }.into()),
                // Fewer do it too.
                Err(_) => break,
            }
        }
        let fetched = hand_on_all(pieces, &window, hand_on);
        if fetched.is_err() {
            window.stop();
            server.interrupt(&agents);
        }
        fetched
    })
}

fn hand_on_all<E: From<RemoteError>>(
    pieces: &[Range<u64>],
    window: &Window<'_>,
    hand_on: &mut Sink<'_, E>,
) -> Result<Fetched, E> {
    for piece in pieces {
        let mut offset = piece.start;
        while offset < piece.end {
            match window.next()? {
                Next::Block(block) => {
                    hand_on(offset, &block)?;
                    offset += block.len() as u64;
                    window.release(block);
                }
                Next::Whole(body) => return Ok(Fetched::NoRanges(body)),
                Next::Done => return Ok(Fetched::All),
            }
        }
    }
    Ok(Fetched::All)
}

fn work(server: &Server, agents: &Arc<Agents>, pieces: &[Range<u64>], window: &Window<'_>) {
    // A panic here would leave the others, and who hands on, waiting.
    let stop = Stop(window);
    while let Some(number) = window.claim() {
        let mut part = Part::new(server, agents.clone(), pieces[number].clone());
        if work_on(&mut part, number, window).is_none() {
            break;
        }
    }
    // Reached without a panic: the others go on.
    mem::forget(stop);
}

/// Fetches a piece. None if there is nothing more to do.
fn work_on(part: &mut Part<'_>, number: usize, window: &Window<'_>) -> Option<()> {
    while part.left_bytes() > 0 {
        let mut block = window.reserve(number, part.left_bytes())?;
        let mut filled = 0;
        while filled < block.len() {
            match part.read(&mut block[filled..]) {
                Ok(Got::Bytes(read)) => filled += read,
                Ok(Got::Pause(pause)) => window.pause(pause).then_some(())?,
                Ok(Got::Whole(body)) => {
                    window.no_ranges(body);
                    return None;
                }
                Err(error) => {
                    block.truncate(filled);
                    if !block.is_empty() {
                        window.put(number, block, false);
                    }
                    window.fail(error);
                    return None;
                }
            }
        }
        window.put(number, block, part.left_bytes() == 0);
    }
    Some(())
}

/// Ends a window when it goes.
struct Stop<'a>(&'a Window<'a>);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
