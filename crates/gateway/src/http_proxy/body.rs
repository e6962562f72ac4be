//! Where a request's body ends (RFC 9112, sections 6.3 and 7.1): the client's connection may go
//! on with a request for somebody else, of which this one's origin must hear nothing.

/// How much of what follows a request's head belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestBody {
    /// So many bytes, and no more.
    Counted(u64),
    /// Chunks, up to the last one and its trailers.
    Chunked(Chunk),
    /// All of it: another protocol's bytes.
    Endless,
}

/// What a chunked body has next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    /// A digit of a chunk's size, or what ends it.
    Size {
        /// As far as it was read.
        bytes: u64,
        /// How many were read.
        digits: u8,
    },
    /// An extension of a chunk with so many bytes.
    Extension(u64),
    /// The LF behind a chunk's size.
    SizeLf(u64),
    /// So many bytes of a chunk, at least one.
    Data(u64),
    /// The CR behind a chunk.
    DataCr,
    /// The LF behind a chunk.
    DataLf,
    /// A trailer, or the body's end.
    TrailerStart,
    /// The rest of a trailer.
    Trailer,
    /// The LF behind a trailer.
    TrailerLf,
    /// The last LF.
    LastLf,
}

/// A chunked body that two readers could end in different places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request's body is not well-formed")]
pub struct MalformedBody;

impl RequestBody {
    /// A chunked body from its first byte.
    pub fn chunked() -> RequestBody {
        RequestBody::Chunked(Chunk::SIZE)
    }

    /// How many of the next `bytes` belong to the request; once it has ended, none.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, MalformedBody> {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = (bytes.len() - taken) as u64;
            match self {
                RequestBody::Endless => return Ok(bytes.len()),
                RequestBody::Counted(0) => break,
                RequestBody::Counted(left) => {
                    let step = rest.min(*left);
                    *left -= step;
                    taken += step as usize;
                }
                RequestBody::Chunked(Chunk::Data(left)) => {
                    let step = rest.min(*left);
                    taken += step as usize;
                    *self = RequestBody::Chunked(match *left - step {
                        0 => Chunk::DataCr,
                        left => Chunk::Data(left),
                    });
                }
                RequestBody::Chunked(chunk) => {
                    *self = match chunk.after(bytes[taken])? {
                        Some(next) => RequestBody::Chunked(next),
                        None => RequestBody::Counted(0),
                    };
                    taken += 1;
                }
            }
        }
        Ok(taken)
    }
}

impl Chunk {
    const SIZE: Chunk = Chunk::Size {
        bytes: 0,
        digits: 0,
    };

    /// What follows a byte that is not of a chunk's data; nothing where the body ends.
    fn after(self, byte: u8) -> Result<Option<Chunk>, MalformedBody> {
        let next = match (self, byte) {
            (Chunk::Size { bytes, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                if digits < SIZE_DIGITS_MAX =>
            {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                Chunk::Size {
                    bytes: bytes << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (Chunk::Size { bytes, digits: 1.. }, b'\r') => Chunk::SizeLf(bytes),
            (Chunk::Size { bytes, digits: 1.. }, b';' | b' ' | b'\t') => Chunk::Extension(bytes),
            (Chunk::Extension(bytes), b'\r') => Chunk::SizeLf(bytes),
            (Chunk::Extension(bytes), _) if byte != b'\n' => Chunk::Extension(bytes),
            (Chunk::SizeLf(0), b'\n') => Chunk::TrailerStart,
            (Chunk::SizeLf(bytes), b'\n') => Chunk::Data(bytes),
            (Chunk::DataCr, b'\r') => Chunk::DataLf,
            (Chunk::DataLf, b'\n') => Chunk::SIZE,
            (Chunk::TrailerStart, b'\r') => Chunk::LastLf,
            (Chunk::Trailer, b'\r') => Chunk::TrailerLf,
            (Chunk::TrailerStart | Chunk::Trailer, _) if byte != b'\n' => Chunk::Trailer,
            (Chunk::TrailerLf, b'\n') => Chunk::TrailerStart,
            (Chunk::LastLf, b'\n') => return Ok(None),
            _ => return Err(MalformedBody),
        };
        Ok(Some(next))
    }
}

/// As many as fit into 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEXT: &str = "GET http://other/ HTTP/1.1\r\n\r\n";

    /// How much of `bytes` is taken when they come in two pieces.
    fn taken_in_two(
        mut body: RequestBody,
        bytes: &[u8],
        at: usize,
    ) -> Result<usize, MalformedBody> {
        let (first, second) = bytes.split_at(at);
        Ok(body.take(first)? + body.take(second)?)
    }

    #[test]
    fn a_body_ends_where_its_head_said() {
        assert_eq!(RequestBody::Counted(0).take(b"GET"), Ok(0));
        assert_eq!(RequestBody::Counted(4).take(b"bodyGET"), Ok(4));
        assert_eq!(RequestBody::Endless.take(b"bodyGET"), Ok(7));
    }

    #[test]
    fn a_chunked_body_ends_behind_its_trailers() {
        for body in [
            "0\r\n\r\n",
            "4\r\nbody\r\n0\r\n\r\n",
            "004;name=\"a b\"\r\nbody\r\nA \r\n0123456789\r\n0\r\n\r\n",
            "1\r\n\n\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n",
        ] {
            let bytes = format!("{body}{NEXT}");
            let taken = RequestBody::chunked().take(bytes.as_bytes());
            assert_eq!(taken, Ok(body.len()), "{body:?}");
        }
    }

    #[test]
    fn what_two_readers_could_end_differently_is_refused() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            "1\nb",
            "1;a\nb",
            "1\rb",
            "1\r\nbody\r\n",
            "1\r\nb\n0\r\n\r\n",
            "0\r\n\n",
            "0\r\nX: 1\n\r\n",
            "0\r\nX: 1\rY\r\n\r\n",
            "00000000000000001\r\n",
        ] {
            let taken = RequestBody::chunked().take(body.as_bytes());
            assert_eq!(taken, Err(MalformedBody), "{body:?}");
        }
    }

    #[test]
    fn a_chunk_may_have_any_size_that_is_sent() {
        let mut body = RequestBody::chunked();
        let size = b"ffffffffffffffff\r\n";
        assert_eq!(body.take(size), Ok(size.len()));
        assert_eq!(body, RequestBody::Chunked(Chunk::Data(u64::MAX)));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(sizes in prop::collection::vec(1..40_usize, 0..5), cut in 0.0..1.0) {
            let chunks = sizes.iter().map(|&size| format!("{size:x}\r\n{}\r\n", "b".repeat(size)));
            let body = chunks.collect::<String>() + "0\r\nX: 1\r\n\r\n";
            let bytes = format!("{body}{NEXT}");
            let at = (bytes.len() as f64 * cut) as usize;
            let taken = taken_in_two(RequestBody::chunked(), bytes.as_bytes(), at);
            prop_assert_eq!(taken, Ok(body.len()));
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(taken) = RequestBody::chunked().take(&bytes) {
                prop_assert!(taken <= bytes.len());
            }
        }
    }
}
