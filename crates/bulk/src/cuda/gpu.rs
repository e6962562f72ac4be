//! One GPU: what is allocated there, copied to and from it, and launched on it. All that is unsafe
//! about that is here.
#![allow(
    unsafe_code,
    reason = "the driver takes pointers, and reads and writes memory through them"
)]

use std::{
    collections::VecDeque,
    ffi::c_void,
    ops::{Deref, DerefMut, Range},
    ptr::NonNull,
    slice,
    sync::Arc,
};

use cudarc::{
    driver::{
        CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, LaunchConfig,
        PushKernelArg, result,
        sys::{
            CU_MEMHOSTALLOC_PORTABLE, CUdevice_attribute, CUfunction_attribute, is_culib_present,
        },
    },
    nvrtc::Ptx,
};
use refrain_codec::{
    chunk::chunking::{Chunking, ChunkingMethod},
    marker::{PackMask, RabinTables, pack::WINDOW_BYTES},
};

use crate::{batch::Batch, error::NoGpu};

/// The kernels, as the driver compiles them on: `compile` makes it.
const KERNELS: &str = include_str!("kernels.ptx");

// As in kernels.cu.
const SPAN: usize = 480;
const LISTERS: u32 = 256;
const PART_WINDOWS: usize = 32 * 8 * LISTERS as usize;
const LANES: usize = 32;

/// Of a lane's two tables of whole bytes, of eight bytes an entry.
const TABLE_BYTES: usize = 2 * 256 * 8;
/// The same of half bytes.
const HALVES_TABLE_BYTES: usize = 2 * 2 * 16 * 8;

/// Threads of a block that marks. Of halves, they take more registers.
const MARKERS: u32 = 512;

/// Longer masks than the longest of PACK are for the processor to test.
const PACK_MASK_BITS_MAX: u32 = 15;

/// A GPU, with the kernels for one way of cutting.
pub(crate) struct Gpu {
    context: Arc<CudaContext>,
    name: String,
    mark: Mark,
    count_marks: CudaFunction,
    sum_counts: CudaFunction,
    list_marks: CudaFunction,
    /// Multiprocessors.
    processors: u32,
}

/// How windows are marked.
enum Mark {
    Modp {
        kernel: CudaFunction,
        tables: CudaSlice<u64>,
        shared_bytes: u32,
        mask: u32,
    },
    Pack {
        kernel: CudaFunction,
        mask: u64,
    },
}

/// How many GPUs there are.
pub(crate) fn count() -> Result<usize, NoGpu> {
    // SAFETY: it loads a library that the system trusts, and whose initialisers are harmless.
    if !unsafe { is_culib_present() } {
        return Err(NoGpu::None);
    }
    // A driver without a device says so when it begins.
    result::init().map_err(|_| NoGpu::None)?;
    match CudaContext::device_count()? {
        0 => Err(NoGpu::None),
        count => Ok(count as usize),
    }
}

