//! What a store does on this machine: `cargo run --release -p refrain-store --example measure [DIR]`.
//!
//! Inserts, look-ups and chains of 8 KiB chunks; and how long a store of 1,000,000, each of which
//! came five times, takes to open, and how much memory a chunk. That one's chunks are not written,
//! only their length is: what is measured reads none of them.

use std::{
    hint::black_box,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use refrain_codec::chunk::hash::{ChunkDigest, ChunkHasher};
use refrain_store::{
    ChunkSource, DiskStore, OpeningKey, Realm, StoreConfig, StoreError,
    folder::{Folder, FolderFile, RealFolder},
};

const CHUNK_BYTES: usize = 8 << 10;
const FLOW_CHUNKS: u64 = 100;

/// How often each of a million chunks comes.
const ARRIVALS: u64 = 5;

fn main() -> Result<(), StoreError> {
    let parent = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let path = parent.join(format!("refrain-measure-{}", std::process::id()));
    let measured = written(&path.join("written")).and_then(|()| many(&path.join("many")));
    std::fs::remove_dir_all(&path).ok();
    measured
}

/// Chunks that are written and read.
fn written(path: &Path) -> Result<(), StoreError> {
    let count = 200_000_u64;
    let mut store = DiskStore::open(path, StoreConfig::new(100 << 30))?;
    let chunks: Vec<u64> = (0..CHUNK_BYTES as u64 / 8)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .collect();
    let chunks: Vec<u8> = chunks.into_iter().flat_map(u64::to_le_bytes).collect();
    let mut digests = Vec::new();
    for number in 0..count {
        digests.push(ChunkHasher::default().digest(&content(&chunks, number)));
    }
    let watch = Watch::start();
    for first in (0..count).step_by(FLOW_CHUNKS as usize) {
        let recipe = store.begin(realm(), Some(OpeningKey(first)));
        for number in first..first + FLOW_CHUNKS {
            store.append(recipe, &digests[number as usize], &content(&chunks, number))?;
        }
        store.end(recipe)?;
    }
    report("insert, and a copy of 8 KiB", count, watch.seconds(), true);
    let watch = Watch::start();
    store.sync()?;
    println!("{:<30} {:>10.3} s", "sync at the end", watch.seconds().0);

    let watch = Watch::start();
    for digest in &digests {
        let places = store.places_after(realm(), digest);
        assert!(!places.is_empty());
        black_box(places);
    }
    report("places of a known chunk", count, watch.seconds(), false);
    let watch = Watch::start();
    for number in 0..count {
        let digest = ChunkDigest([number as u8; 32]);
        black_box(store.places_after(realm(), &digest));
    }
    report("places of an unknown chunk", count, watch.seconds(), false);
    let watch = Watch::start();
    for digest in digests.iter().step_by(7) {
        assert!(store.contains(realm(), digest));
    }
    report(
        "contains, by full digest",
        count / 7,
        watch.seconds(),
        false,
    );

    let watch = Watch::start();
    let mut read = 0;
    for first in (0..count).step_by(FLOW_CHUNKS as usize) {
        let opening = store.openings(realm(), OpeningKey(first))[0];
        read += store
            .read(opening, FLOW_CHUNKS as usize, usize::MAX)?
            .chunks
            .len() as u64;
    }
    assert_eq!(read, count);
    report("read and verify, in chains", read, watch.seconds(), true);

    let watch = Watch::start();
    for first in (0..count).step_by(FLOW_CHUNKS as usize) {
        let recipe = store.begin(realm(), Some(OpeningKey(first)));
        for number in first..first + FLOW_CHUNKS {
            let digest = &digests[number as usize];
            store.append(recipe, digest, &chunks)?;
        }
        store.end(recipe)?;
    }
    report("append of a known chunk", count, watch.seconds(), true);
    let stat = store.stat();
    println!(
        "index {:.3} % of the stored bytes, recipes {:.3} % of the received",
        100.0 * stat.metadata_share,
        100.0 * stat.disk.recipes as f64 / stat.received_bytes as f64
    );
    Ok(())
}

/// Chunks that differ in their first bytes.
fn content(chunk: &[u8], number: u64) -> Vec<u8> {
    let mut bytes = chunk.to_vec();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// A store of a million chunks.
fn many(path: &Path) -> Result<(), StoreError> {
    let count = 1_000_000_u64;
    std::fs::create_dir_all(path).expect("a folder of its own");
    let folder: Arc<dyn Folder> = Arc::new(Sparse(RealFolder::new(path)));
    let mut store = DiskStore::open_in(Arc::clone(&folder), StoreConfig::new(100 << 30))?;
    let bytes = vec![0; CHUNK_BYTES];
    for _ in 0..ARRIVALS {
        for first in (0..count).step_by(FLOW_CHUNKS as usize) {
            let recipe = store.begin(realm(), Some(OpeningKey(first)));
            for number in first..first + FLOW_CHUNKS {
                let digest = ChunkHasher::default().digest(&number.to_le_bytes());
                store.append(recipe, &digest, &bytes)?;
            }
            store.end(recipe)?;
        }
    }
    store.close()?;
    for _ in 0..5 {
        let watch = Watch::start();
        let store = DiskStore::open_in(Arc::clone(&folder), StoreConfig::new(100 << 30))?;
        let (wall_s, cpu_s) = watch.seconds();
        let stat = store.stat();
        println!(
            "open {} chunks, {:.1} GB, that came {} times: {wall_s:.3} s ({cpu_s:.3} s of processor time), {:.1} bytes of memory a chunk with {} openings",
            stat.chunks,
            stat.chunk_bytes as f64 / 1e9,
            stat.recipe_entries,
            stat.memory_bytes as f64 / stat.chunks as f64,
            stat.openings,
        );
    }
    Ok(())
}

/// A stopwatch for wall and, where the system tells, processor time: what counts on a machine that
/// others use too.
struct Watch {
    began: Instant,
    cpu_s: f64,
}

impl Watch {
    fn start() -> Self {
        Self {
            began: Instant::now(),
            cpu_s: cpu_s(),
        }
    }

    /// Wall and processor seconds.
    fn seconds(&self) -> (f64, f64) {
        (self.began.elapsed().as_secs_f64(), cpu_s() - self.cpu_s)
    }
}

fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let on_cpu_ns = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
    on_cpu_ns.unwrap_or(0) as f64 / 1e9
}

fn realm() -> Realm {
    Realm::named("measured")
}

fn report(what: &str, count: u64, (wall_s, cpu_s): (f64, f64), has_bytes: bool) {
    let each = count as f64 / wall_s;
    let rate = match has_bytes {
        true => format!("{:>8.0} MB/s", each * CHUNK_BYTES as f64 / 1e6),
        false => " ".repeat(13),
    };
    let cpu_us = cpu_s * 1e6 / count as f64;
    println!("{what:<30} {each:>10.0} /s {rate} {cpu_us:>8.2} us of processor time each");
}

/// Leaves holes where chunks would be.
#[derive(Debug)]
struct Sparse(RealFolder);

impl Folder for Sparse {
    fn path(&self) -> PathBuf {
        self.0.path()
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn FolderFile>> {
        self.0.open(name)
    }

    fn open_or_create(&self, name: &str) -> io::Result<Box<dyn FolderFile>> {
        let file = self.0.open_or_create(name)?;
        Ok(match name.ends_with(".chunks") {
            true => Box::new(SparseFile(file)),
            false => file,
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

struct SparseFile(Box<dyn FolderFile>);

impl FolderFile for SparseFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.set_bytes(offset + bytes.len() as u64)?;
        Ok(bytes.len())
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.0.set_bytes(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}
