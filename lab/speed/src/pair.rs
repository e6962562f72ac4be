//! The whole pair on loopback, beside a plain TCP relay: origin, far and near gateway,
//! client, all on this machine and its cores.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use refrain_gateway::{loopback::Keys, status::Status};

use crate::{
    Measuring,
    contests::{Contest, Noise, Place, RowName},
};

/// Bytes of one turn: a stream long enough that its start does not matter.
const TURN_BYTES: usize = 32 << 20;

const PIECE_BYTES: usize = 64 << 10;

/// The pair's rows.
pub(crate) const NAMES: [RowName; 2] = [
    RowName {
        kernel: "pair",
        data: "random",
        place: Place::Loopback,
    },
    RowName {
        kernel: "pair",
        data: "redundant",
        place: Place::Loopback,
    },
];

/// Measures the pair's rows.
pub(crate) fn measure(measuring: &mut Measuring<'_>) -> anyhow::Result<()> {
    let origin = serve_noise()?;
    let relay = serve_relay(origin)?;
    let keys = Keys::new()?;
    let simd = measuring.instructions.to_string();
    let far = keys.far(&["--simd", &simd])?;
    let forward = format!("127.0.0.1:0={origin}");
    let near = keys.near(
        far.gateway.listening()[0],
        &["--forward", &forward, "--simd", &simd],
    )?;
    let entrance = near.gateway.listening()[0];
    let deadline = Instant::now() + Duration::from_secs(10);
    while !Status::of(&near.gateway).peers[0].up {
        ensure!(
            Instant::now() <= deadline,
            "the two gateways did not connect to each other"
        );
        thread::sleep(Duration::from_millis(5));
    }

    let mut seeds = 1..;
    let mut relay_seeds = 1..;
    let [random, redundant] = NAMES;
    let contest = Contest::new(random)
        .turn("refrain", TURN_BYTES, || {
            fetch(entrance, seeds.next().expect("without end"))
        })
        .turn("TCP relay", TURN_BYTES, || {
            fetch(relay, relay_seeds.next().expect("without end"))
        });
    measuring.measure(contest);
    let contest = Contest::new(redundant)
        .turn("refrain", TURN_BYTES, || fetch(entrance, 0))
        .turn("TCP relay", TURN_BYTES, || fetch(relay, 0));
    measuring.measure(contest);
    Ok(())
}

/// Reads one turn of the noise of `seed`; how long that took.
fn fetch(address: SocketAddr, seed: u64) -> Duration {
    let start = Instant::now();
    let fetching = || -> io::Result<usize> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&seed.to_le_bytes())?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut received = 0;
        loop {
            match stream.read(&mut piece)? {
                0 => return Ok(received),
                read => received += read,
            }
        }
    };
    let received = fetching().expect("loopback connections do not fail");
    assert_eq!(received, TURN_BYTES, "a connection ended early");
    start.elapsed()
}

/// Answers each connection's 8 bytes, a seed, with one turn of its noise.
fn serve_noise() -> io::Result<SocketAddr> {
    serve(|mut stream| {
        let mut seed = [0; 8];
        stream.read_exact(&mut seed)?;
        let mut noise = Noise::new(u64::from_le_bytes(seed));
        let mut piece = vec![0; PIECE_BYTES];
        for _ in 0..TURN_BYTES / PIECE_BYTES {
            noise.fill(&mut piece);
            stream.write_all(&piece)?;
        }
        stream.shutdown(Shutdown::Both)
    })
}

/// Passes connections on to `target`, bytes as they come.
fn serve_relay(target: SocketAddr) -> io::Result<SocketAddr> {
    serve(move |stream| {
        let upstream = TcpStream::connect(target)?;
        let (mut from, mut to) = (stream.try_clone()?, upstream.try_clone()?);
        let requests = thread::spawn(move || {
            pass(&mut from, &mut to)?;
            to.shutdown(Shutdown::Write)
        });
        let (mut from, mut to) = (upstream, stream);
        pass(&mut from, &mut to)?;
        to.shutdown(Shutdown::Both)?;
        let _ = requests.join();
        Ok(())
    })
}

fn pass(from: &mut TcpStream, to: &mut TcpStream) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            read => to.write_all(&piece[..read])?,
        }
    }
}

fn serve(
    answer: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            // A client that leaves early is its own affair.
            thread::spawn(move || answer(stream).ok());
        }
    });
    Ok(address)
}
