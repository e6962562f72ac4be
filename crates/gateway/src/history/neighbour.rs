//! The store of a neighbour, which may not be there yet, or go away for a while: it is looked for
//! again and again, and traffic goes on without it.

use std::path::{Path, PathBuf};

use super::{NeighbourReport, SYNC_INTERVAL, needs_somebody};
use refrain_store::{ChunkSource, Chunking, ReadOnlyStore, StoreError};

pub(super) struct Neighbour {
    folder: PathBuf,
    chunking: Chunking,
    store: Option<ReadOnlyStore>,
    /// What is wrong with it, as it was told.
    trouble: Option<String>,
}

impl Neighbour {
    /// Fails only if the store is there and somebody has to see to it.
    pub(super) fn open(folder: &Path, chunking: Chunking) -> Result<Self, StoreError> {
        let mut neighbour = Self {
            folder: folder.to_owned(),
            chunking,
            store: None,
            trouble: None,
        };
        let looked = neighbour.try_to_look();
        neighbour.tell(unless_for_good(looked)?);
        Ok(neighbour)
    }

    /// What opening would refuse, and whether the store can be read now.
    pub(super) fn check(
        folder: &Path,
        chunking: Chunking,
    ) -> Result<Result<(), StoreError>, StoreError> {
        unless_for_good(ReadOnlyStore::check(folder, chunking))
    }

    /// Looks for what its owner has written since, or for the store.
    pub(super) fn look(&mut self) {
        let looked = self.try_to_look();
        self.tell(looked);
    }

    fn try_to_look(&mut self) -> Result<(), StoreError> {
        match &mut self.store {
            Some(store) => store.refresh()?,
            None => {
                let store = ReadOnlyStore::open(&self.folder, self.chunking)?;
                if store.holds_only_files() {
                    tracing::warn!(
                        "--store-also {}: it holds only added files, which only their own gateway uses",
                        self.folder.display()
                    );
                }
                self.store = Some(store);
            }
        }
        Ok(())
    }

    /// Says what is new: that something is wrong, or is well again.
    fn tell(&mut self, looked: Result<(), StoreError>) {
        let folder = self.folder.display();
        let trouble = looked.err();
        let trouble = trouble.map(|error| format!("--store-also: {error}"));
        match &trouble {
            Some(trouble) if self.trouble.as_ref() != Some(trouble) => {
                let pause = SYNC_INTERVAL.as_secs();
                tracing::warn!("{trouble}; retrying every {pause} s");
            }
            None if self.trouble.is_some() => {
                tracing::info!("--store-also {folder}: the store can be read now");
            }
            _ => {}
        }
        self.trouble = trouble;
    }

    pub(super) fn report(&self) -> NeighbourReport {
        NeighbourReport {
            folder: self.folder.clone(),
            stat: self.store.as_ref().map(ChunkSource::stat),
            trouble: self.trouble.clone(),
        }
    }

    pub(super) fn source(&mut self) -> Option<&mut dyn ChunkSource> {
        let store = self.store.as_mut()?;
        Some(store)
    }
}

/// An error alone that somebody has to see to.
fn unless_for_good(looked: Result<(), StoreError>) -> Result<Result<(), StoreError>, StoreError> {
    match looked {
        Err(error) if needs_somebody(&error) => Err(error),
        looked => Ok(looked),
    }
}
