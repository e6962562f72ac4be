//! Streams of HTTP/2 that wait for their answers.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::ways::{Site, h2load};
use crate::processes::{Running, resident_bytes, wait};

/// Connections of clients, and the streams of each that are compared with a single one.
const CONNECTIONS: usize = 100;
const STREAMS: usize = 100;

/// How long memory must not change.
const STILL: Duration = Duration::from_millis(500);

/// All streams at once.
pub(super) const ALL_STREAMS: usize = CONNECTIONS * STREAMS;

/// The memory of a stream at the near and the far end, in bytes.
pub(super) fn measure(refrain: &Path) -> anyhow::Result<[f64; 2]> {
    let few = with_streams(refrain, 1)?;
    let many = with_streams(refrain, STREAMS)?;
    let streams = (CONNECTIONS * (STREAMS - 1)) as f64;
    Ok([0, 1].map(|end: usize| (many[end] as f64 - few[end] as f64) / streams))
}

/// The memory of a new near and far end while each connection has so many requests without an answer.
fn with_streams(refrain: &Path, streams: usize) -> anyhow::Result<[u64; 2]> {
    let server = Silent::start()?;
    let site = Site::before(server.address)?;
    // Of caches, memory is taken as they fill.
    let pair = site.pair(refrain, &["--cache-size", "1MiB"])?;
    let (connections, streams_text) = (CONNECTIONS.to_string(), streams.to_string());
    let requests = (CONNECTIONS * streams).to_string();
    let options = [
        "--clients",
        &connections,
        "--max-concurrent-streams",
        &streams_text,
        "--requests",
        &requests,
    ];
    let mut clients = h2load(&pair, "object", &options);
    let clients = Running::start(clients.stderr(Stdio::null()))?;
    let are_there = || Ok(server.connections.load(Ordering::Relaxed) == CONNECTIONS * streams);
    wait(are_there, "all requests")?;
    let memory = || [0, 1].map(|end: usize| resident_bytes(pair.between[end]));
    let mut before = memory();
    wait(
        || {
            thread::sleep(STILL);
            let now = memory();
            Ok(std::mem::replace(&mut before, now) == now)
        },
        "memory that does not change",
    )?;
    drop(clients);
    Ok(before)
}

/// A server that answers nothing, until dropped.
struct Silent {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    has_ended: Arc<AtomicBool>,
}

impl Silent {
    fn start() -> anyhow::Result<Silent> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let silent = Silent {
            address: listener.local_addr()?,
            connections: Arc::default(),
            has_ended: Arc::default(),
        };
        let (connections, has_ended) = (
            Arc::clone(&silent.connections),
            Arc::clone(&silent.has_ended),
        );
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming().flatten() {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                open.push(stream);
                connections.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(silent)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // It looks when somebody connects.
        let _ = TcpStream::connect(self.address);
    }
}
