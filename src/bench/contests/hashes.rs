//! Digests: what names chunks and what checks blocks.

use std::hint::black_box;

use refrain_codec::{
    Decoder,
    geometry::{CACHE_BYTES_MIN, CacheGeometry},
    simd::Backend,
};

use super::{
    Contest, Inputs, Place, RowName, name_of, peers,
    walk::{Circle, Pass},
};

pub fn all<'a>(inputs: &'a Inputs, backends: &'a [Backend]) -> Vec<Contest<'a>> {
    vec![block_check(inputs, backends)]
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
            let geometry = CacheGeometry::new(CACHE_BYTES_MIN).expect("a valid size");
            let decoder = Decoder::with_backend(geometry, backend);
            move |pass: Pass<'a>| {
                for (_, block) in pass.blocks() {
                    black_box(decoder.check(0, block));
                }
            }
        });
    }
    peers::with_read(contest, &circle)
}
