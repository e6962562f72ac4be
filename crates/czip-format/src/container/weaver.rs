//! Files to streams.

use super::cutter::Cutter;
use super::loom::Loom;
use super::{Pieces, Woven};
use crate::Stream;
use crate::weave::tar::Block;

/// Weaves files, one after the other: for each [`begin_file`](Weaver::begin_file), its bytes in pieces to
/// [`feed`](Weaver::feed), [`end_file`](Weaver::end_file); and at the end [`finish`](Weaver::finish).
///
/// An error is the sink's. Nothing may be fed after it.
pub struct Weaver {
    loom: Loom,
    file: Cutter,
    /// The member that is looked into.
    member: Option<Cutter>,
}

impl Default for Weaver {
    fn default() -> Weaver {
        Weaver::new()
    }
}

impl Weaver {
    /// Begins the plain content of an archive.
    #[must_use]
    pub fn new() -> Weaver {
        Weaver {
            loom: Loom::new(),
            file: Cutter::new(),
            member: None,
        }
    }

    /// Begins a file.
    pub fn begin_file(&mut self) {
        self.file = Cutter::new();
    }

    /// The file's next bytes, any number of them.
    ///
    /// # Errors
    /// The sink's.
    pub fn feed<W: Woven>(&mut self, bytes: &[u8], sink: &mut W) -> Result<(), W::Error> {
        let mut outer = Outer {
            loom: &mut self.loom,
            member: &mut self.member,
            sink,
        };
        self.file.feed(bytes, &mut outer)
    }

    /// Ends the file: all its bytes go to the streams.
    ///
    /// # Errors
    /// The sink's.
    pub fn end_file<W: Woven>(&mut self, sink: &mut W) -> Result<(), W::Error> {
        let file = std::mem::replace(&mut self.file, Cutter::new());
        file.end(&mut Outer {
            loom: &mut self.loom,
            member: &mut self.member,
            sink,
        })
    }

    /// Ends the weave.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish<W: Woven>(&mut self, sink: &mut W) -> Result<(), W::Error> {
        self.loom.flush(sink)
    }
}

/// What a file's shape tells goes to the streams.
struct Outer<'a, W> {
    loom: &'a mut Loom,
    member: &'a mut Option<Cutter>,
    sink: &'a mut W,
}

impl<W: Woven> Outer<'_, W> {
    /// The member that is looked into has no more bytes.
    fn settle(&mut self) -> Result<(), W::Error> {
        match self.member.take() {
            Some(member) => member.end(&mut Inner {
                loom: self.loom,
                sink: self.sink,
            }),
            None => Ok(()),
        }
    }
}

impl<W: Woven> Pieces for Outer<'_, W> {
    type Error = W::Error;

    fn member(&mut self, _bytes: u64) -> Result<(), W::Error> {
        self.settle()?;
        *self.member = Some(Cutter::new());
        Ok(())
    }

    fn written(&mut self, mtime: u64) {
        self.sink.written(mtime.cast_signed());
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), W::Error> {
        let mut inner = Inner {
            loom: self.loom,
            sink: self.sink,
        };
        match self.member {
            Some(member) => member.feed(bytes, &mut inner),
            None => inner.content(bytes),
        }
    }

    fn fields(&mut self, bytes: &[u8]) -> Result<(), W::Error> {
        self.settle()?;
        self.loom.bytes(Stream::Fields, bytes, self.sink)
    }

    fn times(&mut self, bytes: &[u8]) -> Result<(), W::Error> {
        self.settle()?;
        self.loom.bytes(Stream::Times, bytes, self.sink)
    }

    fn zeros(&mut self, count: usize) -> Result<(), W::Error> {
        self.settle()?;
        self.loom.zeros(count, self.sink)
    }

    fn boundary(&mut self) -> Result<(), W::Error> {
        self.settle()?;
        self.loom.boundary(self.sink)
    }

    fn pause(&mut self, draw: u64, bytes: u64) {
        self.loom.pause(draw, bytes);
    }

    fn tar_member(&mut self, header: &Block) -> Result<(), W::Error> {
        self.settle()?;
        match self.loom.open(header, self.sink)? {
            true => Ok(()),
            false => self.loom.lone_header(header, self.sink),
        }
    }

    fn tar_header(&mut self, header: &Block) -> Result<(), W::Error> {
        self.settle()?;
        self.loom.lone_header(header, self.sink)
    }

    fn tar_padding(&mut self, count: usize, text: Option<&[u8]>) -> Result<(), W::Error> {
        self.settle()?;
        match self.loom.is_open() {
            true => self.loom.close(count, text, self.sink),
            false => self.loom.zeros(count, self.sink),
        }
    }

    fn tar_broken(&mut self) -> Result<(), W::Error> {
        self.settle()?;
        self.loom.break_open(self.sink)
    }
}

/// What a member's shape tells: all of it is content, only where its members begin and end counts.
struct Inner<'a, W> {
    loom: &'a mut Loom,
    sink: &'a mut W,
}

/// A shorter member of a member is not kept apart from its header: it would cost more than it saves.
const INNER_BYTES_MIN: u64 = 8 << 10;

impl<W: Woven> Pieces for Inner<'_, W> {
    type Error = W::Error;

    fn member(&mut self, bytes: u64) -> Result<(), W::Error> {
        match bytes {
            INNER_BYTES_MIN.. => self.boundary(),
            _ => Ok(()),
        }
    }

    fn written(&mut self, _mtime: u64) {}

    fn content(&mut self, bytes: &[u8]) -> Result<(), W::Error> {
        self.loom.bytes(Stream::Content, bytes, self.sink)
    }

    fn fields(&mut self, bytes: &[u8]) -> Result<(), W::Error> {
        self.content(bytes)
    }

    fn times(&mut self, bytes: &[u8]) -> Result<(), W::Error> {
        self.content(bytes)
    }

    fn zeros(&mut self, count: usize) -> Result<(), W::Error> {
        self.content(&[0; 512][..count])
    }

    fn boundary(&mut self) -> Result<(), W::Error> {
        self.loom.boundary(self.sink)
    }

    fn pause(&mut self, _draw: u64, _bytes: u64) {}

    fn tar_member(&mut self, header: &Block) -> Result<(), W::Error> {
        self.content(header)
    }

    fn tar_header(&mut self, header: &Block) -> Result<(), W::Error> {
        self.content(header)
    }

    fn tar_padding(&mut self, count: usize, _text: Option<&[u8]>) -> Result<(), W::Error> {
        self.zeros(count)
    }

    fn tar_broken(&mut self) -> Result<(), W::Error> {
        Ok(())
    }
}
