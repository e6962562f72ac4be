//! Objects of noise: an origin that makes them as it sends them, and the comparison at the other
//! end.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

const PIECE_BYTES: usize = 64 << 10;

/// An object: the same bytes for the same seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noise {
    pub seed: u64,
    pub bytes: u64,
}

/// What names an object to the origin: its seed and its length.
const REQUEST_BYTES: usize = 16;

impl Noise {
    /// What a client asks the origin for this object with.
    pub(super) fn request(self) -> [u8; REQUEST_BYTES] {
        let mut request = [0; REQUEST_BYTES];
        request[..8].copy_from_slice(&self.seed.to_le_bytes());
        request[8..].copy_from_slice(&self.bytes.to_le_bytes());
        request
    }

    fn of_request(request: [u8; REQUEST_BYTES]) -> Noise {
        let [seed, bytes] = [0, 8].map(|at| {
            let bytes = request[at..].first_chunk().expect("two numbers");
            u64::from_le_bytes(*bytes)
        });
        Noise { seed, bytes }
    }

    fn pieces(self) -> Pieces {
        Pieces {
            random: fastrand::Rng::with_seed(self.seed),
            left: self.bytes,
            piece: vec![0; PIECE_BYTES],
        }
    }
}

/// Piece by piece.
struct Pieces {
    random: fastrand::Rng,
    left: u64,
    piece: Vec<u8>,
}

impl Pieces {
    fn next(&mut self) -> Option<&[u8]> {
        let len = self.left.min(PIECE_BYTES as u64);
        self.left -= len;
        let piece = &mut self.piece[..len as usize];
        self.random.fill(piece);
        (!piece.is_empty()).then_some(piece)
    }
}

/// Answers each connection's request with its object, as long as the process lives.
pub(super) fn serve() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that leaves early is its own affair.
            std::thread::spawn(move || answer(stream).ok());
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut request = [0; REQUEST_BYTES];
    stream.read_exact(&mut request)?;
    let mut pieces = Noise::of_request(request).pieces();
    while let Some(piece) = pieces.next() {
        stream.write_all(piece)?;
    }
    Ok(())
}

/// Reads `stream` to its end, and says whether it was exactly `noise`.
pub(super) fn is_equal(mut stream: impl Read, noise: Noise) -> io::Result<bool> {
    let mut pieces = noise.pieces();
    let mut came = vec![0; PIECE_BYTES];
    while let Some(piece) = pieces.next() {
        stream.read_exact(&mut came[..piece.len()])?;
        if came[..piece.len()] != *piece {
            return Ok(false);
        }
    }
    Ok(stream.read(&mut came)? == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: Noise = Noise {
        seed: 7,
        bytes: PIECE_BYTES as u64 + 5,
    };

    fn fetched() -> Vec<u8> {
        let origin = serve().expect("loopback");
        let mut stream = TcpStream::connect(origin).expect("it listens");
        stream.write_all(&NOISE.request()).expect("sent");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        bytes
    }

    #[test]
    fn what_the_origin_sends_is_what_was_asked_for() {
        let mut bytes = fetched();
        assert_eq!(bytes.len() as u64, NOISE.bytes);
        assert!(is_equal(&bytes[..], NOISE).expect("memory"));
        let longer = [&bytes[..], &[0]].concat();
        assert!(!is_equal(&longer[..], NOISE).expect("memory"));
        assert!(is_equal(&bytes[..bytes.len() - 1], NOISE).is_err());
        bytes[PIECE_BYTES + 1] ^= 1;
        assert!(!is_equal(&bytes[..], NOISE).expect("memory"));
    }
}
