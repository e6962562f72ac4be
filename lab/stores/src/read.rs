//! Processes that read a store: one that opens it after its owner, one beside its owner, and one that
//! looks at what is left.

use std::{
    io::Read as _,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::{load::Random, measure, process::Place, store::Reader};

/// A chain as the receiver reads it ahead.
const CHAIN_CHUNKS: usize = 64;
const FINDS: u32 = 200_000;
/// Stores may look up by less than a whole digest, and find that out when they read.
const MISTAKEN_MAX: u32 = FINDS / 20_000;
/// Bytes that the chains of one measurement add up to.
const CHAIN_BYTES: u64 = 512 << 20;
const CHAINS_LAST: Duration = Duration::from_secs(4);

/// What a process says that opened a store and read.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Reading {
    /// Until a first chunk was found.
    pub open_ms: f64,
    /// Processor time of that, to ten milliseconds.
    pub open_processor_ms: f64,
    /// Resident memory when it was open.
    pub memory_bytes_open: u64,
    /// Resident memory at its highest, after all reading.
    pub memory_bytes_peak: u64,
    /// Chunks that are there, each asked for on its own.
    pub finds_per_second: f64,
    /// Chunks that are not there.
    pub misses_per_second: f64,
    /// 10^6 bytes a second along chains, digests checked.
    pub chain_mb_per_second: f64,
}

/// Opens the store as its owner and reads. `chains_alone`: no look-ups first, which would warm it.
pub fn read(place: &Place, chains_alone: bool) -> Result<Reading> {
    let digests = place.digests()?;
    let chunks = digests.len() as u32;
    let mut random = Random::of(place.load.seed, 1);
    let memory_before = measure::memory_bytes()?.0;
    let processor_before = measure::process_time()?;

    let began = Instant::now();
    let mut store = place.open(None)?;
    let known = store.knows(&digests[random.below(chunks) as usize])?;
    let open_ms = began.elapsed().as_secs_f64() * 1e3;
    anyhow::ensure!(known, "a chunk is missing");
    let processor = measure::process_time()?.saturating_sub(processor_before);
    let memory_bytes_open = measure::memory_bytes()?.0.saturating_sub(memory_before);

    let (mut finds, mut misses) = (0.0, 0.0);
    if !chains_alone {
        let began = Instant::now();
        for _ in 0..FINDS {
            let known = store.knows(&digests[random.below(chunks) as usize])?;
            anyhow::ensure!(known, "a chunk is missing");
        }
        finds = f64::from(FINDS) / began.elapsed().as_secs_f64();
        let began = Instant::now();
        let mut mistaken = 0;
        for _ in 0..FINDS {
            let mut unknown = digests[random.below(chunks) as usize];
            unknown[0] ^= 1;
            mistaken += u32::from(store.knows(&unknown)?);
        }
        anyhow::ensure!(mistaken <= MISTAKEN_MAX, "chunks are there that never came");
        misses = f64::from(FINDS) / began.elapsed().as_secs_f64();
    }

    let (began, mut bytes) = (Instant::now(), 0);
    while bytes < CHAIN_BYTES && began.elapsed() < CHAINS_LAST {
        let digest = &digests[random.below(chunks) as usize];
        store.read_after(digest, CHAIN_CHUNKS, &mut |chunk| {
            bytes += chunk.len() as u64;
        })?;
    }
    let chain_mb_per_second = bytes as f64 / 1e6 / began.elapsed().as_secs_f64();
    let memory_bytes_peak = measure::memory_bytes()?.1.saturating_sub(memory_before);
    Ok(Reading {
        open_ms,
        open_processor_ms: processor.as_secs_f64() * 1e3,
        memory_bytes_open,
        memory_bytes_peak,
        finds_per_second: finds,
        misses_per_second: misses,
        chain_mb_per_second,
    })
}

/// What a process says that read beside the owner.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Beside {
    /// Look-ups.
    pub finds: u64,
    /// Those that found something.
    pub found: u64,
    /// Bytes that were read along chains with the right digests.
    pub chain_bytes: u64,
    /// Chunks found that were not yet there when the process opened the store.
    pub found_later: u64,
    /// Reads that failed.
    pub failed: u64,
    /// The first error.
    pub error: Option<String>,
    /// How long it read.
    pub seconds: f64,
}

