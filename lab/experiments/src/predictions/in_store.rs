//! Series of objects in a chunk store on disk: what it recognises, and what it keeps beside the
//! bytes of chunks.
//!
//! A flow is cut and named as a near end does it; no engine and no link is between. How long it
//! takes is no part of it.

use std::path::Path;

use anyhow::{Context, ensure};
use refrain_codec::{
    chunk::stream::{ChunkBounds, StreamChunks},
    marker::PackMask,
};
use refrain_store::{ChunkSource, Chunking, DiskStore, OpeningKey, Place, Realm, StoreConfig};
use serde::Serialize;

use super::{BREVO, GITHUB, LINUX};
use crate::corpus::Corpus;

/// The bound of a near end by default: nothing is evicted.
const STORE_BYTES: u64 = 100_000_000_000;

/// All flows of a series answer the same request.
const OPENING: OpeningKey = OpeningKey(1);

/// Of how many flows of one opening a store remembers the beginnings.
const OPENINGS: usize = 2;

/// What is read of a chain at once; more than any chunk.
const READ_CHUNKS: usize = 64;
const READ_BYTES: usize = 1 << 20;

/// What became of a series.
#[derive(Serialize)]
pub(super) struct Kept {
    pub series: &'static str,
    /// Average of chunks, as in a [`Trial`](super::Trial).
    pub chunk_kib: u32,
    pub received_bytes: u64,
    /// Of these, those of chunks that were new.
    pub stored_bytes: u64,
    /// Chunks that were stored.
    pub chunks: u64,
    /// Files on disk.
    pub index_bytes: u64,
    pub recipe_bytes: u64,
    /// In memory, of the index and all about recipes.
    pub memory_bytes: u64,
    /// Bytes of flows that were read back, once the store had been opened again.
    pub read_back_bytes: u64,
}

impl Kept {
    /// Of the bytes received, those in chunks that the store had.
    pub(super) fn recognised(&self) -> f64 {
        1.0 - self.stored_bytes as f64 / self.received_bytes as f64
    }

    /// Of the bytes stored.
    pub(super) fn index(&self) -> f64 {
        self.index_bytes as f64 / self.stored_bytes as f64
    }

    /// Index and recipes, of the bytes stored.
    pub(super) fn metadata(&self) -> f64 {
        (self.index_bytes + self.recipe_bytes) as f64 / self.stored_bytes as f64
    }

    /// Of the bytes received.
    pub(super) fn recipes(&self) -> f64 {
        self.recipe_bytes as f64 / self.received_bytes as f64
    }

    pub(super) fn memory_a_chunk(&self) -> f64 {
        self.memory_bytes as f64 / self.chunks as f64
    }
}

/// Puts each series into a store of its own.
pub(super) fn measure(corpora: &[Corpus]) -> anyhow::Result<Vec<Kept>> {
    let keep_one = |(series, chunk_kib)| -> anyhow::Result<Kept> {
        eprintln!("{series}, {chunk_kib} KiB, in a store");
        let corpus = corpora.iter().find(|corpus| corpus.name == series);
        let folder = tempfile::tempdir()?;
        let objects = &corpus.context(series)?.objects;
        keep(series, chunk_kib, objects, folder.path())
    };
    let all = [(LINUX, 8), (GITHUB, 4), (BREVO, 4)];
    all.into_iter().map(keep_one).collect()
}

/// Each object is a flow, one after the other.
fn keep(
    series: &'static str,
    chunk_kib: u32,
    objects: &[Vec<u8>],
    folder: &Path,
) -> anyhow::Result<Kept> {
    let realm = Realm::named(series);
    let config = StoreConfig {
        chunking: chunking(chunk_kib)?,
        ..StoreConfig::new(STORE_BYTES)
    };
    let mut store = DiskStore::open(folder, config)?;
    for object in objects {
        learn(&mut store, config.chunking, realm, object)?;
    }
    store.sync()?;
    let stat = store.stat();
    store.close()?;
    let mut store = DiskStore::open(folder, config)?;
    Ok(Kept {
        series,
        chunk_kib,
        received_bytes: stat.received_bytes,
        stored_bytes: stat.stored_bytes,
        chunks: stat.chunks,
        index_bytes: stat.disk.index,
        recipe_bytes: stat.disk.recipes,
        memory_bytes: stat.memory_bytes,
        read_back_bytes: read_back(&mut store, realm, objects)?,
    })
}

/// The shortest chunk is a quarter of the average, the longest four times.
fn chunking(chunk_kib: u32) -> anyhow::Result<Chunking> {
    let average = chunk_kib as usize * 1024;
    Ok(Chunking {
        mask_bits: average.ilog2() as u8,
        bounds: ChunkBounds::new(average / 4, 4 * average)?,
        ..Chunking::default()
    })
}

/// A flow and its recipe.
fn learn(
    store: &mut DiskStore,
    chunking: Chunking,
    realm: Realm,
    flow: &[u8],
) -> anyhow::Result<()> {
    let mask = PackMask::with_bits(chunking.mask_bits)?;
    let mut cutter = StreamChunks::new(mask, chunking.bounds);
    let mut chunks = Vec::new();
    cutter.feed(flow, &mut chunks);
    cutter.finish(&mut chunks);
    let recipe = store.begin(realm, Some(OPENING));
    for chunk in chunks {
        let bytes = &flow[chunk.start as usize..chunk.end as usize];
        store.append(recipe, &chunking.hasher.digest(bytes), bytes)?;
    }
    Ok(store.end(recipe)?)
}

