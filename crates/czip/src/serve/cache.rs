//! The chunk cache: one for all files, bounded, keyed by what is in it and not by where it was found.
//!
//! So the working set is the union of unique chunks, whatever files they are read from (CZIP, section
//! 4.1; there the cache is a process of its own, for the sake of Apache's forks). What is in it was
//! checked against its key when it was read, so that no archive can pass its bytes off as another's.
//! Who asks for what somebody is reading waits for that.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use memmap2::MmapMut;
use quick_cache::{
    DefaultHashBuilder, OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle, GuardResult},
};
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{
    ServeError,
    counters::Counters,
    opened::Opened,
    plan::{FrameUnit, Key, Plan, Unit},
};
use crate::{
    archive::{ReadError, Source},
    format::{ChunkName, FormatError, Portion, Stream, digest},
    method::decompress,
};

/// Frames that lie together, and of which none is cached, are read together up to this.
const READ_BYTES: u64 = 256 << 10;
/// What an item takes beside its bytes.
const ITEM_BYTES: u64 = 160;
/// A shard of the cache has its part of the memory for itself, and which items are its own is chance: in
/// a small one they vary by more than is left over.
const SHARD_BYTES_MIN: u64 = 256 << 20;

/// Frames from so many bytes on are kept in pages of their own.
const PAGES_BYTES_MIN: usize = 128 << 10;
/// Frames that are read and decompressed at a time: enough for any disk, and memory for no more.
const READS_AT_A_TIME: usize = 24;
/// Chunks that are far away are brought so often at a time: each takes some connections and some memory.
const FETCHES_AT_A_TIME: usize = 8;

