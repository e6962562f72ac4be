//! A chunk store in memory, the obvious one: for tests, for the simulator, and for comparing the
//! one on disk with.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use refrain_codec::chunk::hash::ChunkDigest;

use crate::{
    Appended, Chain, ChunkSource, ChunkStore, OpeningKey, Place, Places, Realm, RecipeId,
    StoreError, StoreStat, StoredChunk, layout::CHUNK_BYTES_MAX,
};

/// A chunk store in memory, which forgets the oldest chunks beyond its bound.
#[derive(Debug)]
pub struct MemoryStore {
    bytes_max: usize,
    bytes: usize,
    chunks: HashMap<(Realm, ChunkDigest), Chunk>,
    /// In the order in which they were stored.
    oldest: VecDeque<(Realm, ChunkDigest)>,
    recipes: BTreeMap<u64, Recipe>,
    entries: usize,
    openings: HashMap<(Realm, OpeningKey), Places>,
    next_recipe: u64,
    stat: StoreStat,
}

#[derive(Debug)]
struct Chunk {
    bytes: Arc<[u8]>,
    places: Places,
}

#[derive(Debug)]
struct Recipe {
    realm: Realm,
    opening: Option<OpeningKey>,
    digests: Vec<ChunkDigest>,
    is_ended: bool,
}

impl MemoryStore {
    /// An empty store for so many bytes of chunks.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            chunks: HashMap::new(),
            oldest: VecDeque::new(),
            recipes: BTreeMap::new(),
            entries: 0,
            openings: HashMap::new(),
            next_recipe: 0,
            stat: StoreStat::default(),
        }
    }

    /// Evicts chunks beyond the bound, the oldest first, and then recipes, of which as many
    /// entries are kept as chunks of 512 bytes would fit.
    fn evict(&mut self) {
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.oldest.pop_front()
        {
            if let Some(chunk) = self.chunks.remove(&oldest) {
                self.bytes -= chunk.bytes.len();
                self.stat.evicted_chunks += 1;
            }
        }
        while self.entries > self.bytes_max / 512 && self.recipes.len() > 1 {
            let (number, recipe) = self.recipes.pop_first().expect("more than one");
            self.entries -= recipe.digests.len();
            if !recipe.is_ended {
                // Who still writes it goes on with an empty one.
                let rest = Recipe {
                    digests: Vec::new(),
                    ..recipe
                };
                self.recipes.insert(number, rest);
                break;
            }
            if let Some(key) = recipe.opening
                && let Some(places) = self.openings.get_mut(&(recipe.realm, key))
            {
                let mut left = Places::default();
                for &place in places.iter().filter(|place| place.high != number) {
                    left.push(place);
                }
                *places = left;
                if places.is_empty() {
                    self.openings.remove(&(recipe.realm, key));
                }
            }
        }
    }
}

fn with_latest(place: Place, places: &Places) -> Places {
    let mut all = Places::default();
    all.push(place);
    for &place in places.iter() {
        all.push(place);
    }
    all
}

impl ChunkStore for MemoryStore {
    fn begin(&mut self, realm: Realm, opening: Option<OpeningKey>) -> RecipeId {
        let number = self.next_recipe;
        self.next_recipe += 1;
        let recipe = Recipe {
            realm,
            opening,
            digests: Vec::new(),
            is_ended: false,
        };
        self.recipes.insert(number, recipe);
        RecipeId(number)
    }

