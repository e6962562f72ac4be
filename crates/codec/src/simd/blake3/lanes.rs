//! Lanes that each work on a node of their own.
//!
//! ```text
//! loop:
//!     give each idle lane the next node
//!     end, if all lanes are idle
//!     compress one block of every lane
//!     write the chaining values of the lanes whose node has ended; they are idle
//! ```

use super::DIGEST_BYTES;
use crate::simd::prefetch::prefetch;

/// Bytes that one compression takes.
pub(super) const BLOCK_BYTES: usize = 64;

/// How far ahead of what is compressed.
const PREFETCHED_BYTES: usize = 3 * BLOCK_BYTES;

/// Flags of a compression (BLAKE3's specification, table 3).
pub(super) const CHUNK_START: u8 = 1;
const CHUNK_END: u8 = 2;
pub(super) const PARENT: u8 = 4;
const ROOT: u8 = 8;

/// A leaf of a message's tree, or a parent of two: blocks to be chained.
pub(super) struct Node<'m, 'd, const BYTES: usize> {
    bytes: &'m [u8],
    /// Which leaf of its message it is.
    counter: u32,
    first_flags: u8,
    last_flags: u8,
    out: Output<'d, BYTES>,
}

/// Where a node's chaining value goes.
pub(super) enum Output<'d, const BYTES: usize> {
    /// The node is the last of its message.
    Digest(&'d mut [u8; BYTES]),
    /// A parent will take it.
    Inner(&'d mut [u8; DIGEST_BYTES]),
}

impl<'m, 'd, const BYTES: usize> Node<'m, 'd, BYTES> {
    pub(super) fn leaf(bytes: &'m [u8], counter: u32, out: Output<'d, BYTES>) -> Self {
        Self {
            bytes,
            counter,
            first_flags: CHUNK_START,
            last_flags: CHUNK_END | out.flags(),
            out,
        }
    }

    pub(super) fn parent(children: &'m [[u8; DIGEST_BYTES]; 2], out: Output<'d, BYTES>) -> Self {
        Self {
            bytes: children.as_flattened(),
            counter: 0,
            first_flags: PARENT,
            last_flags: out.flags(),
            out,
        }
    }
}

impl<const BYTES: usize> Output<'_, BYTES> {
    fn flags(&self) -> u8 {
        match self {
            Self::Digest(_) => ROOT,
            Self::Inner(_) => 0,
        }
    }

    fn write(self, value: &[u8; DIGEST_BYTES]) {
        match self {
            Self::Digest(digest) => digest.copy_from_slice(&value[..BYTES]),
            Self::Inner(inner) => *inner = *value,
        }
    }
}

/// What one compression of all lanes takes and gives, beside the blocks.
#[repr(C, align(64))]
pub(super) struct Lanes<const LANES: usize> {
    /// `chain[word][lane]`; of no meaning in a lane that starts a node.
    pub(super) chain: [[u32; LANES]; 8],
    pub(super) counter: [u32; LANES],
    pub(super) block_bytes: [u32; LANES],
    pub(super) flags: [u32; LANES],
    /// `chain` again, lane by lane.
    pub(super) values: [[u8; DIGEST_BYTES]; LANES],
}

/// Compresses `nodes`, all of them; `compress` takes one block for each lane.
#[inline]
pub(super) fn run<'m, 'd, const LANES: usize, const BYTES: usize>(
    mut nodes: impl Iterator<Item = Node<'m, 'd, BYTES>>,
    compress: impl Fn(&mut Lanes<LANES>, &[&[u8]; LANES]),
) {
    const { assert!(LANES <= u32::BITS as usize) };
    let mut lanes = Lanes {
        chain: [[0; LANES]; 8],
        counter: [0; LANES],
        block_bytes: [0; LANES],
        flags: [0; LANES],
        values: [[0; DIGEST_BYTES]; LANES],
    };
    let all = u32::MAX >> (u32::BITS as usize - LANES);
    let mut idle = all;
    let mut rest: [&[u8]; LANES] = [&[]; LANES];
    let mut blocks = rest;
    let mut first_flags = [0; LANES];
    let mut last_flags = [0; LANES];
    let mut outputs = [const { None }; LANES];
    loop {
        while idle != 0 {
            let Some(node) = nodes.next() else { break };
            let lane = take_lane(&mut idle);
            rest[lane] = node.bytes;
            lanes.counter[lane] = node.counter;
            first_flags[lane] = node.first_flags;
            last_flags[lane] = node.last_flags;
            outputs[lane] = Some(node.out);
        }
        if idle == all {
            return;
        }
        let mut ended = 0;
        for lane in 0..LANES {
            (blocks[lane], rest[lane]) = rest[lane].split_at(rest[lane].len().min(BLOCK_BYTES));
            // Lanes are more streams than the processor follows by itself.
            prefetch(rest[lane], PREFETCHED_BYTES);
            lanes.block_bytes[lane] = blocks[lane].len() as u32;
            let mut flags = core::mem::take(&mut first_flags[lane]);
            if rest[lane].is_empty() {
                flags |= last_flags[lane];
                ended |= 1 << lane;
            }
            lanes.flags[lane] = u32::from(flags);
        }
        compress(&mut lanes, &blocks);
        idle |= ended;
        while ended != 0 {
            let lane = take_lane(&mut ended);
            if let Some(output) = outputs[lane].take() {
                output.write(&lanes.values[lane]);
            }
        }
    }
}

/// Takes the lowest out of a set of lanes.
#[inline]
fn take_lane(lanes: &mut u32) -> usize {
    let lane = lanes.trailing_zeros() as usize;
    *lanes &= *lanes - 1;
    lane
}
