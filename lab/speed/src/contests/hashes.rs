//! Digests: what names chunks and what checks blocks.

use std::hint::black_box;

use refrain_codec::{check_on, chunk::hash::ChunkHasher, simd::Backend};

use super::{
    Contest, Inputs, Place, RowName, name_of, peers,
    walk::{Circle, Pass, SCANNED_BYTES},
};

pub(super) fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    let mut contests = vec![block_check(inputs, backends)];
    for (kernel, chunk_bytes) in [
        ("chunk hashes, 64 B", 64),
        ("chunk hashes, 2 KiB", 2 << 10),
        ("chunk hashes, 8 KiB", 8 << 10),
    ] {
        contests.push(chunk_hashes(kernel, chunk_bytes, inputs, backends));
    }
    contests
}

fn block_check<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Contest<'a> {
    let circle = Circle::again(inputs.random());
    let name = RowName {
        kernel: "check of a block",
        data: "random",
        place: Place::Hot,
    };
    let mut contest = Contest::new(name);
    for &backend in backends {
        contest = contest.with(&name_of(backend.instruction_set()), &circle, move || {
            move |pass: Pass<'a>| {
                for (_, block) in pass.blocks() {
                    black_box(check_on(backend, 0, block));
                }
            }
        });
    }
    peers::with_read(contest, &circle)
}

/// Digests of chunks of one length, a MiB of them together.
fn chunk_hashes<'a>(
    kernel: &'static str,
    chunk_bytes: usize,
    inputs: &'a Inputs,
    backends: &'a [Backend],
) -> Contest<'a> {
    let circle = Circle::again(inputs.random());
    let mut contest = Contest::new(RowName {
        kernel,
        data: "random",
        place: Place::Hot,
    });
    for &backend in backends {
        contest = contest.with(&name_of(backend.instruction_set()), &circle, move || {
            let starts = (0..SCANNED_BYTES).step_by(chunk_bytes);
            let chunks: Vec<_> = starts.map(|start| start..start + chunk_bytes).collect();
            let mut hashes = Vec::new();
            move |pass: Pass<'a>| {
                ChunkHasher::Blake3.hash_all(backend, pass.bytes, &chunks, &mut hashes);
                black_box(&hashes);
            }
        });
    }
    let contest = peers::with_digests(contest, &circle, chunk_bytes);
    peers::with_weak_hashes(contest, &circle, chunk_bytes)
}
