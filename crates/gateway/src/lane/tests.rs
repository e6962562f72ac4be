//! Both ends of a link in one process, over streams in memory, with TLS and no socket.

use std::net::SocketAddr;

use refrain_proto::{FlowId, Link, Role, link::OpenError};
use tokio::{
    io::{DuplexStream, copy_bidirectional, duplex},
    sync::{mpsc, watch},
    task::JoinHandle,
};

use super::*;
use crate::{
    config::Config,
    keys::{PrivateKey, PublicKey, SharedPeerKeys},
    link::{FlowOffer, FlowSignals, Standing},
    loopback::Keys,
    memory::MemoryBudget,
    random::random_instance,
    tls::{ClientTls, ServerTls},
};

const PATIENCE: Duration = Duration::from_secs(30);

struct Pair {
    near: Arc<SharedLink>,
    far: Arc<SharedLink>,
    /// What the near end wants of the far end.
    offers: mpsc::UnboundedReceiver<FlowOffer>,
    client: ClientTls,
    server: ServerTls,
}

/// A lane between two ends. Aborted, it is lost.
type Wire = JoinHandle<io::Result<(u64, u64)>>;

impl Pair {
    fn new() -> Pair {
        let config = Keys::new().and_then(|keys| keys.far_config(&[]));
        let config = config.expect("a configuration");
        let [near, far] = [(); 2].map(|()| PrivateKey::generate().expect("a key"));
        let (near_link, _) = link(Role::Near, far.public(), &config);
        let (far_link, offers) = link(Role::Far, near.public(), &config);
        let peers = Arc::new(SharedPeerKeys::new([near.public()].into_iter().collect()));
        Pair {
            near: near_link,
            far: far_link,
            offers,
            client: ClientTls::new(&near, far.public()),
            server: ServerTls::new(&far, peers),
        }
    }

    /// A lane, once it is up at both ends.
    async fn connect(&self) -> Wire {
        let [(near, mut near_wire), (far, mut far_wire)] = [(); 2].map(|()| duplex(4096));
        let wire =
            tokio::spawn(async move { copy_bidirectional(&mut near_wire, &mut far_wire).await });
        tokio::join!(self.dial(near), self.accept(far));
        for link in [&self.near, &self.far] {
            wait_for_lanes(link, 1).await;
        }
        wire
    }

    async fn dial(&self, stream: DuplexStream) {
        let (stream, _) = self
            .client
            .connect(stream, &nowhere().to_string(), PATIENCE)
            .await
            .expect("a handshake");
        let begun = self
            .near
            .begin_lane(|link, now| link.dial_lane(now).ok_or(()));
        let lane = begun.expect("there may be another");
        let counts = stream.get_ref().0.counts();
        tokio::spawn(async move { run(&lane, stream, counts, None).await });
    }

    async fn accept(&self, stream: DuplexStream) {
        let (mut stream, _) = self
            .server
            .accept(stream, nowhere(), PATIENCE)
            .await
            .expect("a handshake");
        let link = Arc::clone(&self.far);
        let counts = stream.get_ref().0.counts();
        // The near end says its hello when both have their handshakes.
        tokio::spawn(async move {
            let (hello, rest) = greeting::read_hello(&mut stream).await.expect("a hello");
            let begun = link.begin_lane(|link, now| link.accept_lane(now, &hello));
            let lane = begun.expect("it fits the link");
            let received = link.with(|link, now| link.receive(now, lane.id, &rest));
            received.expect("good frames");
            run(&lane, stream, counts, None).await
        });
    }

    /// A flow that both ends have.
    async fn open(&mut self) -> (End, End) {
        let (id, signals) = self.near.open_flow("intranet:80", false).expect("a link");
        let offer = timeout(PATIENCE, self.offers.recv())
            .await
            .expect("it comes");
        let offer = offer.expect("the link lives");
        assert_eq!((offer.flow, offer.target.as_str()), (id, "intranet:80"));
        let theirs = self.far.offered_flow(id);
        self.far.with(|link, _| link.accept_flow(id, false));
        assert_eq!(signals.opened().await, Standing::Open);
        let end = |link: &Arc<SharedLink>, signals| End {
            link: Arc::clone(link),
            id,
            signals,
        };
        (end(&self.near, signals), end(&self.far, theirs))
    }
}

fn link(
    role: Role,
    peer: PublicKey,
    config: &Config,
) -> (Arc<SharedLink>, mpsc::UnboundedReceiver<FlowOffer>) {
    let budget = MemoryBudget::new(config.memory.0, 1);
    let (config, memory) = budget.link(peer, config).expect("enough memory");
    let link = Link::new(role, random_instance(), config);
    let changes = watch::Sender::new(());
    SharedLink::start(
        peer,
        Arc::default(),
        link,
        memory,
        None,
        Arc::default(),
        changes,
    )
}

/// An address for errors alone.
fn nowhere() -> SocketAddr {
    ([192, 0, 2, 1], 1).into()
}

async fn wait_for_lanes(link: &SharedLink, count: usize) {
    let mut lanes_up = link.lanes_up();
    let up = timeout(PATIENCE, lanes_up.wait_for(|&up| up == count)).await;
    up.expect("it comes and goes").expect("the link lives");
}

/// One end of a flow.
struct End {
    link: Arc<SharedLink>,
    id: FlowId,
    signals: Arc<FlowSignals>,
}

