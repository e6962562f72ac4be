//! A sorted run: prefixes of names and their numbers, 13 bytes each, in a file of pages. A fence a page,
//! the upper half of its first prefix, stays in memory, so that a look-up reads one page.
//!
//! A prefix only says where to look: whoever searches compares the name, which lies elsewhere.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};

use super::error::{Folder, IndexError};
use super::filter::Filter;
use super::page::{self, CHECK_BYTES};

pub(super) const ENTRY_BYTES: usize = 13;
const PREFIX_BYTES: usize = 8;
pub(super) const FENCE_BYTES: usize = size_of::<u32>();
/// What a reader or writer of a whole run keeps of it, beside a page.
const BUFFER_BYTES: usize = 1 << 16;

/// Numbers that an entry has room for.
pub(super) const NUMBER_END: u64 = 1 << 40;

/// An entry as it is stored: big-endian, so that bytes sort as numbers do.
type Entry = [u8; ENTRY_BYTES];

#[derive(Debug)]
pub(super) struct Run {
    pub file: File,
    entries: u64,
    page_bytes: usize,
    /// Ascending, one a page.
    fences: Vec<u32>,
    pub filter: Option<Filter>,
    /// How often its entries were merged: runs of a tier are about as long.
    pub tier: u32,
}

pub(super) const fn entries_per_page(page_bytes: usize) -> usize {
    (page_bytes - CHECK_BYTES) / ENTRY_BYTES
}

impl Run {
    pub fn entries(&self) -> u64 {
        self.entries
    }

    pub fn may_hold(&self, prefix: u64) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| filter.may_hold(prefix))
    }

    pub fn filter_bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::memory_bytes)
    }

    pub fn memory_bytes(&self) -> usize {
        self.fences.capacity() * FENCE_BYTES + self.filter_bytes()
    }

    /// Collects the numbers of all entries with this prefix. `page` is room for a page.
    pub fn search(
        &self,
        prefix: u64,
        page: &mut Vec<u8>,
        numbers: &mut Vec<u64>,
        folder: &Folder,
    ) -> Result<(), IndexError> {
        let fence = (prefix >> 32) as u32;
        // The page before the first fence that is not below may end with the prefix.
        let first = self
            .fences
            .partition_point(|at| *at < fence)
            .saturating_sub(1);
        let behind = self.fences.partition_point(|at| *at <= fence);
        for number in first..behind {
            page.resize(self.page_bytes, 0);
            page::read(&self.file, number as u64, page, folder)?;
            let entries = &page.as_chunks::<ENTRY_BYTES>().0[..self.entries_in(number as u64)];
            let begin = entries.partition_point(|entry| split(entry).0 < prefix);
            let found = entries[begin..].iter().map(split);
            numbers.extend(found.take_while(|at| at.0 == prefix).map(|at| at.1));
        }
        Ok(())
    }

    fn entries_in(&self, page: u64) -> usize {
        let most = entries_per_page(self.page_bytes) as u64;
        (self.entries - page * most).min(most) as usize
    }
}

/// What a new run is made with.
pub(super) struct Shape {
    pub page_bytes: usize,
    pub filter_bytes: usize,
    pub tier: u32,
}

