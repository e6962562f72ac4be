//! Digests: what names chunks and what checks blocks.

use std::hint::black_box;

use refrain_codec::{check, simd::Backend};

use super::{
    Contest, Inputs, Place, RowName, peers,
    walk::{Circle, Pass},
};

pub fn all<'a>(inputs: &'a Inputs, _backends: &'a [Backend]) -> Vec<Contest<'a>> {
    vec![block_check(inputs)]
}

fn block_check(inputs: &Inputs) -> Contest<'_> {
    let circle = Circle::again(inputs.random());
    let name = RowName {
        kernel: "check of a block",
        data: "random",
        place: Place::Hot,
    };
    let contest = Contest::new(name).with("refrain", &circle, || {
        |pass: Pass<'_>| {
            for (_, block) in pass.blocks() {
                black_box(check(0, block));
            }
        }
    });
    peers::with_read(contest, &circle)
}