/// Reads the last flows from their beginnings on, and says how many bytes that were.
///
/// # Errors
/// If they are not the last `objects`.
fn read_back(store: &mut DiskStore, realm: Realm, objects: &[Vec<u8>]) -> anyhow::Result<u64> {
    let openings = store.openings(realm, OPENING);
    ensure!(
        openings.len() == objects.len().min(OPENINGS),
        "unexpected number of openings in the store: {}",
        openings.len()
    );
    let mut bytes = 0;
    for (&opening, object) in openings.iter().zip(objects.iter().rev()) {
        ensure!(
            is_flow(store, opening, object)?,
            "the store returned other bytes than those stored"
        );
        bytes += object.len() as u64;
    }
    Ok(bytes)
}

/// Whether the recipe that begins at `opening` gives `flow`, and nothing more.
fn is_flow(store: &mut DiskStore, opening: Place, flow: &[u8]) -> anyhow::Result<bool> {
    let (mut place, mut rest) = (Some(opening), flow);
    while let Some(from) = place {
        let chain = store.read(from, READ_CHUNKS, READ_BYTES)?;
        for chunk in &chain.chunks {
            match rest.strip_prefix(&*chunk.bytes) {
                Some(behind) => rest = behind,
                None => return Ok(false),
            }
        }
        place = chain.next.filter(|_| !chain.chunks.is_empty());
    }
    Ok(rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that repeat nothing.
    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        std::iter::repeat_with(|| random.u8(..)).take(len).collect()
    }

    /// A flow, the same with one byte changed, and another.
    fn objects() -> Vec<Vec<u8>> {
        let first = noise(1, 2_000_000);
        let mut second = first.clone();
        second[1_000_000] ^= 1;
        vec![first, second, noise(2, 1_000_000)]
    }

    #[test]
    fn what_came_before_is_recognised() {
        let folder = tempfile::tempdir().expect("a folder");
        let objects = objects();
        let kept = keep(LINUX, 8, &objects, folder.path()).expect("kept");
        assert_eq!(kept.received_bytes, 5_000_000);
        // But for the chunk with the changed byte; the one behind it may begin elsewhere.
        let known_bytes = kept.received_bytes - kept.stored_bytes;
        assert!(
            (2_000_000 - 64 * 1024..2_000_000).contains(&known_bytes),
            "{known_bytes}"
        );
        assert_eq!(kept.recognised(), known_bytes as f64 / 5_000_000.0);
        assert_eq!(kept.read_back_bytes, 3_000_000);
        let average = kept.stored_bytes as f64 / kept.chunks as f64;
        assert!((7_000.0..12_000.0).contains(&average), "{average}");
    }

    #[test]
    fn a_store_that_gives_other_bytes_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let objects = objects();
        keep(GITHUB, 4, &objects, folder.path()).expect("kept");
        let config = StoreConfig::of(folder.path()).expect("read").expect("one");
        let mut store = DiskStore::open(folder.path(), config).expect("opened");
        let realm = Realm::named(GITHUB);
        assert_eq!(
            read_back(&mut store, realm, &objects).expect("equal"),
            3_000_000
        );
        for latest in 1..=OPENINGS {
            let other = |change: fn(&mut Vec<u8>)| {
                let mut objects = objects.clone();
                let at = objects.len() - latest;
                change(&mut objects[at]);
                objects
            };
            for other in [
                other(|object| object[500_000] ^= 1),
                other(|object| object.push(0)),
                other(|object| object.truncate(object.len() - 1)),
                other(Vec::clear),
            ] {
                assert!(
                    read_back(&mut store, realm, &other).is_err(),
                    "the one that came {latest} before the end"
                );
            }
        }
        assert!(
            read_back(&mut store, Realm::named(BREVO), &objects).is_err(),
            "nothing was read"
        );
    }

    #[test]
    fn a_chunk_that_rotted_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let objects = objects();
        keep(GITHUB, 4, &objects, folder.path()).expect("kept");
        let chunks = folder.path().join("00000001.chunks");
        let mut bytes = std::fs::read(&chunks).expect("read");
        bytes[500_000] ^= 1;
        std::fs::write(&chunks, bytes).expect("written");
        let config = StoreConfig::of(folder.path()).expect("read").expect("one");
        let mut store = DiskStore::open(folder.path(), config).expect("opened");
        assert!(read_back(&mut store, Realm::named(GITHUB), &objects).is_err());
    }

    #[test]
    fn shares_are_of_what_they_are_said_to_be() {
        let kept = Kept {
            series: LINUX,
            chunk_kib: 8,
            received_bytes: 1000,
            stored_bytes: 200,
            chunks: 10,
            index_bytes: 8,
            recipe_bytes: 2,
            memory_bytes: 350,
            read_back_bytes: 0,
        };
        let per_mille = |share: f64| (1000.0 * share).round();
        assert_eq!(per_mille(kept.recognised()), 800.0);
        assert_eq!(per_mille(kept.index()), 40.0);
        assert_eq!(per_mille(kept.metadata()), 50.0);
        assert_eq!(per_mille(kept.recipes()), 2.0);
        assert_eq!(kept.memory_a_chunk(), 35.0);
    }
}
