//! The first reading of seeds: which chunks they have, and where.

use std::{ops::Range, path::Path};

use refrain_codec::chunk::hash::ChunkHash;

use super::{
    super::{
        GetError,
        places::{Place, Places},
    },
    Target,
    part_runs::PartRuns,
    reading::Take,
};
use crate::{
    archive,
    chunker::{Chunker, Chunking},
    format::{ChunkName, Stream},
    records::Records,
};

/// Bytes that are cut but not yet named: many chunks are hashed at once much faster than one by one.
const UNNAMED_BYTES_MAX: usize = 1 << 20;

/// A stream of all seeds, one after the other.
pub(super) struct NamedStream {
    /// By name: where in the stream, and the unit in which the name came last.
    pub(super) places: Places,
    /// What is wanted of them, by number.
    pub(super) targets: Records<{ Target::BYTES }>,
    pub(super) parts: PartRuns,
    pub(super) naming: archive::Naming,
    chunker: Chunker,
    /// Bytes from `unnamed_start` on.
    unnamed: Vec<u8>,
    unnamed_start: u64,
    /// Where in the unit chunks in them end.
    ends: Vec<u64>,
    /// Where the unit begins.
    unit_start: u64,
    hashes: Vec<ChunkHash>,
}

impl NamedStream {
    pub(super) fn new(
        naming: &archive::Naming,
        chunking: Chunking,
        index_bytes: usize,
        folder: &Path,
    ) -> Self {
        Self {
            places: Places::new(index_bytes, folder),
            targets: Records::new(folder),
            parts: PartRuns::new(index_bytes / 16, folder),
            naming: naming.clone(),
            chunker: Chunker::new(chunking),
            unnamed: Vec::new(),
            unnamed_start: 0,
            ends: Vec::new(),
            unit_start: 0,
            hashes: Vec::new(),
        }
    }

    fn push(&mut self, bytes: &[u8], unit: u32) -> Result<(), GetError> {
        self.chunker.feed(bytes, &mut self.ends);
        self.unnamed.extend_from_slice(bytes);
        match self.unnamed.len() >= UNNAMED_BYTES_MAX {
            true => self.name_chunks(unit),
            false => Ok(()),
        }
    }

    fn end_unit(&mut self, unit: u32) -> Result<(), GetError> {
        self.chunker.finish(&mut self.ends);
        self.name_chunks(unit)?;
        self.unit_start = self.unnamed_start;
        self.parts.end()
    }

    /// Bytes of the stream up to the end of the unit.
    pub(super) fn end(&self) -> u64 {
        self.unit_start
    }

    fn name_chunks(&mut self, unit: u32) -> Result<(), GetError> {
        let before = self.unnamed_start - self.unit_start;
        let mut begin = 0;
        let chunks: Vec<Range<usize>> = (self.ends.drain(..))
            .map(|end| {
                let end = (end - before) as usize;
                std::mem::replace(&mut begin, end)..end
            })
            .collect();
        (self.naming).name_all(&self.unnamed, &chunks, &mut self.hashes);
        for (chunk, ChunkHash(name)) in chunks.into_iter().zip(&self.hashes) {
            let name = ChunkName(*name);
            let place = Place {
                at: self.unnamed_start + chunk.start as u64,
                bytes: chunk.len() as u32,
                of: unit,
            };
            let is_new_in_unit = match self.places.add(name, place)? {
                None => {
                    self.targets.push(Target::none(name))?;
                    true
                }
                Some(number) => {
                    let place = self.places.place(number)?;
                    let is_new = place.of != unit;
                    if is_new {
                        self.places.put(name, Place { of: unit, ..place })?;
                    }
                    is_new
                }
            };
            if is_new_in_unit {
                self.parts.push(name)?;
            }
        }
        self.unnamed.drain(..begin);
        self.unnamed_start += begin as u64;
        Ok(())
    }

    fn boundary(&mut self) {
        self.chunker.boundary(&mut self.ends);
    }
}

/// Names all streams.
pub(super) struct Naming<'a> {
    pub(super) streams: &'a mut [NamedStream; 5],
    /// Where units end in each stream.
    pub(super) unit_ends: &'a mut Vec<[u64; 5]>,
    pub(super) go_on: &'a mut dyn FnMut(usize) -> bool,
}

impl Take for Naming<'_> {
    fn begin_unit(&mut self) -> Result<bool, GetError> {
        Ok(true)
    }

    fn push(&mut self, stream: Stream, bytes: &[u8]) -> Result<(), GetError> {
        self.streams[stream.index()].push(bytes, self.unit_ends.len() as u32)
    }

    fn boundary(&mut self) {
        self.streams[Stream::Content.index()].boundary();
    }

    fn end_unit(&mut self) -> Result<(), GetError> {
        for stream in &mut *self.streams {
            stream.end_unit(self.unit_ends.len() as u32)?;
        }
        let ends = self.streams.each_ref().map(NamedStream::end);
        self.unit_ends.push(ends);
        Ok(())
    }

    fn go_on(&mut self, bytes: usize) -> bool {
        (self.go_on)(bytes)
    }
}
