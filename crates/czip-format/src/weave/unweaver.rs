//! Undoes a weave, from a restart point on.

use std::mem;

use super::stream::Ahead;
use super::tar::{self, Block, Headers, fields_mask, times_mask};
use super::{EXTENDED_TEXT_BYTES_MAX, Operation, StreamReader, Streams, WeaveError};
use crate::Stream;

/// Yields the plain content of a weave.
///
/// ```
/// use refrain_czip_format::weave::{StreamReader, Streams, Unweaver, WeaveError};
///
/// struct Slice(&'static [u8]);
///
/// impl StreamReader for Slice {
///     type Error = WeaveError;
///     fn left(&self) -> u64 {
///         self.0.len() as u64
///     }
///     fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), WeaveError> {
///         let (now, rest) = self.0.split_at(bytes.len());
///         bytes.copy_from_slice(now);
///         self.0 = rest;
///         Ok(())
///     }
///     fn skip(&mut self, count: u64) -> Result<(), WeaveError> {
///         self.0 = &self.0[count as usize..];
///         Ok(())
///     }
/// }
///
/// let mut unweaver = Unweaver::new(Streams {
///     weave: Slice(&[0, 3, 3, 2]),
///     content: Slice(b"abc"),
///     fields: Slice(b""),
///     times: Slice(b""),
/// });
/// let mut plain = [1; 8];
/// assert_eq!(unweaver.read(&mut plain), Ok(5));
/// assert_eq!(&plain[..5], b"abc\0\0");
/// assert_eq!(unweaver.read(&mut plain), Ok(0));
/// ```
pub struct Unweaver<R> {
    weave: Ahead<R>,
    content: Ahead<R>,
    fields: Ahead<R>,
    times: Ahead<R>,
    headers: Headers,
    /// Nothing came since state began anew: it does not begin anew once more.
    is_anew: bool,
    /// What is appended now.
    piece: Piece,
    /// What comes behind it.
    next: Next,
    /// What a piece of [`Piece::Held`] is of: a header, or an extended header's text.
    held: Vec<u8>,
}

/// What [`Unweaver::step`] went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes of the content.
    Content(u64),
    /// So many zeros.
    Zeros(u64),
    /// So many bytes, which were appended.
    Appended(u64),
}

/// Bytes of the plain content that come from one place.
#[derive(Clone, Copy)]
enum Piece {
    Copied { from: Stream, left: u64 },
    Zeros { left: u64 },
    Held { at: usize },
}

/// Where in an operation the piece ends.
#[derive(Clone, Copy)]
enum Next {
    Operation,
    Header {
        alone: bool,
        left: u64,
    },
    /// So many bytes of what follows a header of this type, then `left` other members.
    Data {
        kind: u8,
        count: u64,
        left: u64,
    },
    Padding {
        count: u64,
        left: u64,
    },
}

impl<R: StreamReader> Unweaver<R> {
    /// Begins at the beginning, or at a restart point: with all readers there.
    pub fn new(streams: Streams<R>) -> Unweaver<R> {
        Unweaver {
            weave: Ahead::new(Stream::Weave, streams.weave),
            content: Ahead::new(Stream::Content, streams.content),
            fields: Ahead::new(Stream::Fields, streams.fields),
            times: Ahead::new(Stream::Times, streams.times),
            headers: Headers::new(),
            is_anew: true,
            piece: Piece::Zeros { left: 0 },
            next: Next::Operation,
            held: Vec::new(),
        }
    }

