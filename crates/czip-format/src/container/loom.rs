//! Writes operations, and decides where state begins anew.

use super::tar_header;
use crate::weave::Operation;
use crate::weave::tar::{self, Block, Headers};
use crate::{Stream, input::put_varint};

/// Takes what the streams get.
pub trait Woven {
    /// What can go wrong.
    type Error;

    /// The next bytes of a stream, which is not the catalog.
    fn put(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), Self::Error>;

    /// What comes to the stream content from here on was written at this time, in seconds since 1970, as
    /// its container says. A hint, which need not be taken.
    fn written(&mut self, _mtime: i64) {}

    /// In the stream content, a file or a member ends here.
    fn boundary(&mut self) -> Result<(), Self::Error>;

    /// Here is a restart point. The first is at 0 of everything, before the first byte.
    fn restart(&mut self, at: RestartPoint) -> Result<(), Self::Error>;
}

/// A place from which the weave can be undone: how many bytes there are before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestartPoint {
    /// Of the plain content.
    pub plain: u64,
    /// Of the weave.
    pub weave: u64,
    /// Of the content.
    pub content: u64,
    /// Of the fields.
    pub fields: u64,
    /// Of the times.
    pub times: u64,
}

/// Plain bytes after which state begins anew, other than among tar members.
pub(super) const RESTART_BYTES: u64 = 1 << 20;
/// Among tar members: after so many it may, by the draw of a member, of which one in this many
/// bytes hits.
const PAUSE_BYTES_MIN: u64 = RESTART_BYTES / 2;
/// And after so many it does.
const PAUSE_BYTES_MAX: u64 = RESTART_BYTES * 2;
/// Where headers follow each other that are no members', it does after so many at the latest: what
/// lies between restart points has a limit.
const STRETCH_BYTES_MAX: u64 = RESTART_BYTES * 4;

/// The state of a weave that is being written.
pub(super) struct Loom {
    headers: Headers,
    at: RestartPoint,
    /// Where state began last, `<= at.plain`.
    anew: Option<u64>,
    /// State begins anew before the next byte.
    pause: bool,
    /// The operation that is not written yet, and its operand.
    pending: Option<(Operation, u64)>,
    /// A tar member of which the header is written: what its data are, and how many came.
    open: Option<(Stream, u64)>,
    /// Where in content the last boundary was.
    boundary: u64,
    fields: Vec<u8>,
    times: Vec<u8>,
}

impl Loom {
    pub(super) fn new() -> Loom {
        Loom {
            headers: Headers::new(),
            at: RestartPoint::default(),
            anew: None,
            pause: false,
            pending: None,
            open: None,
            boundary: 0,
            fields: Vec::new(),
            times: Vec::new(),
        }
    }

    /// Bytes of a stream, of an operation of their own or of the tar member that is open.
    pub(super) fn bytes<W: Woven>(
        &mut self,
        stream: Stream,
        mut bytes: &[u8],
        sink: &mut W,
    ) -> Result<(), W::Error> {
        if let Some((kind, count)) = &mut self.open {
            debug_assert_eq!(*kind, stream);
            *count += bytes.len() as u64;
            self.at.plain += bytes.len() as u64;
            return self.put(stream, bytes, sink);
        }
        while !bytes.is_empty() {
            let room = self.room(sink)?;
            let (now, rest) = bytes.split_at(room.min(bytes.len() as u64) as usize);
            self.extend(operation_of(stream), now.len() as u64, sink)?;
            self.at.plain += now.len() as u64;
            self.put(stream, now, sink)?;
            bytes = rest;
        }
        Ok(())
    }

    pub(super) fn zeros<W: Woven>(&mut self, count: usize, sink: &mut W) -> Result<(), W::Error> {
        debug_assert!(self.open.is_none());
        let mut left = count as u64;
        while left > 0 {
            let now = self.room(sink)?.min(left);
            self.extend(Operation::Zeros, now, sink)?;
            self.at.plain += now;
            left -= now;
        }
        Ok(())
    }

    pub(super) fn boundary<W: Woven>(&mut self, sink: &mut W) -> Result<(), W::Error> {
        if self.boundary == self.at.content {
            return Ok(());
        }
        self.boundary = self.at.content;
        sink.boundary()
    }

    /// See [`Kind::Pause`](super::shape::Kind::Pause).
    pub(super) fn pause(&mut self, draw: u64, bytes: u64) {
        let since = self.at.plain - self.anew.unwrap_or(0);
        self.pause |=
            since >= PAUSE_BYTES_MIN && draw % PAUSE_BYTES_MIN < bytes || since >= PAUSE_BYTES_MAX;
    }

    /// Writes a tar header, and leaves its member open for data. False, and nothing is written, if
    /// the format does not restore it.
    pub(super) fn open<W: Woven>(
        &mut self,
        header: &Block,
        sink: &mut W,
    ) -> Result<bool, W::Error> {
        if !self.header(header, sink)? {
            return Ok(false);
        }
        let kind = match header[tar::TYPE] {
            b'x' | b'g' => Stream::Times,
            b'L' | b'K' => Stream::Fields,
            _ => Stream::Content,
        };
        self.open = Some((kind, 0));
        Ok(true)
    }

