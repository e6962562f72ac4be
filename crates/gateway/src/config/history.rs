//! Where a near end keeps what comes, and how it predicts from it.

use std::path::PathBuf;

use refrain_codec::{
    chunk::{hash::ChunkHasher, stream::ChunkBounds},
    marker::PackMask,
};
use refrain_proto::{
    by_receiver::history::{HistoryConfig, Predict},
    limits::OFFER_BYTES_MAX,
};

use refrain_store::{Chunking, DiskStore, Realm, Room, StoreConfig};

use super::Mismatch;
use crate::{
    keys::PublicKey,
    options::{
        CHUNK_HASH, CHUNK_MAX, CHUNK_MIN, CHUNK_SIZE, OptionSpec, PREDICT, REALM, STORE,
        STORE_ALSO, STORE_SIZE,
    },
    settings::{ConfigError, Settings},
    units::{ByteSize, decimal_bytes},
};

/// The least that a store may be: a few segments.
const STORE_BYTES_MIN: u64 = 16 << 20;

/// What a near end's options say of its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryOptions {
    /// The folder of its store.
    pub store: PathBuf,
    /// The bound on disk.
    pub size: ByteSize,
    /// Stores of others that are read.
    pub also: Vec<PathBuf>,
    /// The name of the service whose history answers.
    pub realm: String,
    /// How to predict.
    pub predict: Predict,
    /// The mask of chunks' anchors.
    pub mask: PackMask,
    /// The shortest and the longest chunk.
    pub bounds: ChunkBounds,
    /// What names chunks.
    pub hasher: ChunkHasher,
}

impl HistoryOptions {
    pub(super) fn resolve(
        settings: &Settings,
        peer: &PublicKey,
    ) -> Result<Option<HistoryOptions>, ConfigError> {
        let folder = |path: &str| match path {
            "" => Err(Mismatch::NoFolder),
            path => Ok(PathBuf::from(path)),
        };
        let store = settings.optional_with(&STORE, folder)?;
        let Some(store) = store else {
            let about_store: [&'static OptionSpec; 7] = [
                &STORE_SIZE,
                &STORE_ALSO,
                &REALM,
                &PREDICT,
                &CHUNK_SIZE,
                &CHUNK_MIN,
                &CHUNK_MAX,
            ];
            return match about_store.into_iter().find(|spec| settings.is_given(spec)) {
                Some(spec) => Err(settings.wrong(spec, Mismatch::NoStore)),
                None => Ok(None),
            };
        };
        let size: ByteSize = settings.one(&STORE_SIZE)?;
        if size.0 < STORE_BYTES_MIN {
            return Err(settings.wrong(&STORE_SIZE, Mismatch::StoreTooSmall));
        }
        let average: ByteSize = settings.one(&CHUNK_SIZE)?;
        let bits = average.0.is_power_of_two().then(|| average.0.ilog2() as u8);
        let mask = bits.and_then(|bits| PackMask::with_bits(bits).ok());
        let mask = mask.ok_or_else(|| settings.wrong(&CHUNK_SIZE, Mismatch::ChunkSize))?;
        let (min, max): (ByteSize, ByteSize) =
            (settings.one(&CHUNK_MIN)?, settings.one(&CHUNK_MAX)?);
        let bounds = match max.0 <= OFFER_BYTES_MAX as u64 {
            true => ChunkBounds::new(min.0 as usize, max.0 as usize).ok(),
            false => None,
        };
        Ok(Some(HistoryOptions {
            store,
            size,
            also: settings.many_with(&STORE_ALSO, folder)?,
            realm: settings
                .optional_with(&REALM, |name| match Realm::is_name(name) {
                    true => Ok(name.to_owned()),
                    false => Err(Mismatch::Realm),
                })?
                .unwrap_or_else(|| peer.to_string()),
            predict: settings.one_with(&PREDICT, |text| match text {
                "window" => Ok(Predict::Window),
                "aligned" => Ok(Predict::Aligned),
                _ => Err(Mismatch::Predict),
            })?,
            mask,
            bounds: bounds.ok_or_else(|| settings.wrong(&CHUNK_MAX, Mismatch::ChunkBounds))?,
            hasher: settings.one(&CHUNK_HASH)?,
        }))
    }

    /// What there is on the disk, where the store would not find the room that it may take.
    pub fn lack_of_room(&self) -> Option<Room> {
        let room = Room::of(&self.store).ok()?;
        room.lacks(self.size.0).then_some(room)
    }

    /// What is to be said where opening the store takes history from it, since its bound is lower than
    /// it was: whole segments go.
    pub fn loss(&self) -> Option<String> {
        let lowered = DiskStore::lowered(&self.store, self.store_config());
        let lowered = lowered.ok().flatten()?;
        let [held, bound, leaving] =
            [lowered.held_bytes, self.size.0, lowered.leaving_bytes].map(decimal_bytes);
        Some(format!(
            "the store takes {held}, and its bound is now {bound}: the oldest history goes, {leaving} of it"
        ))
    }

    /// The store that it asks for.
    pub(crate) fn store_config(&self) -> StoreConfig {
        StoreConfig {
            chunking: Chunking {
                mask_bits: self.mask.count(),
                bounds: self.bounds,
                hasher: self.hasher,
            },
            ..StoreConfig::new(self.size.0)
        }
    }

    /// What a link's engine is to know of it.
    pub fn engine(&self) -> HistoryConfig {
        HistoryConfig {
            predict: self.predict,
            mask: self.mask,
            bounds: self.bounds,
            hasher: self.hasher,
            ..HistoryConfig::default()
        }
    }
}
