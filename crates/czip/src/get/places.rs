//! Where chunks are that are here already, by their names, in bounded memory.

use std::path::Path;

use refrain_codec::chunk::{hash::ChunkHash, recent::RecentChunks};

use super::GetError;
use crate::{format::ChunkName, records::Records};

/// Where a chunk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Where it begins, in what `of` says.
    pub(super) at: u64,
    /// Its length.
    pub(super) bytes: u32,
    /// In which file; who fills the table knows what that is.
    pub(super) of: u32,
}

impl Place {
    const BYTES: usize = 16;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let number = u128::from(self.at) << 64 | u128::from(self.bytes) << 32 | u128::from(self.of);
        number.to_le_bytes()
    }

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Self {
            at: (number >> 64) as u64,
            bytes: (number >> 32) as u32,
            of: number as u32,
        }
    }
}

/// Names and places. Names have numbers, in the order in which they came first. One that was forgotten has
/// another number when it comes again.
pub(super) struct Places {
    numbers: RecentChunks<u64>,
    places: Records<{ Place::BYTES }>,
}

impl Places {
    /// None yet. Beyond `index_bytes` the names that were not seen for longest are forgotten; places go to
    /// a file in `folder`.
    pub(super) fn new(index_bytes: usize, folder: &Path) -> Self {
        Self {
            numbers: RecentChunks::within(index_bytes),
            places: Records::new(folder),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.places.len()
    }

    /// The number that a name has already. If it has none, it has the next one from now on, and is at `place`.
    pub(super) fn add(&mut self, name: ChunkName, place: Place) -> Result<Option<u64>, GetError> {
        let hash = ChunkHash(name.0);
        if let Some(&mut number) = self.numbers.find(&hash) {
            return Ok(Some(number));
        }
        let number = self.places.len();
        self.numbers.insert(&hash, number);
        self.places.push(place.to_bytes())?;
        Ok(None)
    }

    /// A name is at `place` now, wherever it was.
    pub(super) fn put(&mut self, name: ChunkName, place: Place) -> Result<(), GetError> {
        match self.add(name, place)? {
            None => Ok(()),
            Some(number) => Ok(self.places.set(number, place.to_bytes())?),
        }
    }

    pub(super) fn find(&mut self, name: ChunkName) -> Result<Option<(u64, Place)>, GetError> {
        match self.numbers.find(&ChunkHash(name.0)) {
            Some(&mut number) => Ok(Some((number, self.place(number)?))),
            None => Ok(None),
        }
    }

    /// # Panics
    /// If no name has this number.
    pub(super) fn place(&self, number: u64) -> Result<Place, GetError> {
        Ok(Place::from_bytes(self.places.get(number)?))
    }
}
