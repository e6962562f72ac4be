//! How contestants get their bytes: all of them the same ones, in the same order.
//!
//! A *pass* is what the clock sees at once. Before one that is to be hot its bytes are read,
//! so that they lie in the second-level cache; before one that is to come from memory the
//! caches are filled with other bytes.

use std::{
    hint::black_box,
    rc::Rc,
    time::{Duration, Instant},
};

use super::BLOCK_BYTES;

/// A hot pass of what reads a block and no more: with the markers that it writes, about as much
/// as a second-level cache of 1 or 2 MiB holds.
pub(super) const SCANNED_BYTES: usize = 1 << 20;

/// A hot pass of what has a log and tables as well.
pub(super) const CODED_BYTES: usize = 512 << 10;

const FILE_PASS_BYTES: usize = 8 << 20;

/// Hot passes in a turn that count. One goes before them, so that it hardly matters to a
/// contestant after whom its turn comes.
const PASSES_A_TURN: usize = 8;

/// Bytes that are read round and round.
pub(super) struct Circle<'a> {
    bytes: &'a [u8],
    pass_bytes: usize,
    /// What fills the caches before each pass; nothing, if it is to be hot.
    evicting: &'a [u8],
}

/// The bytes of one pass.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a> {
    pub bytes: &'a [u8],
    /// Where they begin in the circle.
    pub at: usize,
}

/// What is done to the bytes of each pass.
pub(super) trait Work<'a> {
    /// Before each pass.
    fn prepare(&mut self) {}
    /// Reads what a hot pass is to find in the cache.
    fn fetch(&mut self, pass: Pass<'a>) {
        read(pass.bytes);
    }
    /// What the clock sees.
    fn run(&mut self, pass: Pass<'a>);
}

impl<'a, F: FnMut(Pass<'a>)> Work<'a> for F {
    fn run(&mut self, pass: Pass<'a>) {
        self(pass);
    }
}

impl<'a> Circle<'a> {
    /// The first MiB of `bytes`, again and again.
    pub(super) fn again(bytes: &'a [u8]) -> Rc<Self> {
        Self::of(&bytes[..SCANNED_BYTES], SCANNED_BYTES, &[])
    }

    /// All of `bytes`, each pass of them fetched into the cache just before.
    pub(super) fn fetched(bytes: &'a [u8]) -> Rc<Self> {
        Self::of(bytes, CODED_BYTES, &[])
    }

    /// All of `bytes`, from memory: the caches are filled with `evicting` before each pass.
    pub(super) fn streamed(bytes: &'a [u8], evicting: &'a [u8]) -> Rc<Self> {
        Self::of(bytes, FILE_PASS_BYTES, evicting)
    }

    fn of(bytes: &'a [u8], pass_bytes: usize, evicting: &'a [u8]) -> Rc<Self> {
        Rc::new(Self {
            // Whole passes alone.
            bytes: &bytes[..bytes.len() / pass_bytes * pass_bytes],
            pass_bytes,
            evicting,
        })
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn pass_bytes(&self) -> usize {
        self.pass_bytes
    }

    pub(super) fn turn_bytes(&self) -> usize {
        self.passes_a_turn() * self.pass_bytes
    }

    fn passes_a_turn(&self) -> usize {
        if self.is_hot() { PASSES_A_TURN } else { 1 }
    }

    fn is_hot(&self) -> bool {
        self.evicting.is_empty()
    }

    fn pass(&self, at: usize) -> Pass<'a> {
        Pass {
            bytes: &self.bytes[at..][..self.pass_bytes],
            at,
        }
    }
}

impl<'a> Pass<'a> {
    /// The blocks, each with its number in the circle.
    pub(super) fn blocks(self) -> impl Iterator<Item = (usize, &'a [u8])> {
        (self.at / BLOCK_BYTES..).zip(self.bytes.chunks(BLOCK_BYTES))
    }
}

/// One contestant's way round a circle.
pub(super) struct Walk<'a> {
    circle: Rc<Circle<'a>>,
    at: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(circle: Rc<Circle<'a>>) -> Self {
        Self { circle, at: 0 }
    }

    /// Works on the passes of a turn; says how long that took.
    pub(super) fn turn(&mut self, work: &mut impl Work<'a>) -> Duration {
        if self.circle.is_hot() {
            let pass = self.step();
            self.clocked(pass, work);
        }
        (0..self.circle.passes_a_turn())
            .map(|_| {
                let pass = self.step();
                self.clocked(pass, work)
            })
            .sum()
    }

    /// Works on the first pass of a turn that counts, and leaves the others out.
    pub(super) fn first_of_turn(&mut self, work: &mut impl Work<'a>) -> Duration {
        if self.circle.is_hot() {
            self.step();
        }
        let pass = self.step();
        for _ in 1..self.circle.passes_a_turn() {
            self.step();
        }
        self.clocked(pass, work)
    }

    fn step(&mut self) -> Pass<'a> {
        let pass = self.circle.pass(self.at);
        self.at = (self.at + pass.bytes.len()) % self.circle.bytes.len();
        pass
    }

    fn clocked(&self, pass: Pass<'a>, work: &mut impl Work<'a>) -> Duration {
        work.prepare();
        if self.circle.is_hot() {
            work.fetch(pass);
        } else {
            read(self.circle.evicting);
        }
        let start = Instant::now();
        work.run(pass);
        start.elapsed()
    }
}

/// Reads all of `bytes`, whole words of them, and nothing else.
pub(super) fn read(bytes: &[u8]) {
    let (words, _) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum: u64, &word| {
        sum.wrapping_add(u64::from_ne_bytes(word))
    });
    black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_contestants_go_the_same_way() {
        let bytes = vec![0; 10 * CODED_BYTES + 1];
        let circle = Circle::fetched(&bytes);
        let mut whole = Vec::new();
        let mut first = Vec::new();
        let mut walk = Walk::new(Rc::clone(&circle));
        for _ in 0..2 {
            walk.turn(&mut |pass: Pass<'_>| whole.push(pass.at));
        }
        let mut walk = Walk::new(circle);
        for _ in 0..2 {
            walk.first_of_turn(&mut |pass: Pass<'_>| first.push(pass.at));
        }
        let places = (0..2 * (1 + PASSES_A_TURN)).map(|pass| pass % 10 * CODED_BYTES);
        assert!(places.eq(whole.iter().copied()));
        assert_eq!(first, [whole[1], whole[1 + PASSES_A_TURN + 1]]);
    }

    #[test]
    fn a_pass_numbers_its_blocks_in_the_circle() {
        let bytes = vec![0; 2 * CODED_BYTES];
        let pass = Circle::fetched(&bytes).pass(CODED_BYTES);
        let numbers = pass.blocks().map(|(number, _)| number);
        assert!(numbers.eq(CODED_BYTES / BLOCK_BYTES..2 * CODED_BYTES / BLOCK_BYTES));
    }
}
