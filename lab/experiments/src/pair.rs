//! A pair that moves a corpus: origin, far gateway, perhaps a slow link, near gateway,
//! clients.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::ensure;
use refrain_gateway::{
    loopback::Keys,
    status::{Direction, Status},
};
use refrain_relay::{LinkConfig, Rate, Relay, RelayConfig};

use crate::corpus::Corpus;

/// How a corpus is moved.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// `auto` or `max`.
    pub effort: &'static str,
    /// Objects at a time.
    pub flows: usize,
    /// The link's rate; loopback's own without.
    pub mbit: Option<u32>,
}

/// What it took.
pub(crate) struct Outcome {
    /// Bytes on the link's TCP connections, both ways.
    pub link_bytes: u64,
    /// From the first request to the last byte.
    pub time: Duration,
    /// Bytes with which the sender gave up on its window.
    pub bypassed_blocks: u64,
}

/// Moves the corpus and compares every byte.
pub(crate) fn run(corpus: &Corpus, run: Run) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let objects = Arc::new(corpus.objects.clone());
    let origin = serve(Arc::clone(&objects))?;
    let keys = Keys::new()?;
    let far = keys.far(&["--effort", run.effort])?;
    let relay = match run.mbit {
        None => None,
        Some(mbit) => {
            let _inside = runtime.enter();
            let mut config = RelayConfig::to(far.gateway.listening()[0]);
            config.link = LinkConfig {
                rate: Some(Rate::mbit(mbit)),
                ..LinkConfig::default()
            };
            Some(Relay::start(config)?)
        }
    };
    let far_listens = far.gateway.listening()[0];
    let peer = relay.as_ref().map_or(far_listens, Relay::address);
    let forward = format!("127.0.0.1:0={origin}");
    let near = keys.near(peer, &["--forward", &forward, "--effort", run.effort])?;
    let address = near.gateway.listening()[0];
    let status = || Status::of(&near.gateway);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !status().peers[0].up {
        ensure!(
            Instant::now() < deadline,
            "the gateways did not connect within 10 s"
        );
        std::thread::sleep(Duration::from_millis(5));
    }

    let began = Instant::now();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..run.flows)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(object) = objects.get(index) else {
                            return anyhow::Ok(());
                        };
                        ensure!(fetch(address, index)? == *object, "object {index} differs");
                    }
                })
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().expect("clients do not panic"))
    })?;
    let time = began.elapsed();
    let peer = status().peers.remove(0);
    let Direction {
        bypassed_blocks, ..
    } = peer.received;
    Ok(Outcome {
        link_bytes: peer.sent.link_bytes + peer.received.link_bytes,
        time,
        bypassed_blocks,
    })
}

/// Answers each connection as [`answer`] does.
pub(crate) fn serve(objects: Arc<Vec<Vec<u8>>>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let objects = Arc::clone(&objects);
            std::thread::spawn(move || answer(stream?, &objects));
        }
    });
    Ok(address)
}

/// Answers a connection's 8 bytes, an index, with that object.
fn answer(mut stream: TcpStream, objects: &[Vec<u8>]) -> io::Result<()> {
    let mut index = [0; 8];
    stream.read_exact(&mut index)?;
    let index = u64::from_le_bytes(index) as usize;
    stream.write_all(objects.get(index).map_or(&[], Vec::as_slice))
}

pub(crate) fn fetch(address: SocketAddr, index: usize) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&(index as u64).to_le_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}
