//! Where chunks are that are here already, by their names, in bounded memory.

use std::path::Path;

use super::{GetError, records::Records};
use crate::{
    format::ChunkName,
    index::{NameIndex, Numbered},
};

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

/// Names and places. Names have numbers, in the order in which they came first.
pub(super) struct Places {
    index: NameIndex,
    places: Records<{ Place::BYTES }>,
}

impl Places {
    /// None yet; beyond `index_bytes` names go to files in `folder`.
    pub(super) fn new(index_bytes: usize, folder: &Path) -> Self {
        Self {
            index: NameIndex::new(index_bytes, folder),
            places: Records::new(folder),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.places.len()
    }

    /// The number of a name. It is at `place` if it is new.
    pub(super) fn add(&mut self, name: ChunkName, place: Place) -> Result<Numbered, GetError> {
        let numbered = self.index.find_or_insert(&name.0)?;
        if let Numbered::New(_) = numbered {
            self.places.push(place.to_bytes())?;
        }
        Ok(numbered)
    }

    /// A name is at `place` now, wherever it was.
    pub(super) fn put(&mut self, name: ChunkName, place: Place) -> Result<(), GetError> {
        match self.add(name, place)? {
            Numbered::New(_) => Ok(()),
            Numbered::Known(number) => Ok(self.places.set(number, place.to_bytes())?),
        }
    }

    pub(super) fn find(&mut self, name: ChunkName) -> Result<Option<(u64, Place)>, GetError> {
        match self.index.find(&name.0)? {
            Some(number) => Ok(Some((number, self.place(number)?))),
            None => Ok(None),
        }
    }

    /// # Panics
    /// If no name has this number.
    pub(super) fn place(&self, number: u64) -> Result<Place, GetError> {
        Ok(Place::from_bytes(self.places.get(number)?))
    }
}
