//! What chunks are called: by their bytes alone, or in encrypted archives by those and the group secret.

use std::{ops::Range, sync::Arc};

use refrain_codec::{
    chunk::hash::{ChunkHash, ChunkHasher},
    simd::Backend,
};

use super::{Archive, Source};
use crate::{crypt::GroupKeys, format::ChunkName};

/// What names the chunks of an archive.
#[derive(Clone, Debug)]
pub(crate) enum Naming {
    /// Their bytes alone.
    Plain,
    /// What a group secret, or none, makes of them.
    Keyed(Arc<GroupKeys>),
}

impl Naming {
    /// What a chunk is called.
    pub(crate) fn name(&self, chunk: &[u8]) -> ChunkName {
        match self {
            Self::Plain => ChunkName::of(chunk),
            Self::Keyed(group) => ChunkName(group.name(chunk)),
        }
    }

    /// What several are called, which are these ranges of `bytes`.
    pub(crate) fn name_all(
        &self,
        bytes: &[u8],
        chunks: &[Range<usize>],
        names: &mut Vec<ChunkHash>,
    ) {
        match self {
            // Many at once are hashed much faster than one by one.
            Self::Plain => ChunkHasher::Blake3.hash_all(Backend::best(), bytes, chunks, names),
            Self::Keyed(group) => {
                names.clear();
                let named = chunks.iter().map(|chunk| group.name(&bytes[chunk.clone()]));
                names.extend(named.map(ChunkHash));
            }
        }
    }
}

impl<S: Source> Archive<S> {
    /// What names its chunks. `None` if that takes a group secret which is not known, or if it is locked.
    pub(crate) fn naming(&self) -> Option<Naming> {
        match (self.header.encryption, &self.unlocked) {
            (None, _) => Some(Naming::Plain),
            (Some(_), unlocked) => unlocked.as_ref()?.group.clone().map(Naming::Keyed),
        }
    }
}