#[derive(Clone)]
enum Value {
    Bytes(Bytes),
    Plan(Arc<Plan>),
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Value> for Weight {
    fn weight(&self, _: &Key, value: &Value) -> u64 {
        ITEM_BYTES
            + match value {
                Value::Bytes(bytes) => bytes.len() as u64,
                Value::Plan(plan) => plan.weight(),
            }
    }
}

pub(super) struct ChunkCache {
    cache: Cache<Key, Value, Weight>,
    counters: Arc<Counters>,
    /// Whoever has a turn waits for nobody.
    turns: Semaphore,
    /// The same of what is far away.
    fetches: Semaphore,
}

impl ChunkCache {
    pub(super) fn new(bytes: u64, counters: Arc<Counters>) -> Self {
        let shards = (bytes / SHARD_BYTES_MIN).clamp(1, 16);
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity((bytes >> 14).clamp(64, 1 << 20) as usize)
            .weight_capacity(bytes)
            .build()
            .expect("all that is needed is set");
        let (hash, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self {
            cache: Cache::with_options(options, Weight, hash, lifecycle),
            counters,
            turns: Semaphore::new(READS_AT_A_TIME),
            fetches: Semaphore::new(FETCHES_AT_A_TIME),
        }
    }

    /// Bytes in it.
    pub(super) fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// The plain or stored bytes of a unit, if they are here.
    pub(super) fn unit(&self, key: &Key) -> Option<Bytes> {
        match self.hit(key)? {
            Value::Bytes(bytes) => Some(bytes),
            Value::Plan(_) => None,
        }
    }

    /// The plan of an opening that `position` is in, if it is here.
    pub(super) fn plan(&self, opened: &Opened, position: u64) -> Option<Arc<Plan>> {
        for begin in Plan::begins(opened, position) {
            match self.hit(&Key::Plan(opened.id, begin))? {
                Value::Plan(plan) if plan.covers(position) => return Some(plan),
                Value::Plan(_) => {}
                Value::Bytes(_) => return None,
            }
        }
        None
    }

    fn hit(&self, key: &Key) -> Option<Value> {
        let value = self.cache.get(key)?;
        Counters::add(&self.counters.cache_hits, 1);
        Some(value)
    }

    /// Reads what an opening is made of where `position` is.
    pub(super) async fn load_plan(
        self: Arc<Self>,
        opened: Arc<Opened>,
        position: u64,
    ) -> Result<Arc<Plan>, ServeError> {
        let [span, short] = Plan::begins(&opened, position);
        let plan = self.load_plan_from(opened.clone(), span).await?;
        match plan.covers(position) {
            true => Ok(plan),
            false => self.load_plan_from(opened, short).await,
        }
    }

    async fn load_plan_from(
        &self,
        opened: Arc<Opened>,
        begin: u64,
    ) -> Result<Arc<Plan>, ServeError> {
        let key = Key::Plan(opened.id, begin);
        let guard = match self.cache.get_value_or_guard_async(&key).await {
            Ok(Value::Plan(plan)) => return Ok(plan),
            Ok(Value::Bytes(_)) => unreachable!("the key says its kind"),
            Err(guard) => guard,
        };
        Counters::add(&self.counters.cache_misses, 1);
        let plan = in_thread(move || Plan::read(&opened, begin)).await?;
        let plan = Arc::new(plan);
        // What does not fit was sent all the same.
        let _ = guard.insert(Value::Plan(plan.clone()));
        Ok(plan)
    }

    /// Reads the first of `units`, which is of `opened`; and of those that follow what comes with it
    /// and nobody has.
    pub(super) async fn load_units(
        self: Arc<Self>,
        opened: Arc<Opened>,
        units: Vec<Unit>,
    ) -> Result<Bytes, ServeError> {
        match units[0] {
            Unit::Frame(_) => {
                let frames = units.iter().map_while(|unit| match unit {
                    Unit::Frame(frame) => Some(*frame),
                    Unit::Chunk { .. } => None,
                });
                self.load_frames(opened, frames.collect()).await
            }
            Unit::Chunk { .. } => {
                let chunks = units.iter().map_while(|unit| match unit {
                    Unit::Chunk { name, number } => Some((*name, *number)),
                    Unit::Frame(_) => None,
                });
                self.load_chunks(opened, chunks.collect()).await
            }
        }
    }

    /// Reads ahead what a span of an open archive is made of: the first `bytes` bytes from `begin` on.
    pub(super) async fn load_ahead(
        self: Arc<Self>,
        opened: Arc<Opened>,
        begin: u64,
        bytes: u64,
    ) -> Result<(), ServeError> {
        let plan = self.clone().load_plan(opened.clone(), begin).await?;
        let units = &plan.units[..plan.units_within(bytes)];
        let is_here = |unit: &Unit| self.cache.contains_key(&unit.key());
        let Some(first) = units.iter().position(|unit| !is_here(unit)) else {
            return Ok(());
        };
        let missing = units[first..].to_vec();
        self.clone().load_units(opened, missing).await.map(|_| ())
    }

    /// Brings the first of `chunks`, and those that nobody has or is bringing.
    async fn load_chunks(
        self: Arc<Self>,
        opened: Arc<Opened>,
        chunks: Vec<(ChunkName, u64)>,
    ) -> Result<Bytes, ServeError> {
        let guard = match self
            .cache
            .get_value_or_guard_async(&Key::Chunk(chunks[0].0))
            .await
        {
            Ok(Value::Bytes(bytes)) => {
                Counters::add(&self.counters.cache_hits, 1);
                return Ok(bytes);
            }
            Ok(Value::Plan(_)) => unreachable!("the key says its kind"),
            Err(guard) => guard,
        };
        let mut guards = vec![guard];
        let mut wanted = vec![chunks[0].1];
        for &(name, number) in &chunks[1..] {
            let waiting = Some(Duration::ZERO);
            if let GuardResult::Guard(guard) =
                self.cache.get_value_or_guard(&Key::Chunk(name), waiting)
            {
                guards.push(guard);
                wanted.push(number);
            }
        }
        Counters::add(&self.counters.cache_misses, guards.len() as u64);
        let turn = self.fetches.acquire().await.expect("nobody closes it");
        let brought = in_thread(move || opened.archive.chunks(Stream::Content, &wanted));
        let (brought, kept) = brought.await?;
        let brought: Vec<Bytes> = brought.into_iter().map(Bytes::from).collect();
        drop(turn);
        Counters::add(&self.counters.chunks_kept, kept);
        Counters::add(&self.counters.chunks_fetched, brought.len() as u64 - kept);
        let bytes = brought[0].clone();
        // Where they are large, not all are brought at once.
        for (guard, bytes) in guards.into_iter().zip(brought) {
            let _ = guard.insert(Value::Bytes(bytes));
        }
        Ok(bytes)
    }

    /// Reads the first of `frames`; and of those that follow, what lies behind it and nobody has.
    async fn load_frames(
        self: Arc<Self>,
        opened: Arc<Opened>,
        units: Vec<FrameUnit>,
    ) -> Result<Bytes, ServeError> {
        let first = units[0];
        let base = match first.base() {
            // Read before anything is promised to others: nobody who holds a promise waits for another.
            Some(base) => {
                let none_together = vec![base];
                Some(Box::pin(self.clone().load_frames(opened.clone(), none_together)).await?)
            }
            None => None,
        };
        let guard = match self.cache.get_value_or_guard_async(&first.key).await {
            Ok(Value::Bytes(bytes)) => {
                Counters::add(&self.counters.cache_hits, 1);
                return Ok(bytes);
            }
            Ok(Value::Plan(_)) => unreachable!("the key says its kind"),
            Err(guard) => guard,
        };
        let mut guards = vec![guard];
        for pair in units.windows(2) {
            let (one, next) = (&pair[0].frame, &pair[1].frame);
            let is_next = one.range().end == next.offset
                && next.range().end - first.frame.offset <= READ_BYTES
                && first.frame.base.is_none()
                && next.base.is_none();
            if !is_next {
                break;
            }
            let waiting = Some(Duration::ZERO);
            match self.cache.get_value_or_guard(&pair[1].key, waiting) {
                GuardResult::Guard(guard) => guards.push(guard),
                _ => break,
            }
        }
        Counters::add(&self.counters.cache_misses, guards.len() as u64);
        let mut batch = units;
        batch.truncate(guards.len());
        let turn = self.turns.acquire().await.expect("nobody closes it");
        let read = in_thread(move || read_together(&opened, &batch, base)).await?;
        drop(turn);
        let bytes = read[0].clone();
        for (guard, bytes) in guards.into_iter().zip(read) {
            let _ = guard.insert(Value::Bytes(bytes));
        }
        Ok(bytes)
    }
}

/// Does what blocks.
pub(super) async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, ServeError> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(ServeError::Stopped),
    }
}

