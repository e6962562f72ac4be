//! The chunk parts that an archive of the seeds would have: so a part that is known by its digest need
//! not be fetched.

use std::path::Path;

use super::super::{
    GetError,
    places::{Place, Places},
};
use crate::{
    format::{
        ChunkName,
        part::{encode_names, ends_part},
    },
    records::Records,
};

/// Chunk parts of a stream, by digest.
pub(super) struct PartRuns {
    /// Names of the part that is not complete.
    run: Vec<ChunkName>,
    /// Chunks of the archive so far.
    chunks: u64,
    /// Where in `names` parts begin.
    parts: Places,
    names: Records<{ ChunkName::BYTES }>,
}

impl PartRuns {
    pub(super) fn new(index_bytes: usize, folder: &Path) -> Self {
        Self {
            run: Vec::new(),
            chunks: 0,
            parts: Places::new(index_bytes, folder),
            names: Records::new(folder),
        }
    }

    /// The next chunk that is new in its archive.
    pub(super) fn push(&mut self, name: ChunkName) -> Result<(), GetError> {
        self.run.push(name);
        let number = self.chunks;
        self.chunks += 1;
        match ends_part(name, number, self.run.len()) {
            true => self.end_part(),
            false => Ok(()),
        }
    }

    /// The archive ends.
    pub(super) fn end(&mut self) -> Result<(), GetError> {
        self.chunks = 0;
        self.end_part()
    }

    fn end_part(&mut self) -> Result<(), GetError> {
        if self.run.is_empty() {
            return Ok(());
        }
        let place = Place {
            at: self.names.len(),
            bytes: self.run.len() as u32,
            of: 0,
        };
        // What a part's digest is, the name of a chunk of the same bytes would be.
        let digest = ChunkName::of(&encode_names(&self.run));
        let before = self.parts.len();
        self.parts.add(digest, place)?;
        if self.parts.len() > before {
            for name in &self.run {
                self.names.push(name.0)?;
            }
        }
        self.run.clear();
        Ok(())
    }

    /// The names of the part with this digest.
    pub(super) fn find(&mut self, digest: [u8; 20]) -> Result<Option<Vec<ChunkName>>, GetError> {
        let Some((_, place)) = self.parts.find(ChunkName(digest))? else {
            return Ok(None);
        };
        let names = self
            .names
            .read(place.at..place.at + u64::from(place.bytes))?;
        Ok(Some(names.into_iter().map(ChunkName).collect()))
    }
}
