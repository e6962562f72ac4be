//! The other side of a measurement: a server on loopback that keeps a record of what arrives.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::link::lock;

/// A server on loopback that meters what it reads, over all of its connections.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) meter: Arc<Meter>,
    task: AbortHandle,
}

#[derive(Clone, Copy)]
pub(super) enum Answer {
    Echo,
    Nothing,
}

impl Server {
    pub(super) async fn start(answer: Answer) -> io::Result<Server> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let meter = Arc::new(Meter::default());
        let for_server = Arc::clone(&meter);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer, Arc::clone(&for_server)));
            }
        });
        Ok(Server {
            address,
            meter,
            task: task.abort_handle(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends with the client's close, or with an error, which the client notices as well.
async fn serve(mut stream: TcpStream, answer: Answer, meter: Arc<Meter>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return stream.shutdown().await;
        }
        meter.arrived(count);
        if let Answer::Echo = answer {
            stream.write_all(&buffer[..count]).await?;
        }
    }
}

/// When how many bytes arrived.
#[derive(Default)]
pub(super) struct Meter(Mutex<Vec<(Instant, usize)>>);

impl Meter {
    pub(super) fn arrived(&self, bytes: usize) {
        lock(&self.0).push((Instant::now(), bytes));
    }

    pub(super) fn mbit_per_s(&self) -> f64 {
        let arrivals = lock(&self.0);
        let (Some((first, _)), Some((last, _))) = (arrivals.first(), arrivals.last()) else {
            return 0.0;
        };
        // What arrived first was on its way before the clock started.
        let bytes: usize = arrivals[1..].iter().map(|(_, bytes)| bytes).sum();
        bytes as f64 * 8.0 / 1e6 / (*last - *first).as_secs_f64()
    }

    pub(super) fn gaps_from(&self, shortest: Duration) -> Vec<Duration> {
        let arrivals = lock(&self.0);
        let gaps = arrivals.windows(2).map(|pair| pair[1].0 - pair[0].0);
        gaps.filter(|gap| *gap >= shortest).collect()
    }
}

/// How much is read, and checked, at a time.
pub(super) const PIECE_BYTES: usize = 16 << 10;
