//! What an engine asks of the history: the chunk store, or whatever stands for it.
//!
//! The engine does no I/O. It says what was learnt and what it wants to know; its caller asks
//! the store and brings the answer back, when it has it: [`Link::poll_history`] and
//! [`Link::history_answered`].
//!
//! [`Link::poll_history`]: crate::Link::poll_history
//! [`Link::history_answered`]: crate::Link::history_answered

use std::sync::Arc;

use refrain_codec::{
    chunk::{
        hash::{ChunkDigest, ChunkHasher},
        stream::ChunkBounds,
    },
    marker::PackMask,
    names,
};

use crate::{
    frame::FlowId,
    limits::{LEARNING_BYTES, OFFERED_BYTES_LINK},
};

names! {
    /// How a receiver predicts.
    #[derive(Default)]
    pub enum Predict {
        /// Expected chunks that may come anywhere, ahead of the stream, and openings.
        #[default]
        Window = "window",
        /// As the paper does: ranges at stream offsets, along one chain.
        Aligned = "aligned",
    }
}

/// How a receiver learns and predicts.
#[derive(Clone, Debug)]
pub struct HistoryConfig {
    /// The mode of prediction.
    pub predict: Predict,
    /// The mask of anchors.
    pub mask: PackMask,
    /// Shortest and longest chunk.
    pub bounds: ChunkBounds,
    /// The digest of chunks.
    pub hasher: ChunkHasher,
    /// Plain bytes that all flows of the link may hold for their offers.
    pub offered_bytes_max: u64,
    /// Bytes of chunks that wait to be taken to the history; beyond, chunks are not learnt.
    pub learning_bytes_max: usize,
}

impl Default for HistoryConfig {
    /// The paper's mask, with a window of predictions.
    fn default() -> Self {
        Self {
            predict: Predict::default(),
            mask: PackMask::default(),
            bounds: ChunkBounds::default(),
            hasher: ChunkHasher::default(),
            offered_bytes_max: OFFERED_BYTES_LINK,
            learning_bytes_max: LEARNING_BYTES,
        }
    }
}

/// A recipe in progress: a flow's chunks in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecipeNumber(pub u64);

/// A place in the history from which a chain can be read onward, as its owner names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HistoryPlace(pub [u64; 3]);

/// The keys by which a recipe with this opening is found: its own, and the one that it has in common with alike flows.
pub fn keys_of(opening: u64) -> impl Iterator<Item = u64> {
    [Some(opening), alike(opening)].into_iter().flatten()
}

/// The key that an opening has in common with those of alike flows, if there may be others: its upper half.
pub(crate) fn alike(opening: u64) -> Option<u64> {
    Some(upper(opening)).filter(|&upper| upper != opening)
}

pub(super) fn upper(key: u64) -> u64 {
    key & !u64::from(u32::MAX)
}

/// Something for the history to do, in the order in which it was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryRequest {
    /// A recipe begins.
    Begin {
        /// The recipe.
        recipe: RecipeNumber,
        /// What its flow looked like before its first byte; `None` if its first chunks were not
        /// learnt. The recipe is found by all of [`keys_of`].
        opening: Option<u64>,
    },
    /// The next chunk of a recipe came.
    Learn {
        /// The recipe.
        recipe: RecipeNumber,
        /// The chunk's digest.
        digest: ChunkDigest,
        /// The chunk.
        bytes: Arc<[u8]>,
        /// What followed it before, if that is wanted: look before it is learnt.
        follow: Option<Wanted>,
    },
    /// What a recipe that began with `opening` began with, and went on with.
    Open {
        /// As in [`HistoryRequest::Begin`].
        opening: u64,
        /// How much.
        wanted: Wanted,
    },
    /// What comes at a place.
    Read {
        /// The place.
        from: HistoryPlace,
        /// How much.
        wanted: Wanted,
    },
    /// A recipe ends.
    End {
        /// The recipe.
        recipe: RecipeNumber,
    },
    /// What was known by a digest was confirmed and proved not to be what the sender had. It is
    /// not to be found again, or it would be offered again; when it comes it is new.
    Forget {
        /// The chunk's digest.
        digest: ChunkDigest,
    },
}

impl HistoryRequest {
    /// What it asks for, if it is a question.
    #[must_use]
    pub fn wanted(&self) -> Option<Wanted> {
        match self {
            Self::Learn { follow, .. } => *follow,
            Self::Open { wanted, .. } | Self::Read { wanted, .. } => Some(*wanted),
            Self::Begin { .. } | Self::End { .. } | Self::Forget { .. } => None,
        }
    }
}

/// How much of a chain an engine wants to know, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The flow.
    pub flow: FlowId,
    /// To name with the answer.
    pub request: u64,
    /// Most chunks.
    pub chunks_max: usize,
    /// Most bytes.
    pub bytes_max: usize,
}

/// What the history found: the chunks of a chain, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Read, and held against their digests.
    pub chunks: Vec<FoundChunk>,
    /// Where the chain goes on.
    pub next: Option<HistoryPlace>,
}

/// A chunk of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundChunk {
    /// Its digest.
    pub digest: ChunkDigest,
    /// Its bytes, which have this digest.
    pub bytes: Arc<[u8]>,
}