    fn append(
        &mut self,
        recipe: RecipeId,
        digest: &ChunkDigest,
        bytes: &[u8],
    ) -> Result<Appended, StoreError> {
        let number = recipe.0;
        let recipe = self.recipes.get_mut(&number);
        let recipe = recipe
            .filter(|recipe| !recipe.is_ended)
            .ok_or(StoreError::UnknownRecipe)?;
        if !(1..=CHUNK_BYTES_MAX).contains(&bytes.len()) {
            return Err(StoreError::ChunkLength {
                bytes: bytes.len(),
                bytes_max: CHUNK_BYTES_MAX,
            });
        }
        if recipe.digests.is_empty()
            && let Some(key) = recipe.opening
        {
            let start = Place {
                high: number,
                low: 0,
            };
            let places = self.openings.entry((recipe.realm, key)).or_default();
            *places = with_latest(start, places);
        }
        recipe.digests.push(*digest);
        let behind = Place {
            high: number,
            low: recipe.digests.len() as u64,
        };
        let name = (recipe.realm, *digest);
        self.entries += 1;
        self.stat.received_chunks += 1;
        self.stat.received_bytes += bytes.len() as u64;
        let appended = match self.chunks.get_mut(&name) {
            Some(chunk) => {
                chunk.places = with_latest(behind, &chunk.places);
                Appended::Known
            }
            None => {
                let mut places = Places::default();
                places.push(behind);
                let bytes = Arc::from(bytes);
                self.chunks.insert(name, Chunk { bytes, places });
                self.oldest.push_back(name);
                Appended::Stored
            }
        };
        if appended == Appended::Stored {
            self.bytes += bytes.len();
            self.stat.stored_bytes += bytes.len() as u64;
        }
        self.evict();
        Ok(appended)
    }

    fn end(&mut self, recipe: RecipeId) -> Result<(), StoreError> {
        if let Some(ended) = self.recipes.get_mut(&recipe.0) {
            ended.is_ended = true;
            if ended.digests.is_empty() {
                self.recipes.remove(&recipe.0);
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl ChunkSource for MemoryStore {
    fn places_after(&self, realm: Realm, digest: &ChunkDigest) -> Places {
        let chunk = self.chunks.get(&(realm, *digest));
        let mut places = Places::default();
        for &place in chunk.iter().flat_map(|chunk| chunk.places.iter()) {
            let recipe = self.recipes.get(&place.high);
            if recipe.is_some_and(|recipe| recipe.digests.len() as u64 >= place.low) {
                places.push(place);
            }
        }
        places
    }

    fn openings(&self, realm: Realm, key: OpeningKey) -> Places {
        let places = self.openings.get(&(realm, key));
        places.copied().unwrap_or_default()
    }

    fn read(
        &mut self,
        place: Place,
        chunks_max: usize,
        bytes_max: usize,
    ) -> Result<Chain, StoreError> {
        let mut chain = Chain::default();
        let Some(recipe) = self.recipes.get(&place.high) else {
            return Ok(chain);
        };
        let mut bytes_left = bytes_max;
        let mut at = usize::try_from(place.low).unwrap_or(usize::MAX);
        while chain.chunks.len() < chunks_max
            && let Some(&digest) = recipe.digests.get(at)
        {
            if let Some(chunk) = self.chunks.get(&(recipe.realm, digest)) {
                let Some(left) = bytes_left.checked_sub(chunk.bytes.len()) else {
                    break;
                };
                bytes_left = left;
                let bytes = Arc::clone(&chunk.bytes);
                chain.chunks.push(StoredChunk { digest, bytes });
            }
            at += 1;
        }
        if at < recipe.digests.len() || !recipe.is_ended {
            chain.next = Some(Place {
                high: place.high,
                low: at as u64,
            });
        }
        Ok(chain)
    }

    fn contains(&self, realm: Realm, digest: &ChunkDigest) -> bool {
        self.chunks.contains_key(&(realm, *digest))
    }

    fn forget(&mut self, realm: Realm, digest: &ChunkDigest) {
        let name = (realm, *digest);
        if let Some(chunk) = self.chunks.remove(&name) {
            self.bytes -= chunk.bytes.len();
            self.oldest.retain(|stored| *stored != name);
        }
    }

    fn stat(&self) -> StoreStat {
        StoreStat {
            chunks: self.chunks.len() as u64,
            chunk_bytes: self.bytes as u64,
            openings: self.openings.len() as u64,
            recipe_entries: self.entries as u64,
            memory_bytes: (self.bytes + self.entries * size_of::<ChunkDigest>()) as u64,
            ..self.stat.clone()
        }
    }
}