/// Reads units that follow each other in the file, and checks them.
fn read_together(
    opened: &Opened,
    units: &[FrameUnit],
    base: Option<Bytes>,
) -> Result<Vec<Bytes>, ReadError> {
    let bytes: u64 = units
        .iter()
        .map(|unit| u64::from(unit.frame.stored_bytes))
        .sum();
    let first = units[0].frame.offset;
    if first + bytes > opened.bytes {
        return Err(FormatError::Truncated(Portion::File).into());
    }
    let mut stored = vec![0; bytes as usize];
    opened.archive.source().read_exact_at(&mut stored, first)?;
    let limit = opened.archive.header().frame_bytes_max as usize;
    let mut rest = &stored[..];
    let mut read = Vec::with_capacity(units.len());
    for unit in units {
        let (stored, behind) = rest.split_at(unit.frame.stored_bytes as usize);
        rest = behind;
        let (stream, number) = (unit.stream, unit.number);
        if digest(stored) != unit.frame.digest {
            return Err(ReadError::damaged_frame(stream, number));
        }
        if let Key::Stored(_) = unit.key {
            read.push(in_pages(stored).unwrap_or_else(|| Bytes::copy_from_slice(stored)));
            continue;
        }
        let plain =
            decompress(stored, base.as_deref(), limit).map_err(|error| ReadError::Frame {
                stream,
                number,
                error,
            })?;
        if let Key::Chunk(name) = unit.key
            && ChunkName::of(&plain) != name
        {
            return Err(ReadError::damaged_frame(stream, number));
        }
        read.push(in_pages(&plain).unwrap_or_else(|| plain.into()));
    }
    Ok(read)
}

/// A copy of what is large, in pages that go back to the system when it goes; none if that has no more.
/// What threads share an allocator for stays in holes of it otherwise: a quarter of a cache.
fn in_pages(bytes: &[u8]) -> Option<Bytes> {
    if bytes.len() < PAGES_BYTES_MIN {
        return None;
    }
    let mut pages = MmapMut::map_anon(bytes.len()).ok()?;
    pages.copy_from_slice(bytes);
    Some(Bytes::from_owner(pages))
}

#[cfg(test)]
mod tests {
    use std::{fs, ops::ControlFlow};

    use super::*;
    use crate::{
        create::{CreateOptions, Input, Output, create},
        format::header::Profile,
        serve::{
            site::{Site, Target},
            tree::{SafePath, Tree},
        },
    };

    #[test]
    fn what_is_large_is_the_same_in_pages() {
        let bytes: Vec<u8> = (0..PAGES_BYTES_MIN + 5).map(|at| at as u8).collect();
        assert_eq!(in_pages(&bytes).expect("memory"), bytes);
        assert!(in_pages(&bytes[..PAGES_BYTES_MIN - 1]).is_none());
    }

    #[test]
    fn a_frame_that_is_whole_and_of_another_chunk_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(folder.path().join("content"), &content).expect("a new file");
        let options = CreateOptions {
            profile: Profile::Shared,
            ..CreateOptions::default()
        };
        let input = Input::Path(folder.path().join("content"));
        let output = Output::File(folder.path().join("a.czip"));
        let progress = &mut |_: crate::create::CreateProgress<'_>| ControlFlow::Continue(());
        create(vec![input], output, &options, progress).expect("an archive");
        let tree = Tree::new(folder.path()).expect("a folder");
        let site = Site::new(tree, Arc::default());
        let path = SafePath::parse("/a").expect("a path");
        let Ok(Target::Content { opened, .. }) = site.find(&path) else {
            panic!("it is there");
        };
        let plan = Plan::read(&opened, 0).expect("a plan");
        let Unit::Frame(right) = plan.units[0] else {
            panic!("it is of a file");
        };
        let read = read_together(&opened, &[right], None).expect("a chunk");
        assert!(content.starts_with(&read[0]));
        // What a table says that names the chunk of another archive.
        let mut lying = right;
        lying.key = Key::Chunk(ChunkName([7; 20]));
        let refused = read_together(&opened, &[lying], None);
        assert!(matches!(refused, Err(ReadError::Frame { number: 0, .. })));
    }
}
