//! The store on LMDB.
//!
//! The same tables as on redb, chunks under ascending numbers. Keys that only grow are appended
//! (`MDB_APPEND` keeps their pages full), one write transaction lasts from sync to sync, and readers
//! in other processes take a new transaction at each refresh, so that old pages can be used again.

use std::{ops::Bound, path::Path};

use anyhow::{Context, Result};
use heed::{
    CommitOrAbort, CompactionOption, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, RwTxn,
    WithoutTls, types::Bytes,
};

use crate::store::{Arrival, Digest, Reader, Store, verify};

/// Address space, more than the file ever takes.
const MAP_BYTES: usize = 128 << 30;
const FILE: &str = "data.mdb";
const TABLES: [&str; 6] = ["chunks", "digests", "index", "recipes", "flows", "payload"];

type Table = heed::Database<'static, Bytes, Bytes>;

#[derive(Clone, Copy)]
struct Tables {
    /// Number of a chunk to its bytes.
    chunks: Table,
    /// Number of a chunk to its digest and length.
    digests: Table,
    /// Digest to the chunk's number and the place where it was last seen.
    index: Table,
    /// Flow and position to the chunk's number.
    recipes: Table,
    /// The next chunk's number when a flow had begun: says when its recipe can go.
    flows: Table,
    /// Bytes of the chunks that are kept.
    payload: Table,
}

impl From<[Table; 6]> for Tables {
    fn from([chunks, digests, index, recipes, flows, payload]: [Table; 6]) -> Self {
        Self {
            chunks,
            digests,
            index,
            recipes,
            flows,
            payload,
        }
    }
}

/// An environment that lives until `close`, so that transactions can stand beside it.
fn open(folder: &Path, flags: EnvFlags) -> Result<&'static Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES).max_dbs(TABLES.len() as u32);
    // SAFETY: only this program uses the folder, once a process, on a local file system.
    let env = unsafe { options.flags(flags).open(folder) }?;
    env.clear_stale_readers()?;
    Ok(Box::leak(Box::new(env)))
}

/// # Safety
///
/// Nothing that came from the environment is used any more.
unsafe fn close(env: &'static Env<WithoutTls>) {
    let env = std::ptr::from_ref(env).cast_mut();
    // SAFETY: `open` has leaked it from a box.
    drop(unsafe { Box::from_raw(env) });
}

/// The one that writes.
pub struct Owner {
    env: &'static Env<WithoutTls>,
    tables: Tables,
    open: Option<RwTxn<'static>>,
    view: Option<RoTxn<'static, WithoutTls>>,
    next_chunk: u64,
    payload_bytes: u64,
    payload_bytes_max: u64,
    flow: u64,
    position: u64,
}

