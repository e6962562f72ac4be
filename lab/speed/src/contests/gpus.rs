//! GPUs, where there is one: how fast it finds anchors in what it has, and in what is here.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use refrain_bulk::{BulkOptions, GpuTrial, Method, NoGpu};
use refrain_codec::chunk::chunking::{Chunking, ChunkingMethod};

use super::{Contest, Place, RowName};

/// What `refrain bulk` gives a GPU at once.
const BATCH_BYTES: usize = 16 << 20;

/// So many that launching a kernel is nothing beside looking through them.
const RESIDENT_BYTES: usize = 256 << 20;

/// None without a GPU.
pub(super) fn all<'a>() -> Vec<Contest<'a>> {
    let kernels = [
        ("GPU MODP anchors", ChunkingMethod::Modp),
        ("GPU PACK anchors", ChunkingMethod::Pack),
    ];
    kernels
        .into_iter()
        .filter_map(|(kernel, chunker)| of(kernel, chunker))
        .flatten()
        .collect()
}

fn of<'a>(kernel: &'static str, chunker: ChunkingMethod) -> Option<[Contest<'a>; 2]> {
    let options = BulkOptions {
        method: Method::Harens,
        chunking: Chunking::new(chunker, BulkOptions::CHUNK_BYTES).expect("the default is valid"),
        batch_bytes: BATCH_BYTES,
        ..BulkOptions::default()
    };
    let trial = GpuTrial::open(&options, RESIDENT_BYTES).ok()?;
    let bytes = trial.batches_bytes();
    let trial = Rc::new(RefCell::new(trial));
    let name = |place| RowName {
        kernel,
        data: "random",
        place,
    };
    Some([
        Contest::new(name(Place::Device)).turn(
            "refrain",
            RESIDENT_BYTES,
            timed(&trial, GpuTrial::find_on_device),
        ),
        Contest::new(name(Place::File))
            .turn(
                "refrain",
                bytes,
                timed(&trial, |trial| trial.find().map(drop)),
            )
            .turn("copy to it", bytes, timed(&trial, GpuTrial::copy)),
    ])
}

/// A turn of what the trial can do. One in which the GPU breaks has no speed that could be told.
fn timed<'a>(
    trial: &Rc<RefCell<GpuTrial>>,
    turn: impl Fn(&mut GpuTrial) -> Result<(), NoGpu> + 'a,
) -> impl FnMut() -> Duration + 'a {
    let trial = Rc::clone(trial);
    move || {
        let begun = Instant::now();
        turn(&mut trial.borrow_mut()).expect("a GPU that was opened goes on working");
        begun.elapsed()
    }
}
