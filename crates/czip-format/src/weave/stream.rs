//! A stream as the unweaver reads it: small things out of a buffer, content straight.

use super::WeaveError;
use crate::Stream;

/// Reads one stream, from where the unweaver begins to the stream's end.
pub trait StreamReader {
    /// What can go wrong: of the reader, or of the weave.
    type Error: From<WeaveError>;

    /// How many bytes are left.
    fn left(&self) -> u64;

    /// The next bytes, as many as `bytes` has. Never asked for more than are left.
    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Passes over the next `count` bytes. Never asked for more than are left.
    fn skip(&mut self, count: u64) -> Result<(), Self::Error>;
}

/// The readers of the four streams.
#[derive(Debug)]
pub struct Streams<R> {
    /// The operations.
    pub weave: R,
    /// What is in files and members.
    pub content: R,
    /// What seldom changes of what containers say.
    pub fields: R,
    /// What often changes of it.
    pub times: R,
}

const AHEAD_BYTES: usize = 4096;

/// A reader with bytes read ahead, so that a number or a name costs no call each.
pub(super) struct Ahead<R> {
    stream: Stream,
    reader: R,
    /// `from <= to <= ahead.len()`
    ahead: Box<[u8]>,
    from: usize,
    to: usize,
}

impl<R: StreamReader> Ahead<R> {
    pub(super) fn new(stream: Stream, reader: R) -> Ahead<R> {
        Ahead {
            stream,
            reader,
            ahead: vec![0; AHEAD_BYTES].into_boxed_slice(),
            from: 0,
            to: 0,
        }
    }

    /// What it reads from, which may be ahead.
    pub(super) fn reader(&self) -> &R {
        &self.reader
    }

    pub(super) fn at_end(&self) -> bool {
        self.from == self.to && self.reader.left() == 0
    }

    fn demand(&self, count: u64) -> Result<(), R::Error> {
        let stream = self.stream;
        match count <= self.reader.left() {
            true => Ok(()),
            false => Err(WeaveError::Short { stream }.into()),
        }
    }

    /// Reads ahead. Called with nothing left of what was.
    fn fill(&mut self) -> Result<(), R::Error> {
        self.demand(1)?;
        let count = self.reader.left().min(AHEAD_BYTES as u64) as usize;
        self.from = 0;
        self.to = 0;
        self.reader.read_exact(&mut self.ahead[..count])?;
        self.to = count;
        Ok(())
    }

    pub(super) fn byte(&mut self) -> Result<u8, R::Error> {
        if self.from == self.to {
            self.fill()?;
        }
        self.from += 1;
        Ok(self.ahead[self.from - 1])
    }

    /// The next bytes. Much of them goes straight where it belongs.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<(), R::Error> {
        let held = bytes.len().min(self.to - self.from);
        let (first, rest) = bytes.split_at_mut(held);
        first.copy_from_slice(&self.ahead[self.from..self.from + held]);
        self.from += held;
        if rest.is_empty() {
            return Ok(());
        }
        self.demand(rest.len() as u64)?;
        if rest.len() < AHEAD_BYTES / 2 && self.stream != Stream::Content {
            self.fill()?;
            return self.read(rest);
        }
        self.reader.read_exact(rest)
    }

    pub(super) fn skip(&mut self, count: u64) -> Result<(), R::Error> {
        let held = count.min((self.to - self.from) as u64);
        self.from += held as usize;
        if held == count {
            return Ok(());
        }
        self.demand(count - held)?;
        self.reader.skip(count - held)
    }

    /// A varint that is not 0.
    pub(super) fn count(&mut self) -> Result<u64, R::Error> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let digits = u64::from(byte & 0x7f);
            if shift == 63 && digits > 1 {
                break;
            }
            value |= digits << shift;
            if byte & 0x80 == 0 {
                return match byte {
                    0 => Err(WeaveError::Number.into()),
                    _ => Ok(value),
                };
            }
        }
        Err(WeaveError::Number.into())
    }

    /// Fills `field` with the bytes up to a zero byte, from `at` on, and zeros behind them. Returns
    /// where they end.
    pub(super) fn text(&mut self, field: &mut [u8], at: usize) -> Result<usize, R::Error> {
        field[at..].fill(0);
        let mut end = at;
        loop {
            match self.byte()? {
                0 => return Ok(end),
                byte => *field.get_mut(end).ok_or(WeaveError::Text)? = byte,
            }
            end += 1;
        }
    }
}
