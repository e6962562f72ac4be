//! Checks all that an archive stores, without decompressing its frames (CZIP, section 3.2).

mod files;

pub use files::files_in_frames;

use std::{
    ops::ControlFlow,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use serde::Serialize;

use crate::{
    archive::{Archive, Naming, ReadError, Source, copy_checked},
    format::{
        FormatError, Stream, Violation, digest,
        part::{PartKind, StoredFrame},
    },
};

/// Frames that lie together are read together up to this.
const READ_BYTES: u64 = 4 << 20;

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Frames.
    pub frames: u64,
    /// Their stored bytes.
    pub stored_bytes: u64,
}

/// Something that is damaged.
#[derive(Debug)]
pub struct Damage {
    /// The frame, if it is one, by its stream and number; else a part of the table.
    pub frame: Option<(Stream, u64)>,
    /// How.
    pub error: ReadError,
}

/// What is told of damage, in any order, and says whether to go on.
pub type OnDamage<'a> = &'a (dyn Fn(Damage) -> Result<(), ReadError> + Sync);

/// Stored bytes of parts and frames: all that [`verify`] reads.
#[must_use]
pub fn bytes_to_verify<S: Source>(archive: &Archive<S>) -> u64 {
    let root = archive.root();
    let frames = Stream::ALL.map(|stream| root.stream(stream).stored_bytes());
    root.part_bytes() + frames.iter().sum::<u64>()
}

