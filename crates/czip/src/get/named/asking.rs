//! A server that is asked for chunks, one by one or many at once, and what it sends is checked.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use super::{
    FetchBy, Wanted,
    queue::{ClaimMax, Queue},
};
use crate::{
    format::ChunkName,
    get::report::{ChunkCount, NamedReport, ServerProblem, Transfer},
    method::decompress,
    remote::{Attempts, Counters, Host, RemoteError},
};

/// A server that has so few of what transfer name is no cache of it: so many in a row are not there.
const ABSENT_IN_A_ROW_MAX: u32 = 64;

const CHUNK_PATH: &str = ".czip/chunk/";
const CHUNKS_PATH: &str = ".czip/chunks";

/// What is claimed for a request.
const SINGLE: ClaimMax = ClaimMax {
    chunks: 1,
    bytes: u64::MAX,
};
const BATCH: ClaimMax = ClaimMax {
    // What the format allows.
    chunks: 4096,
    // So that several batches are under way, and find room.
    bytes: 2 << 20,
};

/// A server.
pub(super) struct Server {
    host: Host,
    /// What it was asked for besides chunks.
    transfer: Mutex<Transfer>,
    chunks: Mutex<ChunkCount>,
    absent: AtomicU64,
    absent_in_a_row: AtomicU32,
    /// Why it was left, if it was.
    problem: Mutex<Option<ServerProblem>>,
}

impl Server {
    pub(super) fn new(host: Host) -> Self {
        Self {
            host,
            transfer: Mutex::default(),
            chunks: Mutex::default(),
            absent: AtomicU64::default(),
            absent_in_a_row: AtomicU32::default(),
            problem: Mutex::default(),
        }
    }

    /// Whether it was not left.
    pub(super) fn is_there(&self) -> bool {
        lock(&self.problem).is_none()
    }

    /// It is asked for nothing more. The first problem counts: transfer may come of that.
    pub(super) fn leave(&self, problem: ServerProblem) {
        lock(&self.problem).get_or_insert(problem);
        self.close();
    }

    pub(super) fn url(&self) -> &str {
        self.host.url()
    }

    /// Adds what it was asked for besides chunks.
    pub(super) fn add(&self, counters: Counters) {
        *lock(&self.transfer) += Transfer {
            requests: counters.requests,
            bytes: counters.body_bytes,
        };
    }

    /// Breaks its connections.
    pub(super) fn close(&self) {
        self.host.close();
    }

    pub(super) fn report(self) -> NamedReport {
        self.add(self.host.counters());
        NamedReport {
            url: self.host.url().to_owned(),
            transfer: *lock(&self.transfer),
            chunks: *lock(&self.chunks),
            absent: self.absent.load(Relaxed),
            problem: lock(&self.problem).take(),
        }
    }

    /// Asks for what the queue has for it as number `number`, until there is no more or it is left.
    pub(super) fn ask(&self, number: usize, by: FetchBy, wanted: &[Wanted], queue: &Queue<'_>) {
        let max = match by {
            FetchBy::Batch => BATCH,
            FetchBy::Name | FetchBy::Range => SINGLE,
        };
        while let Some(claimed) = queue.claim(number, max) {
            let mut claim = Claim {
                server: self,
                queue,
                wanted,
                left: &claimed,
                attempts: self.host.attempts(),
            };
            let asked = claim.ask_often(
                number,
                match by {
                    FetchBy::Batch => Claim::ask_for_batch,
                    FetchBy::Name | FetchBy::Range => Claim::ask_for_one,
                },
            );
            if let Err(problem) = asked {
                if let Some(problem) = problem {
                    self.leave(problem);
                }
                queue.leave(number, claim.left);
                return;
            }
        }
    }

    fn is_absent(&self) -> Result<(), ServerProblem> {
        self.absent.fetch_add(1, Relaxed);
        let in_a_row = self.absent_in_a_row.fetch_add(1, Relaxed) + 1;
        match in_a_row < ABSENT_IN_A_ROW_MAX {
            true => Ok(()),
            false => Err(ServerProblem::KnowsNone),
        }
    }

