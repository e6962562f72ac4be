//! Where a message's body ends (RFC 9112, sections 6.3 and 7.1). What follows it on the connection
//! belongs to somebody else: the client's next request may be for another origin, and what an
//! origin sends behind its answer is for nobody.

/// How much of what follows a message's head belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// So many bytes, and no more.
    Counted(u64),
    /// Chunks, up to the last one and its trailers.
    Chunked(Chunk),
    /// All up to the connection's end, which only answers can have.
    UntilClose,
    /// Chunks that two readers could end in different places: nothing of what follows is taken.
    Malformed,
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
    /// White space behind the size of a chunk with so many bytes.
    Space(u64),
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

/// The next bytes of a body that are of one kind.
struct Piece {
    bytes: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Content,
    Framing,
    /// A line behind the last chunk, with its end.
    Trailer,
}

impl Body {
    /// A message without a body.
    pub const NONE: Body = Body::Counted(0);

    /// A chunked body from its first byte.
    pub(crate) const CHUNKED: Body = Body::Chunked(Chunk::SIZE);

    /// Whether all of it was taken.
    pub fn has_ended(&self) -> bool {
        *self == Body::NONE
    }

    /// How many of the next `bytes` belong to the message; once it has ended, none.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(piece) = self.next_piece(&bytes[taken..]) {
            taken += piece.bytes;
        }
        taken
    }

    /// The same, and leaves in `bytes` only the content of what was taken.
    pub(crate) fn take_content(&mut self, bytes: &mut Vec<u8>) -> usize {
        let (mut taken, mut kept) = (0, 0);
        while let Some(piece) = self.next_piece(&bytes[taken..]) {
            if piece.kind == Kind::Content {
                bytes.copy_within(taken..taken + piece.bytes, kept);
                kept += piece.bytes;
            }
            taken += piece.bytes;
        }
        bytes.truncate(kept);
        taken
    }

    /// The same, and appends what was taken to `content` and `trailers`, without its framing.
    pub(crate) fn split(
        &mut self,
        bytes: &[u8],
        content: &mut Vec<u8>,
        trailers: &mut Vec<u8>,
    ) -> usize {
        let mut taken = 0;
        while let Some(piece) = self.next_piece(&bytes[taken..]) {
            let own = &bytes[taken..taken + piece.bytes];
            match piece.kind {
                Kind::Content => content.extend(own),
                Kind::Trailer => trailers.extend(own),
                Kind::Framing => {}
            }
            taken += piece.bytes;
        }
        taken
    }

    /// How much to read at once, so that little of what follows the body comes with it.
    pub(crate) fn readable_bytes(&self) -> usize {
        match *self {
            Body::Counted(left) => usize::try_from(left).unwrap_or(usize::MAX),
            Body::Chunked(Chunk::Data(left)) => {
                usize::try_from(left).map_or(usize::MAX, |left| left.max(READ_AHEAD_BYTES))
            }
            Body::Chunked(_) => READ_AHEAD_BYTES,
            Body::UntilClose => usize::MAX,
            Body::Malformed => 0,
        }
    }

    /// The next bytes of one kind, of those at hand; nothing where there is none.
    fn next_piece(&mut self, bytes: &[u8]) -> Option<Piece> {
        let first = *bytes.first()?;
        let content = |bytes| Piece {
            bytes,
            kind: Kind::Content,
        };
        match self {
            Body::Counted(0) | Body::Malformed => None,
            Body::UntilClose => Some(content(bytes.len())),
            Body::Counted(left) => {
                let step = (bytes.len() as u64).min(*left);
                *left -= step;
                Some(content(step as usize))
            }
            Body::Chunked(Chunk::Data(left)) => {
                let step = (bytes.len() as u64).min(*left);
                *self = Body::Chunked(match *left - step {
                    0 => Chunk::DataCr,
                    left => Chunk::Data(left),
                });
                Some(content(step as usize))
            }
            Body::Chunked(Chunk::LastLf) if first == b'\n' => {
                *self = Body::NONE;
                Some(Piece::of_byte(Kind::Framing))
            }
            Body::Chunked(chunk) => match chunk.after(first) {
                Some(next) => {
                    let is_trailer = match chunk {
                        Chunk::TrailerStart => next == Chunk::Trailer,
                        chunk => matches!(chunk, Chunk::Trailer | Chunk::TrailerLf),
                    };
                    *self = Body::Chunked(next);
                    Some(Piece::of_byte(match is_trailer {
                        true => Kind::Trailer,
                        false => Kind::Framing,
                    }))
                }
                None => {
                    *self = Body::Malformed;
                    None
                }
            },
        }
    }
}

impl Piece {
    fn of_byte(kind: Kind) -> Piece {
        Piece { bytes: 1, kind }
    }
}

impl Chunk {
    const SIZE: Chunk = Chunk::Size {
        bytes: 0,
        digits: 0,
    };

    /// What follows a byte that is not of a chunk's data; nothing where that byte must not be.
    fn after(self, byte: u8) -> Option<Chunk> {
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
            (Chunk::Size { bytes, digits: 1.. } | Chunk::Space(bytes), _) => match byte {
                b'\r' => Chunk::SizeLf(bytes),
                b' ' | b'\t' => Chunk::Space(bytes),
                b';' => Chunk::Extension(bytes),
                _ => return None,
            },
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
            _ => return None,
        };
        Some(next)
    }
}

/// As many as fit into 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

