//! All stages at once, each with threads of its own (HARENS, section III.D).
//!
//! ```text
//!        pool of batches ◀────────────────────────────────────────────────────────────┐
//!          │                                                                          │
//!          ▼                                                                          │
//!   plan ─▶ fetch ─▶ scan ─▶ in order: cut ─▶ hash ─┬▶ in order: match ─┬▶ in order: tally
//!    1       n        n             1          n    └▶        n         ┘        the caller's thread
//! ```
//!
//! Whoever waits, waits for a batch. There are so many and no more: no queue is ever full, and a
//! slow stage holds up those before it once all batches are at or behind it.

use std::{
    num::NonZero,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Scope},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::{
    batch::{Batch, pass},
    cuda::{GpuScanner, Gpus},
    cut::{Cutter, front_bytes},
    error::{BulkError, NoGpu},
    fetch::{Plan, Planner},
    hash_match::{Shard, Shards, sort_by_shard},
    in_order::InOrder,
    input::{Input, find},
    options::{BulkOptions, Threads},
    outcome::{Outcome, StageTime},
    scan::Scanner,
    tally::Tally,
};

/// A batch that several matchers have.
type SharedBatch = Arc<Box<Batch>>;

/// How busy the threads of a stage were.
#[derive(Default)]
struct Timer {
    cpu_ns: AtomicU64,
    busy_ns: AtomicU64,
}

impl Timer {
    /// Works on all that comes, and takes down how long that took.
    fn work<T>(&self, from: &Receiver<T>, mut each: impl FnMut(T)) {
        let mut busy = Duration::ZERO;
        for item in from {
            let begun = Instant::now();
            each(item);
            busy += begun.elapsed();
        }
        self.add(busy);
    }

    /// At the end of a thread, which had work for so long.
    fn add(&self, busy: Duration) {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        let busy_ns = busy.as_nanos() as u64;
        self.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
    }

    /// Of a stage with so many threads, which had `bytes` to do.
    fn of(&self, name: &'static str, threads: NonZero<usize>, bytes: u64) -> StageTime {
        let seconds = |ns: &AtomicU64| ns.load(Ordering::Relaxed) as f64 / 1e9;
        let cpu_seconds = seconds(&self.cpu_ns);
        StageTime {
            name,
            threads: threads.get(),
            cpu_seconds,
            busy_seconds: seconds(&self.busy_ns),
            gb_per_s: match cpu_seconds {
                0.0 => 0.0,
                cpu_seconds => bytes as f64 / 1e9 / cpu_seconds,
            },
        }
    }
}

#[derive(Default)]
struct Timers {
    fetch: Timer,
    scan: Timer,
    cut: Timer,
    hash: Timer,
    matching: Timer,
}

pub(crate) fn run(
    inputs: Vec<Input>,
    options: &BulkOptions,
    gpus: Option<&Gpus>,
    mut tally: Tally<'_>,
) -> Result<Outcome, BulkError> {
    let begun = Instant::now();
    let scanners = gpus.map(|gpus| gpus.scanners(options)).transpose()?;
    let gpu_failure = OnceLock::new();
    let batches = batches(options, gpus)?;
    let timers = Timers::default();
    let forgotten_chunks = AtomicU64::new(0);
    thread::scope(|scope| -> Result<(), BulkError> {
        let (stop, stopped) = bounded(1);
        let stages = Pipeline {
            scope,
            options,
            timers: &timers,
            stop: stop.clone(),
            batches: batches.len(),
        };
        let (free, pool) = stages.queue();
        for batch in batches {
            pass(&free, Box::new(batch));
        }
        // Where a thread cannot be started, what those before it wait for ends.
        let plans = stages.plan(inputs, pool, stopped)?;
        let fetched = stages.fetch(&plans)?;
        let scanned = match scanners {
            Some(scanners) => stages.scan_on_gpus(scanners, &fetched, &gpu_failure)?,
            None => stages.scan(&fetched)?,
        };
        let cut = stages.cut(scanned)?;
        let hashed = stages.hash(&cut)?;
        let matched = stages.match_chunks(hashed, &forgotten_chunks)?;
        // What threads wait for ends once nobody can send it.
        drop((plans, fetched, cut, stages));

        let mut in_order = InOrder::new();
        for batch in matched {
            in_order.put(batch.number, batch);
            while let Some(mut batch) = in_order.take() {
                if !tally.is_cut_short {
                    tally.batch(&mut batch);
                }
                if tally.is_cut_short {
                    // Once is enough.
                    let _ = stop.try_send(());
                }
                pass(&free, batch);
            }
        }
        Ok(())
    })?;
    tally.redundancy.forgotten_chunks = forgotten_chunks.into_inner();
    let (threads, bytes) = (options.threads, tally.redundancy.bytes);
    let scan = gpus.map_or(threads.scan, |gpus| gpus.count());
    Ok(Outcome {
        redundancy: tally.redundancy,
        elapsed: begun.elapsed(),
        stages: vec![
            timers.fetch.of("fetch", threads.fetch, bytes),
            timers.scan.of("scan", scan, bytes),
            timers.cut.of("cut", NonZero::<usize>::MIN, bytes),
            timers.hash.of("hash", threads.hash, bytes),
            timers.matching.of("match", threads.matching, bytes),
        ],
        is_cut_short: tally.is_cut_short,
        gpus: gpus.map(Gpus::names).unwrap_or_default(),
        gpu_failure: gpu_failure.into_inner(),
    })
}

