//! What applications send: repeats of what others sent, edited here and there, noise, and
//! text, so that matches within and across flows, compression and bypassing all occur.

use std::sync::LazyLock;

use fastrand::Rng;

use crate::trouble::Foresight;

/// What flows of all runs quote from: text in its first half, noise in the second.
static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut rng = Rng::with_seed(0);
    let mut library = text(&mut rng, LIBRARY_BYTES / 2);
    library.extend(noise(&mut rng, LIBRARY_BYTES / 2));
    library
});

const LIBRARY_BYTES: usize = 256 << 10;

/// Quotes begin at multiples of this, so that many of them overlap.
const QUOTE_STEP: usize = 8 << 10;

/// First bytes of a TLS connection: the engine keeps such flows out of the cache.
const TLS_BEGINNING: [u8; 6] = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];

/// `len` bytes of a kind that `rng` draws.
pub(crate) fn content(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    if rng.u8(..) < 6 {
        bytes.extend(TLS_BEGINNING);
    }
    while bytes.len() < len {
        let left = len - bytes.len();
        let piece = left.min(1 + rng.usize(..64 << 10));
        match rng.u8(..8) {
            0..4 => quote(rng, piece, &mut bytes),
            4 => bytes.extend(noise(rng, piece)),
            5 => bytes.extend(text(rng, piece.min(4 << 10))),
            6 => {
                let byte = rng.u8(..);
                bytes.extend(std::iter::repeat_n(byte, piece.min(2 << 10)));
            }
            _ => {
                let start = rng.usize(..=bytes.len());
                let end = bytes.len().min(start + piece);
                bytes.extend_from_within(start..end);
            }
        }
    }
    bytes.truncate(len);
    bytes
}

/// Texts that are kept to be repeated.
const REPERTOIRE_MAX: usize = 6;

/// New content of `len` bytes, or something that was sent before, with changes: a few bytes here
/// and there, or a piece that is gone or new.
pub(crate) fn repeated(
    rng: &mut Rng,
    foresight: &Foresight,
    repertoire: &mut Vec<Vec<u8>>,
    len: usize,
) -> Vec<u8> {
    let longest = repertoire.iter().max_by_key(|text| text.len());
    let Some(longest) = longest.filter(|_| rng.u8(..foresight.repeats_one_of) == 0) else {
        let bytes = content(rng, len);
        if bytes.len() > 2_000 {
            if repertoire.len() == REPERTOIRE_MAX {
                repertoire.remove(0);
            }
            repertoire.push(bytes.clone());
        }
        return bytes;
    };
    if rng.u8(..3) == 0 {
        // Scattered changes, as a file of counters has them.
        let mut bytes = longest.clone();
        let step = foresight.chunk_bytes() * 2;
        bytes.iter_mut().step_by(step).for_each(|byte| *byte ^= 1);
        return bytes;
    }
    let mut bytes = repertoire[rng.usize(..repertoire.len())].clone();
    for _ in 0..rng.usize(..4) {
        let at = rng.usize(..bytes.len());
        let end = bytes.len().min(at + 1 + rng.usize(..1_000));
        let piece = match rng.u8(..3) {
            0 => Vec::new(),
            1 => noise(rng, 700),
            _ => vec![rng.u8(..)],
        };
        if end - at < bytes.len() {
            bytes.splice(at..end, piece);
        }
    }
    bytes
}

/// A piece of the library, with a few bytes changed.
fn quote(rng: &mut Rng, len: usize, bytes: &mut Vec<u8>) {
    let from = bytes.len();
    let start = rng.usize(..LIBRARY_BYTES / QUOTE_STEP) * QUOTE_STEP;
    bytes.extend(LIBRARY.iter().cycle().skip(start).take(len));
    for _ in 0..rng.usize(..4) {
        let at = rng.usize(from..bytes.len());
        bytes[at] ^= 1 << rng.u8(..8);
    }
}

fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

fn text(rng: &mut Rng, len: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "the ", "refrain ", "of ", "a ", "song ", "comes ", "back ", "again", ", ", "and ",
        "again.\n", "verse ",
    ];
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(WORDS[rng.usize(..WORDS.len())].as_bytes());
    }
    bytes.truncate(len);
    bytes
}
