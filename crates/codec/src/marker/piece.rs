//! A piece of a stream, and the bytes that came just before it: windows begin in the one and end in
//! the other.

use super::pack::WINDOW_BYTES;

/// Bytes of a window but for its last.
const BEFORE: usize = WINDOW_BYTES - 1;

/// The end of a stream so far, for the windows that begin in it.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    bytes: [u8; BEFORE],
    /// How many of them there are, at the end.
    len: usize,
}

impl Tail {
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; BEFORE],
        len: 0,
    };

    /// `piece` came.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        let piece = piece.last_chunk::<BEFORE>().map_or(piece, |last| last);
        self.bytes.copy_within(piece.len().., 0);
        self.bytes[BEFORE - piece.len()..].copy_from_slice(piece);
        self.len = BEFORE.min(self.len + piece.len());
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[BEFORE - self.len..]
    }

    /// The next piece of the stream, which begins at `start`, with this before it.
    pub(crate) fn and<'a>(&'a self, start: u64, bytes: &'a [u8]) -> Piece<'a> {
        Piece {
            start,
            before: self,
            bytes,
        }
    }
}

/// The next piece of a stream, and what was before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// Offset in the stream.
    pub(crate) start: u64,
    before: &'a Tail,
    pub(crate) bytes: &'a [u8],
}

impl Piece<'_> {
    /// The bytes around the start of the piece. All their windows begin before it.
    pub(crate) fn crossing(&self) -> Crossing {
        let (before, ahead) = (self.before.bytes(), self.bytes.len().min(BEFORE));
        let mut bytes = [0; 2 * BEFORE];
        bytes[..before.len()].copy_from_slice(before);
        bytes[before.len()..][..ahead].copy_from_slice(&self.bytes[..ahead]);
        Crossing {
            start: self.start - before.len() as u64,
            bytes,
            len: before.len() + ahead,
        }
    }
}

/// The end of what was before a piece, and its first bytes.
pub(crate) struct Crossing {
    /// Offset in the stream.
    pub(crate) start: u64,
    bytes: [u8; 2 * BEFORE],
    len: usize,
}

impl Crossing {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The window at `position` of a stream in which `bytes` lie at `start`.
pub(crate) fn window(bytes: &[u8], start: u64, position: u64) -> &[u8; WINDOW_BYTES] {
    let window = bytes[(position - start) as usize..].first_chunk();
    window.expect("whoever looks at a window has all of it")
}