/// Batches for all stages: one at each thread, one before it, and the same for cutting.
fn batches(options: &BulkOptions, gpus: Option<&Gpus>) -> Result<Vec<Batch>, NoGpu> {
    let Threads {
        fetch,
        scan,
        hash,
        matching,
    } = options.threads;
    let scan = gpus.map_or(scan.get(), Gpus::batches);
    let threads = fetch.get() + scan + hash.get() + matching.get();
    let bytes = front_bytes(options.chunking) + options.batch_bytes;
    let batches = (0..2 * threads + 2).map(|_| {
        Ok(Batch::new(match gpus {
            Some(gpus) => gpus.bytes(bytes)?,
            None => Box::new(vec![0; bytes]),
        }))
    });
    batches.collect()
}

/// What every stage is begun with.
struct Pipeline<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    options: &'env BulkOptions,
    timers: &'env Timers,
    stop: Sender<()>,
    /// How many there are.
    batches: usize,
}

impl<'scope, 'env> Pipeline<'scope, 'env> {
    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'scope) -> Result<(), BulkError> {
        let guard = StopsAtPanic(self.stop.clone());
        let builder = thread::Builder::new().name(name.to_owned());
        let spawned = builder.spawn_scoped(self.scope, move || {
            let _guard = guard;
            work();
        });
        spawned.map(drop).map_err(BulkError::Thread)
    }

    /// A queue that is never full.
    fn queue<T>(&self) -> (Sender<T>, Receiver<T>) {
        bounded(self.batches)
    }

    fn plan(
        &self,
        inputs: Vec<Input>,
        pool: Receiver<Box<Batch>>,
        stopped: Receiver<()>,
    ) -> Result<Receiver<Plan>, BulkError> {
        let (to, plans) = self.queue();
        let timer = &self.timers.fetch;
        let front = front_bytes(self.options.chunking);
        self.spawn("plan", move || {
            let mut planner = Planner::new(find(inputs), front);
            let mut busy = Duration::ZERO;
            while let Some(batch) = next_batch(&pool, &stopped) {
                let begun = Instant::now();
                let plan = planner.plan(batch);
                busy += begun.elapsed();
                match plan {
                    Some(plan) => pass(&to, plan),
                    None => break,
                }
            }
            timer.add(busy);
        })?;
        Ok(plans)
    }

    fn fetch(&self, plans: &Receiver<Plan>) -> Result<Receiver<Box<Batch>>, BulkError> {
        let (to, fetched) = self.queue();
        for _ in 0..self.options.threads.fetch.get() {
            let (plans, to, timer) = (plans.clone(), to.clone(), &self.timers.fetch);
            self.spawn("fetch", move || {
                timer.work(&plans, |plan| pass(&to, plan.read()));
            })?;
        }
        Ok(fetched)
    }

    fn scan(&self, fetched: &Receiver<Box<Batch>>) -> Result<Receiver<Box<Batch>>, BulkError> {
        let (to, scanned) = self.queue();
        for _ in 0..self.options.threads.scan.get() {
            let (fetched, to, timer) = (fetched.clone(), to.clone(), &self.timers.scan);
            let mut scanner = Scanner::new(self.options.chunking, self.options.backend);
            self.spawn("scan", move || {
                timer.work(&fetched, |mut batch| {
                    scanner.scan(&mut batch);
                    pass(&to, batch);
                });
            })?;
        }
        Ok(scanned)
    }

    fn scan_on_gpus(
        &self,
        scanners: Vec<GpuScanner>,
        fetched: &Receiver<Box<Batch>>,
        failure: &'env OnceLock<NoGpu>,
    ) -> Result<Receiver<Box<Batch>>, BulkError> {
        let (to, scanned) = self.queue();
        for scanner in scanners {
            let (fetched, to, timer) = (fetched.clone(), to.clone(), &self.timers.scan);
            self.spawn("scan", move || {
                let busy = scanner.work(&fetched, &to, failure);
                timer.add(busy);
            })?;
        }
        Ok(scanned)
    }

    fn cut(&self, scanned: Receiver<Box<Batch>>) -> Result<Receiver<Box<Batch>>, BulkError> {
        let (to, cut) = self.queue();
        let timer = &self.timers.cut;
        let mut cutter = Cutter::new(self.options.chunking, self.options.backend);
        let mut in_order = InOrder::new();
        self.spawn("cut", move || {
            timer.work(&scanned, |batch| {
                in_order.put(batch.number, batch);
                while let Some(mut batch) = in_order.take() {
                    cutter.cut(&mut batch);
                    pass(&to, batch);
                }
            });
        })?;
        Ok(cut)
    }

    /// Gives each batch to every matcher.
    fn hash(&self, cut: &Receiver<Box<Batch>>) -> Result<Vec<Receiver<SharedBatch>>, BulkError> {
        let matchers = self.options.threads.matching.get();
        let (to, hashed): (Vec<_>, _) = (0..matchers).map(|_| self.queue()).unzip();
        for _ in 0..self.options.threads.hash.get() {
            let (cut, to, options) = (cut.clone(), to.clone(), self.options);
            let timer = &self.timers.hash;
            self.spawn("hash", move || {
                timer.work(&cut, |mut batch| {
                    hash(&mut batch, options);
                    let batch = Arc::new(batch);
                    // None is kept here: the last matcher to have it passes it on.
                    let (last, others) = to.split_last().expect("there is a matcher");
                    others.iter().for_each(|to| pass(to, batch.clone()));
                    pass(last, batch);
                });
            })?;
        }
        Ok(hashed)
    }

    fn match_chunks(
        &self,
        hashed: Vec<Receiver<SharedBatch>>,
        forgotten_chunks: &'env AtomicU64,
    ) -> Result<Receiver<Box<Batch>>, BulkError> {
        let (to, matched) = self.queue();
        let shards = Shards::new(self.options.cache_bytes, self.options.chunking.min_bytes());
        let dealt = shards.dealt(hashed.len());
        for (hashed, mut shards) in hashed.into_iter().zip(dealt) {
            let (to, timer) = (to.clone(), &self.timers.matching);
            let mut in_order = InOrder::new();
            self.spawn("match", move || {
                timer.work(&hashed, |batch| {
                    in_order.put(batch.number, batch);
                    while let Some(batch) = in_order.take() {
                        match_chunks(&batch, &mut shards);
                        // Who is the last to have it passes it on.
                        if let Some(batch) = Arc::into_inner(batch) {
                            pass(&to, batch);
                        }
                    }
                });
                let forgotten = shards.iter().map(|(_, shard)| shard.forgotten()).sum();
                forgotten_chunks.fetch_add(forgotten, Ordering::Relaxed);
            })?;
        }
        Ok(matched)
    }
}