impl Owner {
    /// Opens or makes the store.
    pub fn open(folder: &Path, bytes_max: u64) -> Result<Self> {
        let env = open(folder, EnvFlags::empty())?;
        let tables = env
            .create_databases_and_commit(env.write_txn()?, |opener, transaction| {
                let mut tables = Vec::new();
                for name in TABLES {
                    tables.push(opener.create_database(transaction, Some(name))?);
                }
                let tables: [_; 6] = tables.try_into().ok().expect("six names");
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(tables))
            })?
            .unwrap_commit();
        let tables = Tables::from(tables);
        let view = env.read_txn()?;
        let last = tables.digests.last(&view)?;
        let next_chunk = last.map_or(Ok(0), |(key, _)| number(key).map(|last| last + 1))?;
        let payload_bytes = tables.payload.get(&view, b"bytes")?.map_or(Ok(0), number)?;
        drop(view);
        let mut owner = Self {
            env,
            tables,
            open: None,
            view: None,
            next_chunk,
            payload_bytes,
            payload_bytes_max: bytes_max,
            flow: u64::MAX,
            position: 0,
        };
        owner.evict()?;
        Ok(owner)
    }

    fn transaction(&mut self) -> Result<&mut RwTxn<'static>> {
        if self.open.is_none() {
            self.open = Some(self.env.write_txn()?);
        }
        self.open.as_mut().context("just begun")
    }

    fn evict(&mut self) -> Result<()> {
        let (mut left, most, tables) = (self.payload_bytes, self.payload_bytes_max, self.tables);
        if left <= most {
            return Ok(());
        }
        let transaction = self.transaction()?;
        let mut oldest = 0;
        while left > most
            && let Some((key, value)) = tables.digests.first(transaction)?
        {
            let (key, value) = (key.to_vec(), value.to_vec());
            tables.index.delete(transaction, &value[..32])?;
            tables.chunks.delete(transaction, &key)?;
            tables.digests.delete(transaction, &key)?;
            left -= u64::from(u32::from_be_bytes(value[32..].try_into()?));
            oldest = number(&key)? + 1;
        }
        while let Some(flow) = ended_before(tables.flows, transaction, oldest)? {
            tables.flows.delete(transaction, &flow.to_be_bytes())?;
            let (from, to) = (place(flow, 0), place(flow + 1, 0));
            let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
            tables.recipes.delete_range(transaction, &range)?;
        }
        self.payload_bytes = left;
        Ok(())
    }

    fn view(&mut self) -> Result<&RoTxn<'static, WithoutTls>> {
        if self.view.is_none() {
            self.view = Some(self.env.read_txn()?);
        }
        self.view.as_ref().context("just made")
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        (self.open, self.view) = (None, None);
        // SAFETY: both transactions are over, and tables are only used with one.
        unsafe { close(self.env) };
    }
}

/// The oldest flow, where the one after it began before chunk `oldest`.
fn ended_before(flows: Table, transaction: &RwTxn<'_>, oldest: u64) -> Result<Option<u64>> {
    let mut all = flows.iter(transaction)?;
    let (Some(first), Some(second)) = (all.next(), all.next()) else {
        return Ok(None);
    };
    let ended = number(second?.1)? <= oldest;
    ended.then_some(number(first?.0)).transpose()
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
        let begins = self.flow != flow;
        if begins {
            (self.flow, self.position) = (flow, 0);
        }
        let (mut next_chunk, mut position) = (self.next_chunk, self.position);
        let (mut added_bytes, tables) = (0, self.tables);
        let transaction = self.transaction()?;
        let append = |transaction: &mut _, table: Table, key: &[u8], value: &[u8]| {
            table.put_with_flags(transaction, PutFlags::APPEND, key, value)
        };
        if begins {
            let first_chunk = next_chunk.to_be_bytes();
            append(transaction, tables.flows, &flow.to_be_bytes(), &first_chunk)?;
        }
        for arrival in arrivals {
            let known = match tables.index.get(transaction, arrival.digest)? {
                Some(entry) => Some(number(&entry[..8])?),
                None => None,
            };
            let number = known.unwrap_or(next_chunk);
            if known.is_none() {
                let key = number.to_be_bytes();
                append(transaction, tables.chunks, &key, arrival.bytes)?;
                let length = arrival.bytes.len() as u32;
                let mut named = [0; 36];
                named[..32].copy_from_slice(arrival.digest);
                named[32..].copy_from_slice(&length.to_be_bytes());
                append(transaction, tables.digests, &key, &named)?;
                added_bytes += u64::from(length);
                next_chunk += 1;
            }
            let at = place(flow, position);
            let mut entry = [0; 24];
            entry[..8].copy_from_slice(&number.to_be_bytes());
            entry[8..].copy_from_slice(&at);
            tables.index.put(transaction, arrival.digest, &entry)?;
            append(transaction, tables.recipes, &at, &number.to_be_bytes())?;
            position += 1;
        }
        (self.next_chunk, self.position) = (next_chunk, position);
        self.payload_bytes += added_bytes;
        self.evict()
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(mut transaction) = self.open.take() {
            let payload_bytes = self.payload_bytes.to_be_bytes();
            self.tables
                .payload
                .put(&mut transaction, b"bytes", &payload_bytes)?;
            transaction.commit()?;
        }
        self.view = None;
        Ok(())
    }

    /// As `mdb_copy -c` does: a compacted copy takes the file's place.
    fn compact(&mut self) -> Result<()> {
        self.sync()?;
        let (file, copy) = (self.env.path().join(FILE), self.env.path().join("copy"));
        self.env
            .copy_to_path(&copy, CompactionOption::Enabled)?
            .sync_all()?;
        Ok(std::fs::rename(copy, file)?)
    }

    fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }
}

