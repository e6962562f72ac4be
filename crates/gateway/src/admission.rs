//! Which connections a listener keeps before it knows what they want, and how many.
//!
//! A connection is *unproven* until it has sent a whole request or proved a key. Anybody can open
//! such connections, so each listener keeps a bounded number of them. Where one more comes, one
//! goes: the oldest of the source that has the most. So silent connections keep nobody out, and a
//! source that opens many displaces its own. A source is an address, of IPv6 its /64.
//!
//! File descriptors are shared out at the start ([`Descriptors`]), so that unproven connections
//! cannot take those that flows need.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The most unproven connections of a listener.
const UNPROVEN_MAX: usize = 256;

/// The least that a listener keeps, however few file descriptors there are.
const UNPROVEN_MIN: usize = 4;

/// No source has more than this share of a listener's unproven connections.
const SOURCE_SHARE: usize = 4;

/// File descriptors that the process needs in any case: standard streams, its runtime, listeners,
/// a store's files.
const DESCRIPTORS_OF_PROCESS: usize = 40;

/// File descriptors without a limit on them.
const DESCRIPTORS_UNLIMITED: usize = 1 << 20;

/// How the process shares out its file descriptors.
///
/// An eighth is for unproven connections, another eighth for lanes and look-ups, and what
/// remains is for flows alone.
#[derive(Debug)]
pub struct Descriptors {
    limit: usize,
    unproven_max: usize,
    flows: Arc<Semaphore>,
}

/// A file descriptor of a flow, given back when dropped.
#[derive(Debug)]
pub struct FlowDescriptor {
    _permit: OwnedSemaphorePermit,
    /// The count of the flows of its peer, if it is for one.
    of_peer: Option<Arc<AtomicUsize>>,
}

/// The file descriptors of one peer's flows, on all its links.
#[derive(Clone, Debug)]
pub struct PeerDescriptors {
    descriptors: Arc<Descriptors>,
    flows: Arc<AtomicUsize>,
    /// Whether there are other peers, to which it must leave some.
    has_others: bool,
}

impl Descriptors {
    /// Shares out as many as this process may have, among so many listeners. The soft limit is
    /// raised to the hard one: it is low for the sake of programs that use select(2).
    pub fn of_process(listeners: usize) -> Arc<Descriptors> {
        let mut limits = getrlimit(Resource::Nofile);
        limits.current = limits.maximum;
        let _ = setrlimit(Resource::Nofile, limits);
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.map_or(DESCRIPTORS_UNLIMITED, |limit| limit as usize);
        Descriptors::new(limit.min(DESCRIPTORS_UNLIMITED), listeners)
    }

    fn new(limit: usize, listeners: usize) -> Arc<Descriptors> {
        let listeners = listeners.max(1);
        let unproven_max = (limit / 8 / listeners).clamp(UNPROVEN_MIN, UNPROVEN_MAX);
        let others = DESCRIPTORS_OF_PROCESS + limit / 8 + unproven_max * listeners;
        let flows = limit.saturating_sub(others).max(limit / 4);
        Arc::new(Descriptors {
            limit,
            unproven_max,
            flows: Arc::new(Semaphore::new(flows)),
        })
    }

    /// The limit on the process's file descriptors (`ulimit -n`).
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// One for a flow, unless flows have all of theirs.
    pub fn for_flow(&self) -> Option<FlowDescriptor> {
        let permit = Arc::clone(&self.flows).try_acquire_owned().ok()?;
        Some(FlowDescriptor {
            _permit: permit,
            of_peer: None,
        })
    }

    /// Those of a peer, which shares them with others if it `has_others`.
    pub fn of_peer(self: &Arc<Descriptors>, has_others: bool) -> PeerDescriptors {
        PeerDescriptors {
            descriptors: Arc::clone(self),
            flows: Arc::default(),
            has_others,
        }
    }

    /// The unproven connections of a listener at `address`.
    pub fn admission(&self, address: SocketAddr) -> Arc<Admission> {
        // On loopback all clients have one address.
        let source_max = match address.ip().to_canonical().is_loopback() {
            true => self.unproven_max,
            false => self.unproven_max.div_ceil(SOURCE_SHARE),
        };
        Arc::new(Admission {
            unproven_max: self.unproven_max,
            source_max,
            state: Mutex::default(),
            left: Notify::new(),
        })
    }
}

