//! The store on redb.
//!
//! Chunks stand under ascending numbers and not under digests: redb packs tables that grow at their
//! end, and the oldest are then one range. One write transaction lasts from sync to sync, as redb's
//! documentation asks for batches.

use std::{ops::Range, path::Path};

use anyhow::{Context, Result};
use redb::{
    ConcurrencyMode, Database, ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase, ReadableTable,
    TableDefinition, TableError, WriteTransaction,
};

use crate::store::{Arrival, Digest, Reader, Settings, Store, verify};

/// Number of a chunk to its bytes.
const CHUNKS: TableDefinition<u64, &[u8]> = TableDefinition::new("chunks");
/// Number of a chunk to its digest and length.
const DIGESTS: TableDefinition<u64, (&Digest, u32)> = TableDefinition::new("digests");
/// Digest to the chunk's number and the place where it was last seen.
const INDEX: TableDefinition<&Digest, (u64, u64, u64)> = TableDefinition::new("index");
/// Flow and position to the chunk's number.
const RECIPES: TableDefinition<(u64, u64), u64> = TableDefinition::new("recipes");
/// The next chunk's number when a flow had begun: says when its recipe can go.
const FLOWS: TableDefinition<u64, u64> = TableDefinition::new("flows");
/// Bytes of the chunks that are kept, under 0.
const PAYLOAD: TableDefinition<u64, u64> = TableDefinition::new("payload");

const FILE: &str = "store.redb";

/// How the file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One writer, and readers in other processes. Every commit keeps what saves the walk through
    /// the whole file after a crash (`set_quick_repair`).
    Shared,
    /// All as it is by default.
    Alone,
}

/// The one that writes.
pub struct Owner {
    mode: Mode,
    database: Database,
    open: Option<WriteTransaction>,
    view: Option<View>,
    next_chunk: u64,
    payload_bytes: u64,
    payload_bytes_max: u64,
    flow: u64,
    position: u64,
}

impl Owner {
    /// Opens or makes the store.
    pub fn open(folder: &Path, mode: Mode, settings: Settings, bytes_max: u64) -> Result<Self> {
        let database = builder(mode, settings).create(folder.join(FILE))?;
        let transaction = database.begin_write()?;
        transaction.open_table(CHUNKS)?;
        transaction.open_table(DIGESTS)?;
        transaction.open_table(INDEX)?;
        transaction.open_table(RECIPES)?;
        transaction.open_table(FLOWS)?;
        transaction.open_table(PAYLOAD)?;
        transaction.commit()?;
        let view = View::of(&database)?;
        let next_chunk = view.digests.last()?.map_or(0, |(key, _)| key.value() + 1);
        let payload_bytes = view.payload.get(0)?.map_or(0, |bytes| bytes.value());
        let mut owner = Self {
            mode,
            database,
            open: None,
            view: Some(view),
            next_chunk,
            payload_bytes,
            payload_bytes_max: bytes_max,
            flow: u64::MAX,
            position: 0,
        };
        owner.evict()?;
        Ok(owner)
    }

    fn transaction(&mut self) -> Result<&WriteTransaction> {
        if self.open.is_none() {
            let mut transaction = self.database.begin_write()?;
            transaction.set_quick_repair(self.mode == Mode::Shared);
            self.open = Some(transaction);
        }
        self.open.as_ref().context("just begun")
    }

    fn evict(&mut self) -> Result<()> {
        let (payload_bytes, most) = (self.payload_bytes, self.payload_bytes_max);
        if payload_bytes <= most {
            return Ok(());
        }
        let transaction = self.transaction()?;
        let mut chunks = transaction.open_table(CHUNKS)?;
        let mut digests = transaction.open_table(DIGESTS)?;
        let mut index = transaction.open_table(INDEX)?;
        let mut left = payload_bytes;
        let mut oldest = 0;
        while left > most
            && let Some((number, entry)) = digests.pop_first()?
        {
            let (digest, length) = entry.value();
            index.remove(digest)?;
            chunks.remove(number.value())?;
            left -= u64::from(length);
            oldest = number.value() + 1;
        }
        let mut flows = transaction.open_table(FLOWS)?;
        let mut recipes = transaction.open_table(RECIPES)?;
        while let Some(flow) = ended_before(&flows, oldest)? {
            flows.remove(flow)?;
            recipes.retain_in((flow, 0)..(flow + 1, 0), |_, _| false)?;
        }
        drop((chunks, digests, index, flows, recipes));
        self.payload_bytes = left;
        Ok(())
    }

    fn view(&mut self) -> Result<&View> {
        if self.view.is_none() {
            self.view = Some(View::of(&self.database)?);
        }
        self.view.as_ref().context("just made")
    }
}

/// The oldest flow, where the one after it began before chunk `oldest`.
fn ended_before(flows: &impl ReadableTable<u64, u64>, oldest: u64) -> Result<Option<u64>> {
    let mut all = flows.iter()?;
    let (Some(first), Some(second)) = (all.next(), all.next()) else {
        return Ok(None);
    };
    Ok((second?.1.value() <= oldest).then_some(first?.0.value()))
}

