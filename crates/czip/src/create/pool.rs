//! Compresses frames on all processors, and gives them back in order.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::JoinHandle,
};

use super::seal::Seal;
use crate::{
    crypt::FrameKey,
    format::digest,
    method::{Compression, Compressor, Method},
};

/// A frame to be made.
struct Job {
    sequence: u64,
    plain: Arc<[u8]>,
    base: Option<Arc<[u8]>>,
}

/// A frame that was made.
pub(super) struct Made {
    pub(super) stored: Vec<u8>,
    pub(super) digest: [u8; 12],
    /// Whether it needs its base, which is of no use to what does not compress.
    pub(super) needs_base: bool,
    /// If the archive is encrypted.
    pub(super) key: Option<FrameKey>,
}

type Answer = (u64, io::Result<Made>);

pub(super) struct Pool {
    jobs: Option<SyncSender<Job>>,
    answers: Receiver<Answer>,
    workers: Vec<JoinHandle<()>>,
    /// Frames that were asked for, and given back.
    asked: u64,
    given: u64,
    /// Those that came before their turn.
    early: BTreeMap<u64, io::Result<Made>>,
    in_flight_max: u64,
}

impl Pool {
    pub(super) fn new(
        threads: usize,
        compression: Compression,
        seal: Option<&Arc<Seal>>,
    ) -> io::Result<Self> {
        let in_flight_max = 4 * threads;
        let (jobs, queue) = sync_channel(in_flight_max);
        let queue = Arc::new(Mutex::new(queue));
        let (answer, answers) = channel();
        let mut workers = Vec::new();
        for _ in 0..threads {
            let (queue, answer) = (Arc::clone(&queue), answer.clone());
            let seal = seal.cloned();
            let started = std::thread::Builder::new()
                .name("compress".to_owned())
                .spawn(move || work(&queue, &answer, compression, seal.as_deref()));
            match started {
                Ok(worker) => workers.push(worker),
                Err(error) if workers.is_empty() => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("cannot start a thread: {error}"),
                    ));
                }
                // Fewer do it too.
                Err(_) => break,
            }
        }
        Ok(Self {
            workers,
            jobs: Some(jobs),
            answers,
            asked: 0,
            given: 0,
            early: BTreeMap::new(),
            in_flight_max: in_flight_max as u64,
        })
    }

    /// Whether as many frames are in the making as may be: then one must be taken first.
    pub(super) fn is_full(&self) -> bool {
        self.asked - self.given >= self.in_flight_max
    }

    /// Has a frame made.
    ///
    /// # Panics
    /// If the pool is full.
    pub(super) fn ask(&mut self, plain: Arc<[u8]>, base: Option<Arc<[u8]>>) {
        assert!(!self.is_full());
        let job = Job {
            sequence: self.asked,
            plain,
            base,
        };
        self.asked += 1;
        let jobs = self.jobs.as_ref().expect("there until it is dropped");
        jobs.send(job).expect("workers end when the pool does");
    }

    /// The next frame in order: none if none is in the making, or `must_wait` is not set and it is
    /// not ready.
    pub(super) fn take(&mut self, must_wait: bool) -> Option<io::Result<Made>> {
        while self.asked > self.given {
            if let Some(made) = self.early.remove(&self.given) {
                self.given += 1;
                return Some(made);
            }
            let (sequence, made) = match must_wait {
                true => self.answers.recv().expect("a worker answers each job"),
                false => self.answers.try_recv().ok()?,
            };
            self.early.insert(sequence, made);
        }
        None
    }
}

fn work(
    queue: &Mutex<Receiver<Job>>,
    answer: &Sender<Answer>,
    compression: Compression,
    seal: Option<&Seal>,
) {
    let mut compressor = Compressor::new(compression);
    loop {
        let job = queue.lock().map(|queue| queue.recv());
        let Ok(Ok(job)) = job else {
            return;
        };
        let made = compressor
            .compress(&job.plain, job.base.as_deref())
            .map(|frame| {
                let is_zstd = frame.first() == Some(&Method::Zstd.number());
                let (stored, key) = match seal {
                    Some(seal) => {
                        let sealed = seal.group.seal_frame(frame, seal.how.is_padded);
                        (sealed.stored, Some(sealed.key))
                    }
                    None => (frame, None),
                };
                Made {
                    digest: digest(&stored),
                    stored,
                    needs_base: job.base.is_some() && is_zstd,
                    key,
                }
            });
        if answer.send((job.sequence, made)).is_err() {
            return;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for worker in self.workers.drain(..) {
            // A worker that panicked has said so.
            let _ = worker.join();
        }
    }
}