impl PeerDescriptors {
    /// One for a flow of the peer. A peer never has more than are free (a dynamic threshold:
    /// Choudhury and Hahne, 1998): one that takes all it gets has half, and another half of the
    /// rest, so that each newcomer finds some.
    pub fn for_flow(&self) -> Option<FlowDescriptor> {
        let held = self.flows.load(Ordering::Relaxed);
        if self.has_others && held >= self.descriptors.flows.available_permits() {
            return None;
        }
        let mut descriptor = self.descriptors.for_flow()?;
        self.flows.fetch_add(1, Ordering::Relaxed);
        descriptor.of_peer = Some(Arc::clone(&self.flows));
        Some(descriptor)
    }
}

impl Drop for FlowDescriptor {
    fn drop(&mut self) {
        if let Some(flows) = &self.of_peer {
            flows.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The unproven connections of one listener.
#[derive(Debug)]
pub struct Admission {
    unproven_max: usize,
    source_max: usize,
    state: Mutex<State>,
    /// A connection left.
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    next_number: u64,
    /// The oldest first.
    unproven: BTreeMap<u64, Unproven>,
    /// Connections that were told to go and still have their socket.
    leaving: usize,
}

#[derive(Debug)]
struct Unproven {
    source: IpAddr,
    displaced: Arc<Notify>,
}

/// A connection of a listener, from its acceptance to its end.
#[derive(Debug)]
pub struct Visit {
    admission: Arc<Admission>,
    address: SocketAddr,
    number: Mutex<Option<u64>>,
    displaced: Arc<Notify>,
}

impl Admission {
    /// Waits until one more connection may be accepted: while displaced ones still have their
    /// sockets, there may be no file descriptor for it.
    pub async fn ready(&self) {
        loop {
            let left = self.left.notified();
            if self.lock().leaving == 0 {
                return;
            }
            left.await;
        }
    }

    /// Takes a connection from `address` in, and says whether another one has to give way to it.
    pub fn enter(self: &Arc<Admission>, address: SocketAddr) -> (Visit, bool) {
        let visit = Visit {
            admission: Arc::clone(self),
            address,
            number: Mutex::new(None),
            displaced: Arc::default(),
        };
        let displaced = visit.wait();
        (visit, displaced)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("held for a moment")
    }
}

impl Visit {
    /// The other end of the connection.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connection has sent a whole request, or proved a key: it is displaced no more.
    pub fn prove(&self) {
        if let Some(number) = self.lock_number().take() {
            self.admission.lock().remove(number);
            self.admission.left.notify_one();
        }
    }

    /// The connection is unproven, again or at first, until it has sent its next request. Says
    /// whether another one has to give way to it.
    pub fn wait(&self) -> bool {
        let mut number = self.lock_number();
        if number.is_some() {
            return false;
        }
        let admission = &self.admission;
        let mut state = admission.lock();
        let own = state.next_number;
        state.next_number += 1;
        state.unproven.insert(
            own,
            Unproven {
                source: source(self.address.ip()),
                displaced: Arc::clone(&self.displaced),
            },
        );
        *number = Some(own);
        state.displace(admission.unproven_max, admission.source_max)
    }

    /// Waits until the connection has to give way to another one.
    pub async fn displaced(&self) {
        loop {
            self.displaced.notified().await;
            // It may have proved itself meanwhile.
            if self.is_leaving() {
                return;
            }
        }
    }

    fn is_leaving(&self) -> bool {
        let number = *self.lock_number();
        let is_kept = |number| self.admission.lock().unproven.contains_key(&number);
        number.is_some_and(|number| !is_kept(number))
    }

    fn lock_number(&self) -> MutexGuard<'_, Option<u64>> {
        self.number.lock().expect("held for a moment")
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.prove();
    }
}

impl State {
    /// Tells one connection to go if there are too many, of all sources or of the newest's.
    fn displace(&mut self, unproven_max: usize, source_max: usize) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for unproven in self.unproven.values() {
            *counts.entry(unproven.source).or_default() += 1;
        }
        let most = counts.iter().max_by_key(|(_, count)| **count);
        let Some((&source, &count)) = most else {
            return false;
        };
        if self.unproven.len() <= unproven_max && count <= source_max {
            return false;
        }
        let oldest = self.unproven.iter();
        let oldest = oldest.filter(|(_, unproven)| unproven.source == source);
        let Some((&number, _)) = oldest.min_by_key(|(number, _)| **number) else {
            return false;
        };
        if let Some(unproven) = self.unproven.remove(&number) {
            unproven.displaced.notify_one();
            self.leaving += 1;
        }
        true
    }

    fn remove(&mut self, number: u64) {
        if self.unproven.remove(&number).is_none() {
            // It was told to go, and now its socket is gone.
            self.leaving = self.leaving.saturating_sub(1);
        }
    }
}

/// What connections are counted by.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    const OPEN: &str = "192.0.2.1:7000";