impl Gpu {
    /// The one with this number, made ready to find what `chunking` cuts at. Fixed chunks are cut at nothing
    /// that could be found; for them it finds what MODP cuts at, which nobody takes.
    pub(crate) fn open(number: usize, chunking: Chunking) -> Result<Self, NoGpu> {
        let context = CudaContext::new(number)?;
        let module = context.load_module(Ptx::from_src(KERNELS))?;
        let kernel = |name| module.load_function(name);
        let attribute = |attribute| context.attribute(attribute);
        let bits = chunking.average_bytes().ilog2();
        let mark = match chunking.method() {
            ChunkingMethod::Modp | ChunkingMethod::Fixed => {
                let room = attribute(
                    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                )?;
                let (name, bytes) = match TABLE_BYTES * LANES <= room as usize {
                    true => ("mark_modp_by_bytes", TABLE_BYTES * LANES),
                    false => ("mark_modp_by_halves", HALVES_TABLE_BYTES * LANES),
                };
                let kernel = kernel(name)?;
                kernel.set_attribute(
                    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    bytes as i32,
                )?;
                let RabinTables { entering, leaving } = RabinTables::new();
                let tables = context
                    .default_stream()
                    .clone_htod(&[entering, leaving].concat())?;
                context.synchronize()?;
                Mark::Modp {
                    kernel,
                    tables,
                    shared_bytes: bytes as u32,
                    mask: (1 << bits) - 1,
                }
            }
            ChunkingMethod::Pack => {
                let bits = bits.min(PACK_MASK_BITS_MAX) as u8;
                let mask = PackMask::with_bits(bits).expect("10 to 15");
                Mark::Pack {
                    kernel: kernel("mark_pack")?,
                    mask: mask.bits(),
                }
            }
        };
        let processors =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
        Ok(Self {
            name: context.name()?,
            count_marks: kernel("count_marks")?,
            sum_counts: kernel("sum_counts")?,
            list_marks: kernel("list_marks")?,
            mark,
            processors,
            context,
        })
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Memory of this machine that GPUs copy from and to by themselves.
pub(crate) struct Pinned<T> {
    start: NonNull<T>,
    len: usize,
    /// The memory goes with it.
    context: Arc<CudaContext>,
}

// SAFETY: it is memory like any other, which one owner has.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T: Copy + Default> Pinned<T> {
    /// So many defaults.
    pub(crate) fn new(gpu: &Gpu, len: usize) -> Result<Self, NoGpu> {
        gpu.context.bind_to_thread()?;
        let bytes = size_of::<T>() * len.max(1);
        // SAFETY: it is written below before anybody reads it.
        let start = unsafe { result::malloc_host(bytes, CU_MEMHOSTALLOC_PORTABLE) }?;
        let start = NonNull::new(start.cast::<T>()).expect("what was allocated is somewhere");
        for index in 0..len {
            // SAFETY: there is room for `len`, aligned to pages.
            unsafe { start.add(index).write(T::default()) };
        }
        Ok(Self {
            start,
            len,
            context: gpu.context.clone(),
        })
    }
}

impl<T> Deref for Pinned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: all of it was written, and it is borrowed as this is.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else has it.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // What fails here leaks until the process ends.
        let _ = self.context.bind_to_thread();
        // SAFETY: it was allocated so, once.
        let _ = unsafe { result::free_host(self.start.as_ptr().cast::<c_void>()) };
    }
}

/// Room on a GPU for what is marked at once, in an order of its own beside that of others.
pub(crate) struct Slot {
    gpu: Arc<Gpu>,
    stream: Arc<CudaStream>,
    bytes: CudaSlice<u8>,
    marks: CudaSlice<u32>,
    counts: CudaSlice<u32>,
    list: CudaSlice<u32>,
    /// How many were listed.
    counted: Pinned<u32>,
    listed: Pinned<u32>,
    /// What is looked at.
    batch: Option<Box<Batch>>,
    /// Windows of it.
    windows: usize,
}

impl Slot {
    /// For `bytes_max` at once, of which `anchors_max` windows can be told.
    pub(crate) fn new(gpu: Arc<Gpu>, bytes_max: usize, anchors_max: usize) -> Result<Self, NoGpu> {
        let stream = gpu.context.new_stream()?;
        let spans = bytes_max.div_ceil(SPAN);
        let parts = bytes_max.div_ceil(PART_WINDOWS);
        Ok(Self {
            bytes: stream.alloc_zeros(spans * SPAN + 2 * WINDOW_BYTES)?,
            // Of whole words, though marks are written by halves.
            marks: stream.alloc_zeros(spans * SPAN / 32 + 1)?,
            counts: stream.alloc_zeros(parts + 1)?,
            list: stream.alloc_zeros(anchors_max)?,
            counted: Pinned::new(&gpu, 1)?,
            listed: Pinned::new(&gpu, anchors_max)?,
            batch: None,
            windows: 0,
            stream,
            gpu,
        })
    }

    /// Begins to look for anchors in a `range` of a batch's bytes, which has one more byte in front.
    /// [`finish`](Self::finish) gives the batch back, and what was found.
    pub(crate) fn start(&mut self, batch: Box<Batch>, range: Range<usize>) -> Result<(), NoGpu> {
        self.windows = range.len().saturating_sub(WINDOW_BYTES);
        let bytes = &self.batch.insert(batch).bytes[range];
        if self.windows == 0 {
            return Ok(());
        }
        assert!(
            bytes.len() <= self.bytes.len(),
            "a slot has room for its batch"
        );
        let Self { gpu, stream, .. } = self;
        gpu.context.bind_to_thread()?;
        {
            let (to, _recorded) = self.bytes.device_ptr_mut(stream);
            // SAFETY: there is room, and the batch is this slot's until all is over.
            unsafe { result::memcpy_htod_async(to, bytes, stream.cu_stream()) }?;
        }
        self.launch()?;
        self.tell()
    }

