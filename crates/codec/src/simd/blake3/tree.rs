//! From messages to nodes: all leaves of a batch of messages, then its parents level by level.
//!
//! A batch ends where the chaining values of its leaves would not fit on the stack any more;
//! messages of one leaf need none. A message that has a leaf for every lane is left to the
//! `blake3` crate, which works on the leaves of one message at once.

use core::{mem, slice};

use super::{
    DIGEST_BYTES,
    lanes::{Lanes, Node, Output, run},
    portable,
};

const LEAF_BYTES: usize = 1024;

/// How many chaining values a batch holds.
const BATCH_VALUES: usize = 512;

/// So many messages of several leaves have as many chaining values.
const BATCH_TREES: usize = BATCH_VALUES / 2;

type ChainingValue = [u8; DIGEST_BYTES];

/// Hashes `messages` with `compress`.
#[inline]
pub(super) fn hash_many<'m, 'd, const LANES: usize, const BYTES: usize>(
    messages: impl IntoIterator<Item = (&'m [u8], &'d mut [u8; BYTES])>,
    compress: impl Fn(&mut Lanes<LANES>, &[&[u8]; LANES]),
) {
    const { assert!(LANES <= BATCH_VALUES) };
    let mut messages = messages.into_iter().fuse();
    let mut next = messages.next();
    let mut values = [[0; DIGEST_BYTES]; BATCH_VALUES];
    let mut parent_values = [[0; DIGEST_BYTES]; BATCH_VALUES];
    while next.is_some() {
        let mut trees = [const { Tree::DONE }; BATCH_TREES];
        let leaves = Leaves::<_, LANES, _> {
            messages: &mut messages,
            next: &mut next,
            trees: trees.iter_mut(),
            values: &mut values,
            message: &[],
            message_values: [].iter_mut(),
            counter: 0,
        };
        run(leaves, &compress);
        let (mut children, mut parents) = (&mut values[..], &mut parent_values[..]);
        while trees.iter().any(|tree| tree.nodes > 1) {
            run(next_level(&mut trees, children, parents), &compress);
            mem::swap(&mut children, &mut parents);
        }
    }
}

/// A message of several leaves.
struct Tree<'d, const BYTES: usize> {
    /// How many nodes its level has; 1: its digest is written.
    nodes: usize,
    digest: Option<&'d mut [u8; BYTES]>,
}

impl<const BYTES: usize> Tree<'_, BYTES> {
    const DONE: Self = Self {
        nodes: 0,
        digest: None,
    };
}

/// A batch's leaves; registers the messages that have several.
struct Leaves<'b, 'm, 'd, I, const LANES: usize, const BYTES: usize> {
    messages: &'b mut I,
    /// The message that comes next, in this batch or as the first of another.
    next: &'b mut Option<(&'m [u8], &'d mut [u8; BYTES])>,
    /// Places for further trees, and for their leaves' chaining values.
    trees: slice::IterMut<'b, Tree<'d, BYTES>>,
    values: &'b mut [ChainingValue],
    /// What is left of the last tree's message; as many places as it has leaves.
    message: &'m [u8],
    message_values: slice::IterMut<'b, ChainingValue>,
    /// How many leaves of it were taken.
    counter: u32,
}

impl<'b, 'm, 'd, I, const LANES: usize, const BYTES: usize> Iterator
    for Leaves<'b, 'm, 'd, I, LANES, BYTES>
where
    'd: 'b,
    I: Iterator<Item = (&'m [u8], &'d mut [u8; BYTES])>,
{
    type Item = Node<'m, 'b, BYTES>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(value) = self.message_values.next() {
                let leaf_bytes = self.message.len().min(LEAF_BYTES);
                let leaf = self.message.split_off(..leaf_bytes)?;
                let counter = self.counter;
                self.counter += 1;
                return Some(Node::leaf(leaf, counter, Output::Inner(value)));
            }
            let (message, digest) = self.next.take()?;
            let leaves = message.len().div_ceil(LEAF_BYTES);
            if leaves <= 1 {
                *self.next = self.messages.next();
                return Some(Node::leaf(message, 0, Output::Digest(digest)));
            }
            if leaves >= LANES {
                *self.next = self.messages.next();
                portable::hash(message, digest);
                continue;
            }
            let Some(values) = self.values.split_off_mut(..leaves) else {
                *self.next = Some((message, digest));
                return None;
            };
            *self.next = self.messages.next();
            let tree = self.trees.next().expect("a place for each two values");
            *tree = Tree {
                nodes: leaves,
                digest: Some(digest),
            };
            self.message = message;
            self.message_values = values.iter_mut();
            self.counter = 0;
        }
    }
}

/// The parents of the nodes whose chaining values are in `children`, tree after tree; theirs
/// will be in `parents`.
fn next_level<'c, 'd: 'c, const BYTES: usize>(
    trees: &'c mut [Tree<'d, BYTES>],
    mut children: &'c [ChainingValue],
    mut parents: &'c mut [ChainingValue],
) -> impl Iterator<Item = Node<'c, 'c, BYTES>> {
    trees.iter_mut().flat_map(move |tree| {
        let children = children.split_off(..tree.nodes).expect("a level's values");
        let (pairs, odd) = children.as_chunks::<2>();
        tree.nodes = pairs.len() + odd.len();
        let places = parents
            .split_off_mut(..tree.nodes)
            .expect("no more than children");
        if let ([odd], Some(place)) = (odd, places.last_mut()) {
            *place = *odd;
        }
        let mut digest = match tree.nodes {
            1 => tree.digest.take(),
            _ => None,
        };
        pairs.iter().zip(places).map(move |(pair, place)| {
            let out = match digest.take() {
                Some(digest) => Output::Digest(digest),
                None => Output::Inner(place),
            };
            Node::parent(pair, out)
        })
    })
}
