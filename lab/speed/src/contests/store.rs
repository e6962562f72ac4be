//! The chunk store on disk: what it takes in, what it finds, and what it reads back, beside the
//! same without a store.
//!
//! It lies in a temporary folder, mostly in the system's memory: what is measured is the store,
//! not the disk. Speeds are of the stream that the chunks are of.

use std::{
    collections::HashMap,
    fs::File,
    hint::black_box,
    io::{Read, Seek, Write},
    time::{Duration, Instant},
};

use refrain_codec::chunk::hash::{ChunkDigest, ChunkHasher};
use refrain_store::{ChunkSource, DiskStore, Place as StorePlace, Realm, StoreConfig};

use super::{CHUNK_BYTES, Contest, Inputs, Noise, Place, RowName};

/// Bound of a store that chunks are put into: soon full, so that it evicts as it goes.
const FULL_STORE_BYTES: u64 = 256 << 20;

/// Chunks of one turn.
const TURN_CHUNKS: usize = 1024;

/// Chunks among which others are looked up: 8 GB of a stream.
const INDEXED_CHUNKS: usize = 1_000_000;

/// What the store keeps of each of them; a look-up does not see their bytes.
const INDEXED_CHUNK_BYTES: usize = 64;

const INDEXED_STORE_BYTES: u64 = 1 << 30;

/// Look-ups of one turn.
const TURN_LOOKUPS: usize = 1 << 16;

/// As a link's history reads: so many chunks at a time.
const CHAIN_CHUNKS: usize = 32;

/// Chunks that are read again and again.
const READ_CHUNKS: usize = 8 * TURN_CHUNKS;

pub(super) fn all(inputs: &Inputs) -> Vec<Contest<'_>> {
    vec![
        insert(inputs),
        look_up("known", 0),
        look_up("unknown", INDEXED_CHUNKS as u64),
        read(inputs),
    ]
}

fn name(kernel: &'static str, data: &'static str) -> RowName {
    RowName {
        kernel,
        data,
        place: Place::Disk,
    }
}

/// New chunks of a flow.
fn insert(inputs: &Inputs) -> Contest<'_> {
    let bytes = &inputs.random()[..TURN_CHUNKS * CHUNK_BYTES];
    Contest::new(name("store insert, 8 KiB", "random"))
        .of_chunks(CHUNK_BYTES)
        .lazily(
            "refrain",
            bytes.len(),
            move || {
                let mut store = OnDisk::new(FULL_STORE_BYTES);
                let mut numbers = 0;
                for _ in 0..FULL_STORE_BYTES as usize / bytes.len() {
                    append_all(&mut store.store, bytes, &mut numbers);
                }
                (store, numbers)
            },
            move |(store, numbers)| append_all(&mut store.store, bytes, numbers),
        )
        .lazily("write", bytes.len(), temporary_file, move |file| {
            clocked(|| {
                file.set_len(0).expect(DISK);
                file.rewind().expect(DISK);
                for chunk in bytes.chunks(CHUNK_BYTES) {
                    file.write_all(chunk).expect(DISK);
                }
            })
        })
}

/// Appends a flow of chunks that are new: their numbers name them.
fn append_all(store: &mut DiskStore, bytes: &[u8], numbers: &mut u64) -> Duration {
    let chunks = bytes.chunks(CHUNK_BYTES);
    let named: Vec<_> = chunks
        .map(|chunk| {
            *numbers += 1;
            (digest(*numbers), chunk)
        })
        .collect();
    clocked(|| {
        let recipe = store.begin(realm(), None);
        for (digest, chunk) in &named {
            store.append(recipe, digest, chunk).expect(DISK);
        }
        store.end(recipe).expect(DISK);
    })
}

/// Places of chunks, one after another in no order; numbers from `first` on name them.
fn look_up<'a>(data: &'static str, first: u64) -> Contest<'a> {
    let turn_bytes = TURN_LOOKUPS * CHUNK_BYTES;
    Contest::new(name("store look-up, 8 KiB", data))
        .of_chunks(CHUNK_BYTES)
        .lazily(
            "refrain",
            turn_bytes,
            move || {
                let mut store = OnDisk::new(INDEXED_STORE_BYTES);
                let recipe = store.store.begin(realm(), None);
                let chunk = [7; INDEXED_CHUNK_BYTES];
                for number in 0..INDEXED_CHUNKS as u64 {
                    let digest = digest(number);
                    store.store.append(recipe, &digest, &chunk).expect(DISK);
                }
                store.store.end(recipe).expect(DISK);
                (store, Noise::new(first + 1))
            },
            move |(store, order)| {
                let digests = wanted(first, order);
                clocked(|| {
                    for digest in &digests {
                        black_box(store.store.places_after(realm(), digest));
                    }
                })
            },
        )
        .lazily(
            "HashMap",
            turn_bytes,
            move || {
                let numbers = 0..INDEXED_CHUNKS as u64;
                let map: HashMap<ChunkDigest, [StorePlace; 2]> = numbers
                    .map(|number| (digest(number), Default::default()))
                    .collect();
                (map, Noise::new(first + 1))
            },
            move |(map, order)| {
                let digests = wanted(first, order);
                clocked(|| {
                    for digest in &digests {
                        black_box(map.get(digest));
                    }
                })
            },
        )
}

