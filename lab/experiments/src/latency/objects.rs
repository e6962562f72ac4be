//! Objects of real content of which a part was sent before.

use std::{ops::Range, path::Path, sync::Arc};

use fastrand::Rng;

use crate::corpus::unpacked;

/// Files of Silesia in which matching alone finds little: text, a program, a table, two images.
const FILES: [&str; 5] = ["dickens", "ooffice", "osdb", "mr", "x-ray"];

/// The share of bytes that are copied from what was sent before. The content has some repeats of its own.
const REPEATED: f64 = 0.28;

/// How long a copied or a new piece is.
const PIECE_BYTES: Range<usize> = 512..8192;

/// How far back copies come from: this is less than caches hold.
const REACH_BYTES: usize = 6 << 20;

/// A series of objects, to be fetched in their order. Each is a list of pieces of the content.
#[derive(Clone)]
pub(super) struct Objects {
    content: Arc<Vec<u8>>,
    objects: Arc<Vec<Vec<Range<usize>>>>,
}

impl Objects {
    /// Objects of these sizes.
    pub(super) fn new(data: &Path, sizes: impl IntoIterator<Item = usize>) -> anyhow::Result<Self> {
        let mut content = Vec::new();
        for name in FILES {
            content.extend(unpacked(&data.join("silesia").join(format!("{name}.zst")))?);
        }
        let mut pieces = Pieces {
            rng: Rng::with_seed(25),
            end: content.len(),
            next: 0,
            sent: Vec::new(),
            sent_bytes: 0,
        };
        let objects = sizes.into_iter().map(|size| pieces.of_object(size));
        Ok(Self {
            objects: Arc::new(objects.collect()),
            content: Arc::new(content),
        })
    }

    pub(super) fn bytes(&self, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in self.objects.get(number as usize).into_iter().flatten() {
            bytes.extend_from_slice(&self.content[piece.clone()]);
        }
        bytes
    }
}

struct Pieces {
    rng: Rng,
    /// Of the content, at which it begins again: caches have forgotten its beginning by then.
    end: usize,
    next: usize,
    /// New pieces so far.
    sent: Vec<Range<usize>>,
    sent_bytes: usize,
}

impl Pieces {
    fn of_object(&mut self, size: usize) -> Vec<Range<usize>> {
        let mut pieces = Vec::new();
        let mut left = size;
        while left > 0 {
            let piece = self.next(left);
            left -= piece.len();
            pieces.push(piece);
        }
        pieces
    }

    fn next(&mut self, bytes_max: usize) -> Range<usize> {
        let bytes = self.rng.usize(PIECE_BYTES).min(bytes_max);
        if !self.sent.is_empty() && self.rng.f64() < REPEATED {
            return self.copy(bytes);
        }
        if self.next + bytes > self.end {
            self.next = 0;
        }
        let piece = self.next..self.next + bytes;
        self.next = piece.end;
        self.sent.push(piece.clone());
        self.sent_bytes += bytes;
        piece
    }

    /// A piece that begins somewhere in a recent one, and perhaps ends with it.
    fn copy(&mut self, bytes: usize) -> Range<usize> {
        let mean = self.sent_bytes / self.sent.len();
        let recent = REACH_BYTES / mean.max(1);
        let from = self.sent.len().saturating_sub(recent);
        let source = &self.sent[self.rng.usize(from..self.sent.len())];
        let start = source.start + self.rng.usize(0..source.len());
        // New pieces are one after the other in the content.
        let end = (start + bytes).min(self.next.max(source.end));
        start..end.max(start + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_each_object_was_sent_before() {
        let mut pieces = Pieces {
            rng: Rng::with_seed(1),
            end: 40 << 20,
            next: 0,
            sent: Vec::new(),
            sent_bytes: 0,
        };
        pieces.of_object(4 << 20);
        let before = pieces.next;
        let object = pieces.of_object(10 << 20);
        let bytes: usize = object.iter().map(Range::len).sum();
        assert_eq!(bytes, 10 << 20);
        let repeated = 1.0 - (pieces.next - before) as f64 / bytes as f64;
        assert!((0.22..0.34).contains(&repeated), "{repeated}");
    }
}