/// Ends the planning if its thread panics: the others would wait for what never comes.
struct StopsAtPanic(Sender<()>);

impl Drop for StopsAtPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            // Once is enough.
            let _ = self.0.try_send(());
        }
    }
}

/// A batch to be filled, unless it was said to stop.
fn next_batch(pool: &Receiver<Box<Batch>>, stopped: &Receiver<()>) -> Option<Box<Batch>> {
    if stopped.try_recv().is_ok() {
        return None;
    }
    select! {
        recv(pool) -> batch => batch.ok(),
        recv(stopped) -> _ => None,
    }
}

/// Hashes the chunks of a batch, and sorts them for the matchers.
fn hash(batch: &mut Batch, options: &BulkOptions) {
    let Batch {
        bytes,
        chunks,
        digests,
        ..
    } = batch;
    options
        .hasher
        .digest_all(options.backend, bytes, chunks, digests);
    sort_by_shard(&batch.digests, &mut batch.by_shard, &mut batch.shard_ends);
    let chunks = batch.chunks.len();
    batch.repeats.resize_with(chunks, AtomicBool::default);
}

/// Looks up those chunks of a batch that are in `shards`.
fn match_chunks(batch: &Batch, shards: &mut [(usize, Shard)]) {
    for (number, shard) in shards {
        let start = number.checked_sub(1).map_or(0, |n| batch.shard_ends[n]);
        for &index in &batch.by_shard[start..batch.shard_ends[*number]] {
            let index = index as usize;
            let bytes = batch.chunks[index].len() as u32;
            if shard.is_repeat(&batch.digests[index], bytes) {
                batch.repeats[index].store(true, Ordering::Relaxed);
            }
        }
    }
}
