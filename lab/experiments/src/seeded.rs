//! Objects that follow from a seed: an origin makes them as it sends them, and the other end compares them.
//! Nothing in them repeats that is longer than a few words.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

const PIECE_BYTES: usize = 64 << 10;

/// An object: the same bytes for the same seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeded {
    pub kind: Kind,
    pub seed: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing makes it smaller.
    Noise,
    /// Made-up words, as frequent as those of a language: zstd -3 leaves about a third.
    Text,
}

/// What names an object to the origin: its kind, its seed and its length.
pub(crate) const REQUEST_BYTES: usize = 24;

impl Seeded {
    pub(crate) const fn noise(seed: u64, bytes: u64) -> Self {
        let kind = Kind::Noise;
        Self { kind, seed, bytes }
    }

    /// What a client asks the origin for this object with.
    pub(crate) fn request(self) -> [u8; REQUEST_BYTES] {
        let mut request = [0; REQUEST_BYTES];
        let kind = match self.kind {
            Kind::Noise => 1,
            Kind::Text => 2,
        };
        for (at, number) in [kind, self.seed, self.bytes].into_iter().enumerate() {
            request[8 * at..][..8].copy_from_slice(&number.to_le_bytes());
        }
        request
    }

    /// `None` if the request names none.
    pub(crate) fn of_request(request: [u8; REQUEST_BYTES]) -> Option<Self> {
        let [kind, seed, bytes] = [0, 8, 16].map(|at| {
            let bytes = request[at..].first_chunk().expect("three numbers");
            u64::from_le_bytes(*bytes)
        });
        let kind = match kind {
            1 => Kind::Noise,
            2 => Kind::Text,
            _ => return None,
        };
        Some(Self { kind, seed, bytes })
    }

    /// Writes it to its end.
    pub(crate) fn write_to(self, mut stream: impl Write) -> io::Result<()> {
        let mut pieces = self.pieces();
        while let Some(piece) = pieces.next() {
            stream.write_all(piece)?;
        }
        Ok(())
    }

    pub(crate) fn pieces(self) -> Pieces {
        let random = fastrand::Rng::with_seed(self.seed);
        Pieces {
            source: match self.kind {
                Kind::Noise => Source::Noise(random),
                Kind::Text => Source::Text(Text::new(random)),
            },
            left: self.bytes,
            piece: vec![0; PIECE_BYTES],
        }
    }
}

/// Piece by piece.
pub(crate) struct Pieces {
    source: Source,
    left: u64,
    piece: Vec<u8>,
}

enum Source {
    Noise(fastrand::Rng),
    Text(Text),
}

impl Pieces {
    /// Of at most 64 KiB; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let len = self.left.min(PIECE_BYTES as u64);
        self.left -= len;
        let piece = &mut self.piece[..len as usize];
        match &mut self.source {
            Source::Noise(random) => random.fill(piece),
            Source::Text(text) => text.fill(piece),
        }
        (!piece.is_empty()).then_some(piece)
    }
}

struct Text {
    random: fastrand::Rng,
    words: Vec<String>,
    /// Of the word that is written now.
    rest: (usize, usize),
}

impl Text {
    const WORDS: usize = 20_000;

    fn new(random: fastrand::Rng) -> Self {
        // All texts are of one language.
        let mut letters = fastrand::Rng::with_seed(0);
        let words = (0..Self::WORDS).map(|_| {
            let word = (0..letters.usize(1..=5)).flat_map(|_| {
                [b"bcdfghlmnprst", b"aeiouaeiouaee"]
                    .map(|of| char::from(of[letters.usize(..of.len())]))
            });
            word.chain([' ']).collect()
        });
        Self {
            words: words.collect(),
            random,
            rest: (0, 0),
        }
    }

    fn fill(&mut self, mut piece: &mut [u8]) {
        while !piece.is_empty() {
            let (word, at) = self.rest;
            let rest = &self.words[word].as_bytes()[at..];
            let len = rest.len().min(piece.len());
            let (now, later) = piece.split_at_mut(len);
            now.copy_from_slice(&rest[..len]);
            piece = later;
            self.rest = if len < rest.len() {
                (word, at + len)
            } else {
                // Zipf's law: the nth word is as frequent as 1/n.
                let rank = (Self::WORDS as f64).powf(self.random.f64());
                (rank as usize - 1, 0)
            };
        }
    }
}

/// Answers each connection's request with its object, as long as the process lives.
pub(crate) fn serve() -> io::Result<SocketAddr> {
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
    let seeded = Seeded::of_request(request).ok_or(io::ErrorKind::InvalidData)?;
    seeded.write_to(stream)
}

/// Reads `stream` to its end, and says whether it was exactly `seeded`.
pub(crate) fn is_equal(mut stream: impl Read, seeded: Seeded) -> io::Result<bool> {
    Ok(begins_with(&mut stream, seeded)? && stream.read(&mut [0])? == 0)
}

/// Reads as many bytes from `stream`, and says whether they were `seeded`.
pub(crate) fn begins_with(stream: &mut impl Read, seeded: Seeded) -> io::Result<bool> {
    let mut pieces = seeded.pieces();
    let mut came = vec![0; PIECE_BYTES];
    while let Some(piece) = pieces.next() {
        stream.read_exact(&mut came[..piece.len()])?;
        if came[..piece.len()] != *piece {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = PIECE_BYTES as u64 + 5;

    fn fetched(seeded: Seeded) -> Vec<u8> {
        let origin = serve().expect("loopback");
        let mut stream = TcpStream::connect(origin).expect("it listens");
        stream.write_all(&seeded.request()).expect("sent");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer");
        bytes
    }

    #[test]
    fn the_origin_sends_the_object_that_was_asked_for() {
        for kind in [Kind::Noise, Kind::Text] {
            let (seed, bytes) = (7, BYTES);
            let seeded = Seeded { kind, seed, bytes };
            let mut bytes = fetched(seeded);
            assert_eq!(bytes.len() as u64, BYTES);
            assert!(is_equal(&bytes[..], seeded).expect("memory"));
            let longer = [&bytes[..], &[0]].concat();
            assert!(!is_equal(&longer[..], seeded).expect("memory"));
            assert!(is_equal(&bytes[..bytes.len() - 1], seeded).is_err());
            bytes[PIECE_BYTES + 1] ^= 1;
            assert!(!is_equal(&bytes[..], seeded).expect("memory"));
        }
    }

    #[test]
    fn text_is_as_compressible_as_a_language() {
        let (kind, seed, bytes) = (Kind::Text, 3, 1 << 20);
        let mut text = Vec::new();
        let seeded = Seeded { kind, seed, bytes };
        seeded.write_to(&mut text).expect("memory");
        let compressed = zstd::bulk::compress(&text, 3).expect("zstd works");
        let ratio = compressed.len() as f64 / text.len() as f64;
        assert!((0.25..0.45).contains(&ratio), "{ratio}");
    }
}