    /// Copies batches to the GPU, one after the other, and looks for nothing in them.
    pub(crate) fn copy(&mut self, batches: &VecDeque<Box<Batch>>) -> Result<(), NoGpu> {
        let Self { gpu, stream, .. } = self;
        gpu.context.bind_to_thread()?;
        let mut begun = Ok(());
        for batch in batches {
            let bytes = &batch.bytes[..];
            assert!(bytes.len() <= self.bytes.len(), "it has room for a batch");
            let (to, _recorded) = self.bytes.device_ptr_mut(stream);
            // SAFETY: there is room, and all is over before the batches are given back.
            begun = unsafe { result::memcpy_htod_async(to, bytes, stream.cu_stream()) };
            if begun.is_err() {
                break;
            }
        }
        stream.synchronize()?;
        Ok(begun?)
    }

    /// Looks once more for what was looked for last, or in what was copied since.
    pub(crate) fn find_again(&mut self) -> Result<(), NoGpu> {
        self.gpu.context.bind_to_thread()?;
        let launched = self.launch();
        self.stream.synchronize()?;
        launched
    }

    fn launch(&mut self) -> Result<(), NoGpu> {
        let Self { gpu, stream, .. } = self;
        let windows = self.windows as u32;
        let spans = self.windows.div_ceil(SPAN) as u32;
        let mut marked = LaunchConfig {
            grid_dim: (spans.div_ceil(MARKERS).min(4 * gpu.processors), 1, 1),
            block_dim: (MARKERS, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = match &gpu.mark {
            Mark::Modp {
                kernel,
                tables,
                shared_bytes,
                mask,
            } => {
                marked.shared_mem_bytes = *shared_bytes;
                let mut launch = stream.launch_builder(kernel);
                launch.arg(&self.bytes).arg(&windows).arg(mask).arg(tables);
                launch
            }
            Mark::Pack { kernel, mask } => {
                let mut launch = stream.launch_builder(kernel);
                launch.arg(&self.bytes).arg(&windows).arg(mask);
                launch
            }
        };
        launch.arg(&mut self.marks);
        // SAFETY: the arguments are the kernel's; it reads 48 bytes behind the last span and writes
        // marks of the windows that there are.
        unsafe { launch.launch(marked) }?;

        let parts = self.windows.div_ceil(PART_WINDOWS) as u32;
        let of_parts = LaunchConfig {
            grid_dim: (parts, 1, 1),
            block_dim: (LISTERS, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = stream.launch_builder(&gpu.count_marks);
        launch.arg(&self.marks).arg(&windows).arg(&mut self.counts);
        // SAFETY: a count for each part.
        unsafe { launch.launch(of_parts) }?;

        let mut launch = stream.launch_builder(&gpu.sum_counts);
        launch.arg(&mut self.counts).arg(&parts);
        let of_one = LaunchConfig {
            grid_dim: (1, 1, 1),
            ..of_parts
        };
        // SAFETY: there is room for one more than parts.
        unsafe { launch.launch(of_one) }?;

        let room = self.list.len() as u32;
        let mut launch = stream.launch_builder(&gpu.list_marks);
        launch.arg(&self.marks).arg(&windows).arg(&self.counts);
        launch.arg(&mut self.list).arg(&room);
        // SAFETY: it lists no more than there is room for.
        unsafe { launch.launch(of_parts) }?;
        Ok(())
    }

    /// Copies back how many there are, and as many as are likely.
    fn tell(&mut self) -> Result<(), NoGpu> {
        let Self { stream, .. } = self;
        let parts = self.windows.div_ceil(PART_WINDOWS);
        let counts = self.counts.slice(parts..=parts);
        let (from, _recorded) = counts.device_ptr(stream);
        // SAFETY: one word, to memory that is this slot's.
        unsafe { result::memcpy_dtoh_async(&mut self.counted, from, stream.cu_stream()) }?;
        let (from, _recorded) = self.list.device_ptr(stream);
        // SAFETY: both are as long.
        unsafe { result::memcpy_dtoh_async(&mut self.listed, from, stream.cu_stream()) }?;
        Ok(())
    }

    /// Waits for what was begun, or tried to: the batch, and the numbers of the windows that are anchors,
    /// in order; none if there are more of them than can be told.
    pub(crate) fn finish(&mut self) -> (Box<Batch>, Result<Option<&[u32]>, NoGpu>) {
        let over = self.stream.synchronize();
        let batch = self.batch.take().expect("something was begun");
        let found = match (over, self.windows) {
            (Err(error), _) => Err(error.into()),
            (Ok(()), 0) => Ok(Some(&[][..])),
            (Ok(()), _) => Ok(self.listed.get(..self.counted[0] as usize)),
        };
        (batch, found)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // What is copied to this slot's memory, and from others', is over before they go.
        let _ = self.stream.synchronize();
    }
}
