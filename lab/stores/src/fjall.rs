//! The store on fjall.
//!
//! Chunks stand under ascending numbers and not under digests: the tables then never overlap, and
//! whole files of values become garbage together when the oldest are deleted. Values are separated
//! from keys, as fjall's documentation advises for ones of a kilobyte and more. Each batch goes
//! to the operating system (fjall's default), and to the disk with `sync`.

use std::{collections::HashMap, ops::Range, path::Path};

use anyhow::Result;
use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, OwnedWriteBatch, PersistMode,
};

use crate::store::{Arrival, Digest, Reader, Settings, Store, verify};

/// The least that there is. Journals keep values a second time, and are read to their end when the
/// database is opened.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// For tables of small entries: what is not yet in tables has to be read from the journals.
const SMALL_MEMTABLE_BYTES: u64 = 16 << 20;

/// The one process that may have the store open.
pub struct Owner {
    database: Database,
    /// Number of a chunk to its bytes.
    chunks: Keyspace,
    /// Number of a chunk to its digest and length.
    digests: Keyspace,
    /// Digest to the chunk's number and the place where it was last seen.
    index: Keyspace,
    /// Flow and position to the chunk's number.
    recipes: Keyspace,
    /// The next chunk's number when a flow had begun: says when its recipe can go.
    flows: Keyspace,
    /// Bytes of the chunks that are kept.
    payload: Keyspace,
    next_chunk: u64,
    oldest_chunk: u64,
    payload_bytes: u64,
    payload_bytes_max: u64,
    flow: u64,
    position: u64,
}

impl Owner {
    /// Opens or makes the store.
    pub fn open(folder: &Path, settings: Settings, bytes_max: u64) -> Result<Self> {
        let database = Database::builder(folder)
            .cache_size(settings.cache_mib << 20)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .open()?;
        let small = || KeyspaceCreateOptions::default().max_memtable_size(SMALL_MEMTABLE_BYTES);
        let digests = database.keyspace("digests", || small().expect_point_read_hits(true))?;
        let first = digests
            .first_key_value()
            .map(fjall::Guard::key)
            .transpose()?;
        let last = digests
            .last_key_value()
            .map(fjall::Guard::key)
            .transpose()?;
        let mut owner = Self {
            chunks: database.keyspace("chunks", || {
                KeyspaceCreateOptions::default()
                    .expect_point_read_hits(true)
                    .with_kv_separation(Some(KvSeparationOptions::default()))
            })?,
            index: database.keyspace("index", small)?,
            recipes: database.keyspace("recipes", small)?,
            flows: database.keyspace("flows", small)?,
            payload: database.keyspace("payload", small)?,
            oldest_chunk: first.map_or(Ok(0), |key| number(&key))?,
            next_chunk: last.map_or(Ok(0), |key| Ok::<_, anyhow::Error>(number(&key)? + 1))?,
            digests,
            database,
            payload_bytes: 0,
            payload_bytes_max: bytes_max,
            flow: u64::MAX,
            position: 0,
        };
        owner.payload_bytes = match owner.payload.get("bytes")? {
            Some(bytes) => number(&bytes)?,
            None => 0,
        };
        let mut batch = owner.database.batch();
        owner.evict(&mut batch)?;
        batch.commit()?;
        Ok(owner)
    }

