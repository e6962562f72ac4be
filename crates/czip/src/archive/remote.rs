//! An archive on a web server, of which only what is needed is fetched.
//!
//! Bytes come in blocks, which are kept: header, root and the parts of the table lie close together, and
//! what is read next is often close to what was read before. Who goes on where the block before ended
//! gets twice as many at once, up to a bound. Threads that want the same block wait for one request.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use quick_cache::{
    Weighter,
    sync::{Cache, GuardResult},
};
use thiserror::Error;

use super::Source;
use crate::{
    format::{FormatError, header::is_archive},
    remote::{Remote, RemoteError, RemoteOptions},
};

/// The most bytes that one request asks for.
const RUN_BYTES_MAX: u64 = 4 << 20;

/// Places that reading may go on from, at once.
const RUNS_KEPT: usize = 16;

/// Why an archive on a server cannot be read in place.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RemoteSourceError {
    /// It cannot be had.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// It does not begin as an archive does.
    #[error(transparent)]
    NotAnArchive(FormatError),
    /// Its server does not send parts of it.
    #[error(
        "the server does not support Range requests, or does not report the length of files (download the \
         archive first: `refrain czip get --archive URL -o FILE`)"
    )]
    NoRanges,
}

/// A file on a web server.
pub struct RemoteSource {
    remote: Remote,
    bytes: u64,
    block_bytes: u64,
    blocks: Cache<u64, Arc<[u8]>, BlockWeight>,
    runs: Mutex<VecDeque<Run>>,
}

/// Blocks that were fetched together.
struct Run {
    end: u64,
    blocks: u64,
}

#[derive(Clone)]
struct BlockWeight;

impl Weighter<u64, Arc<[u8]>> for BlockWeight {
    fn weight(&self, _: &u64, block: &Arc<[u8]>) -> u64 {
        block.len() as u64
    }
}

impl RemoteSource {
    /// Memory for blocks that does well in most cases.
    pub const CACHE_BYTES: u64 = 64 << 20;

    /// Bytes of a block that do well in most cases.
    pub const BLOCK_BYTES: u64 = 256 << 10;

    /// Opens the file at `url`, of which at most about `cache_bytes` are kept.
    ///
    /// # Errors
    /// If it cannot be had, or not in parts.
    pub fn open(
        url: &str,
        options: RemoteOptions,
        cache_bytes: u64,
    ) -> Result<Self, RemoteSourceError> {
        let first_bytes = options.first_bytes.max(Self::BLOCK_BYTES as usize);
        let remote = Remote::open(
            url,
            RemoteOptions {
                first_bytes,
                has_digests: true,
                ..options
            },
        )?;
        Self::new(remote, cache_bytes, Self::BLOCK_BYTES)
    }

    /// What [`small`](Self::small) keeps.
    pub(crate) const SMALL_CACHE_BYTES: u64 = 2 << 20;

    /// Reads a file that is open, one of many.
    ///
    /// # Errors
    /// If it cannot be had in parts.
    pub(crate) fn small(remote: Remote) -> Result<Self, RemoteSourceError> {
        Self::new(remote, Self::SMALL_CACHE_BYTES, 16 << 10)
    }

    /// Reads a file that is open, in blocks of `block_bytes`, of which about `cache_bytes` are kept.
    fn new(remote: Remote, cache_bytes: u64, block_bytes: u64) -> Result<Self, RemoteSourceError> {
        match remote.len() {
            Some(bytes) if remote.has_ranges() => Ok(Self {
                bytes,
                block_bytes,
                blocks: Cache::with_weighter(
                    (cache_bytes / block_bytes) as usize,
                    cache_bytes,
                    BlockWeight,
                ),
                runs: Mutex::default(),
                remote,
            }),
            _ => match remote.first().first_chunk() {
                Some(magic) if !is_archive(magic) => {
                    Err(RemoteSourceError::NotAnArchive(FormatError::NotAnArchive))
                }
                _ => Err(RemoteSourceError::NoRanges),
            },
        }
    }

