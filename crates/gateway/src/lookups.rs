//! Names that targets have, resolved by the system, a bounded number at once.
//!
//! The system's resolver blocks a thread until it has an answer or gives up, and a peer may ask
//! for names whose servers never answer. So each peer has a bounded number of look-ups under way,
//! and all peers together have; the rest wait in their flows, and go with them.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use tokio::{sync::Semaphore, task::spawn_blocking};

/// Look-ups under way at once: each occupies a thread, of which the runtime has 512.
const LOOKUPS_MAX: usize = 256;

/// Of one peer.
const LOOKUPS_PEER_MAX: usize = 16;

/// A function that resolves a name and gives the addresses of a port there.
type Resolver = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The look-ups of a gateway.
#[derive(Clone)]
pub(crate) struct Lookups {
    resolver: Arc<Resolver>,
    all: Arc<Semaphore>,
}

/// The look-ups of one peer, which all its links share as clones.
#[derive(Clone)]
pub(crate) struct PeerLookups {
    lookups: Lookups,
    own: Arc<Semaphore>,
}

impl Lookups {
    /// By the system's resolver.
    pub(crate) fn of_system() -> Lookups {
        Lookups::by(|name, port| Ok((name, port).to_socket_addrs()?.collect()))
    }

    fn by(
        resolver: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Lookups {
        Lookups {
            resolver: Arc::new(resolver),
            all: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        }
    }

    /// Those of a further peer.
    pub(crate) fn of_peer(&self) -> PeerLookups {
        PeerLookups {
            lookups: self.clone(),
            own: Arc::new(Semaphore::new(LOOKUPS_PEER_MAX)),
        }
    }
}

impl PeerLookups {
    /// The addresses of `name`, with `port`. Dropped before it has begun, it never begins.
    pub(crate) async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let own = Arc::clone(&self.own).acquire_owned().await;
        let Lookups { resolver, all } = self.lookups.clone();
        let all = all.acquire_owned().await;
        let name = name.to_owned();
        let found = spawn_blocking(move || {
            let found = resolver(&name, port);
            // Held until here: a thread that nobody waits for is still occupied.
            drop((own, all));
            found
        });
        found.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Condvar, Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use tokio::{task::JoinSet, time::timeout};

    use super::*;

    const ADDRESS: &str = "192.0.2.1:80";

    /// A gateway in whose network names below `dead.` are never answered, until `release`.
    struct DeadNames {
        lookups: Lookups,
        under_way: Arc<AtomicUsize>,
        released: Arc<(Mutex<bool>, Condvar)>,
    }

    impl DeadNames {
        fn new() -> DeadNames {
            let under_way: Arc<AtomicUsize> = Arc::default();
            let released: Arc<(Mutex<bool>, Condvar)> = Arc::default();
            let (counted, gate) = (Arc::clone(&under_way), Arc::clone(&released));
            let lookups = Lookups::by(move |name, _| {
                if name.starts_with("dead.") {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let (released, changed) = &*gate;
                    let released = released.lock().expect("free");
                    drop(changed.wait_while(released, |released| !*released));
                    counted.fetch_sub(1, Ordering::SeqCst);
                    return Err(io::ErrorKind::NotFound.into());
                }
                Ok(vec![ADDRESS.parse().expect("an address")])
            });
            DeadNames {
                lookups,
                under_way,
                released,
            }
        }
    }

    impl Drop for DeadNames {
        fn drop(&mut self) {
            *self.released.0.lock().expect("free") = true;
            self.released.1.notify_all();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn dead_names_of_one_peer_hold_up_no_other_and_go_with_their_flows() {
        let network = DeadNames::new();
        let (hostile, honest) = (network.lookups.of_peer(), network.lookups.of_peer());
        let mut flood = JoinSet::new();
        for number in 0..900 {
            // As each link of the peer would.
            let lookups = hostile.clone();
            flood.spawn(async move { lookups.resolve(&format!("dead.{number}"), 80).await });
        }
        let patience = Duration::from_secs(30);
        while network.under_way.load(Ordering::SeqCst) < LOOKUPS_PEER_MAX {
            tokio::task::yield_now().await;
        }
        let found = timeout(patience, honest.resolve("alive.example", 80)).await;
        let found = found.expect("it does not wait for the others");
        assert_eq!(found.expect("an answer")[0].to_string(), ADDRESS);
        // Flows that are given up take their look-ups with them, but for those under way.
        flood.shutdown().await;
        assert_eq!(network.under_way.load(Ordering::SeqCst), LOOKUPS_PEER_MAX);
        drop(network);
        let found = timeout(patience, hostile.resolve("alive.example", 80)).await;
        assert!(found.expect("its own look-ups are over").is_ok());
    }
}
