//! Hands a shape what it wants, however the input is split.

use std::mem;

use super::{
    CONTAINERS, HEAD_BYTES,
    shape::{Kind, Pieces, Shape, Want},
};

/// What a file is.
enum Known {
    NotYet,
    Nothing,
    Shape(Box<dyn Shape>),
}

impl Known {
    /// What a file is that begins like this.
    fn of(head: &[u8]) -> Known {
        let shape = CONTAINERS.iter().find_map(|of| of(head));
        shape.map_or(Known::Nothing, Known::Shape)
    }
}

/// Cuts one file, or one member.
pub(super) struct Cutter {
    shape: Known,
    /// What came of what is wanted at once.
    held: Vec<u8>,
    /// What passes first, the first one last.
    pass: Vec<(Kind, u64)>,
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
        out.put(Kind::TarBroken, &[])?;
        out.put(Kind::Content, &self.held)?;
        out.put(Kind::End, &[])
    }

    /// Uses some bytes, if only none to get on. None if there is nothing to do without more.
    fn step<P: Pieces>(&mut self, bytes: &[u8], out: &mut P) -> Result<Option<usize>, P::Error> {
        if !self.pass.is_empty() {
            return self.pass(bytes, out);
        }
        let want = match &self.shape {
            Known::NotYet => Want::Head(HEAD_BYTES),
            Known::Nothing => Want::Rest,
            Known::Shape(shape) => shape.want(),
        };
        match want {
            Want::Head(count) => self.head(count, bytes, out),
            _ if bytes.is_empty() => Ok(None),
            Want::Rest => {
                out.put(Kind::Content, bytes)?;
                Ok(Some(bytes.len()))
            }
            Want::Find(wanted) => {
                let at = bytes.iter().position(|byte| *byte == wanted);
                let count = at.unwrap_or(bytes.len());
                out.put(Kind::Content, &bytes[..count])?;
                if at.is_some() {
                    self.hand_over(&[], out)?;
                }
                Ok(Some(count))
            }
        }
    }

    /// Uses some bytes as the first of what passes. None if there is nothing to do with them.
    fn pass<P: Pieces>(&mut self, bytes: &[u8], out: &mut P) -> Result<Option<usize>, P::Error> {
        let Some((kind, left)) = self.pass.last_mut() else {
            return Ok(None);
        };
        let count = (*left).min(bytes.len() as u64);
        if count == 0 && *left > 0 {
            return Ok(None);
        }
        out.put(*kind, &bytes[..count as usize])?;
        *left -= count;
        if *left == 0 {
            self.pass.pop();
        }
        Ok(Some(count as usize))
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

    /// Gives what the shape says of these bytes, and returns how many that are.
    fn hand_over<P: Pieces>(&mut self, head: &[u8], out: &mut P) -> Result<usize, P::Error> {
        match &mut self.shape {
            Known::Shape(shape) => shape.head(head, &mut self.pass),
            known => *known = Known::of(head),
        }
        self.pass.reverse();
        let mut used = 0;
        while let Some(count) = self.pass(&head[used..], out)? {
            used += count;
        }
        Ok(used)
    }
}