    /// Fills `out` with the next bytes of the plain content. Fewer come, or none, only at the end of
    /// the weave.
    ///
    /// # Errors
    /// The weave cannot be, or a reader fails. `out` then holds nothing, and nothing may be read after it.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, R::Error> {
        let mut filled = 0;
        while filled < out.len() && self.advance()? {
            let rest = &mut out[filled..];
            let count = self.piece_bytes().min(rest.len() as u64) as usize;
            let bytes = &mut rest[..count];
            match self.piece {
                Piece::Copied { from, .. } => self.stream(from).read(bytes)?,
                Piece::Zeros { .. } => bytes.fill(0),
                Piece::Held { at } => bytes.copy_from_slice(&self.held[at..at + count]),
            }
            self.piece.pass(count as u64);
            filled += count;
        }
        Ok(filled)
    }

    /// Passes over the next `count` bytes of the plain content, and returns how many there were:
    /// fewer only at the end of the weave. Content is not read, fields and times only where later
    /// headers depend on them.
    ///
    /// # Errors
    /// As with [`read`](Unweaver::read).
    pub fn skip(&mut self, count: u64) -> Result<u64, R::Error> {
        let mut passed = 0;
        while passed < count && self.advance()? {
            let step = self.piece_bytes().min(count - passed);
            if let Piece::Copied { from, .. } = self.piece {
                self.stream(from).skip(step)?;
            }
            self.piece.pass(step);
            passed += step;
        }
        Ok(passed)
    }

    /// Says that nothing may come any more, and that nothing may be left of the streams.
    ///
    /// # Errors
    /// If something does or is, and as with [`read`](Unweaver::read).
    pub fn finish(&mut self) -> Result<(), R::Error> {
        let streams = [&self.content, &self.fields, &self.times];
        let has_more = streams.iter().any(|stream| !stream.at_end());
        match has_more || self.advance()? {
            true => Err(WeaveError::Long.into()),
            false => Ok(()),
        }
    }

    /// Goes over at most `count` bytes that come from one place. Those of the content are passed over,
    /// so that who has them elsewhere need not read them; others are appended to `out`, but for zeros.
    /// `None` at the end of the weave.
    ///
    /// # Errors
    /// As with [`read`](Unweaver::read).
    pub fn step(&mut self, count: u64, out: &mut Vec<u8>) -> Result<Option<Step>, R::Error> {
        if count == 0 || !self.advance()? {
            return Ok(None);
        }
        let bytes = self.piece_bytes().min(count);
        let begin = out.len();
        let step = match self.piece {
            Piece::Zeros { .. } => Step::Zeros(bytes),
            Piece::Copied {
                from: Stream::Content,
                ..
            } => {
                self.content.skip(bytes)?;
                Step::Content(bytes)
            }
            Piece::Copied { from, .. } => {
                out.resize(begin + bytes as usize, 0);
                self.stream(from).read(&mut out[begin..])?;
                Step::Appended(bytes)
            }
            Piece::Held { at } => {
                out.extend_from_slice(&self.held[at..at + bytes as usize]);
                Step::Appended(bytes)
            }
        };
        self.piece.pass(bytes);
        Ok(Some(step))
    }

    /// The reader of the content: as far as was passed over, if nothing was read.
    pub fn content(&self) -> &R {
        self.content.reader()
    }

    fn stream(&mut self, stream: Stream) -> &mut Ahead<R> {
        match stream {
            Stream::Weave => &mut self.weave,
            Stream::Content => &mut self.content,
            Stream::Fields => &mut self.fields,
            Stream::Times => &mut self.times,
            Stream::Catalog => unreachable!("the catalog is not woven"),
        }
    }

    fn piece_bytes(&self) -> u64 {
        match self.piece {
            Piece::Copied { left, .. } | Piece::Zeros { left } => left,
            Piece::Held { at } => (self.held.len() - at) as u64,
        }
    }

    /// Goes on to a piece that has bytes. False at the end of the weave.
    fn advance(&mut self) -> Result<bool, R::Error> {
        while self.piece_bytes() == 0 {
            match mem::replace(&mut self.next, Next::Operation) {
                Next::Operation if self.weave.at_end() => return Ok(false),
                Next::Operation => self.operation()?,
                Next::Header { left: 0, .. } => {}
                Next::Header { alone, left } => self.header(alone, left - 1)?,
                Next::Data { kind, count, left } => self.data(kind, count, left)?,
                Next::Padding { count, left } => {
                    self.piece = Piece::Zeros { left: count };
                    self.next = Next::Header { alone: false, left };
                }
            }
        }
        Ok(true)
    }

    fn operation(&mut self) -> Result<(), R::Error> {
        let number = self.weave.byte()?;
        let operation = Operation::of(number)
            .filter(|&operation| operation != Operation::Anew || !self.is_anew)
            .ok_or(WeaveError::Operation(number))?;
        self.is_anew = operation == Operation::Anew;
        if self.is_anew {
            self.headers = Headers::new();
            return Ok(());
        }
        let left = self.weave.count()?;
        let copied = |from| Piece::Copied { from, left };
        match operation {
            Operation::Content => self.piece = copied(Stream::Content),
            Operation::Fields => self.piece = copied(Stream::Fields),
            Operation::Times => self.piece = copied(Stream::Times),
            Operation::Zeros => self.piece = Piece::Zeros { left },
            Operation::Members => self.next = Next::Header { alone: false, left },
            Operation::Headers => self.next = Next::Header { alone: true, left },
            Operation::Anew => {}
        }
        Ok(())
    }

    /// Builds a header, which is the next piece.
    fn header(&mut self, alone: bool, left: u64) -> Result<(), R::Error> {
        let kind = self.fields.byte()?;
        let fields = self.fields.byte()?;
        let times = self.times.byte()?;
        let extended = match tar::says_more(kind) {
            true => None,
            false => self.headers.extended_time,
        };
        let impossible = times & !times_mask::ALL != 0
            || times & times_mask::TOP != 0
                && (tar::says_more(kind) || fields & fields_mask::NAME == 0)
            || times & times_mask::ROUNDED_UP != 0
                && (extended.is_none() || times & times_mask::MTIME != 0)
            || times & times_mask::SIZE != 0 && fields & fields_mask::SIZE != 0;
        if impossible {
            return Err(WeaveError::Masks { fields, times }.into());
        }

        let mut header = self.headers.model(kind);
        if fields & fields_mask::NAME != 0 {
            self.name(&mut header, times)?;
        }
        for (bit, field) in tar::COPIED {
            if fields & bit != 0 {
                self.fields.read(&mut header[field])?;
            }
        }
        if fields & fields_mask::SIZE != 0 {
            self.fields.read(&mut header[tar::SIZE])?;
        } else if times & times_mask::SIZE != 0 {
            self.times.read(&mut header[tar::SIZE])?;
        }
        if fields & fields_mask::LINK_NAME != 0 {
            self.fields.text(&mut header[tar::LINK_NAME], 0)?;
        }
        if fields & fields_mask::REST != 0 {
            let count = usize::from(self.fields.byte()?);
            let rest = &mut header[tar::REST];
            self.fields.read(&mut rest[..count])?;
            rest[count..].fill(0);
        }
        if times & times_mask::MTIME != 0 {
            self.times.read(&mut header[tar::MTIME])?;
        } else if let Some(seconds) = extended {
            let up = u64::from(times & times_mask::ROUNDED_UP != 0);
            header[tar::MTIME].copy_from_slice(&tar::time_field(seconds + up));
        }
        tar::put_checksum(&mut header, fields & fields_mask::SEVEN_DIGITS != 0);

        self.headers.passed(&header);
        self.hold(&header);
        self.next = match alone {
            true => {
                self.headers.extended_time = None;
                Next::Header { alone, left }
            }
            false => Next::Data {
                kind,
                count: tar::data_bytes(&header).ok_or_else(|| size_error(&header))?,
                left,
            },
        };
        Ok(())
    }

    /// Reads a name into its field: of members, the top comes first.
    fn name(&mut self, header: &mut Block, times: u8) -> Result<(), R::Error> {
        if times & times_mask::TOP != 0 {
            let mut top = [0; 100];
            let end = self.times.text(&mut top, 0)?;
            self.headers.top.clear();
            self.headers.top.extend_from_slice(&top[..end]);
        }
        let top: &[u8] = match tar::says_more(header[tar::TYPE]) {
            true => &[],
            false => &self.headers.top,
        };
        let name = &mut header[tar::NAME];
        name[..top.len()].copy_from_slice(top);
        self.fields.text(name, top.len())?;
        Ok(())
    }

    /// What follows a header that is not alone.
    fn data(&mut self, kind: u8, count: u64, left: u64) -> Result<(), R::Error> {
        let copied = |from| Piece::Copied { from, left: count };
        match kind {
            b'x' => self.extended_header(count)?,
            b'g' => self.piece = copied(Stream::Times),
            b'L' | b'K' => self.piece = copied(Stream::Fields),
            _ => self.piece = copied(Stream::Content),
        }
        self.next = Next::Padding {
            count: tar::padding_bytes(count) as u64,
            left,
        };
        Ok(())
    }

    fn extended_header(&mut self, count: u64) -> Result<(), R::Error> {
        if count > EXTENDED_TEXT_BYTES_MAX {
            return Err(WeaveError::ExtendedText(count).into());
        }
        self.held.resize(count as usize, 0);
        self.times.read(&mut self.held)?;
        self.headers.extended_time = tar::extended_time(&self.held);
        self.piece = Piece::Held { at: 0 };
        Ok(())
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.held.clear();
        self.held.extend_from_slice(bytes);
        self.piece = Piece::Held { at: 0 };
    }
}

fn size_error(header: &Block) -> WeaveError {
    let mut size = [0; 12];
    size.copy_from_slice(&header[tar::SIZE]);
    WeaveError::Size(size)
}

impl Piece {
    fn pass(&mut self, count: u64) {
        match self {
            Piece::Copied { left, .. } | Piece::Zeros { left } => *left -= count,
            Piece::Held { at } => *at += count as usize,
        }
    }
}
