//! A capture through all columns, each in a thread.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use refrain_capture::{Direction, Time};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    blocks::{BlockFlow, Blocks, Group, GroupNumber, Step, Steps},
    columns::{Column, Kind, Outcome},
};

/// Steps that travel together have so many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Batches that wait for a thread.
const BATCHES_MAX: usize = 8;

/// A column that has seen all of the capture.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its name.
    pub name: &'static str,
    /// Its findings.
    pub outcome: Outcome,
    /// CPU time that it took.
    pub cpu: Duration,
}

/// All that was found.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// By number.
    pub groups: Vec<Group>,
    /// Application bytes of the groups.
    pub totals: Totals,
    /// In the order in which they were asked for.
    pub columns: Vec<Finished>,
}

/// Application bytes by group.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Bytes to servers, and to clients, by group.
    pub bytes: Vec<[u64; 2]>,
    /// Connections with bytes, by group.
    pub flows: Vec<u64>,
}

/// Steps on their way to the columns.
#[derive(Default)]
struct Batch {
    steps: Vec<Owned>,
    bytes: Vec<u8>,
}

enum Owned {
    Block(BlockFlow, Direction, Time, usize),
    Bytes(BlockFlow, Direction, Time, usize),
    Closed(BlockFlow, Time),
}

/// A thread with some of the columns.
struct Worker {
    batches: SyncSender<Arc<Batch>>,
    thread: thread::JoinHandle<Vec<(usize, Finished)>>,
}

/// Gives each step to all columns.
pub struct Columns {
    batch: Batch,
    threads: Vec<Worker>,
    totals: Totals,
}

impl Columns {
    /// Starts these columns on so many threads. Their caches take `memory_bytes` at most, as far as they have a choice.
    #[must_use]
    pub fn start(kinds: &[Kind], threads: usize, memory_bytes: u64) -> Self {
        let threads = threads.clamp(1, kinds.len().max(1));
        let shares: u64 = kinds.iter().map(|kind| kind.memory_share).sum();
        let memory_of = |kind: &Kind| {
            let bytes = u128::from(memory_bytes) * u128::from(kind.memory_share);
            (bytes / u128::from(shares.max(1))) as u64
        };
        let mut parts: Vec<Vec<(usize, Kind, u64)>> = vec![Vec::new(); threads];
        for (nth, kind) in kinds.iter().enumerate() {
            parts[nth % threads].push((nth, *kind, memory_of(kind)));
        }
        let threads = parts.into_iter().map(|part| {
            let (batches, receiver) = sync_channel(BATCHES_MAX);
            let thread = thread::spawn(move || work(&part, &receiver));
            Worker { batches, thread }
        });
        Self {
            batch: Batch::default(),
            threads: threads.collect(),
            totals: Totals::default(),
        }
    }

    fn send(&mut self) {
        let batch = Arc::new(std::mem::take(&mut self.batch));
        for worker in &self.threads {
            // A thread that panicked is noticed at the end.
            let _ = worker.batches.send(Arc::clone(&batch));
        }
    }
}

impl Blocks<Columns> {
    /// Waits for all columns.
    ///
    /// # Panics
    /// If a column panicked.
    #[must_use]
    pub fn analysis(self) -> Analysis {
        let (mut columns, groups, flows) = self.finish();
        columns.send();
        let mut finished = Vec::new();
        for worker in columns.threads {
            drop(worker.batches);
            finished.extend(worker.thread.join().expect("no column panics"));
        }
        finished.sort_unstable_by_key(|(nth, _)| *nth);
        Analysis {
            groups,
            totals: Totals {
                flows,
                ..columns.totals
            },
            columns: finished.into_iter().map(|(_, finished)| finished).collect(),
        }
    }
}

impl Totals {
    fn at(&mut self, group: GroupNumber) -> usize {
        let index = group.0 as usize;
        if self.bytes.len() <= index {
            self.bytes.resize(index + 1, [0; 2]);
        }
        index
    }

    /// All application bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.bytes.iter().flatten().sum()
    }
}

impl Steps for Columns {
    fn step(&mut self, step: Step<'_>) {
        let owned = match step {
            Step::Block {
                flow,
                direction,
                at,
                bytes,
            } => {
                let group = self.totals.at(flow.group);
                self.totals.bytes[group][direction as usize] += bytes.len() as u64;
                self.batch.bytes.extend_from_slice(bytes);
                Owned::Block(flow, direction, at, bytes.len())
            }
            Step::Bytes {
                flow,
                direction,
                at,
                bytes,
            } => {
                self.batch.bytes.extend_from_slice(bytes);
                Owned::Bytes(flow, direction, at, bytes.len())
            }
            Step::Closed(flow, at) => Owned::Closed(flow, at),
        };
        self.batch.steps.push(owned);
        if self.batch.bytes.len() >= BATCH_BYTES || self.batch.steps.len() >= BATCH_BYTES / 64 {
            self.send();
        }
    }
}

fn work(kinds: &[(usize, Kind, u64)], batches: &Receiver<Arc<Batch>>) -> Vec<(usize, Finished)> {
    let mut columns: Vec<(Box<dyn Column>, Duration)> = kinds
        .iter()
        .map(|(_, kind, memory)| ((kind.make)(*memory), Duration::ZERO))
        .collect();
    for batch in batches {
        for (column, took) in &mut columns {
            let began = cpu_time();
            let mut at_byte = 0;
            for step in &batch.steps {
                let mut next = |length: usize| {
                    at_byte += length;
                    &batch.bytes[at_byte - length..at_byte]
                };
                column.step(match *step {
                    Owned::Closed(flow, at) => Step::Closed(flow, at),
                    Owned::Block(flow, direction, at, length) => Step::Block {
                        flow,
                        direction,
                        at,
                        bytes: next(length),
                    },
                    Owned::Bytes(flow, direction, at, length) => Step::Bytes {
                        flow,
                        direction,
                        at,
                        bytes: next(length),
                    },
                });
            }
            *took += cpu_time().saturating_sub(began);
        }
    }
    let finished = kinds
        .iter()
        .zip(columns)
        .map(|((nth, kind, _), (column, took))| {
            let began = cpu_time();
            let outcome = column.finish();
            let finished = Finished {
                name: kind.name,
                outcome,
                cpu: took + cpu_time().saturating_sub(began),
            };
            (*nth, finished)
        });
    finished.collect()
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
