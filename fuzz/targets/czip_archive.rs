//! An archive that somebody made to do harm. The first byte says how the rest becomes one:
//!
//! - 0: it is the archive, but for the digests of its header and root, which are made right;
//! - else it is lies for a small archive's table, whose digests are all right: one of 0 for plain, 1
//!   for shared, 2 for woven, with 64 more for encrypted, and then, four at a time, what to change, where, and to what, of which
//!   the last byte is shifted left by the one before.
//!
//! Then everything is asked of it. A panic, an overflow or a long search is a bug.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/czip/tests/hostile/draft.rs"]
mod draft;
#[allow(dead_code)]
#[path = "../../crates/czip/tests/hostile/reading.rs"]
mod reading;

use draft::{Draft, SHARED, StreamDraft};

const HEADER_BYTES: usize = 256;

fuzz_target!(|data: &[u8]| {
    let archive = match data {
        [0, archive @ ..] => mended(archive.to_vec()),
        [kind, lies @ ..] => lying(*kind, lies),
        [] => return,
    };
    let _ = reading::everything(&archive);
});

/// With the digests of root and header that its bytes have.
fn mended(mut archive: Vec<u8>) -> Vec<u8> {
    let length = archive.len();
    let headers = [0, length.saturating_sub(HEADER_BYTES)];
    for header in headers.into_iter().filter(|at| at + HEADER_BYTES <= length) {
        let number = |at: usize, bytes: usize| {
            let mut number = [0; 8];
            number[..bytes].copy_from_slice(&archive[header + at..][..bytes]);
            u64::from_le_bytes(number)
        };
        if header > 0 && number(0, 8) != u64::from_le_bytes(*b"\x89CZIP\r\n\x1a") {
            continue;
        }
        let (begin, bytes) = (number(128, 8), number(136, 4) + number(144, 4));
        let end = begin.saturating_add(bytes).min(length as u64) as usize;
        let root = archive.get(begin as usize..end).unwrap_or_default();
        let digest = *blake3::hash(root).as_bytes();
        let (begin, bytes) = (number(184, 8), number(192, 4));
        let end = begin.saturating_add(bytes).min(length as u64) as usize;
        let keys = archive.get(begin as usize..end).unwrap_or_default();
        let keys_digest = *blake3::hash(keys).as_bytes();
        let header = &mut archive[header..][..HEADER_BYTES];
        header[40..48].copy_from_slice(&(length as u64).to_le_bytes());
        header[152..184].copy_from_slice(&digest);
        if bytes > 0 {
            header[196..228].copy_from_slice(&keys_digest);
        }
        let check = blake3::hash(&header[..240]);
        header[240..].copy_from_slice(&check.as_bytes()[..16]);
    }
    archive
}

/// A small archive whose table says what `lies` says.
fn lying(kind: u8, lies: &[u8]) -> Vec<u8> {
    let chunks: [&[u8]; 3] = [b"one chunk", b"another", b"and a third"];
    let mut draft = match kind % 4 {
        2 => Draft::woven(&chunks.concat()),
        _ => Draft::honest(&chunks),
    };
    if kind % 4 == 1 || kind & 0x80 != 0 {
        draft.flags |= SHARED;
    }
    if kind & 0x40 != 0 {
        draft = draft.encrypted();
    }
    let (lies, _) = lies.as_chunks::<4>();
    for &[what, at, shift, value] in lies {
        let value = u64::from(value).rotate_left(shift.into());
        let stream = usize::from(at) % 5;
        lie(&mut draft, stream, usize::from(at) / 5, what, value);
    }
    draft.build()
}

fn lie(draft: &mut Draft, stream: usize, at: usize, what: u8, value: u64) {
    let lied: &mut StreamDraft = &mut draft.streams[stream];
    let set = |numbers: &mut [u64]| {
        let count = numbers.len().max(1);
        if let Some(number) = numbers.get_mut(at % count) {
            *number = value;
        }
    };
    let count = lied.frames.len().max(1);
    match what % 20 {
        0 => set(&mut lied.lengths),
        1 => lied
            .places
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|place| place[0] = value),
        2 => lied
            .places
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|place| place[1] = value),
        3 => lied
            .places
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|place| place[2] = value),
        4 => lied
            .runs
            .push((value, (value & 3 != 0).then_some(at as u64))),
        5 => lied.runs.truncate(at),
        6 => lied.lengths_sum = Some(value),
        7 => lied.frames_at = Some(value),
        8 => {
            let mut sums = lied.runs_sums.unwrap_or([1, value, 1]);
            set(&mut sums);
            lied.runs_sums = Some(sums);
        }
        9 => lied.push(&value.to_le_bytes()[..1 + at % 8]),
        10 => {
            if let Some(frame) = lied.frames.get_mut(at % count) {
                frame.back = value;
            }
        }
        11 => {
            if let Some(frame) = lied.frames.get_mut(at % count) {
                frame.gap = value;
            }
        }
        12 => {
            if let Some(frame) = lied.frames.get_mut(at % count) {
                frame.stored_bytes = Some(value);
            }
        }
        // Content of what is stored: a stream of a byte more, which weave and catalog are made of.
        13 => {
            if let (Some(frame), Some(length)) = (lied.frames.last_mut(), lied.lengths.last_mut()) {
                frame.stored.push(value as u8);
                *length = length.saturating_add(1);
            }
        }
        14 => {
            if let Some(frame) = lied.frames.get_mut(at % count) {
                let stored = frame.stored.len().max(1);
                if let Some(byte) = frame.stored.get_mut(value as usize % stored) {
                    *byte = (value >> 8) as u8 ^ value as u8;
                }
            }
        }
        15 => draft.plain_bytes = value,
        16 => draft.points.push([value, at as u64, value, at as u64, 0]),
        17 => draft.points.iter_mut().for_each(|point| set(point)),
        18 => *lied = StreamDraft::default(),
        _ => draft.chunk_bytes_max = value as u32,
    }
}
