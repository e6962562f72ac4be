//! Chunks, realms and small stores.

use std::sync::{Arc, RwLock};

use refrain_codec::chunk::{
    hash::{ChunkDigest, ChunkHasher},
    stream::ChunkBounds,
};
use refrain_store::{
    Appended, ChunkSource, Chunking, DiskStore, OpeningKey, Place, ReadOnlyStore, Realm,
    StoreConfig, VerifyReport, folder::Folder,
};

use crate::memory_folder::MemoryFolder;

/// A process that is being started has all that is open here, and so the locks of stores, until it
/// runs its own program. Who closes a store and opens it again has nobody start one meanwhile.
pub(crate) static SPAWNING: RwLock<()> = RwLock::new(());

pub(crate) const CHUNK_BYTES_MAX: usize = 1024;

pub(crate) fn realm(number: u8) -> Realm {
    Realm::named(&format!("service {number}"))
}

/// The bytes of the chunk with this number: 100 to 999 of them.
pub(crate) fn chunk(number: u32) -> Vec<u8> {
    let seed = blake3(&number.to_le_bytes());
    let len = 100 + usize::from(u16::from_le_bytes([seed[0], seed[1]])) % 900;
    seed.iter().copied().cycle().take(len).collect()
}

fn blake3(bytes: &[u8]) -> [u8; 32] {
    ChunkHasher::Blake3.digest(bytes).0
}

pub(crate) fn digest(chunk: &[u8]) -> ChunkDigest {
    ChunkHasher::default().digest(chunk)
}

pub(crate) fn chunking() -> Chunking {
    Chunking {
        mask_bits: 6,
        bounds: ChunkBounds::new(64, CHUNK_BYTES_MAX).expect("in order"),
        hasher: ChunkHasher::default(),
    }
}

/// Small segments, so that a few hundred chunks fill several.
pub(crate) fn config(segments: u64) -> StoreConfig {
    let segment_bytes = 64 << 10;
    StoreConfig {
        size_bytes: segments * segment_bytes,
        chunking: chunking(),
        segment_bytes: Some(segment_bytes),
    }
}

pub(crate) fn open(folder: &MemoryFolder, segments: u64) -> DiskStore {
    open_any(folder, segments).expect("a store opens")
}

pub(crate) fn open_any(
    folder: &MemoryFolder,
    segments: u64,
) -> Result<DiskStore, refrain_store::StoreError> {
    let folder: Arc<dyn Folder> = Arc::new(folder.clone());
    DiskStore::open_in(folder, config(segments))
}

/// What is written of the store, as another process reads it.
pub(crate) fn reader(folder: &MemoryFolder) -> ReadOnlyStore {
    let folder: Arc<dyn Folder> = Arc::new(folder.clone());
    ReadOnlyStore::open_in(folder, chunking()).expect("it opens")
}

pub(crate) fn verify(folder: &MemoryFolder) -> VerifyReport {
    reader(folder).verify(&mut |_| ())
}

/// A flow of these chunks, from its beginning to its end.
pub(crate) fn flow(
    store: &mut DiskStore,
    realm: Realm,
    opening: Option<OpeningKey>,
    chunks: impl IntoIterator<Item = u32>,
) -> Vec<Appended> {
    let recipe = store.begin(realm, opening);
    let appended = chunks.into_iter().map(|number| {
        let bytes = chunk(number);
        let appended = store.append(recipe, &digest(&bytes), &bytes);
        appended.expect("a chunk is appended")
    });
    let appended = appended.collect();
    store.end(recipe).expect("a recipe ends");
    appended
}

/// What is read onward from a place, to its end.
pub(crate) fn read_all(store: &mut impl ChunkSource, place: Place) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    let mut next = Some(place);
    while let Some(place) = next {
        let chain = store.read(place, 7, 4000).expect("a chain is read");
        for chunk in &chain.chunks {
            assert_eq!(digest(&chunk.bytes), chunk.digest, "a wrong byte was read");
        }
        // A recipe that is still written may have no more.
        next = chain.next.filter(|_| !chain.chunks.is_empty());
        chunks.extend(chain.chunks.into_iter().map(|chunk| chunk.bytes.to_vec()));
    }
    chunks
}

/// What followed a chunk when it was seen last.
pub(crate) fn read_after(store: &mut impl ChunkSource, realm: Realm, number: u32) -> Vec<Vec<u8>> {
    let places = store.places_after(realm, &digest(&chunk(number)));
    places
        .first()
        .map_or(Vec::new(), |&place| read_all(store, place))
}

pub(crate) fn chunks(numbers: impl IntoIterator<Item = u32>) -> Vec<Vec<u8>> {
    numbers.into_iter().map(chunk).collect()
}

pub(crate) fn has(store: &impl ChunkSource, realm: Realm, number: u32) -> bool {
    store.contains(realm, &digest(&chunk(number)))
}
