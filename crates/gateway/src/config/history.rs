//! Where a near end keeps what comes, and how it predicts from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use refrain_codec::{
    chunk::{hash::ChunkHasher, stream::ChunkBounds},
    marker::PackMask,
};
use refrain_proto::{
    limits::OFFER_BYTES_MAX,
    predictions::history::{HistoryConfig, Predict},
};

use refrain_store::{Chunking, DiskStore, Realm, Room, StoreConfig};

use super::{Dial, wrong_size};
use crate::{
    keys::PublicKey,
    options::*,
    settings::{ConfigError, Settings},
    units::{ByteSize, decimal_bytes},
};

/// The least that a store may be: a few segments.
const STORE_BYTES_MIN: u64 = 16 << 20;

config! {
    /// What a near end's options say of its history.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HistoryOptions(settings, store: PathBuf, dials: &[Dial]) {
        /// The folder of its store.
        pub store: PathBuf = store;
        /// The bound on disk.
        pub size: ByteSize = match settings.one(&STORE_SIZE)? {
            size @ ByteSize(..STORE_BYTES_MIN) => {
                let wrong = wrong_size("expected 16MiB or more", STORE_BYTES_MIN, size);
                return Err(settings.wrong(&STORE_SIZE, wrong));
            }
            size => size,
        };
        /// Stores of others that are read.
        pub also: Vec<PathBuf> = settings.many_with(&STORE_ALSO, parse_folder)?;
        /// The realms of the peers: the names of the services whose history answers.
        pub realms: BTreeMap<PublicKey, String> = {
            let common = settings.optional_with(&REALM, parse_realm)?;
            let realm = |key: &PublicKey| common.clone().unwrap_or_else(|| key.to_string());
            dials.iter().map(|dial| (dial.key, realm(&dial.key))).collect()
        };
        /// How to predict.
        pub predict: Predict = settings.one(&PREDICT)?;
        /// The mask of chunks' anchors.
        pub mask: PackMask = mask(settings.one(&CHUNK_SIZE)?)
            .ok_or_else(|| settings.wrong(&CHUNK_SIZE, "expected a power of two from 64B to 32KiB"))?;
        /// The shortest and the longest chunk.
        pub bounds: ChunkBounds = bounds(settings)?;
        /// What names chunks.
        pub hasher: ChunkHasher = settings.one(&CHUNK_HASH)?;
    }
}

/// A folder, which has a name.
///
/// # Errors
///
/// What is expected, if it has none.
pub fn parse_folder(path: &str) -> Result<PathBuf, &'static str> {
    match path {
        "" => Err("expected the path of a directory"),
        path => Ok(PathBuf::from(path)),
    }
}

/// A realm's name.
///
/// # Errors
///
/// What is expected of it.
pub fn parse_realm(name: &str) -> Result<String, &'static str> {
    match Realm::is_name(name) {
        true => Ok(name.to_owned()),
        false => Err("a realm's name must not be empty, and must have no control characters"),
    }
}

fn mask(average: ByteSize) -> Option<PackMask> {
    let bits = average
        .0
        .checked_ilog2()
        .filter(|_| average.0.is_power_of_two())?;
    PackMask::with_bits(bits as u8).ok()
}

fn bounds(settings: &Settings) -> Result<ChunkBounds, ConfigError> {
    let max: ByteSize = settings.one(&CHUNK_MAX)?;
    if max.0 > OFFER_BYTES_MAX as u64 {
        return Err(settings.wrong(&CHUNK_MAX, "must be at most 64KiB"));
    }
    let min: ByteSize = settings.at_most(&CHUNK_MIN, settings.one(&CHUNK_MIN)?, &CHUNK_MAX, max)?;
    let bounds = ChunkBounds::new(min.0 as usize, max.0 as usize);
    bounds.map_err(|_| settings.wrong(&CHUNK_MIN, "must be at least 48B"))
}

impl HistoryOptions {
    pub(super) fn resolve(
        settings: &Settings,
        dials: &[Dial],
    ) -> Result<Option<HistoryOptions>, ConfigError> {
        if let Some(store) = settings.optional_with(&STORE, parse_folder)? {
            return HistoryOptions::read(settings, store, dials).map(Some);
        }
        let mut about_store = OPTIONS.iter().filter(|spec| spec.needs_store);
        match about_store.find(|spec| settings.is_given(spec)) {
            Some(spec) => Err(settings.wrong(spec, "needs --store")),
            None => Ok(None),
        }
    }

    /// What is to be said where the store would not find the room that it may take.
    pub fn lack_of_room(&self) -> Option<String> {
        let room = Room::of(&self.store).ok()?;
        let [size, used, free] = [self.size.0, room.used_bytes, room.free_bytes].map(decimal_bytes);
        let advice = match room.used_bytes + room.free_bytes < STORE_BYTES_MIN {
            true => "free some space, or give another --store",
            false => "set --store-size",
        };
        room.lacks(self.size.0).then(|| {
            format!(
                "the store may use {size}, and uses {used}, but its disk has only {free} free ({advice})"
            )
        })
    }

    /// What is to be said where opening the store takes history from it, since its bound is lower than
    /// it was: whole segments go.
    pub fn loss(&self) -> Option<String> {
        let lowered = DiskStore::lowered(&self.store, self.store_config());
        let lowered = lowered.ok().flatten()?;
        let [held, bound, leaving] =
            [lowered.held_bytes, self.size.0, lowered.leaving_bytes].map(decimal_bytes);
        Some(format!(
            "the store uses {held}, and its limit is now {bound}: the oldest history is deleted, {leaving} of it"
        ))
    }

    /// Each realm once.
    pub fn realm_names(&self) -> BTreeSet<&str> {
        self.realms.values().map(String::as_str).collect()
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
    pub(crate) fn engine(&self) -> HistoryConfig {
        HistoryConfig {
            predict: self.predict,
            mask: self.mask,
            bounds: self.bounds,
            hasher: self.hasher,
            ..HistoryConfig::default()
        }
    }
}