/// Checks root, keys, parts and frames of `archive` against their digests, with `threads` threads; no
/// key is needed. `progress` is told how many of the [`bytes_to_verify`] were checked, and says whether
/// to go on.
///
/// # Errors
/// If something cannot be read, or is damaged. `None` if `progress` said so.
pub fn verify<S: Source>(
    archive: &Archive<S>,
    threads: usize,
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<Option<Verified>, ReadError> {
    find_damage(archive, threads, &|damage| Err(damage.error), progress)
}

/// The same, with all damage to parts and frames told to `on_damage`; gives what is whole. Behind a part
/// that is damaged nobody can tell what its frames are.
///
/// # Errors
/// If the source cannot be read, root or keys are damaged, or what `on_damage` says. `None` if `progress`
/// said so.
pub fn find_damage<S: Source>(
    archive: &Archive<S>,
    threads: usize,
    on_damage: OnDamage<'_>,
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<Option<Verified>, ReadError> {
    if archive.header().encryption.is_some() {
        archive.keys()?;
    }
    // Frame parts, with their frames, come last: those are most of the work.
    let mut parts: Vec<_> = archive.parts().collect();
    parts.sort_by_key(|&(kind, ..)| kind == PartKind::Frames);
    let frames = AtomicU64::new(0);
    let stored_bytes = AtomicU64::new(0);
    let checked_bytes = AtomicU64::new(0);
    let checked = |bytes| progress(checked_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes);
    let part_bytes = |kind, stream, row: usize| {
        let place = &archive.list(kind, stream).rows()[row].place;
        u64::from(place.stored_bytes)
    };
    let is_done = each(&parts, threads, &|&(kind, stream, row)| match stream {
        Some(stream) if kind == PartKind::Frames => {
            let rows = match archive.frame_rows(stream, row) {
                Ok(rows) => rows,
                Err(error) => {
                    tell(on_damage, None, error)?;
                    return Ok(ControlFlow::Continue(()));
                }
            };
            match checked(part_bytes(kind, Some(stream), row)) {
                ControlFlow::Continue(()) => {}
                stop => return Ok(stop),
            }
            let whole = &mut |bytes| {
                frames.fetch_add(1, Ordering::Relaxed);
                stored_bytes.fetch_add(bytes, Ordering::Relaxed);
            };
            check_frames(archive, (stream, row), &rows, whole, on_damage, &checked)
        }
        _ => {
            if let Err(error) = archive.check_part((kind, stream, row)) {
                tell(on_damage, None, error)?;
            }
            Ok(checked(part_bytes(kind, stream, row)))
        }
    })?;
    Ok(is_done.then(|| Verified {
        frames: frames.into_inner(),
        stored_bytes: stored_bytes.into_inner(),
    }))
}

/// Does all tasks with so many threads, until one fails or says that it is enough: then not all are done.
fn each<T: Sync>(
    tasks: &[T],
    threads: usize,
    work: &(dyn Fn(&T) -> Result<ControlFlow<()>, ReadError> + Sync),
) -> Result<bool, ReadError> {
    let next = AtomicUsize::new(0);
    let is_stopped = AtomicBool::new(false);
    let failed = Mutex::new(None);
    let run = || {
        while !is_stopped.load(Ordering::Relaxed) {
            let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            match work(task) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => is_stopped.store(true, Ordering::Relaxed),
                Err(error) => {
                    is_stopped.store(true, Ordering::Relaxed);
                    failed
                        .lock()
                        .expect("no thread panics")
                        .get_or_insert(error);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            let builder = thread::Builder::new().name("verify".to_owned());
            // Fewer do it too.
            if builder.spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    match failed.into_inner().expect("no thread panics") {
        Some(error) => Err(error),
        None => Ok(!is_stopped.into_inner()),
    }
}

/// Tells of damage; what is none is an error.
fn tell(
    on_damage: OnDamage<'_>,
    frame: Option<(Stream, u64)>,
    error: ReadError,
) -> Result<(), ReadError> {
    match error.is_damage() {
        true => on_damage(Damage { frame, error }),
        false => Err(error),
    }
}

fn check_frames<S: Source>(
    archive: &Archive<S>,
    (stream, row): (Stream, usize),
    frames: &[StoredFrame],
    whole: &mut dyn FnMut(u64),
    on_damage: OnDamage<'_>,
    checked: &dyn Fn(u64) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, ReadError> {
    let mut number = archive.root().stream(stream).frames.rows()[row].before[0];
    let mut buffer = Vec::new();
    let mut rest = frames;
    while let Some(first) = rest.first() {
        let mut end = first.offset;
        let together = rest
            .iter()
            .take_while(|frame| {
                let is_next = frame.offset == end && end < first.offset + READ_BYTES;
                end = frame.range().end;
                is_next
            })
            .count();
        let (together, behind) = rest.split_at(together);
        rest = behind;
        let bytes = together.iter().map(|frame| u64::from(frame.stored_bytes));
        let bytes: u64 = bytes.sum();
        buffer.resize(bytes as usize, 0);
        let read = archive.source().read_exact_at(&mut buffer, first.offset);
        let mut stored = &buffer[..];
        for frame in together {
            let (bytes, behind) = stored.split_at(frame.stored_bytes as usize);
            stored = behind;
            let sound = match &read {
                Ok(()) if digest(bytes) == frame.digest => Ok(()),
                Ok(()) => Err(ReadError::damaged_frame(stream, number)),
                // Others beside one that cannot be read may be sound.
                Err(_) => archive.stored_frame(stream, number, frame).map(|_| ()),
            };
            match sound {
                Ok(()) => whole(frame.stored_bytes.into()),
                Err(error) => tell(on_damage, Some((stream, number)), error)?,
            }
            number += 1;
        }
        if checked(bytes).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Extracts everything, throws it away, and checks that it is what was archived.
///
/// # Errors
/// If something cannot be read, is damaged or is locked.
pub fn verify_content<S: Source>(
    archive: &Archive<S>,
    threads: usize,
    take: &mut dyn FnMut(&[u8]) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    archive.check_unlocked()?;
    copy_checked(archive, 0..archive.plain_bytes(), threads, take)
}

/// Decompresses all chunks, each once, and holds them against their names; gives how many there are.
/// `progress` is told how many plain bytes were checked, and says whether to go on. Whether it can be
/// done, [`Archive::can_name`] says.
///
/// # Errors
/// If something cannot be read, is damaged or locked, or a name is not that of its chunk. `None` if
/// `progress` said so.
pub fn verify_names<S: Source>(
    archive: &Archive<S>,
    threads: usize,
    progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync),
) -> Result<Option<u64>, ReadError> {
    let naming = archive.naming().ok_or(ReadError::Locked)?;
    let rows = |stream| 0..archive.root().stream(stream).chunks.rows().len();
    let tasks: Vec<_> = Stream::ALL
        .iter()
        .flat_map(|&stream| rows(stream).map(move |row| (stream, row)))
        .collect();
    let plain_bytes = AtomicU64::new(0);
    let is_done = each(&tasks, threads, &|&(stream, row)| {
        let bytes = check_names(archive, &naming, stream, row)?;
        Ok(progress(
            plain_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes,
        ))
    })?;
    Ok(is_done.then_some(archive.header().chunks))
}

/// Checks the names in a chunk part; gives the plain bytes of the chunks.
fn check_names<S: Source>(
    archive: &Archive<S>,
    naming: &Naming,
    stream: Stream,
    row: usize,
) -> Result<u64, ReadError> {
    let mut sum = 0;
    for chunk in archive.row_chunks(stream, row)? {
        let frame = archive.frame(stream, chunk.frame)?;
        let bytes = chunk.of(&frame);
        let bytes = bytes.ok_or(FormatError::Invalid(Violation::ChunkBeyondFrame))?;
        if naming.name(bytes) != chunk.name {
            let number = chunk.number;
            return Err(ReadError::Name { stream, number });
        }
        sum += u64::from(chunk.bytes);
    }
    Ok(sum)
}
