//! Seeds: files, folders and archives that may hold chunks of the archive that is wanted.
//!
//! They are cut as the archive was, which its header says, and read twice: once for the names of their
//! chunks, and again for the bytes of those that are wanted. Nothing of them is kept between, and what
//! has changed meanwhile is noticed, since names are checked. Names and places are held in bounded
//! memory.

mod naming;
mod part_runs;
mod reading;
mod taking;

use std::{
    io,
    path::{Path, PathBuf},
};

use super::GetError;
use crate::{
    archive,
    chunker::Chunking,
    create::SMALL_CHUNK_BYTES,
    format::{ChunkName, Stream, header::Header},
};
use naming::{NamedStream, Naming};
pub(super) use reading::{open_archive, walk_seed};
use taking::{Found, Taking};

/// What is said of seeds for archives that are not encrypted.
const LOCKED: &str = "an encrypted archive can be a seed only for encrypted archives";

/// A chunk of the archive that a seed is to give, as it is kept by the seed's chunk.
#[derive(Clone, Copy)]
struct Target {
    name: ChunkName,
    /// Its number in the archive.
    chunk: u64,
    /// Where in the archive's unique bytes it belongs.
    at: u64,
}

impl Target {
    const BYTES: usize = 36;

    /// Nothing is wanted of the chunk called `name`.
    fn none(name: ChunkName) -> [u8; Self::BYTES] {
        Self {
            name,
            chunk: u64::MAX,
            at: 0,
        }
        .to_bytes()
    }

    fn is_none(&self) -> bool {
        self.chunk == u64::MAX
    }

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..20].copy_from_slice(&self.name.0);
        bytes[20..28].copy_from_slice(&self.chunk.to_le_bytes());
        bytes[28..].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (name, numbers) = bytes.split_first_chunk().expect("20 of 36 bytes");
        let (chunk, at) = numbers.split_first_chunk().expect("8 of 16 bytes");
        Self {
            name: ChunkName(*name),
            chunk: u64::from_le_bytes(*chunk),
            at: u64::from_le_bytes(*at.first_chunk().expect("8 bytes")),
        }
    }
}

/// The chunks of all seeds.
pub(super) struct Seeds {
    paths: Vec<PathBuf>,
    is_woven: bool,
    streams: [NamedStream; 5],
    unit_ends: Vec<[u64; 5]>,
    has_targets: bool,
}

impl Seeds {
    /// Reads `paths` and names their chunks as those of the archive with `header` are, by `naming`. `index_bytes`
    /// bounds the names that are remembered, files of their places are in `folder`; `go_on` is told how many bytes were
    /// read, `unread` what could not be.
    pub(super) fn name(
        paths: &[PathBuf],
        header: &Header,
        naming: &archive::Naming,
        (index_bytes, folder): (usize, &Path),
        go_on: &mut dyn FnMut(usize) -> bool,
        unread: &mut dyn FnMut(&Path, std::io::Error),
    ) -> Result<Self, GetError> {
        let chunking = chunking(header);
        let mut seeds = Self {
            paths: paths.to_vec(),
            is_woven: header.is_woven,
            streams: Stream::ALL.map(|stream| {
                let chunking = chunking.unwrap_or_default();
                let (chunking, index_bytes) = match stream {
                    Stream::Content => (chunking, index_bytes),
                    _ => (chunking.at_most(SMALL_CHUNK_BYTES), index_bytes / 32),
                };
                NamedStream::new(naming, chunking, index_bytes, folder)
            }),
            unit_ends: Vec::new(),
            has_targets: false,
        };
        for path in &seeds.paths {
            let mut naming = Naming {
                streams: &mut seeds.streams,
                unit_ends: &mut seeds.unit_ends,
                go_on,
            };
            let (error, has_locked) = reading::read(path, seeds.is_woven, &mut naming)?;
            // Of an encrypted one stored frames are known.
            let is_told = has_locked && header.encryption.is_none();
            let locked = is_told.then(|| io::Error::other(LOCKED));
            if let Some(error) = error.or(locked) {
                unread(path, error);
            }
        }
        Ok(seeds)
    }

    /// The names in the chunk part with this digest, if the seeds' own archive would have it.
    pub(super) fn part(
        &mut self,
        stream: Stream,
        digest: [u8; 20],
    ) -> Result<Option<Vec<ChunkName>>, GetError> {
        self.streams[stream.index()].parts.find(digest)
    }

    /// How long a chunk is that the seeds have.
    pub(super) fn chunk_bytes(
        &mut self,
        stream: Stream,
        name: ChunkName,
    ) -> Result<Option<u32>, GetError> {
        let found = self.streams[stream.index()].places.find(name)?;
        Ok(found.map(|(_, place)| place.bytes))
    }

    /// Says that chunk number `chunk` of the archive, called `name`, is wanted. False if no seed has
    /// it.
    pub(super) fn want(
        &mut self,
        stream: Stream,
        name: ChunkName,
        chunk: u64,
        (at, bytes): (u64, u32),
    ) -> Result<bool, GetError> {
        let stream = &mut self.streams[stream.index()];
        match stream.places.find(name)? {
            Some((number, place)) if place.bytes == bytes => {
                let target = Target { name, chunk, at };
                stream.targets.set(number, target.to_bytes())?;
                self.has_targets = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Reads the seeds again, and gives `found` the chunks that are wanted: stream, number, place
    /// and bytes, which are right.
    pub(super) fn take(
        &self,
        found: &mut Found<'_>,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), GetError> {
        if !self.has_targets {
            return Ok(());
        }
        let mut taking = Taking::new(&self.streams, &self.unit_ends, found, go_on)?;
        for path in &self.paths {
            // What cannot be read any more has to be fetched.
            let _ = reading::read(path, self.is_woven, &mut taking)?;
        }
        Ok(())
    }
}

/// How the archive was cut, if its header says what can be.
pub(super) fn chunking(header: &Header) -> Option<Chunking> {
    let chunking = Chunking::new(header.chunking, header.chunk_bytes).ok()?;
    chunking
        .with_bounds(header.chunk_bytes_min, header.chunk_bytes_max)
        .ok()
}
