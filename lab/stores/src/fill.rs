//! One process that owns a store and writes the load into it.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::{
    measure,
    process::Place,
    store::{Arrival, Digest, Store},
};

/// Arrivals that a store gets at once: what one read of a fast flow brings.
const BATCH_CHUNKS: usize = 64;
/// The same durability for all: what may be lost is a second of work, or so many bytes.
const SYNC_BYTES: u64 = 64 << 20;
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// What the process has to say at its end.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Filled {
    /// Chunks that came, new or not.
    pub arrivals: u64,
    /// Their bytes.
    pub arrival_bytes: u64,
    /// Bytes of the chunks that were new.
    pub new_bytes: u64,
    /// Seconds within the store, syncs included.
    pub seconds: f64,
    /// Seconds of processor time that are not the load's own.
    pub processor_seconds: f64,
    /// The longest single call.
    pub longest_ms: f64,
    /// Syncs.
    pub syncs: u32,
    /// Bytes written to the disk, to the end of the process's last sync.
    pub written_bytes: u64,
    /// Disk when the store was closed.
    pub disk_bytes: u64,
    /// Disk at its highest, looked at after each sync.
    pub disk_bytes_peak: u64,
    /// What the store says that it keeps.
    pub payload_bytes: u64,
    /// Resident memory at its highest.
    pub memory_bytes_peak: u64,
}

/// What a parent that asked for it hears on standard output, a line each.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub enum Event {
    /// So many distinct chunks have been handed over.
    Received(u32),
    /// So many distinct chunks are on the disk.
    Synced(u32),
    /// The end.
    Filled(Filled),
}

/// Writes the load; `tell` speaks after every batch.
pub fn fill(place: &Place, bytes_max: Option<u64>, tell: bool) -> Result<Filled> {
    let digests = place.digests()?;
    let mut store = place.open(bytes_max)?;
    let mut filling = Filling {
        place,
        digests: &digests,
        store: store.as_mut(),
        tell,
        spent: Duration::ZERO,
        longest: Duration::ZERO,
        seen: 0,
        filled: Filled {
            arrivals: 0,
            arrival_bytes: 0,
            new_bytes: 0,
            seconds: 0.0,
            processor_seconds: 0.0,
            longest_ms: 0.0,
            syncs: 0,
            written_bytes: 0,
            disk_bytes: 0,
            disk_bytes_peak: 0,
            payload_bytes: 0,
            memory_bytes_peak: 0,
        },
    };
    filling.run()?;
    let mut filled = filling.filled;
    filled.payload_bytes = store.payload_bytes();
    drop(store);
    filled.disk_bytes = measure::disk_bytes(&place.folder)?;
    Ok(filled)
}

struct Filling<'a> {
    place: &'a Place,
    digests: &'a [Digest],
    store: &'a mut dyn Store,
    tell: bool,
    spent: Duration,
    longest: Duration,
    seen: u32,
    filled: Filled,
}

impl Filling<'_> {
    fn run(&mut self) -> Result<()> {
        let (processor_before, written_before) =
            (measure::process_time()?, measure::written_bytes()?);
        let mut own_time = Duration::ZERO;
        let (mut unsynced_bytes, mut last_sync) = (0, Duration::ZERO);
        let mut contents = Vec::new();
        for (flow, chunks) in self.place.load.flows() {
            for batch in chunks.chunks(BATCH_CHUNKS) {
                let before = measure::thread_time()?;
                let ends = self.contents(batch, &mut contents);
                own_time += measure::thread_time()?.saturating_sub(before);

                unsynced_bytes += self.receive(flow, batch, &contents, &ends)?;
                if unsynced_bytes >= SYNC_BYTES || self.spent - last_sync >= SYNC_AFTER {
                    self.sync()?;
                    (unsynced_bytes, last_sync) = (0, self.spent);
                }
            }
        }
        self.sync()?;
        let processor = measure::process_time()?.saturating_sub(processor_before + own_time);
        self.filled.processor_seconds = processor.as_secs_f64();
        self.filled.seconds = self.spent.as_secs_f64();
        self.filled.longest_ms = self.longest.as_secs_f64() * 1e3;
        self.filled.written_bytes = measure::written_bytes()? - written_before;
        self.filled.memory_bytes_peak = measure::memory_bytes()?.1;
        Ok(())
    }

    fn contents(&self, batch: &[u32], contents: &mut Vec<u8>) -> Vec<usize> {
        contents.clear();
        let append = |chunk: &u32| {
            self.place.load.append_content(*chunk, contents);
            contents.len()
        };
        batch.iter().map(append).collect()
    }

    /// Gives the bytes that were new.
    fn receive(
        &mut self,
        flow: u64,
        batch: &[u32],
        contents: &[u8],
        ends: &[usize],
    ) -> Result<u64> {
        let (mut begin, mut new_bytes) = (0, 0);
        let mut arrivals = Vec::with_capacity(batch.len());
        for (chunk, end) in batch.iter().zip(ends) {
            let bytes = &contents[begin..*end];
            begin = *end;
            if *chunk == self.seen {
                self.seen += 1;
                new_bytes += bytes.len() as u64;
            }
            let digest = &self.digests[*chunk as usize];
            arrivals.push(Arrival { digest, bytes });
        }
        self.filled.arrivals += arrivals.len() as u64;
        self.filled.arrival_bytes += contents.len() as u64;
        self.filled.new_bytes += new_bytes;
        let before = Instant::now();
        self.store.receive(flow, &arrivals)?;
        self.took(before);
        self.say(Event::Received(self.seen))?;
        Ok(new_bytes)
    }

    fn sync(&mut self) -> Result<()> {
        let before = Instant::now();
        self.store.sync()?;
        self.took(before);
        self.filled.syncs += 1;
        let disk_bytes = measure::disk_bytes(&self.place.folder)?;
        self.filled.disk_bytes_peak = self.filled.disk_bytes_peak.max(disk_bytes);
        self.say(Event::Synced(self.seen))
    }

    fn took(&mut self, before: Instant) {
        let took = before.elapsed();
        self.spent += took;
        self.longest = self.longest.max(took);
    }

    fn say(&self, event: Event) -> Result<()> {
        if self.tell {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&event)?)?;
        }
        Ok(())
    }
}
