//! The flows of connections whose first packet the firewall holds, and that are not accepted yet.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use refrain_admission::source;
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    time::timeout,
};

use crate::{flow::FlowHandle, intercept::queue::Verdict};

/// How long the flow of a connection waits for it. Packets of its handshake may be lost.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that are opened at a time, and the share of one source. Further ones pass.
const HELD_MAX: usize = 1024;
const HELD_OF_SOURCE_MAX: usize = 256;

/// The ends of a connection: the client, and the server that it wants.
type Ends = (SocketAddr, SocketAddr);

/// The flows of connections whose first packet came, and that are not accepted yet.
pub(crate) struct HeldFlows<F = FlowHandle>(Mutex<HashMap<Ends, Entry<F>>>);

struct Entry<F> {
    /// None while it is opened.
    flow: Option<F>,
    /// Dropped when the flow is claimed.
    _claim: oneshot::Sender<()>,
}

/// A connection's place among them.
pub(crate) struct Held<'a, F> {
    flows: &'a HeldFlows<F>,
    ends: Ends,
    claimed: oneshot::Receiver<()>,
}

impl<F> Default for HeldFlows<F> {
    fn default() -> HeldFlows<F> {
        HeldFlows(Mutex::default())
    }
}

impl<F> HeldFlows<F> {
    /// The flow of an accepted connection, if it has one.
    pub(crate) fn claim(&self, client: SocketAddr, server: SocketAddr) -> Option<F> {
        let ends = ends(client, server);
        let mut entries = self.lock();
        entries.get(&ends)?.flow.as_ref()?;
        entries.remove(&ends)?.flow
    }

    /// Begins a connection, or says what becomes of its packet.
    pub(crate) fn begin(
        &self,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Result<Held<'_, F>, Verdict> {
        let ends = ends(client, server);
        let mut entries = self.lock();
        match entries.get(&ends) {
            // The client repeats itself: the first packet is still held, or was let pass.
            Some(Entry { flow: None, .. }) => return Err(Verdict::Drop),
            Some(Entry { flow: Some(_), .. }) => return Err(Verdict::Accept),
            None => {}
        }
        let own = source(client.ip());
        let of_source = entries.keys().filter(|(of, _)| source(of.ip()) == own);
        if entries.len() >= HELD_MAX || of_source.count() >= HELD_OF_SOURCE_MAX {
            return Err(Verdict::Accept);
        }
        let (_claim, claimed) = oneshot::channel();
        entries.insert(ends, Entry { flow: None, _claim });
        Ok(Held {
            flows: self,
            ends,
            claimed,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ends, Entry<F>>> {
        self.0.lock().expect("held for a moment")
    }
}

impl<F> Held<'_, F> {
    /// Its flow is open.
    pub(crate) fn put(&self, flow: F) {
        if let Some(entry) = self.flows.lock().get_mut(&self.ends) {
            entry.flow = Some(flow);
        }
    }

    /// Waits until the flow is claimed, or for so long. Ends it then.
    pub(crate) async fn wait(mut self) {
        let _ = timeout(CLAIM_TIMEOUT, &mut self.claimed).await;
    }
}

impl<F> Drop for Held<'_, F> {
    fn drop(&mut self) {
        let mut entries = self.flows.lock();
        // Otherwise, the entry is that of a later connection.
        let is_own = self.claimed.try_recv() == Err(TryRecvError::Empty);
        let unclaimed = is_own.then(|| entries.remove(&self.ends));
        // Its end needs the link's lock.
        drop(entries);
        drop(unclaimed);
    }
}

/// A listener of all addresses has those of IPv4 as `::ffff:192.0.2.1`.
fn ends(client: SocketAddr, server: SocketAddr) -> Ends {
    let end = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    (end(client), end(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends_of(number: u32) -> Ends {
        let client = SocketAddr::from((number.to_be_bytes(), 1234));
        (client, SocketAddr::from(([10, 77, 0, 2], 80)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_is_for_one_connection_and_ends_unless_it_is_claimed() {
        let flows = HeldFlows::default();
        let (client, server) = ends_of(1);
        let first = flows.begin(client, server).expect("a place");
        // A second packet of the same connection.
        assert_eq!(flows.begin(client, server).err(), Some(Verdict::Drop));
        assert_eq!(flows.claim(client, server), None);
        first.put("first");
        assert_eq!(flows.begin(client, server).err(), Some(Verdict::Accept));
        let mapped = "[::ffff:0.0.0.1]:1234".parse().expect("an address");
        assert_eq!(flows.claim(mapped, server), Some("first"));
        assert_eq!(flows.claim(client, server), None);
        // A later one with the same addresses and ports, before the first one's task has ended.
        let second = flows.begin(client, server).expect("a place");
        second.put("second");
        first.wait().await;
        assert_eq!(flows.begin(client, server).err(), Some(Verdict::Accept));
        second.wait().await;
        assert_eq!(flows.claim(client, server), None);
    }

    #[test]
    fn their_number_is_bounded_and_no_source_has_all() {
        let flows = HeldFlows::<()>::default();
        let mut held = Vec::new();
        let mut places = |source: u32, count: usize| {
            let (client, _) = ends_of(source);
            let begun = (1..=count).map_while(|port| {
                let server = SocketAddr::from(([10, 77, 0, 2], port as u16));
                flows.begin(client, server).ok()
            });
            let before = held.len();
            held.extend(begun);
            held.len() - before
        };
        assert_eq!(places(1, HELD_MAX), HELD_OF_SOURCE_MAX);
        let others = HELD_MAX / HELD_OF_SOURCE_MAX - 1;
        for source in 0..others {
            assert_eq!(places(2 + source as u32, HELD_MAX), HELD_OF_SOURCE_MAX);
        }
        assert_eq!(places(99, 1), 0);
        drop(held);
        assert!(flows.lock().is_empty());
    }
}
