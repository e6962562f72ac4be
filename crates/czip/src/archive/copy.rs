//! Reads a range of the plain content with several threads, and gives it in order.

use std::{
    io,
    ops::Range,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use super::{Archive, ReadError, Source};
use crate::format::{FormatError, Portion};

/// Bytes that a thread reads at once.
const PIECE_BYTES: u64 = 2 << 20;
/// Pieces that a thread may be ahead.
const AHEAD_MAX: usize = 2;

/// Reads `range` with `threads` threads, and gives it to `take`, piece by piece and in order.
///
/// # Errors
/// If the archive cannot be read, is damaged or has no such range, or what `take` says.
pub fn copy<S: Source, E: From<ReadError>>(
    archive: &Archive<S>,
    range: Range<u64>,
    threads: usize,
    take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let end = archive.plain_bytes();
    if range.end > end {
        let wanted = range.end;
        return Err(ReadError::BeyondEnd { end, wanted }.into());
    }
    let pieces = (range.end - range.start).div_ceil(PIECE_BYTES);
    let threads = (threads as u64).clamp(1, pieces.max(1));
    thread::scope(|scope| {
        let readers = (0..threads)
            .map(|thread| {
                let (full, filled) = sync_channel(AHEAD_MAX);
                let (used, empty) = sync_channel::<Vec<u8>>(AHEAD_MAX + 2);
                let mine = (thread..pieces).step_by(threads as usize);
                let mine = mine.map(move |number| {
                    let start = range.start + number * PIECE_BYTES;
                    start..range.end.min(start + PIECE_BYTES)
                });
                let builder = thread::Builder::new().name("extract".to_owned());
                builder.spawn_scoped(scope, move || read(archive, mine, &full, &empty))?;
                Ok((filled, used))
            })
            .collect::<io::Result<Vec<_>>>()
            .map_err(|error| ReadError::Threads { threads, error })?;
        for number in 0..pieces {
            let (filled, used) = &readers[(number % threads) as usize];
            let piece = filled.recv().expect("a thread gives all its pieces")?;
            take(&piece)?;
            // A thread that has ended needs no more room.
            let _ = used.try_send(piece);
        }
        Ok(())
    })
}

/// As [`copy`]. If that is all of the content, it is held against the archive's digest at the end.
///
/// # Errors
/// As with [`copy`], and if the content does not have its digest.
pub fn copy_checked<S: Source, E: From<ReadError>>(
    archive: &Archive<S>,
    range: Range<u64>,
    threads: usize,
    take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if range != (0..archive.plain_bytes()) {
        return copy(archive, range, threads, take);
    }
    let mut digest = blake3::Hasher::new();
    copy(archive, range, threads, &mut |piece: &[u8]| {
        digest.update(piece);
        take(piece)
    })?;
    match *digest.finalize().as_bytes() == archive.root().summary.digest {
        true => Ok(()),
        false => Err(ReadError::from(FormatError::Digest(Portion::Content)).into()),
    }
}

fn read<S: Source>(
    archive: &Archive<S>,
    ranges: impl Iterator<Item = Range<u64>>,
    full: &SyncSender<Result<Vec<u8>, ReadError>>,
    empty: &Receiver<Vec<u8>>,
) {
    for range in ranges {
        let mut piece = empty.try_recv().unwrap_or_default();
        piece.resize((range.end - range.start) as usize, 0);
        let read = archive
            .content(range.start)
            .and_then(|mut content| content.read(&mut piece));
        let is_last = read.is_err();
        // Nobody takes what comes after an error.
        if full.send(read.map(|_| piece)).is_err() || is_last {
            return;
        }
    }
}
