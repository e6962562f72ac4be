//! The one trait behind which all stores stand, and which stores there are.
//!
//! In: chunks as they arrive in flows. Out: where a chunk was last seen, and the chunks that followed
//! it there, each with its digest checked by the store.

use std::path::Path;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::{
    fjall, lmdb, own,
    redb::{self, Mode},
};

/// BLAKE3, 256 bits.
pub type Digest = [u8; 32];

/// A chunk that has come in, new or not.
pub struct Arrival<'a> {
    /// Its digest, which the chunker has computed.
    pub digest: &'a Digest,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// What a receiver asks of its own store, and of another's that it may read.
pub trait Reader {
    /// Whether the store has the chunk, and knows where it was last seen.
    fn knows(&mut self, digest: &Digest) -> Result<bool>;

    /// Reads the chain behind the place where the chunk was last seen, `chunks` at most. Every
    /// chunk that `take` gets has the digest under which it was stored; an error where one has not.
    fn read_after(
        &mut self,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()>;

    /// Reads a flow's recipe from its beginning, digests checked as above.
    fn read_flow(&mut self, flow: u64, take: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Sees what the owner has synced since.
    fn refresh(&mut self) -> Result<()>;
}

/// A store and its one owner.
pub trait Store: Reader {
    /// Keeps the chunks that are new, and appends all to the flow's recipe.
    fn receive(&mut self, flow: u64, arrivals: &[Arrival<'_>]) -> Result<()>;

    /// Returns when all that was received is on the disk.
    fn sync(&mut self) -> Result<()>;

    /// Gives space back that deletes have left, as far as the store has a call for it.
    fn compact(&mut self) -> Result<()>;

    /// Bytes of the chunks that are kept.
    fn payload_bytes(&self) -> u64;
}

/// The stores that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Kind {
    /// Keeps nothing: what the load itself costs
    None,
    /// redb, shared with readers in other processes
    Redb,
    /// redb by default: one process alone
    RedbAlone,
    /// LMDB, shared with readers in other processes
    Lmdb,
    /// fjall with key-value separation
    Fjall,
    /// refrain's own log of segments
    Own,
}

/// How a store is opened.
#[derive(Args, Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Memory for each library's cache, in MiB
    #[arg(long, default_value_t = 64)]
    pub cache_mib: u64,
}

impl Kind {
    /// Opens a store as its owner; makes it where there is none. Where `bytes_max` is given, the
    /// oldest go until it holds.
    pub fn open(
        self,
        folder: &Path,
        settings: Settings,
        bytes_max: Option<u64>,
    ) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(folder)?;
        let bytes_max = bytes_max.unwrap_or(u64::MAX);
        Ok(match self {
            Self::None => Box::new(Nothing),
            Self::Redb => Box::new(redb::Owner::open(
                folder,
                Mode::Shared,
                settings,
                bytes_max,
            )?),
            Self::RedbAlone => {
                Box::new(redb::Owner::open(folder, Mode::Alone, settings, bytes_max)?)
            }
            Self::Lmdb => Box::new(lmdb::Owner::open(folder, bytes_max)?),
            Self::Fjall => Box::new(fjall::Owner::open(folder, settings, bytes_max)?),
            Self::Own => Box::new(own::Owner::open(folder, bytes_max)?),
        })
    }

    /// Opens a store that another process may be writing.
    pub fn open_to_read(self, folder: &Path, settings: Settings) -> Result<Box<dyn Reader>> {
        Ok(match self {
            Self::None => Box::new(Nothing),
            Self::Redb => Box::new(redb::Guest::open(folder, Mode::Shared, settings)?),
            Self::RedbAlone => Box::new(redb::Guest::open(folder, Mode::Alone, settings)?),
            Self::Lmdb => Box::new(lmdb::Guest::open(folder)?),
            // fjall has no way to open for reading alone.
            Self::Fjall => Box::new(fjall::Owner::open(folder, settings, u64::MAX)?),
            Self::Own => Box::new(own::Guest::open(folder)?),
        })
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Redb => "redb",
            Self::RedbAlone => "redb-alone",
            Self::Lmdb => "lmdb",
            Self::Fjall => "fjall",
            Self::Own => "own",
        }
    }
}

/// An error where bytes do not have their digest.
pub fn verify(digest: &Digest, bytes: &[u8]) -> Result<()> {
    anyhow::ensure!(
        blake3::hash(bytes).as_bytes() == digest,
        "damaged: {} bytes do not have their digest",
        bytes.len()
    );
    Ok(())
}

