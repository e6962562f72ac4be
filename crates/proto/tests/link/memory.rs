//! A history in memory: what a chunk store does, as small as the tests need it. Requests enter,
//! answers leave, at once or when a test lets them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use refrain_codec::chunk::hash::ChunkDigest;
use refrain_proto::{
    Link,
    predictions::history::{
        Found, FoundChunk, HistoryPlace, HistoryRequest, RecipeNumber, Wanted, keys_of,
    },
    terms::Hint,
};

/// What one end has received.
#[derive(Default)]
pub(crate) struct Memory {
    pub chunks: HashMap<ChunkDigest, Arc<[u8]>>,
    /// The flows' chunks, in the order in which the flows began.
    pub recipes: Vec<Vec<ChunkDigest>>,
    places: HashMap<ChunkDigest, (usize, usize)>,
    openings: HashMap<u64, usize>,
    open: HashMap<RecipeNumber, (usize, Option<u64>)>,
    answers: VecDeque<(Wanted, Found)>,
    /// Takes no requests.
    pub is_stuck: bool,
    /// Keeps answers back.
    pub is_slow: bool,
    /// Returns chunks that are not those of their digests.
    pub lies: bool,
    /// Learns nothing more.
    pub is_frozen: bool,
}

impl Memory {
    /// Does what `link` asks; says whether anything was asked or answered.
    pub(crate) fn serve(&mut self, link: &mut Link) -> bool {
        let mut is_busy = false;
        while !self.is_stuck
            && let Some(request) = link.poll_history()
        {
            is_busy = true;
            self.handle(request);
        }
        while !self.is_slow
            && let Some((wanted, found)) = self.answers.pop_front()
        {
            is_busy = true;
            link.history_answered(wanted.flow, wanted.request, found);
        }
        is_busy
    }

    fn handle(&mut self, request: HistoryRequest) {
        match request {
            HistoryRequest::Begin { recipe, opening } => {
                self.recipes.push(Vec::new());
                self.open.insert(recipe, (self.recipes.len() - 1, opening));
            }
            HistoryRequest::Learn {
                recipe,
                digest,
                bytes,
                follow,
            } => {
                if let Some(wanted) = follow {
                    let place = self.places.get(&digest).copied();
                    self.answer(wanted, place);
                }
                let (index, opening) = self.open[&recipe];
                self.recipes[index].push(digest);
                if !self.is_frozen {
                    self.chunks.insert(digest, bytes);
                    let behind = self.recipes[index].len();
                    self.places.insert(digest, (index, behind));
                    let keys = opening.into_iter().flat_map(keys_of);
                    self.openings.extend(keys.map(|key| (key, index)));
                }
            }
            HistoryRequest::Open { opening, wanted } => {
                let recipe = self.openings.get(&opening).map(|&recipe| (recipe, 0));
                self.answer(wanted, recipe);
            }
            HistoryRequest::Read { from, wanted } => {
                let HistoryPlace([recipe, at, _]) = from;
                self.answer(wanted, Some((recipe as usize, at as usize)));
            }
            HistoryRequest::End { recipe } => {
                self.open.remove(&recipe).expect("a recipe ends once");
            }
            HistoryRequest::Forget { digest } => {
                self.chunks.remove(&digest);
            }
        }
    }

    fn answer(&mut self, wanted: Wanted, place: Option<(usize, usize)>) {
        let mut found = Found::default();
        if let Some((recipe, mut at)) = place {
            let mut bytes = 0;
            while let Some(digest) = self.recipes[recipe].get(at) {
                let Some(chunk) = self.read(digest) else {
                    at += 1;
                    continue;
                };
                bytes += chunk.len();
                if found.chunks.len() == wanted.chunks_max || bytes > wanted.bytes_max {
                    found.next = Some(HistoryPlace([recipe as u64, at as u64, 0]));
                    break;
                }
                found.chunks.push(FoundChunk {
                    digest: *digest,
                    bytes: chunk,
                });
                at += 1;
            }
            if at == self.recipes[recipe].len()
                && self.open.values().any(|&(open, _)| open == recipe)
            {
                // More may come.
                found.next = Some(HistoryPlace([recipe as u64, at as u64, 0]));
            }
        }
        self.answers.push_back((wanted, found));
    }

    /// A chunk, or what passes for it: other bytes with the same hint.
    fn read(&self, digest: &ChunkDigest) -> Option<Arc<[u8]>> {
        let chunk = self.chunks.get(digest)?;
        if !self.lies {
            return Some(Arc::clone(chunk));
        }
        let hint = Hint::of(chunk);
        let others = (48..chunk.len()).map(|at| {
            let mut bytes = chunk.to_vec();
            bytes[at] ^= 1;
            bytes
        });
        let mut passing = others.filter(|bytes| Hint::of(bytes) == hint);
        Some(passing.next().unwrap_or_else(|| chunk.to_vec()).into())
    }
}
