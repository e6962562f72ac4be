//! Cutting streams into PACK's chunks, without and with their digests, beside others' chunkers
//! and digests.
//!
//! With digests it is what a receiver pays to learn, and what a sender would pay that cuts and
//! hashes everything itself.

use std::{hint::black_box, ops::Range, rc::Rc};

use refrain_codec::{
    chunk::{
        hash::ChunkHasher,
        stream::{ChunkBounds, StreamChunks},
    },
    marker::PackMask,
    simd::Backend,
};

use super::{
    CHUNK_BYTES, Contest, Inputs, Place, RowName, name_of, peers,
    walk::{Circle, Pass},
};

pub(super) fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    let hot = [("random", inputs.random()), ("text", inputs.text())];
    let hot = hot.map(|(data, bytes)| (data, Place::Hot, Circle::again(bytes)));
    let file = [("random", inputs.random()), ("real", inputs.real())];
    let file = file.map(|(data, bytes)| {
        let circle = Circle::streamed(bytes, inputs.evicting());
        (data, Place::File, circle)
    });
    let mut contests = Vec::new();
    for (data, place, circle) in hot.into_iter().chain(file) {
        let name = |kernel| RowName {
            kernel,
            data,
            place,
        };
        contests.push(cutting(name("PACK chunks"), &circle, backends));
        contests.push(naming(name("PACK chunks, digests"), &circle, backends));
    }
    contests
}

fn cutting<'a>(name: RowName, circle: &Rc<Circle<'a>>, backends: &'a [Backend]) -> Contest<'a> {
    let mut contest = Contest::new(name);
    for &backend in backends {
        contest = contest.with(&name_of(backend.instruction_set()), circle, move || {
            let mut cutter = Cutter::new(backend);
            move |pass: Pass<'a>| {
                black_box(cutter.cut(pass.bytes));
            }
        });
    }
    peers::with_read(peers::with_chunkers(contest, circle), circle)
}

fn naming<'a>(name: RowName, circle: &Rc<Circle<'a>>, backends: &'a [Backend]) -> Contest<'a> {
    let cut_and = |backend, hasher: ChunkHasher| {
        move || {
            let mut cutter = Cutter::new(backend);
            move |pass: Pass<'a>| {
                for range in cutter.cut(pass.bytes) {
                    let chunk = &pass.bytes[range.start as usize..range.end as usize];
                    black_box(hasher.digest(chunk));
                }
            }
        }
    };
    let mut contest = Contest::new(name).of_chunks(CHUNK_BYTES);
    for &backend in backends {
        let work = cut_and(backend, ChunkHasher::Blake3);
        contest = contest.with(&name_of(backend.instruction_set()), circle, work);
    }
    let sha1 = cut_and(backends[0], ChunkHasher::Sha1);
    let contest = contest.with("PACK chunks, sha1", circle, sha1);
    peers::with_digests(contest, circle, CHUNK_BYTES)
}

/// Each pass is a stream of its own.
struct Cutter {
    cutter: StreamChunks,
    chunks: Vec<Range<u64>>,
}

impl Cutter {
    fn new(backend: Backend) -> Self {
        let cutter = StreamChunks::new(PackMask::default(), ChunkBounds::default());
        Self {
            cutter: cutter.with_backend(backend),
            chunks: Vec::new(),
        }
    }

    fn cut(&mut self, stream: &[u8]) -> &[Range<u64>] {
        self.chunks.clear();
        self.cutter.feed(stream, &mut self.chunks);
        self.cutter.finish(&mut self.chunks);
        &self.chunks
    }
}