impl Store for Owner {
    fn receive(&mut self, flow: u64, arrivals: &[Arrival<'_>]) -> Result<()> {
        let begins = self.flow != flow;
        if begins {
            (self.flow, self.position) = (flow, 0);
        }
        let (mut next_chunk, mut position) = (self.next_chunk, self.position);
        let mut added_bytes = 0;
        let transaction = self.transaction()?;
        if begins {
            transaction.open_table(FLOWS)?.insert(flow, next_chunk)?;
        }
        let mut chunks = transaction.open_table(CHUNKS)?;
        let mut digests = transaction.open_table(DIGESTS)?;
        let mut index = transaction.open_table(INDEX)?;
        let mut recipes = transaction.open_table(RECIPES)?;
        for arrival in arrivals {
            let known = index.get(arrival.digest)?.map(|entry| entry.value().0);
            let number = match known {
                Some(number) => number,
                None => {
                    chunks.insert(next_chunk, arrival.bytes)?;
                    let length = arrival.bytes.len() as u32;
                    digests.insert(next_chunk, (arrival.digest, length))?;
                    added_bytes += u64::from(length);
                    next_chunk += 1;
                    next_chunk - 1
                }
            };
            index.insert(arrival.digest, (number, flow, position))?;
            recipes.insert((flow, position), number)?;
            position += 1;
        }
        drop((chunks, digests, index, recipes));
        (self.next_chunk, self.position) = (next_chunk, position);
        self.payload_bytes += added_bytes;
        self.evict()
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(transaction) = self.open.take() {
            transaction
                .open_table(PAYLOAD)?
                .insert(0, self.payload_bytes)?;
            transaction.commit()?;
        }
        self.view = None;
        Ok(())
    }

    fn compact(&mut self) -> Result<()> {
        self.sync()?;
        while self.database.compact()? {}
        Ok(())
    }

    fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }
}

impl Reader for Owner {
    fn knows(&mut self, digest: &Digest) -> Result<bool> {
        self.view()?.knows(digest)
    }

    fn read_after(
        &mut self,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        self.view()?.read_after(digest, chunks, take)
    }

    fn read_flow(&mut self, flow: u64, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.view()?.read((flow, 0)..(flow + 1, 0), take)
    }

    fn refresh(&mut self) -> Result<()> {
        self.view = None;
        Ok(())
    }
}

/// One that reads what another process writes.
pub struct Guest {
    database: ReadOnlyDatabase,
    view: View,
}

impl Guest {
    /// `mode`: as the owner has opened it.
    pub fn open(folder: &Path, mode: Mode, settings: Settings) -> Result<Self> {
        let database = builder(mode, settings).open_read_only(folder.join(FILE))?;
        let view = View::of(&database)?;
        Ok(Self { database, view })
    }
}

impl Reader for Guest {
    fn knows(&mut self, digest: &Digest) -> Result<bool> {
        self.view.knows(digest)
    }

    fn read_after(
        &mut self,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        self.view.read_after(digest, chunks, take)
    }

    fn read_flow(&mut self, flow: u64, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.view.read((flow, 0)..(flow + 1, 0), take)
    }

    fn refresh(&mut self) -> Result<()> {
        self.view = View::of(&self.database)?;
        Ok(())
    }
}

fn builder(mode: Mode, settings: Settings) -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size((settings.cache_mib << 20) as usize);
    if mode == Mode::Shared {
        builder.set_concurrency_mode(ConcurrencyMode::SingleWriter);
    }
    builder
}

/// The tables as of one moment.
struct View {
    chunks: ReadOnlyTable<u64, &'static [u8]>,
    digests: ReadOnlyTable<u64, (&'static Digest, u32)>,
    index: ReadOnlyTable<&'static Digest, (u64, u64, u64)>,
    recipes: ReadOnlyTable<(u64, u64), u64>,
    payload: ReadOnlyTable<u64, u64>,
}

impl View {
    fn of(database: &impl ReadableDatabase) -> Result<Self> {
        let transaction = database.begin_read()?;
        let view = || -> Result<Self, TableError> {
            Ok(Self {
                chunks: transaction.open_table(CHUNKS)?,
                digests: transaction.open_table(DIGESTS)?,
                index: transaction.open_table(INDEX)?,
                recipes: transaction.open_table(RECIPES)?,
                payload: transaction.open_table(PAYLOAD)?,
            })
        };
        Ok(view()?)
    }

    fn knows(&self, digest: &Digest) -> Result<bool> {
        Ok(self.index.get(digest)?.is_some())
    }

    fn read_after(
        &self,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let Some(entry) = self.index.get(digest)? else {
            return Ok(());
        };
        let (_, flow, position) = entry.value();
        let from = position + 1;
        self.read((flow, from)..(flow, from + chunks as u64), take)
    }

    fn read(&self, places: Range<(u64, u64)>, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        for entry in self.recipes.range(places)? {
            let number = entry?.1.value();
            let (Some(bytes), Some(named)) = (self.chunks.get(number)?, self.digests.get(number)?)
            else {
                continue;
            };
            verify(named.value().0, bytes.value())?;
            take(bytes.value());
        }
        Ok(())
    }
}