/// Chains of chunks, each held against its digest.
fn read(inputs: &Inputs) -> Contest<'_> {
    let bytes = &inputs.random()[..READ_CHUNKS * CHUNK_BYTES];
    let turn_bytes = TURN_CHUNKS * CHUNK_BYTES;
    Contest::new(name("store read, 8 KiB", "random"))
        .of_chunks(CHUNK_BYTES)
        .lazily(
            "refrain",
            turn_bytes,
            move || {
                let mut store = OnDisk::new(INDEXED_STORE_BYTES);
                let recipe = store.store.begin(realm(), None);
                for chunk in bytes.chunks(CHUNK_BYTES) {
                    let digest = ChunkHasher::Blake3.digest(chunk);
                    store.store.append(recipe, &digest, chunk).expect(DISK);
                }
                // Without an end, so that every chunk has a place behind it.
                let digests = bytes.chunks(CHUNK_BYTES).step_by(CHAIN_CHUNKS);
                let places = digests.map(|chunk| {
                    let digest = ChunkHasher::Blake3.digest(chunk);
                    store.store.places_after(realm(), &digest)[0]
                });
                let places: Vec<_> = places.collect();
                (store, places.into_iter().cycle())
            },
            move |(store, places)| {
                let places: Vec<_> = places.take(TURN_CHUNKS / CHAIN_CHUNKS).collect();
                clocked(|| {
                    for place in places {
                        let chain = store.store.read(place, CHAIN_CHUNKS, usize::MAX);
                        black_box(chain.expect(DISK));
                    }
                })
            },
        )
        .lazily(
            "read and blake3",
            turn_bytes,
            move || {
                let mut file = temporary_file();
                file.write_all(bytes).expect(DISK);
                (file, vec![0; CHAIN_CHUNKS * CHUNK_BYTES], 0)
            },
            move |(file, chain, turns)| {
                let at = *turns * turn_bytes % bytes.len();
                *turns += 1;
                clocked(|| {
                    file.seek(std::io::SeekFrom::Start(at as u64)).expect(DISK);
                    for _ in 0..TURN_CHUNKS / CHAIN_CHUNKS {
                        file.read_exact(chain).expect(DISK);
                        for chunk in chain.chunks(CHUNK_BYTES) {
                            black_box(blake3::hash(chunk));
                        }
                    }
                })
            },
        )
}

const DISK: &str = "the temporary directory has space";

/// A store in a folder that goes with it.
struct OnDisk {
    store: DiskStore,
    _folder: tempfile::TempDir,
}

impl OnDisk {
    fn new(size_bytes: u64) -> Self {
        let folder = tempfile::tempdir().expect(DISK);
        Self {
            store: DiskStore::open(folder.path(), StoreConfig::new(size_bytes)).expect(DISK),
            _folder: folder,
        }
    }
}

fn temporary_file() -> File {
    tempfile::tempfile().expect(DISK)
}

fn realm() -> Realm {
    Realm([1; 16])
}

/// What could be a chunk's digest, one for each number.
fn digest(number: u64) -> ChunkDigest {
    let mut digest = [0; 32];
    Noise::new(number + 1).fill(&mut digest);
    ChunkDigest(digest)
}

/// The digests of a turn's look-ups, in no order.
fn wanted(first: u64, order: &mut Noise) -> Vec<ChunkDigest> {
    let mut numbers = vec![0; 8 * TURN_LOOKUPS];
    order.fill(&mut numbers);
    let (numbers, _) = numbers.as_chunks();
    let numbers = numbers
        .iter()
        .map(|&bytes| u64::from_le_bytes(bytes) % INDEXED_CHUNKS as u64);
    numbers.map(|number| digest(first + number)).collect()
}

fn clocked(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the rows' names promise.
    #[test]
    fn known_is_known_and_unknown_is_not() {
        let mut store = OnDisk::new(FULL_STORE_BYTES);
        let (mut numbers, bytes) = (0, vec![0; 4 * CHUNK_BYTES]);
        append_all(&mut store.store, &bytes, &mut numbers);
        assert_eq!(numbers, 4);
        for number in 1..4 {
            let places = store.store.places_after(realm(), &digest(number));
            assert_eq!(places.len(), 1, "{number}");
        }
        assert!(store.store.places_after(realm(), &digest(5)).is_empty());
        let mut order = Noise::new(1);
        let unknown = wanted(INDEXED_CHUNKS as u64, &mut order);
        assert_ne!(unknown, wanted(INDEXED_CHUNKS as u64, &mut order));
        assert!(!unknown.contains(&digest(1)));
    }
}
