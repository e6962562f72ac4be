//! The client and the sink: bytes in writes of one size, and every one of them compared.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Instant,
};

use anyhow::ensure;

use crate::corpus::Corpus;

/// What a sink reads at once.
const READ_BYTES: usize = 256 << 10;

/// The sink's answer to an object that came as it should.
const EQUAL: u8 = 1;

/// A server that compares what it is sent with the objects that it knows.
pub(super) struct Sink {
    pub address: SocketAddr,
    objects: Arc<Vec<Vec<u8>>>,
}

impl Sink {
    /// Serves as long as the process lives.
    pub(super) fn start(corpus: &Corpus) -> anyhow::Result<Sink> {
        let objects = Arc::new(corpus.objects.clone());
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let served = Arc::clone(&objects);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let objects = Arc::clone(&served);
                // A client that leaves early fails by itself.
                thread::spawn(move || compare(stream, &objects).ok());
            }
        });
        Ok(Sink { address, objects })
    }

    /// Sends all objects by way of `entrance`, one after the other, in writes of `write_bytes`.
    /// Gives the seconds from the first connect to the last answer.
    pub(super) fn send_all(&self, entrance: SocketAddr, write_bytes: usize) -> anyhow::Result<f64> {
        let began = Instant::now();
        for (index, object) in self.objects.iter().enumerate() {
            let mut stream = TcpStream::connect(entrance)?;
            stream.set_nodelay(true)?;
            stream.write_all(&(index as u64).to_le_bytes())?;
            for piece in object.chunks(write_bytes) {
                stream.write_all(piece)?;
            }
            stream.shutdown(Shutdown::Write)?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            ensure!(answer == [EQUAL], "object {index} differs");
        }
        Ok(began.elapsed().as_secs_f64())
    }
}

/// Reads an index and then that object, to its end; answers whether all was as it should be.
fn compare(mut stream: TcpStream, objects: &[Vec<u8>]) -> std::io::Result<()> {
    let mut index = [0; 8];
    stream.read_exact(&mut index)?;
    let index = u64::from_le_bytes(index) as usize;
    let mut expected = objects.get(index).map_or(&[][..], Vec::as_slice);
    let mut piece = vec![0; READ_BYTES];
    loop {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            break;
        }
        match expected.strip_prefix(&piece[..read]) {
            Some(rest) => expected = rest,
            None => return stream.write_all(&[!EQUAL]),
        }
    }
    let is_equal = expected.is_empty();
    stream.write_all(&[if is_equal { EQUAL } else { !EQUAL }])
}
