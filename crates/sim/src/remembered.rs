//! A history in memory, without bounds: what a chunk store does, for the simulator.

use std::{collections::HashMap, sync::Arc};

use refrain_codec::chunk::hash::ChunkDigest;
use refrain_proto::by_receiver::history::{
    Found, FoundChunk, HistoryPlace, HistoryRequest, RecipeNumber, Wanted,
};

use crate::paced::History;

/// See the module.
#[derive(Debug, Default)]
pub struct Remembered {
    chunks: HashMap<ChunkDigest, Arc<[u8]>>,
    recipes: Vec<Vec<ChunkDigest>>,
    places: HashMap<ChunkDigest, (usize, usize)>,
    openings: HashMap<u64, usize>,
    open: HashMap<RecipeNumber, (usize, u64)>,
    /// Bytes that were learnt, and of these, bytes of chunks that were known.
    pub learnt_bytes: u64,
    /// See there.
    pub known_bytes: u64,
}

impl Remembered {
    fn read(&self, recipe: usize, index: usize, wanted: Wanted) -> Found {
        let recipe_chunks = self.recipes.get(recipe).map_or(&[][..], Vec::as_slice);
        let mut found = Found::default();
        let (mut at, mut bytes) = (index, 0);
        while let Some(digest) = recipe_chunks.get(at) {
            let chunk = &self.chunks[digest];
            if found.chunks.len() == wanted.chunks_max || bytes + chunk.len() > wanted.bytes_max {
                found.next = Some(HistoryPlace([recipe as u64, at as u64, 0]));
                break;
            }
            bytes += chunk.len();
            at += 1;
            found.chunks.push(FoundChunk {
                digest: *digest,
                bytes: Arc::clone(chunk),
            });
        }
        found
    }
}

impl History for Remembered {
    fn handle(&mut self, request: HistoryRequest) -> Option<(Wanted, Found)> {
        match request {
            HistoryRequest::Begin { recipe, opening } => {
                self.recipes.push(Vec::new());
                self.open.insert(recipe, (self.recipes.len() - 1, opening));
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
                let (index, opening) = self.open[&recipe];
                let known = self.chunks.insert(digest, bytes);
                self.known_bytes += known.map_or(0, |bytes| bytes.len() as u64);
                self.recipes[index].push(digest);
                self.places
                    .insert(digest, (index, self.recipes[index].len()));
                self.openings.insert(opening, index);
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
                self.open.remove(&recipe);
                None
            }
        }
    }
}
