//! Finding anchors on GPUs (HARENS, section III.B).
//!
//! Batches leave a queue and enter another, as with [`Scanner`], whose anchors these are bit for bit.
//! Each GPU has a thread that feeds it, and takes the next batch whenever it has room for one: so
//! several share an input. A batch is copied from where it was read to, in memory that a GPU reads by
//! itself, while others are looked through and what was found in yet others comes back.
//!
//! - Deviation: no copies of the input in shared memory, shifted against each other. A thread rolls a
//!   fingerprint along 480 windows from registers; shared memory has its tables, once for each lane of
//!   a warp, so that no two lanes ever wait for each other.
//! - Deviation: positions are put in a list on the GPU, and the list comes back.

mod gpu;
pub(crate) mod serial;
mod trial;

use std::{
    collections::VecDeque,
    num::NonZero,
    ops::Range,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use refrain_codec::{
    chunk::chunking::{Chunking, ChunkingMethod},
    marker::{AnchorFinder, pack::WINDOW_BYTES},
};

use gpu::{Gpu, Pinned, Slot};
pub use trial::GpuTrial;

use crate::{
    batch::{Batch, Bytes, pass},
    error::NoGpu,
    options::BulkOptions,
    scan::{Scanner, anchor_distance},
};

/// Batches that a GPU has at once: one comes, one is looked through, of one the anchors leave.
const SLOTS: usize = 3;

/// Anchors that a batch has room for, in multiples of what random data has.
const ANCHORS_EXPECTED: usize = 4;

/// All GPUs of this machine.
pub(crate) struct Gpus(Vec<Arc<Gpu>>);

impl Gpus {
    /// Makes them ready to find what `chunking` cuts at.
    ///
    /// # Errors
    /// If there is none, or one that cannot be used.
    pub(crate) fn open(chunking: Chunking) -> Result<Self, NoGpu> {
        let all = (0..gpu::count()?).map(|number| Gpu::open(number, chunking).map(Arc::new));
        all.collect::<Result<_, _>>().map(Self)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> NonZero<usize> {
        NonZero::new(self.0.len()).expect("there is one")
    }

    /// Batches that they have at once.
    pub(crate) fn batches(&self) -> usize {
        SLOTS * self.0.len()
    }

    /// What they are called.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().map(|gpu| gpu.name().to_owned()).collect()
    }

    /// So many bytes that they can read by themselves.
    pub(crate) fn bytes(&self, count: usize) -> Result<Bytes, NoGpu> {
        let first = self.0.first().expect("there is one");
        Ok(Box::new(Pinned::<u8>::new(first, count)?))
    }

    /// What each of them scans with.
    pub(crate) fn scanners(&self, options: &BulkOptions) -> Result<Vec<GpuScanner>, NoGpu> {
        let scanners = self.0.iter().map(|gpu| GpuScanner::new(gpu, options));
        scanners.collect()
    }
}

/// Finds anchors on a GPU, and on the processor once that fails.
pub(crate) struct GpuScanner {
    idle: Vec<Slot>,
    /// Those at work, in the order in which they began.
    busy: VecDeque<Slot>,
    /// What the kernels leave to be tested.
    rest: Option<AnchorFinder>,
    processor: Scanner,
    failure: Option<NoGpu>,
}

impl GpuScanner {
    fn new(gpu: &Arc<Gpu>, options: &BulkOptions) -> Result<Self, NoGpu> {
        let bytes_max = options.batch_bytes + WINDOW_BYTES;
        let distance = anchor_distance(options.chunking);
        let anchors_max = anchors_max(options.chunking, bytes_max);
        let slots = (0..SLOTS).map(|_| Slot::new(gpu.clone(), bytes_max, anchors_max));
        let is_pack = options.chunking.method() == ChunkingMethod::Pack;
        Ok(Self {
            idle: slots.collect::<Result<_, _>>()?,
            busy: VecDeque::new(),
            rest: is_pack.then(|| AnchorFinder::sparse(distance)),
            processor: Scanner::new(options.chunking, options.backend),
            failure: None,
        })
    }

    /// Scans all batches that come, and passes them on; says for how long it had some. Why the GPU was
    /// given up, if it was, is left in `failure`.
    pub(crate) fn work(
        mut self,
        from: &Receiver<Box<Batch>>,
        to: &Sender<Box<Batch>>,
        failure: &OnceLock<NoGpu>,
    ) -> Duration {
        let mut waited = Duration::ZERO;
        let begun = Instant::now();
        loop {
            let next = match (self.idle.is_empty(), self.busy.is_empty()) {
                (true, false) => Err(TryRecvError::Empty),
                (_, true) => {
                    let idle = Instant::now();
                    let next = from.recv();
                    waited += idle.elapsed();
                    next.map_err(|_| TryRecvError::Disconnected)
                }
                (false, false) => from.try_recv(),
            };
            match next {
                Ok(batch) => {
                    if let Some(scanned) = self.start(batch) {
                        pass(to, scanned);
                    }
                }
                Err(TryRecvError::Disconnected) if self.busy.is_empty() => break,
                Err(_) => pass(to, self.finish()),
            }
        }
        if let Some(failed) = self.failure {
            // One is enough to be told.
            let _ = failure.set(failed);
        }
        begun.elapsed() - waited
    }

    /// Begins with a batch, or gives it back if it could not but be scanned at once.
    pub(crate) fn start(&mut self, mut batch: Box<Batch>) -> Option<Box<Batch>> {
        if let Some(mut slot) = self.idle.pop() {
            let range = bytes_of(&batch);
            match slot.start(batch, range) {
                Ok(()) => {
                    self.busy.push_back(slot);
                    return None;
                }
                Err(failure) => {
                    self.give_up(failure);
                    (batch, _) = slot.finish();
                }
            }
        }
        self.processor.scan(&mut batch);
        Some(batch)
    }

    /// Waits for the batch that was begun first.
    pub(crate) fn finish(&mut self) -> Box<Batch> {
        let mut slot = self.busy.pop_front().expect("one was begun");
        let (mut batch, found) = slot.finish();
        match found {
            Ok(Some(found)) => deal_out(found, self.rest.as_ref(), &mut batch),
            // So many that lists of them are no use.
            Ok(None) => self.processor.scan(&mut batch),
            Err(failure) => {
                self.processor.scan(&mut batch);
                self.give_up(failure);
                return batch;
            }
        }
        if self.failure.is_none() {
            self.idle.push(slot);
        }
        batch
    }

    fn give_up(&mut self, failure: NoGpu) {
        self.idle.clear();
        self.failure.get_or_insert(failure);
    }
}

/// Anchors in so many bytes that there is room for.
fn anchors_max(chunking: Chunking, bytes: usize) -> usize {
    1024 + ANCHORS_EXPECTED * bytes / anchor_distance(chunking).bytes()
}

/// The bytes of a batch that windows lie in, and the one in front.
fn bytes_of(batch: &Batch) -> Range<usize> {
    match (batch.pieces.first(), batch.pieces.last()) {
        (Some(first), Some(last)) => first.place.start - first.bytes_before - 1..last.place.end,
        _ => 0..0,
    }
}

/// Gives each piece its anchors among those that were `found` in all bytes of the batch: those whose
/// windows lie in it.
fn deal_out(found: &[u32], rest: Option<&AnchorFinder>, batch: &mut Batch) {
    let first = bytes_of(batch).start + 1;
    let mut found = found
        .iter()
        .map(|&window| first + window as usize)
        .peekable();
    for piece in &mut batch.pieces {
        let start = piece.place.start - piece.bytes_before;
        while found.next_if(|&window| window < start).is_some() {}
        while let Some(window) = found.next_if(|&window| window < piece.place.end) {
            let bytes = batch.bytes[window..piece.place.end].first_chunk();
            let is_anchor = bytes.is_some_and(|bytes| rest.is_none_or(|rest| rest.is_kept(bytes)));
            if is_anchor {
                let offset = piece.offset - piece.bytes_before as u64;
                batch.anchors.push(offset + (window - start) as u64);
            }
        }
        piece.anchors_end = batch.anchors.len();
    }
}