struct Nothing;

impl Reader for Nothing {
    fn knows(&mut self, _: &Digest) -> Result<bool> {
        Ok(false)
    }

    fn read_after(&mut self, _: &Digest, _: usize, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        Ok(())
    }

    fn read_flow(&mut self, _: u64, _: &mut dyn FnMut(&[u8])) -> Result<()> {
        Ok(())
    }

    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Store for Nothing {
    fn receive(&mut self, _: u64, _: &[Arrival<'_>]) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn compact(&mut self) -> Result<()> {
        Ok(())
    }

    fn payload_bytes(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;

    const KINDS: [Kind; 5] = [
        Kind::Redb,
        Kind::RedbAlone,
        Kind::Lmdb,
        Kind::Fjall,
        Kind::Own,
    ];
    const SETTINGS: Settings = Settings { cache_mib: 16 };

    fn load(mean_bytes: u32) -> Load {
        Load {
            // More than all services' first flows hold, so that some are seen again.
            chunks: 9000,
            known: 0.7,
            mean_bytes,
            seed: 9,
        }
    }

    fn content(load: &Load, chunk: u32) -> (Digest, Vec<u8>) {
        let mut bytes = Vec::new();
        load.append_content(chunk, &mut bytes);
        (*blake3::hash(&bytes).as_bytes(), bytes)
    }

    fn write(load: &Load, store: &mut dyn Store) {
        for (flow, chunks) in load.flows() {
            for batch in chunks.chunks(50) {
                let contents: Vec<_> = batch.iter().map(|&chunk| content(load, chunk)).collect();
                let arrivals: Vec<_> = contents
                    .iter()
                    .map(|(digest, bytes)| Arrival { digest, bytes })
                    .collect();
                store.receive(flow, &arrivals).unwrap();
            }
        }
        store.sync().unwrap();
    }

    #[test]
    fn what_came_is_there_when_it_is_opened_again() {
        let load = load(512);
        for kind in KINDS {
            let folder = tempfile::tempdir().unwrap();
            let mut store = kind.open(folder.path(), SETTINGS, None).unwrap();
            write(&load, store.as_mut());
            drop(store);
            let mut store = kind.open(folder.path(), SETTINGS, None).unwrap();
            for (flow, chunks) in load.flows() {
                let mut read = Vec::new();
                store
                    .read_flow(flow, &mut |bytes| read.push(bytes.to_vec()))
                    .unwrap();
                let came: Vec<_> = chunks
                    .iter()
                    .map(|&chunk| content(&load, chunk).1)
                    .collect();
                assert!(read == came, "{kind:?}, flow {flow}");
            }
            assert!(!store.knows(&[7; 32]).unwrap(), "{kind:?}");
        }
    }

    #[test]
    fn a_chain_is_what_followed_where_the_chunk_was_last_seen() {
        let load = load(512);
        for kind in KINDS {
            let folder = tempfile::tempdir().unwrap();
            let mut store = kind.open(folder.path(), SETTINGS, None).unwrap();
            write(&load, store.as_mut());
            let flows: Vec<_> = load.flows().collect();
            let chunk = flows[0].1[10];
            let (last, at) = flows
                .iter()
                .rev()
                .find_map(|(_, chunks)| {
                    let at = chunks.iter().rposition(|&one| one == chunk)?;
                    Some((chunks, at))
                })
                .unwrap();
            let mut read = Vec::new();
            store
                .read_after(&content(&load, chunk).0, 5, &mut |bytes| {
                    read.push(bytes.to_vec())
                })
                .unwrap();
            let behind = last[at + 1..].iter().take(5);
            let behind: Vec<_> = behind.map(|&chunk| content(&load, chunk).1).collect();
            assert!(read == behind, "{kind:?}");
        }
    }

    #[test]
    fn within_a_bound_the_oldest_go() {
        let load = load(4096);
        for kind in KINDS {
            let folder = tempfile::tempdir().unwrap();
            let bound = 20 << 20;
            let mut store = kind.open(folder.path(), SETTINGS, Some(bound)).unwrap();
            write(&load, store.as_mut());
            assert!(store.payload_bytes() <= bound, "{kind:?}");
            let mut knows = |chunk| store.knows(&content(&load, chunk).0).unwrap();
            // Some of the first flow came again later, and may have been kept for that.
            assert!(!(0..500).all(&mut knows), "{kind:?}");
            assert!(knows(8999), "{kind:?}");
        }
    }
}