    /// A block that was not kept, along with some that follow it: up to `last`, or more of them if that
    /// is how it is read.
    fn fetch<'a>(
        &'a self,
        first: u64,
        last: u64,
        guard: Guard<'a>,
    ) -> Result<Arc<[u8]>, RemoteError> {
        let wanted = (last - first + 1)
            .max(self.ahead(first))
            .min(RUN_BYTES_MAX / self.block_bytes);
        let mut guards = vec![guard];
        let end = self.bytes.div_ceil(self.block_bytes).min(first + wanted);
        for block in first + 1..end {
            // Who waited for others here, while others wait for what is held, could wait for ever.
            match self.blocks.get_value_or_guard(&block, Some(Duration::ZERO)) {
                GuardResult::Guard(guard) => guards.push(guard),
                _ => break,
            }
        }
        let blocks = guards.len() as u64;
        let start = first * self.block_bytes;
        let end = self.bytes.min(start + blocks * self.block_bytes);
        let mut bytes = vec![0; (end - start) as usize];
        self.remote.read_at(start, &mut bytes)?;
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.truncate(RUNS_KEPT - 1);
        runs.push_front(Run {
            end: first + blocks,
            blocks,
        });
        drop(runs);
        let mut pieces = bytes
            .chunks(self.block_bytes as usize)
            .map(Arc::<[u8]>::from);
        let wanted = pieces.next().unwrap_or_default();
        for (guard, piece) in guards
            .into_iter()
            .zip([wanted.clone()].into_iter().chain(pieces))
        {
            // A cache that was emptied meanwhile takes it no more.
            let _ = guard.insert(piece);
        }
        Ok(wanted)
    }

    /// How many blocks to fetch from `first` on.
    fn ahead(&self, first: u64) -> u64 {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let before = runs.iter().position(|run| run.end == first);
        let before = before.and_then(|at| runs.remove(at));
        before.map_or(1, |run| run.blocks * 2)
    }
}

type Guard<'a> = quick_cache::sync::PlaceholderGuard<
    'a,
    u64,
    Arc<[u8]>,
    BlockWeight,
    quick_cache::DefaultHashBuilder,
    quick_cache::sync::DefaultLifecycle<u64, Arc<[u8]>>,
>;

impl Source for RemoteSource {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        let Some(end) = end.filter(|end| *end <= self.bytes) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let mut at = offset;
        while at < end {
            let number = at / self.block_bytes;
            let block = match self.blocks.get_value_or_guard(&number, None) {
                GuardResult::Value(block) => block,
                GuardResult::Guard(guard) => self
                    .fetch(number, (end - 1) / self.block_bytes, guard)
                    .map_err(io::Error::other)?,
                GuardResult::Timeout => continue,
            };
            let within = (at - number * self.block_bytes) as usize;
            let count = (block.len() - within).min((end - at) as usize);
            let filled = (at - offset) as usize;
            buffer[filled..filled + count].copy_from_slice(&block[within..within + count]);
            at += count as u64;
        }
        Ok(())
    }

    /// By few requests, which no block takes part in.
    fn read_all_at(&self, wanted: &mut [(u64, Vec<u8>)]) -> io::Result<()> {
        let range = |(offset, buffer): &(u64, Vec<u8>)| *offset..offset + buffer.len() as u64;
        let ranges: Vec<_> = wanted.iter().map(range).collect();
        let fetched: Result<(), RemoteError> = self.remote.fetch(&ranges, &mut |offset, bytes| {
            let end = offset + bytes.len() as u64;
            for ((_, buffer), range) in wanted.iter_mut().zip(&ranges) {
                let (from, to) = (range.start.max(offset), range.end.min(end));
                if from < to {
                    let into = (from - range.start) as usize..(to - range.start) as usize;
                    let of = (from - offset) as usize..(to - offset) as usize;
                    buffer[into].copy_from_slice(&bytes[of]);
                }
            }
            Ok(())
        });
        fetched.map_err(io::Error::other)
    }

    /// Something on the way to here may have damaged it.
    fn forget(&self, range: Range<u64>) -> bool {
        self.remote.forget(range.start);
        for block in range.start / self.block_bytes..range.end.div_ceil(self.block_bytes) {
            self.blocks.remove(&block);
        }
        true
    }
}
