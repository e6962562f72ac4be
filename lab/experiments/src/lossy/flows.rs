//! Clients that ask an origin for seeded objects, one after the other on a connection.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;

use crate::{
    over_link::Origin,
    seeded::{REQUEST_BYTES, Seeded},
};

/// A client that waits longer for bytes gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// An origin that answers each request of a connection with its object.
pub(super) fn origin() -> Origin {
    Arc::new(answer)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut request = [0; REQUEST_BYTES];
        // Ended by its client.
        stream.read_exact(&mut request)?;
        let seeded = Seeded::of_request(request).ok_or(io::ErrorKind::InvalidData)?;
        seeded.write_to(&mut stream)?;
    }
}

/// An object that its client compares with what comes.
pub(super) struct Expected {
    seeded: Seeded,
    bytes: Vec<u8>,
}

/// When an answer's first and last byte came, from the request on.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub first_byte: Duration,
    pub last_byte: Duration,
}

impl Expected {
    pub(super) fn new(seeded: Seeded) -> Self {
        let mut bytes = Vec::new();
        seeded.write_to(&mut bytes).expect("memory takes all");
        Self { seeded, bytes }
    }

    /// Fetches it over an open connection.
    pub(super) fn fetch(&self, mut stream: &TcpStream) -> anyhow::Result<Times> {
        let began = Instant::now();
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&self.seeded.request())?;
        let mut came = vec![0; self.bytes.len()];
        stream.read_exact(&mut came[..1])?;
        let first_byte = began.elapsed();
        stream.read_exact(&mut came[1..])?;
        let last_byte = began.elapsed();
        ensure!(came == self.bytes, "{:?} differs", self.seeded);
        Ok(Times {
            first_byte,
            last_byte,
        })
    }
}

/// Fetches all at once, each on a connection of its own; says how long it took from the first connect on.
pub(super) fn fetch_all(address: SocketAddr, objects: &[Expected]) -> anyhow::Result<Duration> {
    let began = Instant::now();
    thread::scope(|scope| {
        let fetch = |object: &Expected| object.fetch(&TcpStream::connect(address)?);
        let clients: Vec<_> = objects
            .iter()
            .map(|object| scope.spawn(move || fetch(object)))
            .collect();
        for client in clients {
            client.join().expect("clients do not panic")?;
        }
        Ok(began.elapsed())
    })
}