    fn came(&self, plain: &[u8]) {
        self.absent_in_a_row.store(0, Relaxed);
        lock(&self.chunks).add(plain.len());
    }
}

/// Chunks that a server is being asked for.
struct Claim<'a> {
    server: &'a Server,
    queue: &'a Queue<'a>,
    wanted: &'a [Wanted],
    /// Those of which it is not known yet whether they come.
    left: &'a [usize],
    attempts: Attempts,
}

impl Claim<'_> {
    /// Tries as often as the options say. An error without a problem: it was told to stop.
    fn ask_often(
        &mut self,
        number: usize,
        ask: fn(&mut Self) -> Result<(), ServerProblem>,
    ) -> Result<(), Option<ServerProblem>> {
        while !self.left.is_empty() {
            match ask(self) {
                Ok(()) => {}
                Err(ServerProblem::Remote(error)) => {
                    let pause = self.server.host.failed(&mut self.attempts, error);
                    let pause = pause.map_err(|error| Some(error.into()))?;
                    if !self.queue.pause(number, pause) {
                        return Err(None);
                    }
                }
                Err(problem) => return Err(Some(problem)),
            }
        }
        Ok(())
    }

    fn ask_for_one(&mut self) -> Result<(), ServerProblem> {
        let wanted = &self.wanted[self.left[0]];
        let path = format!("{CHUNK_PATH}{}", wanted.name);
        let Some(body) = self.server.host.get(&path)? else {
            self.settle(None);
            return self.server.is_absent();
        };
        let stored = body.read_all(stored_bytes_max(wanted))?;
        let too_long = ServerProblem::TooLong { name: wanted.name };
        let plain = checked(wanted, &stored.ok_or(too_long)?)?;
        self.settle(Some(plain));
        Ok(())
    }

    fn ask_for_batch(&mut self) -> Result<(), ServerProblem> {
        let names = self.left.iter().map(|&number| self.wanted[number].name.0);
        let names: Vec<_> = names.collect();
        let body = self.server.host.post(CHUNKS_PATH, names.as_flattened())?;
        let mut body = body.ok_or(ServerProblem::KnowsNone)?;
        while let Some(&number) = self.left.first() {
            let wanted = &self.wanted[number];
            let mut length = [0; 4];
            body.read_exact(&mut length)?;
            let length = u32::from_le_bytes(length);
            if length == 0 {
                self.server.absent.fetch_add(1, Relaxed);
                self.settle(None);
                continue;
            }
            if u64::from(length) > stored_bytes_max(wanted) {
                return Err(ServerProblem::TooLong { name: wanted.name });
            }
            let mut stored = vec![0; length as usize];
            body.read_exact(&mut stored)?;
            let plain = checked(wanted, &stored)?;
            self.attempts.gained(length.into());
            self.settle(Some(plain));
        }
        match body.ends()? {
            true => Ok(()),
            false => Err(ServerProblem::TooMany),
        }
    }

    /// The first that is left came, or is not there.
    fn settle(&mut self, plain: Option<Vec<u8>>) {
        let Some((&number, left)) = self.left.split_first() else {
            return;
        };
        self.left = left;
        match plain {
            Some(plain) => {
                self.server.came(&plain);
                self.queue.arrived(number, plain);
            }
            None => self.queue.absent(number),
        }
    }
}

/// The plain bytes of a frame as stored, if they are what was wanted.
fn checked(wanted: &Wanted, stored: &[u8]) -> Result<Vec<u8>, ServerProblem> {
    let name = wanted.name;
    match decompress(stored, None, wanted.bytes as usize) {
        Ok(plain) if ChunkName::of(&plain) == name => Ok(plain),
        _ => Err(ServerProblem::WrongBytes { name }),
    }
}

/// No compressor makes more of a chunk.
fn stored_bytes_max(wanted: &Wanted) -> u64 {
    let plain = u64::from(wanted.bytes);
    plain + plain / 8 + 1024
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<RemoteError> for ServerProblem {
    fn from(error: RemoteError) -> Self {
        Self::Remote(error)
    }
}