    /// The open tar member is complete but for its zeros.
    pub(super) fn close<W: Woven>(&mut self, padding: usize, sink: &mut W) -> Result<(), W::Error> {
        self.open = None;
        self.at.plain += padding as u64;
        self.extend(Operation::Members, 1, sink)
    }

    /// The open tar member, if there is one, is none: its header stands alone, its data are bytes.
    pub(super) fn break_open<W: Woven>(&mut self, sink: &mut W) -> Result<(), W::Error> {
        let Some((kind, count)) = self.open.take() else {
            return Ok(());
        };
        self.headers.extended_time = None;
        self.extend(Operation::Headers, 1, sink)?;
        match count {
            0 => Ok(()),
            _ => self.extend(operation_of(kind), count, sink),
        }
    }

    /// The open tar member, an extended header, says this of the next one's time.
    pub(super) fn extended_time(&mut self, time: Option<u64>) {
        if self.is_open() {
            self.headers.extended_time = time;
        }
    }

    /// Whether a tar member is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Writes a tar header, alone if it can be, else as bytes.
    pub(super) fn lone_header<W: Woven>(
        &mut self,
        header: &Block,
        sink: &mut W,
    ) -> Result<(), W::Error> {
        if self.header(header, sink)? {
            self.headers.extended_time = None;
            return self.extend(Operation::Headers, 1, sink);
        }
        let (before, from_mtime) = header.split_at(tar::MTIME.start);
        let (mtime_and_checksum, after) = from_mtime.split_at(tar::TYPE - tar::MTIME.start);
        self.bytes(Stream::Fields, before, sink)?;
        self.bytes(Stream::Times, mtime_and_checksum, sink)?;
        self.bytes(Stream::Fields, after, sink)
    }

    /// Writes what is pending.
    pub(super) fn flush<W: Woven>(&mut self, sink: &mut W) -> Result<(), W::Error> {
        let Some((operation, count)) = self.pending.take() else {
            return Ok(());
        };
        let mut bytes = vec![operation as u8];
        put_varint(&mut bytes, count);
        self.put(Stream::Weave, &bytes, sink)
    }

    /// Writes a header's bytes to fields and times, if the format restores it.
    fn header<W: Woven>(&mut self, header: &Block, sink: &mut W) -> Result<bool, W::Error> {
        let since = self.anew.map(|anew| self.at.plain - anew);
        if self.pause || since.is_none_or(|since| since >= STRETCH_BYTES_MAX) {
            self.begin_anew(sink)?;
        }
        self.fields.clear();
        self.times.clear();
        if !tar_header::write(header, &mut self.headers, &mut self.fields, &mut self.times) {
            return Ok(false);
        }
        sink.put(Stream::Fields, &self.fields)?;
        sink.put(Stream::Times, &self.times)?;
        self.at.fields += self.fields.len() as u64;
        self.at.times += self.times.len() as u64;
        self.at.plain += header.len() as u64;
        Ok(true)
    }

    /// How many bytes fit before the next restart point, at least 1.
    fn room<W: Woven>(&mut self, sink: &mut W) -> Result<u64, W::Error> {
        let since = match self.anew {
            Some(anew) if !self.pause => self.at.plain - anew,
            _ => RESTART_BYTES,
        };
        if since < RESTART_BYTES {
            return Ok(RESTART_BYTES - since);
        }
        self.begin_anew(sink)?;
        Ok(RESTART_BYTES)
    }

    fn begin_anew<W: Woven>(&mut self, sink: &mut W) -> Result<(), W::Error> {
        self.flush(sink)?;
        if self.anew.is_some() {
            self.put(Stream::Weave, &[Operation::Anew as u8], sink)?;
        }
        self.headers = Headers::new();
        self.anew = Some(self.at.plain);
        self.pause = false;
        sink.restart(self.at)
    }

    fn extend<W: Woven>(
        &mut self,
        operation: Operation,
        by: u64,
        sink: &mut W,
    ) -> Result<(), W::Error> {
        match &mut self.pending {
            Some((pending, count)) if *pending == operation => *count += by,
            _ => {
                self.flush(sink)?;
                self.pending = Some((operation, by));
            }
        }
        Ok(())
    }

    fn put<W: Woven>(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        sink: &mut W,
    ) -> Result<(), W::Error> {
        let at = match stream {
            Stream::Weave => &mut self.at.weave,
            Stream::Content => &mut self.at.content,
            Stream::Fields => &mut self.at.fields,
            Stream::Times => &mut self.at.times,
            Stream::Catalog => unreachable!("the catalog is not woven"),
        };
        *at += bytes.len() as u64;
        sink.put(stream, bytes)
    }
}

/// What appends bytes of a stream.
fn operation_of(stream: Stream) -> Operation {
    match stream {
        Stream::Content => Operation::Content,
        Stream::Fields => Operation::Fields,
        Stream::Times => Operation::Times,
        Stream::Weave | Stream::Catalog => unreachable!("no operation appends it"),
    }
}
