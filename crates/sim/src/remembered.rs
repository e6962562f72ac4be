//! A history in memory, without bounds: what a chunk store does, for the simulator. It can be
//! made to forget, and to lie.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use refrain_codec::chunk::hash::ChunkDigest;
use refrain_proto::{
    predictions::history::{
        Found, FoundChunk, HistoryPlace, HistoryRequest, RecipeNumber, Wanted, keys_of,
    },
    terms::{Hint, PREFIX_BYTES},
};

use crate::paced::History;

/// See the module.
#[derive(Debug, Default)]
pub struct Remembered {
    chunks: HashMap<ChunkDigest, Arc<[u8]>>,
    /// Chunks in the order in which they were learnt; one that was forgotten and came again stands
    /// here again.
    learnt: VecDeque<ChunkDigest>,
    recipes: Vec<Vec<ChunkDigest>>,
    places: HashMap<ChunkDigest, (usize, usize)>,
    openings: HashMap<u64, usize>,
    /// By the link that they are of.
    open: HashMap<(u64, RecipeNumber), (usize, Option<u64>)>,
    /// Returns chunks with a bit that is not theirs, where their hint stays the same.
    pub lies: bool,
    /// Bytes that were learnt, and of these, bytes of chunks that were known.
    pub learnt_bytes: u64,
    /// See there.
    pub known_bytes: u64,
}

impl Remembered {
    /// Forgets the `count` chunks that were learnt first; the places where they were stay.
    pub fn evict(&mut self, count: usize) {
        let count = count.min(self.learnt.len());
        for digest in self.learnt.drain(..count) {
            self.chunks.remove(&digest);
        }
    }

    /// A process dies: its recipes end where they are.
    pub fn restarted(&mut self) {
        self.open.clear();
    }

    fn chunk(&self, digest: &ChunkDigest) -> Option<Arc<[u8]>> {
        let chunk = self.chunks.get(digest)?;
        match self.lies {
            true => Some(falsified(chunk)),
            false => Some(Arc::clone(chunk)),
        }
    }

    fn read(&self, recipe: usize, index: usize, wanted: Wanted) -> Found {
        let recipe_chunks = self.recipes.get(recipe).map_or(&[][..], Vec::as_slice);
        let mut found = Found::default();
        let (mut at, mut bytes) = (index, 0);
        while let Some(digest) = recipe_chunks.get(at) {
            let Some(chunk) = self.chunk(digest) else {
                // What follows it is a chain of its own.
                break;
            };
            if found.chunks.len() == wanted.chunks_max || bytes + chunk.len() > wanted.bytes_max {
                found.next = Some(HistoryPlace([recipe as u64, at as u64, 0]));
                break;
            }
            bytes += chunk.len();
            at += 1;
            found.chunks.push(FoundChunk {
                digest: *digest,
                bytes: chunk,
            });
        }
        if at == recipe_chunks.len() && self.open.values().any(|&(open, _)| open == recipe) {
            // More may come.
            found.next = Some(HistoryPlace([recipe as u64, at as u64, 0]));
        }
        found
    }
}

impl Remembered {
    /// Does what `link` asks; gives the answer to what wants one.
    pub fn handle_of(&mut self, link: u64, request: HistoryRequest) -> Option<(Wanted, Found)> {
        match request {
            HistoryRequest::Begin { recipe, opening } => {
                self.recipes.push(Vec::new());
                self.open
                    .insert((link, recipe), (self.recipes.len() - 1, opening));
                None
            }
            HistoryRequest::Learn {
                recipe,
                digest,
                bytes,
                follow,
            } => {
                let answer = follow.map(|wanted| {
                    let place = self.places.get(&digest);
                    let found = place.map(|&(recipe, at)| self.read(recipe, at, wanted));
                    (wanted, found.unwrap_or_default())
                });
                self.learnt_bytes += bytes.len() as u64;
                let (index, opening) = self.open[&(link, recipe)];
                let known = self.chunks.insert(digest, bytes);
                match known {
                    Some(bytes) => self.known_bytes += bytes.len() as u64,
                    None => self.learnt.push_back(digest),
                }
                self.recipes[index].push(digest);
                self.places
                    .insert(digest, (index, self.recipes[index].len()));
                let keys = opening.into_iter().flat_map(keys_of);
                self.openings.extend(keys.map(|key| (key, index)));
                answer
            }
            HistoryRequest::Open { opening, wanted } => {
                let found = self.openings.get(&opening);
                let found = found.map(|&recipe| self.read(recipe, 0, wanted));
                Some((wanted, found.unwrap_or_default()))
            }
            HistoryRequest::Read { from, wanted } => {
                let HistoryPlace([recipe, at, _]) = from;
                Some((wanted, self.read(recipe as usize, at as usize, wanted)))
            }
            HistoryRequest::End { recipe } => {
                self.open.remove(&(link, recipe));
                None
            }
            HistoryRequest::Forget { digest } => {
                if self.chunks.remove(&digest).is_some() {
                    self.learnt.retain(|learnt| *learnt != digest);
                }
                None
            }
        }
    }
}

impl History for Remembered {
    fn handle(&mut self, request: HistoryRequest) -> Option<(Wanted, Found)> {
        self.handle_of(0, request)
    }
}

/// Other bytes than `chunk` with the same hint, if a change of one bit makes some.
fn falsified(chunk: &[u8]) -> Arc<[u8]> {
    let hint = Hint::of(chunk);
    let mut bytes = chunk.to_vec();
    for at in PREFIX_BYTES..chunk.len() {
        bytes[at] ^= 1;
        if Hint::of(&bytes) == hint {
            break;
        }
        bytes[at] ^= 1;
    }
    bytes.into()
}
