//! What a store takes of memory and disk, a chunk. One test alone in its process, so that nobody
//! else allocates.

use refrain_codec::chunk::hash::ChunkHasher;
use refrain_store::{ChunkSource, DiskStore, OpeningKey, Realm, StoreConfig};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// The bound.
const MEMORY_BYTES_MAX: usize = 40;

/// Caches of blocks and pieces, buffers, open files: the same for any number of chunks.
const FIXED_BYTES: usize = 512 << 10;

/// As short as chunks of an average of 8 KiB ever are, so that the disk holds them all; their
/// metadata is what it is.
const CHUNK_BYTES: usize = 256;

const FLOW_CHUNKS: u64 = 50;

#[test]
fn a_chunk_takes_little() {
    let folder = tempfile::tempdir().expect("a folder");
    let realm = Realm::named("measured");
    let _profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get().curr_bytes;
    let held = || dhat::HeapStats::get().curr_bytes - before;
    let config = StoreConfig::new(1 << 30);
    let mut store = DiskStore::open(folder.path(), config).expect("it opens");
    let mut bytes = [0; CHUNK_BYTES];
    let mut fullest = 0.0_f64;
    for first in (0..150_000).step_by(FLOW_CHUNKS as usize) {
        let recipe = store.begin(realm, Some(OpeningKey(first)));
        for number in first..first + FLOW_CHUNKS {
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            let digest = ChunkHasher::default().digest(&bytes);
            store.append(recipe, &digest, &bytes).expect("appended");
        }
        store.end(recipe).expect("ended");
        let chunks = (first + FLOW_CHUNKS) as usize;
        if chunks >= 20_000 {
            let held = held().saturating_sub(FIXED_BYTES);
            fullest = fullest.max(held as f64 / chunks as f64);
        }
    }
    assert!(
        fullest <= MEMORY_BYTES_MAX as f64,
        "{fullest} bytes a chunk"
    );
    assert!(fullest > 20.0, "{fullest}: nothing was counted");

    let stat = store.stat();
    let told = stat.memory_bytes as usize;
    assert!(
        told <= held() && held() <= told + FIXED_BYTES,
        "{told}, {}",
        held()
    );

    // A record and a 64th of a trailer; a key and a 50th of what a piece begins with.
    let index = stat.disk.index as f64 / stat.chunks as f64;
    let recipes = stat.disk.recipes as f64 / stat.received_chunks as f64;
    assert!((35.18..35.2).contains(&index), "{index}");
    assert!((5.3..5.31).contains(&recipes), "{recipes}");
    // The bounds on disk, of stored and of received bytes.
    let average = 8192.0;
    assert!(index + recipes <= 0.005 * average);
    assert!(recipes <= 0.001 * average);

    store.close().expect("closed");
    let _ = dhat::HeapStats::get();
    let store = DiskStore::open(folder.path(), config).expect("it opens");
    let held = held().saturating_sub(FIXED_BYTES) as f64 / store.stat().chunks as f64;
    assert!(
        held <= MEMORY_BYTES_MAX as f64,
        "{held} bytes a chunk, opened again"
    );
}
