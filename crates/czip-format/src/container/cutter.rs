//! Hands a shape what it wants, however the input is split.

use std::mem;

use super::Pieces;
use super::ar::Ar;
use super::cpio::Cpio;
use super::shape::{Kind, Shape, Want};
use super::tar::Tar;
use super::zip::Zip;

/// Cuts one file, or one member.
pub(super) struct Cutter {
    shape: Known,
    /// What came of what is wanted at once.
    held: Vec<u8>,
    /// What passes first, the first one last.
    pass: Vec<(Kind, u64)>,
}

/// What a file is.
enum Known {
    NotYet,
    Nothing,
    Tar(Tar),
    Cpio(Cpio),
    Zip(Zip),
    Ar(Ar),
}

impl Cutter {
    pub(super) fn new() -> Cutter {
        Cutter {
            shape: Known::NotYet,
            held: Vec::new(),
            pass: Vec::new(),
        }
    }

    pub(super) fn feed<P: Pieces>(
        &mut self,
        mut bytes: &[u8],
        out: &mut P,
    ) -> Result<(), P::Error> {
        while let Some(used) = self.step(bytes, out)? {
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// The file ends.
    pub(super) fn end<P: Pieces>(mut self, out: &mut P) -> Result<(), P::Error> {
        if matches!(self.shape, Known::NotYet) {
            self.shape = Known::of(&self.held);
            let held = mem::take(&mut self.held);
            self.feed(&held, out)?;
        }
        self.shape.end(out)?;
        out.content(&self.held)?;
        out.boundary()
    }

    /// Uses some bytes, if only none to get on. None if there is nothing to do without more.
    fn step<P: Pieces>(&mut self, bytes: &[u8], out: &mut P) -> Result<Option<usize>, P::Error> {
        if let Some((kind, left)) = self.pass.last_mut() {
            let count = (*left).min(bytes.len() as u64);
            if count == 0 && *left > 0 {
                return Ok(None);
            }
            let now = &bytes[..count as usize];
            match kind {
                Kind::Content => out.content(now)?,
                Kind::Fields => out.fields(now)?,
                Kind::Times => out.times(now)?,
                Kind::Begin(bytes) => out.member(*bytes)?,
                Kind::End => out.boundary()?,
            }
            *left -= count;
            if *left == 0 {
                self.pass.pop();
            }
            return Ok(Some(now.len()));
        }
        match self.shape.want() {
            Want::Head(count) => self.head(count, bytes, out),
            _ if bytes.is_empty() => Ok(None),
            Want::Rest => {
                out.content(bytes)?;
                Ok(Some(bytes.len()))
            }
            Want::Find(wanted) => {
                let at = bytes.iter().position(|byte| *byte == wanted);
                let count = at.unwrap_or(bytes.len());
                out.content(&bytes[..count])?;
                if at.is_some() {
                    self.shape.found();
                }
                Ok(Some(count))
            }
        }
    }

    /// Hands the shape `count` bytes once they are there, out of the input if they all are.
    fn head<P: Pieces>(
        &mut self,
        count: usize,
        bytes: &[u8],
        out: &mut P,
    ) -> Result<Option<usize>, P::Error> {
        if self.held.is_empty() && bytes.len() >= count {
            return self.hand_over(&bytes[..count], out).map(Some);
        }
        let more = bytes.len().min(count - self.held.len());
        self.held.extend_from_slice(&bytes[..more]);
        if self.held.len() < count {
            return Ok((more > 0).then_some(more));
        }
        let mut held = mem::take(&mut self.held);
        let used = self.hand_over(&held, out)?;
        // What the shape left is input again: less than it wanted, or it wants something else now.
        self.feed(&held[used..], out)?;
        if self.held.is_empty() {
            held.clear();
            self.held = held;
        }
        Ok(Some(more))
    }

    fn hand_over<P: Pieces>(&mut self, head: &[u8], out: &mut P) -> Result<usize, P::Error> {
        let used = self.shape.head(head, &mut self.pass, out)?;
        self.pass.reverse();
        Ok(used)
    }
}

impl Known {
    /// What a file is that begins like this.
    fn of(head: &[u8]) -> Known {
        if let Some(tar) = Tar::of(head) {
            Known::Tar(tar)
        } else if let Some(cpio) = Cpio::of(head) {
            Known::Cpio(cpio)
        } else if let Some(zip) = Zip::of(head) {
            Known::Zip(zip)
        } else if let Some(ar) = Ar::of(head) {
            Known::Ar(ar)
        } else {
            Known::Nothing
        }
    }
}

impl Shape for Known {
    fn want(&self) -> Want {
        match self {
            Known::NotYet => Want::Head(512),
            Known::Nothing => Want::Rest,
            Known::Tar(tar) => tar.want(),
            Known::Cpio(cpio) => cpio.want(),
            Known::Zip(zip) => zip.want(),
            Known::Ar(ar) => ar.want(),
        }
    }

    fn head<P: Pieces>(
        &mut self,
        head: &[u8],
        pass: &mut Vec<(Kind, u64)>,
        out: &mut P,
    ) -> Result<usize, P::Error> {
        match self {
            Known::NotYet | Known::Nothing => {
                *self = Known::of(head);
                Ok(0)
            }
            Known::Tar(tar) => tar.head(head, pass, out),
            Known::Cpio(cpio) => cpio.head(head, pass, out),
            Known::Zip(zip) => zip.head(head, pass, out),
            Known::Ar(ar) => ar.head(head, pass, out),
        }
    }

    fn found(&mut self) {
        if let Known::Zip(zip) = self {
            zip.found();
        }
    }

    fn end<P: Pieces>(&mut self, out: &mut P) -> Result<(), P::Error> {
        match self {
            Known::Tar(tar) => tar.end(out),
            _ => Ok(()),
        }
    }
}
