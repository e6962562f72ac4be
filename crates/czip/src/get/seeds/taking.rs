//! The second reading of seeds: what is wanted of them is taken out, and checked.

use super::{super::GetError, Target, naming::NamedStream, reading::Take};
use crate::format::Stream;

/// Numbers looked at together.
const BLOCK: u64 = 4096;

/// What takes a chunk that was found and is right.
pub(in super::super) type Found<'a> =
    dyn FnMut(Stream, u64, u64, &[u8]) -> Result<(), GetError> + 'a;

/// A chunk that is wanted, and where it should be.
struct Wanted {
    at: u64,
    bytes: u32,
    target: Target,
}

/// Takes chunks out of a stream.
struct TakenStream<'a> {
    named: &'a NamedStream,
    /// The next number to look at.
    next: u64,
    /// Targets from there on, the first one last.
    block: Vec<Target>,
    wanted: Option<Wanted>,
    /// What came of it.
    chunk: Vec<u8>,
    position: u64,
}

impl<'a> TakenStream<'a> {
    fn new(named: &'a NamedStream) -> Result<Self, GetError> {
        let mut stream = Self {
            named,
            next: 0,
            block: Vec::new(),
            wanted: None,
            chunk: Vec::new(),
            position: 0,
        };
        stream.find_next()?;
        Ok(stream)
    }

    /// Goes on to the next chunk that is wanted.
    fn find_next(&mut self) -> Result<(), GetError> {
        self.wanted = None;
        self.chunk.clear();
        while self.wanted.is_none() {
            let Some(target) = self.block.pop() else {
                let end = self.named.targets.len().min(self.next + BLOCK);
                if end == self.next {
                    return Ok(());
                }
                let targets = self.named.targets.read(self.next..end)?;
                self.block = targets.into_iter().rev().map(Target::from_bytes).collect();
                continue;
            };
            let number = self.next;
            self.next += 1;
            if !target.is_none() {
                let place = self.named.places.place(number)?;
                self.wanted = Some(Wanted {
                    at: place.at,
                    bytes: place.bytes,
                    target,
                });
            }
        }
        Ok(())
    }

    fn push(
        &mut self,
        stream: Stream,
        bytes: &[u8],
        found: &mut Found<'_>,
    ) -> Result<(), GetError> {
        let end = self.position + bytes.len() as u64;
        while let Some(wanted) = &self.wanted {
            let begin = wanted.at + self.chunk.len() as u64;
            let stop = end.min(wanted.at + u64::from(wanted.bytes));
            // Behind its place it is only if a seed has become shorter.
            if begin >= end || begin < self.position {
                if begin < self.position {
                    self.find_next()?;
                    continue;
                }
                break;
            }
            let from = (begin - self.position) as usize;
            let to = (stop - self.position) as usize;
            self.chunk.extend_from_slice(&bytes[from..to]);
            if self.chunk.len() < wanted.bytes as usize {
                break;
            }
            let target = &wanted.target;
            if self.named.naming.name(&self.chunk) == target.name {
                found(stream, target.chunk, target.at, &self.chunk)?;
            }
            self.find_next()?;
        }
        self.position = end;
        Ok(())
    }

    /// The unit ended, where it ended before.
    fn go_to(&mut self, end: u64) -> Result<(), GetError> {
        while self.wanted.as_ref().is_some_and(|wanted| wanted.at < end) {
            self.find_next()?;
        }
        self.position = end;
        Ok(())
    }
}

/// Takes chunks out of all streams.
pub(super) struct Taking<'a> {
    streams: [TakenStream<'a>; 5],
    unit_ends: &'a [[u64; 5]],
    unit: usize,
    found: &'a mut Found<'a>,
    go_on: &'a mut dyn FnMut(usize) -> bool,
}

impl<'a> Taking<'a> {
    pub(super) fn new(
        named: &'a [NamedStream; 5],
        unit_ends: &'a [[u64; 5]],
        found: &'a mut Found<'a>,
        go_on: &'a mut dyn FnMut(usize) -> bool,
    ) -> Result<Self, GetError> {
        let [content, weave, fields, times, catalog] = named;
        Ok(Self {
            streams: [
                TakenStream::new(content)?,
                TakenStream::new(weave)?,
                TakenStream::new(fields)?,
                TakenStream::new(times)?,
                TakenStream::new(catalog)?,
            ],
            unit_ends,
            unit: 0,
            found,
            go_on,
        })
    }

    fn end(&mut self) -> Result<(), GetError> {
        if let Some(ends) = self.unit_ends.get(self.unit) {
            for (stream, &end) in self.streams.iter_mut().zip(ends) {
                stream.go_to(end)?;
            }
        }
        self.unit += 1;
        Ok(())
    }
}

impl Take for Taking<'_> {
    fn begin_unit(&mut self) -> Result<bool, GetError> {
        let ends = self.unit_ends.get(self.unit);
        let mut streams = self.streams.iter().enumerate();
        let is_needed = streams.any(|(number, stream)| {
            let wanted = stream.wanted.as_ref();
            wanted.is_some_and(|wanted| ends.is_some_and(|ends| wanted.at < ends[number]))
        });
        if !is_needed {
            self.end()?;
        }
        Ok(is_needed)
    }

    fn push(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), GetError> {
        self.streams[stream.index()].push(stream, bytes, self.found)
    }

    fn boundary(&mut self) {}

    fn end_unit(&mut self) -> Result<(), GetError> {
        self.end()
    }

    fn go_on(&mut self, bytes: usize) -> bool {
        (self.go_on)(bytes)
    }
}
