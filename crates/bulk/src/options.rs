//! How redundancy is to be looked for.

use std::{fmt, num::NonZero, str::FromStr, thread};

use refrain_codec::{
    chunk::{
        chunking::{Chunking, ChunkingMethod},
        hash::ChunkHasher,
    },
    simd::Backend,
};
use thiserror::Error;

/// Who does the work: the methods that HARENS compares (section IV).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// One thread, which finds anchors a byte at a time and hashes chunk by chunk.
    Naive,
    /// A thread or more for every stage, and kernels that use all that the processor has.
    Pipeline,
    /// One thread, which has a GPU find anchors.
    Cuda,
    /// The pipeline, with anchors found by all GPUs.
    Harens,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Naive, Self::Pipeline, Self::Cuda, Self::Harens];
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Naive => "naive",
            Self::Pipeline => "pipeline",
            Self::Cuda => "cuda",
            Self::Harens => "harens",
        })
    }
}

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let mut all = Self::ALL.into_iter();
        all.find(|method| method.to_string() == name)
            .ok_or(UnknownMethod)
    }
}

/// A name that no method has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected `naive`, `pipeline`, `cuda` or `harens`")]
pub struct UnknownMethod;

/// How many threads each stage has. Cutting has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threads {
    /// That read.
    pub fetch: NonZero<usize>,
    /// That find anchors.
    pub scan: NonZero<usize>,
    /// That hash chunks: the paper's Hashers.
    pub hash: NonZero<usize>,
    /// That look hashes up: the paper's Matchers. No more than [`SHARDS`](crate::SHARDS) have work.
    pub matching: NonZero<usize>,
}

impl Threads {
    /// What suits a machine with so many processors.
    #[must_use]
    pub fn of(processors: NonZero<usize>) -> Self {
        let some = |count: usize| NonZero::new(count).unwrap_or(NonZero::<usize>::MIN);
        let processors = processors.get();
        Self {
            fetch: some(processors / 4),
            // Which of them has more to do, the content says: the system deals out the processors.
            scan: some(processors),
            hash: some(processors),
            matching: some(processors / 4),
        }
    }
}

impl Default for Threads {
    fn default() -> Self {
        Self::of(thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN))
    }
}

/// How redundancy is to be looked for.
#[derive(Clone, Copy, Debug)]
pub struct BulkOptions {
    /// Who does the work.
    pub method: Method,
    /// How files are cut.
    pub chunking: Chunking,
    /// What chunks are known by.
    pub hasher: ChunkHasher,
    /// Bytes of the chunks that are remembered.
    pub cache_bytes: u64,
    /// What the pipeline has.
    pub threads: Threads,
    /// Bytes that go through the stages at once.
    pub batch_bytes: usize,
    /// The processor's kernels.
    pub backend: Backend,
}

impl BulkOptions {
    /// The average chunk by default, the paper's (section III.E).
    pub const CHUNK_BYTES: u32 = 2 << 10;
    /// The cache by default: the less of the paper's two.
    pub const CACHE_BYTES: u64 = 8 << 30;
}

impl Default for BulkOptions {
    fn default() -> Self {
        Self {
            method: Method::Pipeline,
            chunking: Chunking::new(ChunkingMethod::Modp, Self::CHUNK_BYTES)
                .expect("the default is valid"),
            hasher: ChunkHasher::default(),
            cache_bytes: Self::CACHE_BYTES,
            threads: Threads::default(),
            batch_bytes: 1 << 20,
            backend: Backend::best(),
        }
    }
}
