//! How fast a GPU is: what the pipeline has it do, without all else.

use std::{collections::VecDeque, io::Read, sync::Arc};

use refrain_codec::{chunk::chunking::Chunking, marker::pack::WINDOW_BYTES};

use super::{
    GpuScanner,
    gpu::{self, Gpu, Pinned, Slot},
};
use crate::{
    batch::{Batch, Piece},
    error::NoGpu,
    noise::Noise,
    options::BulkOptions,
};

/// Batches that go to the GPU in a turn.
const BATCHES: usize = 8;

/// Where a batch's bytes begin: the one before them is not looked at.
const START: usize = WINDOW_BYTES;

/// The first GPU, and noise to look for anchors in, for measurements.
///
/// Each of its methods is a turn of work, over when it returns.
pub struct GpuTrial {
    gpu: Arc<Gpu>,
    scanner: GpuScanner,
    /// As if it were a batch's, and much larger.
    resident: Slot,
    batches: VecDeque<Box<Batch>>,
}

impl GpuTrial {
    /// Makes the first GPU ready to find what `options` cut at: in batches of their length, and in
    /// `resident_bytes` that are there already. The more these are, the less their launch counts.
    ///
    /// # Errors
    /// If there is none, or one that cannot be used.
    pub fn open(options: &BulkOptions, resident_bytes: usize) -> Result<Self, NoGpu> {
        gpu::count()?;
        let gpu = Arc::new(Gpu::open(0, options.chunking)?);
        let mut noise = Noise(1);
        let resident = resident(&gpu, options.chunking, resident_bytes, &mut noise)?;
        let batches = (0..BATCHES).map(|_| batch(&gpu, options.batch_bytes, &mut noise));
        let batches = batches.collect::<Result<_, _>>()?;
        Ok(Self {
            scanner: GpuScanner::new(&gpu, options)?,
            gpu,
            resident,
            batches,
        })
    }

    /// What the GPU is called.
    #[must_use]
    pub fn name(&self) -> &str {
        self.gpu.name()
    }

    /// Bytes that [`copy`](Self::copy) and [`find`](Self::find) take.
    #[must_use]
    pub fn batches_bytes(&self) -> usize {
        let pieces = self.batches.iter().flat_map(|batch| &batch.pieces);
        pieces.map(|piece| piece.place.len()).sum()
    }

    /// Finds and lists all anchors in the bytes that are on the GPU; the list stays there.
    ///
    /// # Errors
    /// If the GPU breaks.
    pub fn find_on_device(&mut self) -> Result<(), NoGpu> {
        self.resident.find_again()
    }

    /// Copies batches to the GPU, as fast as it takes them.
    ///
    /// # Errors
    /// If the GPU breaks.
    pub fn copy(&mut self) -> Result<(), NoGpu> {
        self.resident.copy(&self.batches)
    }

    /// Finds the anchors of batches as the pipeline does, and says how many there are.
    ///
    /// # Errors
    /// If the GPU breaks, or did before.
    pub fn find(&mut self) -> Result<usize, NoGpu> {
        for _ in 0..self.batches.len() {
            let mut batch = self.batches.pop_front().expect("there are as many");
            batch.anchors.clear();
            if self.scanner.idle.is_empty() && !self.scanner.busy.is_empty() {
                self.batches.push_back(self.scanner.finish());
            }
            self.batches.extend(self.scanner.start(batch));
        }
        while !self.scanner.busy.is_empty() {
            self.batches.push_back(self.scanner.finish());
        }
        match &self.scanner.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(self.batches.iter().map(|batch| batch.anchors.len()).sum()),
        }
    }
}

fn batch(gpu: &Gpu, bytes: usize, noise: &mut Noise) -> Result<Box<Batch>, NoGpu> {
    let place = START..START + bytes;
    let mut pinned = Pinned::<u8>::new(gpu, place.end)?;
    fill(&mut pinned, noise);
    let mut batch = Batch::new(Box::new(pinned));
    batch.pieces.push(Piece::new(0, place));
    Ok(Box::new(batch))
}

/// A slot whose bytes are on the GPU.
fn resident(
    gpu: &Arc<Gpu>,
    chunking: Chunking,
    count: usize,
    noise: &mut Noise,
) -> Result<Slot, NoGpu> {
    let mut slot = Slot::new(gpu.clone(), count, super::anchors_max(chunking, count))?;
    let mut bytes = vec![0; count];
    fill(&mut bytes, noise);
    slot.start(Box::new(Batch::new(Box::new(bytes))), 0..count)?;
    slot.finish().1?;
    Ok(slot)
}

fn fill(bytes: &mut [u8], noise: &mut Noise) {
    noise.read_exact(bytes).expect("noise does not end");
}