impl Reader for Owner {
    fn knows(&mut self, digest: &Digest) -> Result<bool> {
        let tables = self.tables;
        tables.knows(self.view()?, digest)
    }

    fn read_after(
        &mut self,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let tables = self.tables;
        tables.read_after(self.view()?, digest, chunks, take)
    }

    fn read_flow(&mut self, flow: u64, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        let tables = self.tables;
        tables.read(self.view()?, place(flow, 0), place(flow + 1, 0), take)
    }

    fn refresh(&mut self) -> Result<()> {
        self.view = None;
        Ok(())
    }
}

/// One that reads what another process writes.
pub struct Guest {
    env: &'static Env<WithoutTls>,
    tables: Tables,
    view: Option<RoTxn<'static, WithoutTls>>,
}

impl Guest {
    /// Opens the store of another process.
    pub fn open(folder: &Path) -> Result<Self> {
        let env = open(folder, EnvFlags::READ_ONLY)?;
        let tables = env
            .open_databases_and_commit(env.read_txn()?, |opener, transaction| {
                let mut tables = Vec::new();
                for name in TABLES {
                    let table = opener.open_database(transaction, Some(name))?;
                    tables.push(table.context("a table is missing")?);
                }
                let tables: [_; 6] = tables.try_into().ok().expect("six names");
                Ok::<_, anyhow::Error>(CommitOrAbort::<_, ()>::Commit(tables))
            })?
            .unwrap_commit();
        let view = Some(env.read_txn()?);
        Ok(Self {
            env,
            tables: Tables::from(tables),
            view,
        })
    }

    fn view(&self) -> Result<&RoTxn<'static, WithoutTls>> {
        self.view.as_ref().context("refreshing failed")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.view = None;
        // SAFETY: the transaction is over, and tables are only used with one.
        unsafe { close(self.env) };
    }
}

impl Reader for Guest {
    fn knows(&mut self, digest: &Digest) -> Result<bool> {
        self.tables.knows(self.view()?, digest)
    }

    fn read_after(
        &mut self,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        self.tables.read_after(self.view()?, digest, chunks, take)
    }

    fn read_flow(&mut self, flow: u64, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (from, to) = (place(flow, 0), place(flow + 1, 0));
        self.tables.read(self.view()?, from, to, take)
    }

    fn refresh(&mut self) -> Result<()> {
        self.view = None;
        self.view = Some(self.env.read_txn()?);
        Ok(())
    }
}

impl Tables {
    fn knows(self, view: &RoTxn<'_, WithoutTls>, digest: &Digest) -> Result<bool> {
        Ok(self.index.get(view, digest)?.is_some())
    }

    fn read_after(
        self,
        view: &RoTxn<'_, WithoutTls>,
        digest: &Digest,
        chunks: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let Some(entry) = self.index.get(view, digest)? else {
            return Ok(());
        };
        let (flow, from) = (number(&entry[8..16])?, number(&entry[16..])? + 1);
        self.read(
            view,
            place(flow, from),
            place(flow, from + chunks as u64),
            take,
        )
    }

    fn read(
        self,
        view: &RoTxn<'_, WithoutTls>,
        from: [u8; 16],
        to: [u8; 16],
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        for entry in self.recipes.range(view, &range)? {
            let number = entry?.1;
            let (Some(bytes), Some(named)) = (
                self.chunks.get(view, number)?,
                self.digests.get(view, number)?,
            ) else {
                continue;
            };
            verify(named[..32].try_into()?, bytes)?;
            take(bytes);
        }
        Ok(())
    }
}