impl End {
    /// Sends all of `bytes`, and the end.
    async fn send(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = self.link.with(|link, now| {
                let room = link.room(now, self.id).min(bytes.len());
                link.write(self.id, &bytes[..room])
            });
            bytes = &bytes[taken..];
            if taken == 0 {
                self.signals.writable.notified().await;
            }
        }
        self.link.with(|link, _| link.finish(self.id));
    }

    /// What comes until the end.
    async fn receive(&self) -> Vec<u8> {
        let (mut received, mut piece) = (Vec::new(), Vec::new());
        loop {
            let is_over = self.link.with(|link, _| {
                link.take_ready(self.id, &mut piece);
                link.taken(self.id, piece.len());
                link.take_end(self.id)
            });
            received.append(&mut piece);
            if is_over {
                return received;
            }
            self.signals.readable.notified().await;
        }
    }
}

/// Bytes both ways at once, of which the second half repeats the first.
async fn exchange(near: &End, far: &End) {
    let verse: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let song = [&verse[..], &verse].concat();
    let exchanging = async {
        tokio::join!(
            near.send(&song),
            far.send(&song),
            near.receive(),
            far.receive()
        )
    };
    let ((), (), at_near, at_far) = timeout(PATIENCE, exchanging).await.expect("no end");
    assert!(at_near == song && at_far == song);
}

#[tokio::test]
async fn a_flow_passes_over_streams_in_memory_and_its_repeats_do_not() {
    let mut pair = Pair::new();
    let _wire = pair.connect().await;
    let (near, far) = pair.open().await;
    exchange(&near, &far).await;
    let [sent, received] = [&pair.near, &pair.far].map(|link| link.status().counters);
    assert!(
        sent.sent.link_bytes > 0 && sent.sent.link_bytes < 900_000,
        "{sent:?}"
    );
    // What left one end is what came to the other, but for what is on its way.
    assert!(received.received.link_bytes <= sent.sent.link_bytes + 1000);
}

#[tokio::test]
async fn a_lost_lane_resets_its_flows_and_the_next_joins_the_same_link() {
    let mut pair = Pair::new();
    let wire = pair.connect().await;
    let (near, far) = pair.open().await;
    wire.abort();
    for (link, flow) in [(&pair.near, &near), (&pair.far, &far)] {
        wait_for_lanes(link, 0).await;
        let standing = timeout(PATIENCE, flow.signals.over()).await;
        assert!(matches!(standing, Ok(Standing::Reset(_))), "{standing:?}");
    }
    assert_eq!(
        pair.near.open_flow("a:1", false).err(),
        Some(OpenError::LinkDown)
    );
    let _wire = pair.connect().await;
    let (near, far) = pair.open().await;
    exchange(&near, &far).await;
}

#[tokio::test]
async fn an_end_that_drains_takes_no_more_flows_and_finishes_those_that_are_open() {
    let mut pair = Pair::new();
    let _wire = pair.connect().await;
    let (near, far) = pair.open().await;
    pair.near.drain();
    timeout(PATIENCE, pair.far.draining())
        .await
        .expect("it hears");
    for link in [&pair.near, &pair.far] {
        let refused = link.open_flow("a:1", false).err();
        assert_eq!(refused, Some(OpenError::Draining));
    }
    exchange(&near, &far).await;
}

/// Carries 9 MiB, and waits until memory for about as much again is there.
#[cfg(target_os = "linux")]
async fn fill_and_wait(pair: &Pair, (near, far): &(End, End)) {
    const MIB: usize = 1 << 20;
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
        (state >> 56) as u8
    })
    .take(9 * MIB)
    .collect();
    let carrying = async {
        tokio::join!(
            near.send(&noise),
            far.send(&[]),
            near.receive(),
            far.receive()
        )
    };
    let (.., at_far) = timeout(PATIENCE, carrying).await.expect("no end");
    assert!(at_far == noise);
    let held = |link: &SharedLink| link.status().allocated_bytes;
    let [near_held, far_held] = [&pair.near, &pair.far].map(|link| held(link));
    let prefaulted = async {
        while held(&pair.near) < near_held + 6 * MIB || held(&pair.far) < far_held + 6 * MIB {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, prefaulted).await.expect("as much again");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(held(&pair.near) < near_held + 10 * MIB, "and no more");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn caches_are_prefaulted_while_nothing_moves_and_no_task_outlives_the_link() {
    let mut pair = Pair::new();
    let wire = pair.connect().await;
    let flow = pair.open().await;
    fill_and_wait(&pair, &flow).await;

    drop((flow, pair));
    wire.abort();
    let tasks = tokio::runtime::Handle::current().metrics();
    let ended = async {
        while tasks.num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("nothing holds them");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn caches_are_prefaulted_while_small_messages_move() {
    let mut pair = Pair::new();
    let _wire = pair.connect().await;
    let (large, (near, far)) = (pair.open().await, pair.open().await);
    let messages = async {
        let mut came = Vec::new();
        loop {
            near.link.with(|link, _| link.write(near.id, b"a message"));
            tokio::time::sleep(Duration::from_millis(5)).await;
            far.link.with(|link, _| {
                link.take_ready(far.id, &mut came);
                link.taken(far.id, came.len());
            });
        }
    };
    tokio::select! {
        () = fill_and_wait(&pair, &large) => {}
        () = messages => {}
    }
}
