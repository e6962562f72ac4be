//! The process's file descriptors, shared out so that connections without a request cannot take
//! those that flows need.

use std::{
    fs::File,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use refrain_admission::Admission;
use rustix::{
    io::Errno,
    process::{Resource, getrlimit, setrlimit},
};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::refusal::Refusal;

/// The most connections that have proved no key yet, at a listener for lanes.
pub(crate) const UNPROVEN_LANES_MAX: usize = 256;

/// The most connections without a request at a listener for applications, which may keep them for
/// their next request.
pub(crate) const UNPROVEN_CLIENTS_MAX: usize = 1024;

/// The same at the admin listener.
pub(crate) const UNPROVEN_ADMIN_MAX: usize = 64;

/// The least that a listener keeps, however few file descriptors there are.
const UNPROVEN_MIN: usize = 4;

/// File descriptors that the process needs in any case: standard streams, its runtime, listeners,
/// a store's files.
const DESCRIPTORS_OF_PROCESS: usize = 40;

/// File descriptors without a limit on them.
const DESCRIPTORS_UNLIMITED: usize = 1 << 20;

/// How the process shares out its file descriptors.
///
/// At most an eighth is for unproven connections, another eighth for lanes and look-ups, and what
/// remains is for flows alone.
#[derive(Debug)]
pub struct Descriptors {
    limit: usize,
    unproven_max: usize,
    flows: Arc<Semaphore>,
}

/// A file descriptor of a flow, given back when dropped.
#[derive(Debug)]
pub(crate) struct FlowDescriptor {
    _permit: OwnedSemaphorePermit,
    /// The count of the flows of its peer, if it is for one.
    of_peer: Option<Arc<AtomicUsize>>,
}

/// The file descriptors of one peer's flows, on all its links.
#[derive(Clone, Debug)]
pub(crate) struct PeerDescriptors {
    descriptors: Arc<Descriptors>,
    flows: Arc<AtomicUsize>,
    /// Whether there are other peers, to which it must leave some.
    has_others: bool,
}

/// How many descriptors are spare: anything of this process may take one that is given up.
const SPARE: usize = 4;

/// File descriptors of which one is given up for a moment where no other is left. Without them, connections that cannot
/// be accepted would wait without an answer.
#[derive(Debug)]
pub struct SpareDescriptors(Mutex<Vec<File>>);

impl Default for SpareDescriptors {
    fn default() -> SpareDescriptors {
        let spare = SpareDescriptors(Mutex::default());
        spare.fill();
        spare
    }
}

impl SpareDescriptors {
    /// Opens those that are missing. Returns whether all are there.
    fn fill(&self) -> bool {
        let mut spare = self.0.lock().expect("held for a moment");
        while spare.len() < SPARE {
            match File::open("/dev/null") {
                Ok(file) => spare.push(file),
                Err(_) => return false,
            }
        }
        true
    }

    /// After this error of accept(2), resets the first connection that waits, if the error is that no descriptor is
    /// left. Returns whether it did.
    pub async fn turn_away(&self, listener: &TcpListener, error: &io::Error) -> bool {
        let error = Errno::from_io_error(error);
        if !matches!(error, Some(Errno::MFILE | Errno::NFILE)) {
            return false;
        }
        drop(self.0.lock().expect("held for a moment").pop());
        let accepted = timeout(Duration::ZERO, listener.accept()).await;
        let is_accepted = match accepted {
            Ok(Ok((tcp, _))) => SockRef::from(&tcp).set_linger(Some(Duration::ZERO)).is_ok(),
            _ => false,
        };
        self.fill();
        is_accepted
    }

    /// Returns an accepted connection, unless its descriptor has to become a spare one, since something else of this
    /// process took that.
    pub fn keep(&self, tcp: TcpStream) -> Option<TcpStream> {
        if self.fill() {
            return Some(tcp);
        }
        let _ = SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
        drop(tcp);
        self.fill();
        None
    }
}

impl Descriptors {
    /// Shares out as many as this process may have, among so many listeners. The soft limit is
    /// raised to the hard one: it is low for the sake of programs that use select(2).
    pub(crate) fn of_process(listeners: usize) -> Arc<Descriptors> {
        let mut limits = getrlimit(Resource::Nofile);
        limits.current = limits.maximum;
        let _ = setrlimit(Resource::Nofile, limits);
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or(DESCRIPTORS_UNLIMITED, |limit| limit as usize);
        Descriptors::new(limit.min(DESCRIPTORS_UNLIMITED), listeners)
    }

    fn new(limit: usize, listeners: usize) -> Arc<Descriptors> {
        let listeners = listeners.max(1);
        let unproven_max = (limit / 8 / listeners).clamp(UNPROVEN_MIN, UNPROVEN_CLIENTS_MAX);
        let others = DESCRIPTORS_OF_PROCESS + limit / 8 + unproven_max * listeners;
        let flows = limit.saturating_sub(others).max(limit / 4);
        Arc::new(Descriptors {
            limit,
            unproven_max,
            flows: Arc::new(Semaphore::new(flows)),
        })
    }

    /// One for a flow, unless flows have all of theirs.
    pub(crate) fn for_flow(&self) -> Result<FlowDescriptor, Refusal> {
        let permit = Arc::clone(&self.flows).try_acquire_owned();
        let permit = permit.map_err(|_| self.refusal())?;
        Ok(FlowDescriptor {
            _permit: permit,
            of_peer: None,
        })
    }

    fn refusal(&self) -> Refusal {
        Refusal::by_own_limit(format!(
            "its connections use their whole share of {} open files (ulimit -n, LimitNOFILE)",
            self.limit
        ))
    }

    /// Those of a peer, which shares them with others if it `has_others`.
    pub(crate) fn of_peer(self: &Arc<Descriptors>, has_others: bool) -> PeerDescriptors {
        PeerDescriptors {
            descriptors: Arc::clone(self),
            flows: Arc::default(),
            has_others,
        }
    }

    /// The unproven connections of a listener at `address`: at most so many.
    pub fn admission(&self, address: SocketAddr, unproven_max: usize) -> Arc<Admission> {
        Admission::new(self.unproven_max.min(unproven_max), address)
    }
}

impl PeerDescriptors {
    /// One for a flow of the peer. A peer never has more than are free (a dynamic threshold:
    /// Choudhury and Hahne, 1998): one that takes all it gets has half, and another half of the
    /// rest, so that each newcomer finds some.
    pub(crate) fn for_flow(&self) -> Result<FlowDescriptor, Refusal> {
        let held = self.flows.load(Ordering::Relaxed);
        if self.has_others && held >= self.descriptors.flows.available_permits() {
            return Err(self.descriptors.refusal());
        }
        let mut descriptor = self.descriptors.for_flow()?;
        self.flows.fetch_add(1, Ordering::Relaxed);
        descriptor.of_peer = Some(Arc::clone(&self.flows));
        Ok(descriptor)
    }
}

impl Drop for FlowDescriptor {
    fn drop(&mut self) {
        if let Some(flows) = &self.of_peer {
            flows.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_descriptors_are_enough_for_all_at_once() {
        for listeners in 1..8 {
            for limit in [256, 1024, 4096, 1 << 16] {
                let descriptors = Descriptors::new(limit, listeners);
                let unproven = descriptors.unproven_max * listeners;
                let flows = descriptors.flows.available_permits();
                let taken = unproven + flows + DESCRIPTORS_OF_PROCESS;
                assert!(taken <= limit, "{taken} of {limit}, {listeners} listeners");
                assert!(flows >= limit / 4);
            }
        }
    }

    #[test]
    fn a_peer_that_takes_all_it_gets_leaves_some_to_each_other() {
        let descriptors = Descriptors::new(4096, 1);
        let all = descriptors.flows.available_permits();
        let mut held = Vec::new();
        for greedy in 0..4 {
            let peer = descriptors.of_peer(true);
            let flows: Vec<_> = std::iter::from_fn(|| peer.for_flow().ok()).collect();
            assert!(flows.len() >= all >> (greedy + 2), "{}", flows.len());
            held.push((peer, flows));
        }
        held.clear();
        let only = descriptors.of_peer(false);
        let flows: Vec<_> = std::iter::from_fn(|| only.for_flow().ok()).collect();
        assert_eq!(flows.len(), all);
    }
}
