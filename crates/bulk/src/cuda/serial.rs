//! One thread that has a GPU find anchors, and waits for it; all else is done as the naive method does it
//! (HARENS, section IV: *a CUDA accelerated algorithm*). It shows what the GPU alone is worth.

use std::{ops::Range, sync::atomic::AtomicBool, time::Instant};

use super::Gpus;
use crate::{
    batch::Batch,
    cut::{Cutter, front_bytes},
    error::BulkError,
    fetch::Planner,
    hash_match::Shards,
    input::{Input, find},
    options::BulkOptions,
    outcome::Outcome,
    tally::Tally,
};

pub(crate) fn run(
    inputs: Vec<Input>,
    options: &BulkOptions,
    gpus: &Gpus,
    mut tally: Tally<'_>,
) -> Result<Outcome, BulkError> {
    let begun = Instant::now();
    let front = front_bytes(options.chunking);
    let mut scanners = gpus.scanners(options)?;
    let mut scanner = scanners.swap_remove(0);
    let mut cutter = Cutter::new(options.chunking, options.backend);
    let mut shards = Shards::new(options.cache_bytes, options.chunking.min_bytes());
    let mut planner = Planner::new(find(inputs), front);
    let bytes = gpus.bytes(front + options.batch_bytes)?;
    let mut next = Some(Box::new(Batch::new(bytes)));
    while let Some(batch) = next.take()
        && !tally.is_cut_short
        && let Some(plan) = planner.plan(batch)
    {
        let read = plan.read();
        let scanned = scanner.start(read);
        let mut batch = scanned.unwrap_or_else(|| scanner.finish());
        cutter.cut(&mut batch);
        let Batch {
            bytes,
            chunks,
            digests,
            repeats,
            ..
        } = &mut *batch;
        let of_chunk = |chunk: &Range<usize>| options.hasher.digest(&bytes[chunk.clone()]);
        digests.extend(chunks.iter().map(of_chunk));
        repeats.extend(
            digests.iter().zip(chunks).map(|(digest, chunk)| {
                AtomicBool::new(shards.is_repeat(digest, chunk.len() as u32))
            }),
        );
        tally.batch(&mut batch);
        next = Some(batch);
    }
    tally.redundancy.forgotten_chunks = shards.forgotten();
    Ok(Outcome {
        redundancy: tally.redundancy,
        elapsed: begun.elapsed(),
        stages: Vec::new(),
        is_cut_short: tally.is_cut_short,
        gpus: gpus.names().into_iter().take(1).collect(),
        gpu_failure: scanner.failure,
    })
}
