//! refrain's own store: the log of segments that the program uses.

use std::path::Path;

use anyhow::Result;
use refrain_codec::chunk::hash::ChunkDigest;
use refrain_store::{
    Chain, ChunkSource, ChunkStore as _, Chunking, DiskStore, OpeningKey, Place, ReadOnlyStore,
    Realm, RecipeId, StoreConfig,
};

use crate::store::{Arrival, Digest, Reader, Store};

/// What stands for no bound at all: the program's default.
const BYTES_MAX: u64 = 100 << 30;
const REALM: Realm = Realm([0; 16]);
/// Chunks and bytes that are read at once along a recipe.
const CHAIN_CHUNKS: usize = 64;
const CHAIN_BYTES: usize = 8 << 20;

/// The one that writes.
pub struct Owner {
    store: DiskStore,
    recipe: Option<(u64, RecipeId)>,
}

impl Owner {
    /// Opens or makes the store.
    pub fn open(folder: &Path, bytes_max: u64) -> Result<Self> {
        let config = StoreConfig::new(bytes_max.min(BYTES_MAX));
        Ok(Self {
            store: DiskStore::open(folder, config)?,
            recipe: None,
        })
    }
}

impl Store for Owner {
    fn receive(&mut self, flow: u64, arrivals: &[Arrival<'_>]) -> Result<()> {
        let recipe = match self.recipe {
            Some((current, recipe)) if current == flow => recipe,
            ended => {
                if let Some((_, recipe)) = ended {
                    self.store.end(recipe)?;
                }
                let recipe = self.store.begin(REALM, Some(OpeningKey(flow)));
                self.recipe = Some((flow, recipe));
                recipe
            }
        };
        for arrival in arrivals {
            let digest = ChunkDigest(*arrival.digest);
            self.store.append(recipe, &digest, arrival.bytes)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.store.sync()?)
    }

    fn compact(&mut self) -> Result<()> {
        Ok(())
    }

    fn payload_bytes(&self) -> u64 {
        self.store.stat().chunk_bytes
    }
}

impl Reader for Owner {
    fn knows(&mut self, digest: &Digest) -> Result<bool> {
        Ok(!places(&self.store, digest).is_empty())
    }

    fn read_after(
        &mut self,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        read_after(&mut self.store, digest, chunks, take)
    }

    fn read_flow(&mut self, flow: u64, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        read_flow(&mut self.store, flow, take)
    }

    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }
}

/// One that reads what another process writes.
pub struct Guest(ReadOnlyStore);

impl Guest {
    /// Opens the store of another process.
    pub fn open(folder: &Path) -> Result<Self> {
        Ok(Self(ReadOnlyStore::open(folder, Chunking::default())?))
    }
}

impl Reader for Guest {
    fn knows(&mut self, digest: &Digest) -> Result<bool> {
        Ok(!places(&self.0, digest).is_empty())
    }

    fn read_after(
        &mut self,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        read_after(&mut self.0, digest, chunks, take)
    }

    fn read_flow(&mut self, flow: u64, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        read_flow(&mut self.0, flow, take)
    }

    fn refresh(&mut self) -> Result<()> {
        Ok(self.0.refresh()?)
    }
}

fn places(store: &impl ChunkSource, digest: &Digest) -> refrain_store::Places {
    store.places_after(REALM, &ChunkDigest(*digest))
}

fn read_after(
    store: &mut impl ChunkSource,
    digest: &Digest,
    chunks: usize,
    take: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    if let Some(&place) = places(store, digest).first() {
        read(store, place, chunks, take)?;
    }
    Ok(())
}

fn read_flow(store: &mut impl ChunkSource, flow: u64, take: &mut dyn FnMut(&[u8])) -> Result<()> {
    let mut next = store.openings(REALM, OpeningKey(flow)).first().copied();
    while let Some(place) = next {
        let chain = read(store, place, CHAIN_CHUNKS, take)?;
        // A recipe that was never ended has no more, and says where more would be.
        next = chain.next.filter(|_| !chain.chunks.is_empty());
    }
    Ok(())
}

/// The store checks digests itself.
fn read(
    store: &mut impl ChunkSource,
    place: Place,
    chunks: usize,
    take: &mut dyn FnMut(&[u8]),
) -> Result<Chain> {
    let chain = store.read(place, chunks, CHAIN_BYTES)?;
    for chunk in &chain.chunks {
        take(&chunk.bytes);
    }
    Ok(chain)
}
