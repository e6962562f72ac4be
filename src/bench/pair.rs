//! A pair of gateways on loopback, with a server of noise beyond them.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
};

use anyhow::ensure;
use refrain_gateway::loopback::{Keys, Running};
use tempfile::TempDir;

use super::noise::Noise;

const PIECE_BYTES: usize = 64 << 10;

/// Both gateways; the near one has a store.
pub(super) struct Pair {
    /// Where the near end listens.
    entrance: SocketAddr,
    _near: Running,
    _far: Running,
    _store: TempDir,
}

impl Pair {
    /// Long enough that its start does not matter.
    pub(super) const DOWNLOAD_BYTES: usize = 32 << 20;

    pub(super) fn start() -> anyhow::Result<Self> {
        let (keys, store) = (Keys::new()?, tempfile::tempdir()?);
        let forward = format!("127.0.0.1:0={}", serve_noise()?);
        let folder = store.path().join("store").display().to_string();
        let far = keys.far(&[])?;
        let near = keys.near(
            far.gateway.listening()[0],
            &[
                "--forward",
                &forward,
                "--store",
                &folder,
                "--store-size",
                "1GiB",
            ],
        )?;
        near.wait_until_up()?;
        Ok(Self {
            entrance: near.gateway.listening()[0],
            _near: near,
            _far: far,
            _store: store,
        })
    }

    /// Downloads the noise of `seed`.
    pub(super) fn fetch(&self, seed: u64) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(self.entrance)?;
        stream.write_all(&seed.to_le_bytes())?;
        let (mut received, mut piece) = (0, vec![0; PIECE_BYTES]);
        loop {
            match stream.read(&mut piece)? {
                0 => break,
                read => received += read,
            }
        }
        ensure!(
            received == Self::DOWNLOAD_BYTES,
            "a download through the pair was truncated"
        );
        Ok(())
    }
}

/// Answers each connection's 8 bytes, a seed, with its noise.
fn serve_noise() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that leaves early finds out itself.
            thread::spawn(move || answer(stream).ok());
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut seed = [0; 8];
    stream.read_exact(&mut seed)?;
    let mut noise = Noise::new(u64::from_le_bytes(seed));
    let mut piece = vec![0; PIECE_BYTES];
    for _ in 0..Pair::DOWNLOAD_BYTES / PIECE_BYTES {
        noise.fill(&mut piece);
        stream.write_all(&piece)?;
    }
    stream.shutdown(Shutdown::Both)
}
