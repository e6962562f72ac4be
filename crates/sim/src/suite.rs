//! Many runs, on a few threads.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use refrain_proto::Moment;

use crate::{
    failure::{FailedRun, Failure},
    kinds::{Kind, Kinds},
    world::World,
};

/// Suites smaller than this need not meet every kind.
const SEEDS_FOR_ALL_KINDS: u64 = 500;

/// What came of many runs.
#[derive(Clone, Debug, Default)]
pub struct Suite {
    /// Runs that were made.
    pub runs: u64,
    /// What they met.
    pub kinds: Kinds,
    /// The failed run with the lowest seed among those made.
    pub failed: Option<FailedRun>,
}

impl Suite {
    /// Kinds that should have occurred in so many runs and did not.
    #[must_use]
    pub fn missing(&self) -> Vec<Kind> {
        if self.runs < SEEDS_FOR_ALL_KINDS {
            return Vec::new();
        }
        self.kinds.missing().collect()
    }
}

/// Makes the run of `seed`; with `trace`, prints each of its steps to stderr.
///
/// # Errors
/// The promise that it broke.
pub fn run_seed(seed: u64, trace: bool) -> Result<Kinds, FailedRun> {
    let failed = |(at, failure)| FailedRun { seed, at, failure };
    catch_unwind(AssertUnwindSafe(|| World::new(seed, trace).run()))
        .unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
                .unwrap_or_default();
            Err((Moment::default(), Failure::Panicked(text)))
        })
        .map_err(failed)
}

/// Makes the runs of `count` seeds from `first` on, on `threads` threads, until one fails;
/// tells `progress` how many were made, now and then.
pub fn run_many(first: u64, count: u64, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Suite {
    let suite = Mutex::new(Suite::default());
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = Suite::default();
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    match run_seed(first + index, false) {
                        Ok(kinds) => own.kinds.add(&kinds),
                        Err(failed) => {
                            own.failed = Some(failed);
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    own.runs += 1;
                    progress(index + 1);
                }
                suite.lock().expect("no thread panics").add(own);
            });
        }
    });
    suite.into_inner().expect("no thread panics")
}

impl Suite {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.kinds.add(&other.kinds);
        let both = [self.failed.take(), other.failed];
        self.failed = both.into_iter().flatten().min_by_key(|failed| failed.seed);
    }
}