/// Writes `entries`, of which there are `len` and which ascend, as a run. `names` is what a full disk
/// is told with.
pub(super) fn write(
    entries: impl Iterator<Item = Result<(u64, u64), IndexError>>,
    len: u64,
    shape: Shape,
    names: u64,
    folder: &Folder,
) -> Result<Run, IndexError> {
    let written = folder.written(names);
    let most = entries_per_page(shape.page_bytes);
    let mut fences = Vec::with_capacity(len.div_ceil(most as u64) as usize);
    let mut filter = (shape.filter_bytes > 0).then(|| Filter::new(shape.filter_bytes));
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, folder.file()?);
    let mut page = vec![0; shape.page_bytes];
    let mut filled = 0;
    for entry in entries {
        let (prefix, number) = entry?;
        if filled == 0 {
            fences.push((prefix >> 32) as u32);
        }
        if let Some(filter) = &mut filter {
            filter.insert(prefix);
        }
        page.as_chunks_mut().0[filled] = join(prefix, number);
        filled += 1;
        if filled == most {
            page::seal(&mut page, fences.len() as u64 - 1);
            file.write_all(&page).map_err(&written)?;
            filled = 0;
        }
    }
    if filled > 0 {
        page[filled * ENTRY_BYTES..].fill(0);
        page::seal(&mut page, fences.len() as u64 - 1);
        file.write_all(&page).map_err(&written)?;
    }
    let file = file
        .into_inner()
        .map_err(|error| written(error.into_error()))?;
    Ok(Run {
        file,
        entries: len,
        page_bytes: shape.page_bytes,
        fences,
        filter,
        tier: shape.tier,
    })
}

/// All entries of a run, in order. The run gives up what it has in memory.
struct Entries<'a> {
    file: BufReader<File>,
    page_bytes: usize,
    left: u64,
    page: Vec<u8>,
    /// The page to be read next.
    next_page: u64,
    /// The next entry in `page`, and how many are there.
    at: usize,
    entries: usize,
    folder: &'a Folder,
}

impl<'a> Entries<'a> {
    fn new(run: Run, folder: &'a Folder) -> Result<Self, IndexError> {
        let mut file = run.file;
        file.rewind().map_err(|source| folder.read(source))?;
        Ok(Self {
            file: BufReader::with_capacity(BUFFER_BYTES, file),
            page_bytes: run.page_bytes,
            left: run.entries,
            page: vec![0; run.page_bytes],
            next_page: 0,
            at: 0,
            entries: 0,
            folder,
        })
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<(u64, u64), IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.entries {
            if self.left == 0 {
                return None;
            }
            if let Err(source) = self.file.read_exact(&mut self.page) {
                return Some(Err(self.folder.read(source)));
            }
            if !page::is_whole(&self.page, self.next_page) {
                return Some(Err(self.folder.damaged(self.next_page)));
            }
            self.next_page += 1;
            self.at = 0;
            self.entries = self.left.min(entries_per_page(self.page_bytes) as u64) as usize;
            self.left -= self.entries as u64;
        }
        let entry = split(&self.page.as_chunks().0[self.at]);
        self.at += 1;
        Some(Ok(entry))
    }
}

/// The entries of a few runs as one ascending row. What the runs have in memory is gone before it begins.
pub(super) fn merged(
    runs: Vec<Run>,
    folder: &Folder,
) -> Result<impl Iterator<Item = Result<(u64, u64), IndexError>>, IndexError> {
    let mut heads = Vec::with_capacity(runs.len());
    for run in runs {
        let mut entries = Entries::new(run, folder)?;
        if let Some(first) = entries.next().transpose()? {
            heads.push((first, entries));
        }
    }
    Ok(std::iter::from_fn(move || {
        let least = heads.iter().enumerate().min_by_key(|(_, head)| head.0)?.0;
        match heads[least].1.next() {
            Some(Ok(next)) => Some(Ok(std::mem::replace(&mut heads[least].0, next))),
            Some(Err(error)) => Some(Err(error)),
            None => Some(Ok(heads.swap_remove(least).0)),
        }
    }))
}

fn join(prefix: u64, number: u64) -> Entry {
    debug_assert!(number < NUMBER_END);
    let mut entry = [0; ENTRY_BYTES];
    entry[..PREFIX_BYTES].copy_from_slice(&prefix.to_be_bytes());
    entry[PREFIX_BYTES..].copy_from_slice(&number.to_be_bytes()[3..]);
    entry
}

fn split(entry: &Entry) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, number @ ..] = *entry;
    let mut wide = [0; 8];
    wide[3..].copy_from_slice(&number);
    (
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u64::from_be_bytes(wide),
    )
}
