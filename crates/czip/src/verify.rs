//! Checks all that an archive stores, without decompressing its frames (CZIP, section 3.2).

use std::{
    ops::ControlFlow,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use crate::{
    archive::{Archive, ReadError, Source, copy},
    format::{
        FormatError, Stream, digest,
        part::{PartKind, StoredFrame},
    },
};

/// Frames that lie together are read together up to this.
const READ_BYTES: u64 = 4 << 20;

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Frames.
    pub frames: u64,
    /// Their stored bytes.
    pub stored_bytes: u64,
}

/// Checks root, parts and frames of `archive` against their digests, with `threads` threads.
/// `progress` is told how many stored bytes were checked, and says whether to go on.
///
/// # Errors
/// If something cannot be read, or is damaged. `None` if `progress` said so.
pub fn verify<S: Source>(
    archive: &Archive<S>,
    threads: usize,
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<Option<Verified>, ReadError> {
    let mut tasks = Vec::new();
    let lists = Stream::ALL.map(|stream| (stream, archive.root().stream(stream)));
    for (stream, lists) in lists {
        for kind in [PartKind::Chunks, PartKind::Lengths, PartKind::References] {
            for row in lists.list(kind).rows() {
                archive.part_bytes(kind, &row.place)?;
            }
        }
        tasks.extend((0..lists.frames.rows().len()).map(|row| (stream, row)));
    }
    for row in archive.root().weave_index.rows() {
        archive.part_bytes(PartKind::WeaveIndex, &row.place)?;
    }
    let next = AtomicU64::new(0);
    let frames = AtomicU64::new(0);
    let stored_bytes = AtomicU64::new(0);
    let is_stopped = AtomicBool::new(false);
    let failed = Mutex::new(None);
    let work = || {
        while !is_stopped.load(Ordering::Relaxed) {
            let task = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(&(stream, row)) = tasks.get(task) else {
                return;
            };
            let checked = check_frames(archive, stream, row, &mut |bytes, count| {
                frames.fetch_add(count, Ordering::Relaxed);
                let sum = stored_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
                if progress(sum).is_break() {
                    is_stopped.store(true, Ordering::Relaxed);
                }
            });
            if let Err(error) = checked {
                is_stopped.store(true, Ordering::Relaxed);
                failed
                    .lock()
                    .expect("no thread panics")
                    .get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    match failed.into_inner().expect("no thread panics") {
        Some(error) => Err(error),
        None if is_stopped.into_inner() => Ok(None),
        None => Ok(Some(Verified {
            frames: frames.into_inner(),
            stored_bytes: stored_bytes.into_inner(),
        })),
    }
}

fn check_frames<S: Source>(
    archive: &Archive<S>,
    stream: Stream,
    row: usize,
    checked: &mut dyn FnMut(u64, u64),
) -> Result<(), ReadError> {
    let row = &archive.root().stream(stream).frames.rows()[row];
    let frames = archive.frame_rows(row)?;
    let mut number = row.before[0];
    let mut buffer = Vec::new();
    for together in frames.chunk_by(|one, next| {
        let end = |frame: &StoredFrame| frame.offset + u64::from(frame.stored_bytes);
        end(one) == next.offset
            && end(next) - frames[0].offset
                < READ_BYTES * (1 + (one.offset - frames[0].offset) / READ_BYTES)
    }) {
        let bytes: u64 = together
            .iter()
            .map(|frame| u64::from(frame.stored_bytes))
            .sum();
        buffer.resize(bytes as usize, 0);
        archive
            .source()
            .read_exact_at(&mut buffer, together[0].offset)?;
        let mut rest = &buffer[..];
        for frame in together {
            let (stored, behind) = rest.split_at(frame.stored_bytes as usize);
            rest = behind;
            if digest(stored) != frame.digest {
                return Err(ReadError::damaged_frame(stream, number));
            }
            number += 1;
        }
        checked(bytes, together.len() as u64);
    }
    Ok(())
}

/// Extracts everything, throws it away, and checks that it is what was archived.
///
/// # Errors
/// If something cannot be read, or is damaged.
pub fn verify_content<S: Source>(
    archive: &Archive<S>,
    threads: usize,
    take: &mut dyn FnMut(&[u8]) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut hasher = blake3::Hasher::new();
    copy(
        archive,
        0..archive.plain_bytes(),
        threads,
        &mut |piece: &[u8]| {
            hasher.update(piece);
            take(piece)
        },
    )?;
    match *hasher.finalize().as_bytes() == archive.root().summary.digest {
        true => Ok(()),
        false => Err(FormatError::Digest { what: "content" }.into()),
    }
}
