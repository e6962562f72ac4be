//! Files to streams.

use super::Woven;
use super::cutter::Cutter;
use super::loom::Loom;
use super::shape::{Kind, Pieces};
use crate::Stream;
use crate::weave::tar::Block;

/// Weaves files, one after the other: for each [`begin_file`](Weaver::begin_file), its bytes in pieces to
/// [`feed`](Weaver::feed), [`end_file`](Weaver::end_file); and at the end [`finish`](Weaver::finish).
///
/// An error is the sink's. Nothing may be fed after it.
pub struct Weaver {
    file: Cutter,
    state: State,
}

/// What is written, and of what.
struct State {
    loom: Loom,
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
            file: Cutter::new(),
            state: State {
                loom: Loom::new(),
                member: None,
            },
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
        let state = &mut self.state;
        self.file.feed(bytes, &mut Outer { state, sink })
    }

    /// Ends the file: all its bytes go to the streams.
    ///
    /// # Errors
    /// The sink's.
    pub fn end_file<W: Woven>(&mut self, sink: &mut W) -> Result<(), W::Error> {
        let file = std::mem::replace(&mut self.file, Cutter::new());
        let state = &mut self.state;
        file.end(&mut Outer { state, sink })
    }

    /// Ends the weave.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish<W: Woven>(&mut self, sink: &mut W) -> Result<(), W::Error> {
        self.state.loom.flush(sink)
    }
}

/// What a file's shape tells goes to the streams.
struct Outer<'a, W> {
    state: &'a mut State,
    sink: &'a mut W,
}

impl<W: Woven> Outer<'_, W> {
    /// The member that is looked into has no more bytes.
    fn settle(&mut self) -> Result<(), W::Error> {
        match self.state.member.take() {
            Some(member) => member.end(&mut Inner(&mut self.state.loom, self.sink)),
            None => Ok(()),
        }
    }
}

impl<W: Woven> Pieces for Outer<'_, W> {
    type Error = W::Error;

    fn put(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), W::Error> {
        let State { loom, member } = &mut *self.state;
        match (kind, member) {
            (Kind::Content, Some(member)) => {
                return member.feed(bytes, &mut Inner(loom, self.sink));
            }
            (Kind::Written(mtime), _) => {
                self.sink.written(mtime.cast_signed());
                return Ok(());
            }
            _ => self.settle()?,
        }
        let (loom, sink) = (&mut self.state.loom, &mut *self.sink);
        match kind {
            Kind::Content => loom.bytes(Stream::Content, bytes, sink),
            Kind::Fields => loom.bytes(Stream::Fields, bytes, sink),
            Kind::Times => loom.bytes(Stream::Times, bytes, sink),
            Kind::TarPadding if loom.is_open() => loom.close(bytes.len(), sink),
            Kind::Zeros | Kind::TarPadding => loom.zeros(bytes.len(), sink),
            Kind::TarMember => {
                let header = block(bytes);
                match loom.open(header, sink)? {
                    true => Ok(()),
                    false => loom.lone_header(header, sink),
                }
            }
            Kind::TarHeader => loom.lone_header(block(bytes), sink),
            Kind::TarBroken => loom.break_open(sink),
            Kind::End => loom.boundary(sink),
            Kind::Begin(_) => {
                self.state.member = Some(Cutter::new());
                Ok(())
            }
            Kind::ExtendedTime(time) => {
                loom.extended_time(time);
                Ok(())
            }
            Kind::Pause { draw, bytes } => {
                loom.pause(draw, bytes);
                Ok(())
            }
            Kind::Written(_) => Ok(()),
        }
    }
}

fn block(bytes: &[u8]) -> &Block {
    bytes.try_into().expect("a header comes at once")
}

/// What a member's shape tells: all of it is content, only where its members begin and end counts.
struct Inner<'a, W>(&'a mut Loom, &'a mut W);

/// A shorter member of a member is not kept apart from its header: it would cost more than it saves.
const INNER_BYTES_MIN: u64 = 8 << 10;

impl<W: Woven> Pieces for Inner<'_, W> {
    type Error = W::Error;

    fn put(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), W::Error> {
        let Inner(loom, sink) = self;
        match kind {
            Kind::Begin(INNER_BYTES_MIN..) | Kind::End => loom.boundary(*sink),
            _ => loom.bytes(Stream::Content, bytes, *sink),
        }
    }
}