    /// Deletes the oldest until the bound holds.
    fn evict(&mut self, batch: &mut OwnedWriteBatch) -> Result<()> {
        if self.payload_bytes <= self.payload_bytes_max {
            return Ok(());
        }
        for entry in self.digests.range(self.oldest_chunk.to_be_bytes()..) {
            if self.payload_bytes <= self.payload_bytes_max {
                break;
            }
            let (key, value) = entry.into_inner()?;
            batch.remove(&self.index, &value[..32]);
            batch.remove(&self.chunks, key.clone());
            self.oldest_chunk = number(&key)? + 1;
            batch.remove(&self.digests, key);
            self.payload_bytes -= u64::from(u32::from_be_bytes(value[32..].try_into()?));
        }
        let mut before: Option<fjall::Slice> = None;
        for entry in self.flows.iter() {
            let (flow, first_chunk) = entry.into_inner()?;
            if number(&first_chunk)? > self.oldest_chunk {
                break;
            }
            if let Some(ended) = before.replace(flow) {
                for place in self.recipes.prefix(&ended) {
                    batch.remove(&self.recipes, place.key()?);
                }
                batch.remove(&self.flows, ended);
            }
        }
        Ok(())
    }

    fn read(&self, places: Range<[u8; 16]>, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        for entry in self.recipes.range(places) {
            let number = entry.value()?;
            let (Some(bytes), Some(named)) =
                (self.chunks.get(&number)?, self.digests.get(&number)?)
            else {
                continue;
            };
            verify(named[..32].try_into()?, &bytes)?;
            take(&bytes);
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}

fn place(flow: u64, position: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&flow.to_be_bytes());
    key[8..].copy_from_slice(&position.to_be_bytes());
    key
}

impl Store for Owner {
    fn receive(&mut self, flow: u64, arrivals: &[Arrival<'_>]) -> Result<()> {
        let mut batch = self.database.batch();
        if self.flow != flow {
            (self.flow, self.position) = (flow, 0);
            let first_chunk = self.next_chunk.to_be_bytes();
            batch.insert(&self.flows, flow.to_be_bytes(), first_chunk);
        }
        // A batch is not seen by reads before it is committed.
        let mut of_this_batch = HashMap::new();
        for arrival in arrivals {
            let known = match of_this_batch.get(arrival.digest) {
                Some(number) => Some(*number),
                None => match self.index.get(arrival.digest)? {
                    Some(entry) => Some(number(&entry[..8])?),
                    None => None,
                },
            };
            let number = known.unwrap_or(self.next_chunk);
            if known.is_none() {
                let key = number.to_be_bytes();
                batch.insert(&self.chunks, key, arrival.bytes);
                let length = arrival.bytes.len() as u32;
                let mut named = [0; 36];
                named[..32].copy_from_slice(arrival.digest);
                named[32..].copy_from_slice(&length.to_be_bytes());
                batch.insert(&self.digests, key, named);
                of_this_batch.insert(arrival.digest, number);
                self.payload_bytes += u64::from(length);
                self.next_chunk += 1;
            }
            let at = place(flow, self.position);
            let mut entry = [0; 24];
            entry[..8].copy_from_slice(&number.to_be_bytes());
            entry[8..].copy_from_slice(&at);
            batch.insert(&self.index, arrival.digest.as_slice(), entry);
            batch.insert(&self.recipes, at, number.to_be_bytes());
            self.position += 1;
        }
        self.evict(&mut batch)?;
        let payload_bytes = self.payload_bytes.to_be_bytes();
        batch.insert(&self.payload, "bytes", payload_bytes);
        Ok(batch.commit()?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn compact(&mut self) -> Result<()> {
        for keyspace in [&self.chunks, &self.digests, &self.index, &self.recipes] {
            keyspace.rotate_memtable_and_wait()?;
            keyspace.major_compact()?;
        }
        Ok(())
    }

    fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }
}

impl Reader for Owner {
    fn knows(&mut self, digest: &Digest) -> Result<bool> {
        Ok(self.index.get(digest)?.is_some())
    }

    fn read_after(
        &mut self,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let Some(entry) = self.index.get(digest)? else {
            return Ok(());
        };
        let (flow, from) = (number(&entry[8..16])?, number(&entry[16..])? + 1);
        self.read(place(flow, from)..place(flow, from + chunks as u64), take)
    }

    fn read_flow(&mut self, flow: u64, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.read(place(flow, 0)..place(flow + 1, 0), take)
    }

    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }
}