/// Most that is read beyond a chunk whose length is known: the next requests may come with it, and
/// are held.
const READ_AHEAD_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEXT: &str = "GET http://other/ HTTP/1.1\r\n\r\n";

    #[test]
    fn a_body_ends_where_its_head_said() {
        assert_eq!(Body::NONE.clone().take(b"GET"), 0);
        assert_eq!(Body::Counted(4).take(b"bodyGET"), 4);
        assert_eq!(Body::UntilClose.take(b"bodyGET"), 7);
    }

    #[test]
    fn a_chunked_body_ends_behind_its_trailers() {
        for (body, content) in [
            ("0\r\n\r\n", ""),
            ("4\r\nbody\r\n0\r\n\r\n", "body"),
            (
                "004;name=\"a b\"\r\nbody\r\nA \t;x\r\n0123456789\r\n0 \r\n\r\n",
                "body0123456789",
            ),
            ("1\r\n\n\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", "\n"),
        ] {
            let bytes = format!("{body}{NEXT}").into_bytes();
            let mut chunks = Body::CHUNKED;
            assert_eq!(chunks.take(&bytes), body.len(), "{body:?}");
            assert!(chunks.has_ended());
            let mut plain = bytes.clone();
            assert_eq!(Body::CHUNKED.clone().take_content(&mut plain), body.len());
            assert_eq!(plain, content.as_bytes());
        }
    }

    /// The bytes in front of the first that must not be there are taken.
    #[test]
    fn what_two_readers_could_end_differently_is_refused() {
        for (sound, refused) in [
            ("", "\r\n"),
            ("", "x\r\n"),
            ("", "-1\r\n"),
            ("", "+1\r\n"),
            ("", " 1\r\n"),
            ("0", "x1\r\n"),
            ("1", "\nb"),
            ("1;a", "\nb"),
            ("1 ", "2\r\n"),
            ("1\t", "\nb"),
            ("1\r", "b"),
            ("1\r\nb", "ody\r\n"),
            ("1\r\nb", "\n0\r\n\r\n"),
            ("0\r\n", "\n"),
            ("0\r\n\r", "X"),
            ("0\r\nX: 1", "\n\r\n"),
            ("0\r\nX: 1\r", "Y\r\n\r\n"),
            ("0000000000000000", "1\r\n"),
        ] {
            let mut body = Body::CHUNKED;
            let bytes = format!("{sound}{refused}");
            assert_eq!(body.take(bytes.as_bytes()), sound.len(), "{bytes:?}");
            assert_eq!(body, Body::Malformed, "{bytes:?}");
            assert_eq!(body.take(b"0\r\n\r\n"), 0, "{bytes:?}");
        }
    }

    #[test]
    fn content_and_trailers_are_told_apart() {
        let bytes = format!("4\r\nbody\r\n1;x\r\n\n\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n{NEXT}");
        for step in 1..bytes.len() {
            let (mut body, mut content, mut trailers) = (Body::CHUNKED, Vec::new(), Vec::new());
            let mut taken = 0;
            for piece in bytes.as_bytes().chunks(step) {
                taken += body.split(piece, &mut content, &mut trailers);
            }
            assert_eq!(bytes.len() - taken, NEXT.len());
            assert_eq!(
                (content, trailers),
                (b"body\n".to_vec(), b"X-Sum: 1\r\nY: 2\r\n".to_vec())
            );
        }
    }

    #[test]
    fn a_chunk_may_have_any_size_that_is_sent() {
        let mut body = Body::CHUNKED;
        let size = b"ffffffffffffffff\r\n";
        assert_eq!(body.take(size), size.len());
        assert_eq!(body, Body::Chunked(Chunk::Data(u64::MAX)));
        assert_eq!(body.readable_bytes(), usize::MAX);
    }

    #[test]
    fn little_is_read_beyond_a_body() {
        assert_eq!(Body::Counted(5).readable_bytes(), 5);
        assert_eq!(Body::CHUNKED.readable_bytes(), READ_AHEAD_BYTES);
        for left in [1, READ_AHEAD_BYTES, 1 << 20] {
            let body = Body::Chunked(Chunk::Data(left as u64));
            assert!(body.readable_bytes() <= left.max(READ_AHEAD_BYTES));
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            sizes in prop::collection::vec(1..40_usize, 0..5),
            cuts in prop::collection::vec(0.0..1.0, 0..4),
        ) {
            let chunks = sizes.iter().map(|&size| format!("{size:x}\r\n{}\r\n", "b".repeat(size)));
            let mut all = (chunks.collect::<String>() + "0\r\nX: 1\r\n\r\n").into_bytes();
            let sound = all.len();
            all.extend(NEXT.as_bytes());
            // Sometimes something else stands in the midst of it.
            let at = bytes.len() % (all.len() + 1);
            all.splice(at..at, bytes.iter().copied().skip(1));

            let mut whole = Body::CHUNKED;
            let taken = whole.take(&all);
            if bytes.len() < 2 {
                prop_assert_eq!(taken, sound);
            }
            let mut content = all.clone();
            prop_assert_eq!(Body::CHUNKED.clone().take_content(&mut content), taken);

            let mut cuts: Vec<usize> =
                cuts.iter().map(|cut| (all.len() as f64 * cut) as usize).collect();
            cuts.push(all.len());
            cuts.sort_unstable();
            let (mut body, mut dechunked, mut from, mut sum, mut plain) =
                (Body::CHUNKED, Body::CHUNKED, 0, 0, Vec::new());
            for to in cuts {
                sum += body.take(&all[from..to]);
                let mut piece = all[from..to].to_vec();
                dechunked.take_content(&mut piece);
                plain.extend(piece);
                from = to;
            }
            prop_assert_eq!(sum, taken);
            prop_assert_eq!(&body, &whole);
            prop_assert_eq!(dechunked, whole);
            prop_assert_eq!(plain, content);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Body::CHUNKED.clone().take(&bytes) <= bytes.len());
        }
    }
}