/// Reads beside the owner until standard input ends; `synced`: chunks that were there before.
pub fn beside(place: &Place, synced: u32) -> Result<Beside> {
    let digests = place.digests()?;
    let mut store = place.kind.open_to_read(&place.folder, place.settings)?;
    let mut random = Random::of(place.load.seed, 2);
    let mut said = Beside::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // However it ends, there is no more to wait for.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            over.store(true, Ordering::Relaxed);
        });
        let began = Instant::now();
        while !over.load(Ordering::Relaxed) {
            let result = round(store.as_mut(), &digests, &mut random, synced, &mut said);
            if let Err(error) = result {
                said.failed += 1;
                said.error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
        said.seconds = began.elapsed().as_secs_f64();
    });
    Ok(said)
}

fn round(
    store: &mut dyn Reader,
    digests: &[crate::store::Digest],
    random: &mut Random,
    synced: u32,
    said: &mut Beside,
) -> Result<()> {
    store.refresh()?;
    for _ in 0..16 {
        let chunk = random.below(digests.len() as u32);
        said.finds += 1;
        let digest = &digests[chunk as usize];
        if !store.knows(digest)? {
            continue;
        }
        said.found += 1;
        said.found_later += u64::from(chunk >= synced);
        store.read_after(digest, CHAIN_CHUNKS, &mut |bytes| {
            said.chain_bytes += bytes.len() as u64;
        })?;
    }
    Ok(())
}

/// What is left of a store.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Left {
    /// Until a first look-up was answered.
    pub open_ms: f64,
    /// Distinct chunks with the right bytes.
    pub whole: u32,
    /// Distinct chunks among the first ones, as many as were asked about, that are not there.
    pub lost: u32,
    /// Flows with bytes that never came, or that cannot be read.
    pub damaged: u32,
    /// The first such error.
    pub error: Option<String>,
}

/// Reads all recipes and compares them with the load; `synced`: chunks that have to be there.
pub fn check(place: &Place, synced: u32) -> Result<Left> {
    let digests = place.digests()?;
    let began = Instant::now();
    let mut store = place.open(None)?;
    store.knows(&digests[0])?;
    let open_ms = began.elapsed().as_secs_f64() * 1e3;
    let mut whole = vec![false; digests.len()];
    let (mut damaged, mut error) = (0, None);
    for (flow, chunks) in place.load.flows() {
        let mut expected = chunks.iter();
        let mut wrong = false;
        let read = store.read_flow(flow, &mut |bytes| {
            let digest = blake3::hash(bytes);
            // What is missing is passed over; what is there is in its order.
            match expected.find(|&&chunk| digests[chunk as usize] == *digest.as_bytes()) {
                Some(&chunk) => whole[chunk as usize] = true,
                None => wrong = true,
            }
        });
        if let Err(first) = read {
            wrong = true;
            error.get_or_insert_with(|| format!("{first:#}"));
        }
        damaged += u32::from(wrong);
    }
    let count = |chunks: &[bool], is: bool| chunks.iter().filter(|&&one| one == is).count() as u32;
    Ok(Left {
        open_ms,
        whole: count(&whole, true),
        lost: count(&whole[..synced as usize], false),
        damaged,
        error,
    })
}

/// Disk after deleting.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Shrunk {
    /// Bytes of chunks that are left.
    pub payload_bytes: u64,
    /// Disk when the deletes were synced and the store had had time to tidy up.
    pub disk_bytes: u64,
    /// Disk after the store's own compaction.
    pub disk_bytes_compacted: u64,
    /// How long that took.
    pub compact_seconds: f64,
}

/// Opens the store with a bound of so many bytes.
pub fn shrink(place: &Place, bytes_max: u64) -> Result<Shrunk> {
    let mut store = place.open(Some(bytes_max))?;
    store.sync()?;
    // Files that are no longer needed vanish in the background.
    std::thread::sleep(Duration::from_secs(2));
    let disk_bytes = measure::disk_bytes(&place.folder)?;
    let began = Instant::now();
    store.compact()?;
    let compact_seconds = began.elapsed().as_secs_f64();
    let payload_bytes = store.payload_bytes();
    drop(store);
    Ok(Shrunk {
        payload_bytes,
        disk_bytes,
        disk_bytes_compacted: measure::disk_bytes(&place.folder)?,
        compact_seconds,
    })
}