    fn admission(limit: usize, listen: &str) -> Arc<Admission> {
        Descriptors::new(limit, 1).admission(listen.parse().expect("an address"))
    }

    fn client(number: u32) -> SocketAddr {
        (Ipv4Addr::from_bits(number), 1234).into()
    }

    #[test]
    fn a_source_with_many_connections_displaces_its_own() {
        let admission = admission(1 << 20, OPEN);
        let (other, _) = admission.enter(client(1));
        let mut flood = Vec::new();
        for _ in 0..1500 {
            flood.push(admission.enter(client(2)).0);
        }
        assert!(!other.is_leaving());
        let kept = flood.iter().filter(|visit| !visit.is_leaving()).count();
        assert_eq!(kept, UNPROVEN_MAX / SOURCE_SHARE);
        assert!(!flood.last().expect("one").is_leaving(), "the newest stay");
    }

    #[test]
    fn on_loopback_one_source_may_have_all() {
        let admission = admission(1 << 20, "127.0.0.1:1080");
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 1234));
        let visits: Vec<_> = (0..UNPROVEN_MAX)
            .map(|_| admission.enter(loopback))
            .collect();
        assert!(visits.iter().all(|(_, displaced)| !displaced));
        assert!(admission.enter(loopback).1);
        assert!(visits[0].0.is_leaving());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let in_network = |text: &str| source(text.parse().expect("an address"));
        assert_eq!(in_network("2001:db8::1"), in_network("2001:db8::ffff:1"));
        assert_ne!(in_network("2001:db8::1"), in_network("2001:db8:0:1::1"));
        assert_eq!(in_network("::ffff:10.0.0.1"), in_network("10.0.0.1"));
        assert_ne!(in_network("10.0.0.2"), in_network("10.0.0.1"));
    }

    #[tokio::test]
    async fn the_next_is_accepted_when_a_displaced_one_is_gone() {
        let admission = admission(32, "127.0.0.1:1080");
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 1234));
        let mut visits: Vec<_> = (0..=UNPROVEN_MIN)
            .map(|_| admission.enter(loopback).0)
            .collect();
        visits[0].displaced().await;
        let ready = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.ready().await }
        });
        tokio::task::yield_now().await;
        assert!(!ready.is_finished());
        visits.remove(0);
        ready.await.expect("no panic");
    }

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
            let flows: Vec<_> = std::iter::from_fn(|| peer.for_flow()).collect();
            assert!(flows.len() >= all >> (greedy + 2), "{}", flows.len());
            held.push((peer, flows));
        }
        held.clear();
        let only = descriptors.of_peer(false);
        let flows: Vec<_> = std::iter::from_fn(|| only.for_flow()).collect();
        assert_eq!(flows.len(), all);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Enters(u32),
        Proves(usize),
        Waits(usize),
        Leaves(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..6_u32).prop_map(Step::Enters),
            1 => any::<usize>().prop_map(Step::Proves),
            1 => any::<usize>().prop_map(Step::Waits),
            1 => any::<usize>().prop_map(Step::Leaves),
        ]
    }

    proptest! {
        #[test]
        fn bounds_hold_and_nothing_is_left_behind(steps in proptest::collection::vec(step(), 0..300)) {
            let admission = admission(128, OPEN);
            let mut visits = Vec::new();
            for step in steps {
                match step {
                    Step::Enters(from) => visits.push(admission.enter(client(from)).0),
                    Step::Proves(at) if !visits.is_empty() => visits[at % visits.len()].prove(),
                    Step::Waits(at) if !visits.is_empty() => {
                        visits[at % visits.len()].wait();
                    }
                    Step::Leaves(at) if !visits.is_empty() => {
                        visits.swap_remove(at % visits.len());
                    }
                    _ => {}
                }
                let state = admission.lock();
                prop_assert!(state.unproven.len() <= admission.unproven_max);
                for from in 0..6 {
                    let of_source = state.unproven.values();
                    let of_source = of_source.filter(|unproven| unproven.source == client(from).ip());
                    prop_assert!(of_source.count() <= admission.source_max);
                }
            }
            visits.clear();
            let state = admission.lock();
            prop_assert_eq!((state.unproven.len(), state.leaving), (0, 0));
        }
    }
}
