//! Which connections a listener keeps before it knows what they want, and how many.
//!
//! A connection is *unproven* until it has sent a whole request or proved a key. Anybody can open
//! such connections, so each listener keeps a bounded number of them. Where one more comes, one
//! goes: the oldest of the source that has the most. So silent connections keep nobody out, and a
//! source that opens many displaces its own. A source is an address, of IPv6 its /64.
//!
//! ```
//! # use refrain_admission::Admission;
//! let listens = "192.0.2.1:7000".parse().unwrap();
//! let admission = Admission::new(256, listens);
//! let (visit, displaces) = admission.enter("198.51.100.7:40000".parse().unwrap());
//! assert!(!displaces);
//! // Its request came:
//! visit.prove();
//! ```
#![forbid(unsafe_code)]

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::Notify;

/// No source has more than this share of a listener's unproven connections.
const SOURCE_SHARE: usize = 4;

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
    /// How many each source has.
    of_source: HashMap<IpAddr, usize>,
    /// Displaced connections that still have their socket.
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
    /// Keeps at most so many unproven connections of a listener at `listens`, and of one source at
    /// most a quarter of them; where it listens on loopback, all.
    pub fn new(unproven_max: usize, listens: SocketAddr) -> Arc<Admission> {
        // On loopback all clients have one address.
        let source_max = match listens.ip().to_canonical().is_loopback() {
            true => unproven_max,
            false => unproven_max.div_ceil(SOURCE_SHARE),
        };
        Arc::new(Admission {
            unproven_max,
            source_max,
            state: Mutex::default(),
            left: Notify::new(),
        })
    }

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
        let source = source(self.address.ip());
        let mut state = admission.lock();
        *number = Some(state.add(source, Arc::clone(&self.displaced)));
        state.displace(source, admission.unproven_max, admission.source_max)
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
    fn add(&mut self, source: IpAddr, displaced: Arc<Notify>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.unproven.insert(number, Unproven { source, displaced });
        *self.of_source.entry(source).or_default() += 1;
        number
    }

    /// Tells one connection to go if there are too many, of all sources or of `newest`.
    fn displace(&mut self, newest: IpAddr, unproven_max: usize, source_max: usize) -> bool {
        let most = if self.of_source.get(&newest) > Some(&source_max) {
            Some(newest)
        } else if self.unproven.len() > unproven_max {
            let most = self.of_source.iter().max_by_key(|(_, count)| **count);
            most.map(|(source, _)| *source)
        } else {
            None
        };
        let Some(source) = most else {
            return false;
        };
        let mut oldest_first = self.unproven.iter();
        let oldest = oldest_first.find(|(_, unproven)| unproven.source == source);
        let Some((&number, _)) = oldest else {
            return false;
        };
        if let Some(unproven) = self.take(number) {
            unproven.displaced.notify_one();
            self.leaving += 1;
        }
        true
    }

    fn take(&mut self, number: u64) -> Option<Unproven> {
        let unproven = self.unproven.remove(&number)?;
        if let Entry::Occupied(mut count) = self.of_source.entry(unproven.source) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(unproven)
    }

    fn remove(&mut self, number: u64) {
        if self.take(number).is_none() {
            // It was told to go, and now its socket is gone.
            self.leaving = self.leaving.saturating_sub(1);
        }
    }
}

/// What connections are counted by: their address, of IPv6 its /64, which is one owner's as a rule.
pub fn source(address: IpAddr) -> IpAddr {
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

    const UNPROVEN_MAX: usize = 256;
    const OPEN: &str = "192.0.2.1:7000";

    fn admission(unproven_max: usize, listen: &str) -> Arc<Admission> {
        Admission::new(unproven_max, listen.parse().expect("an address"))
    }

    fn client(number: u32) -> SocketAddr {
        (Ipv4Addr::from_bits(number), 1234).into()
    }

    #[test]
    fn a_source_with_many_connections_displaces_its_own() {
        let admission = admission(UNPROVEN_MAX, OPEN);
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
        let admission = admission(UNPROVEN_MAX, "127.0.0.1:1080");
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
        let admission = admission(4, "127.0.0.1:1080");
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 1234));
        let mut visits: Vec<_> = (0..=4).map(|_| admission.enter(loopback).0).collect();
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
            let admission = admission(16, OPEN);
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
            prop_assert!(state.of_source.is_empty());
        }
    }
}
