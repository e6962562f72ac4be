//! The index of chunk names that an archive's writer deduplicates by.
//!
//! Names enter, in the order in which chunks come; a chunk's number leaves, if it came before. The index
//! is exact: a name that went in is found, and found only by its 20 bytes. It is fast while all of it
//! fits its budget; what does not is spilled to temporary files, as in Data Domain's store (Zhu et al.,
//! "Avoiding the Disk Bottleneck", FAST 2008, section 4), from which these came:
//!
//! - the *summary vector*: filters in memory answer for most new names ([`filter`]);
//! - *locality-preserved caching*: a hit brings the names that came next ([`neighbours`]).
//!
//! Names lie in one file in order of number. What is searched is beside it: sorted runs of prefixes and
//! numbers ([`run`]), four of which are merged into one of the next tier.
//!
//! - Deviation: the paper has one filter over a hash table on disk. Runs each have their own, made anew
//!   when they are merged, since how many names will come is not known. When filters outgrow their
//!   half of the budget, the longest runs lose theirs: then each new name costs a read for each of these.
//! - Deviation: the paper caches containers of 4 MB. A page of 204 names is enough here.

mod error;
mod filter;
mod neighbours;
mod page;
mod recent;
mod run;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use error::Folder;
pub use error::IndexError;
use neighbours::Neighbours;
use page::{NAMES_PER_PAGE, PAGE_BYTES, name_at};
use recent::Recent;
use run::{Run, Shape};

/// Bytes of a chunk's name.
pub const NAME_BYTES: usize = 20;

/// What an index may hold beyond its budget: buffers while it spills, and the least of everything.
pub const BEYOND_BUDGET_BYTES: usize = 3 << 19;

/// So many runs of a tier become one of the next.
const MERGED_RUNS: usize = 4;
const FILTER_BITS: usize = 10;
/// A filter with less would be wrong for more than a quarter of all new names.
const FILTER_BITS_LEAST: usize = 4;
const RUN_PAGE_BYTES_MOST: usize = 1 << 16;

/// What an index says of a name that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// It came before, and has had this number since.
    Known(u64),
    /// It is new, and has this number from now on.
    New(u64),
}

/// The names of a stream's chunks and their numbers.
///
/// ```
/// use refrain_czip::{NameIndex, Numbered};
///
/// let mut index = NameIndex::new(64 << 20, &std::env::temp_dir());
/// assert_eq!(index.find_or_insert(&[7; 20])?, Numbered::New(0));
/// assert_eq!(index.find_or_insert(&[9; 20])?, Numbered::New(1));
/// assert_eq!(index.find_or_insert(&[7; 20])?, Numbered::Known(0));
/// assert_eq!(index.find(&[8; 20])?, None);
/// # Ok::<(), refrain_czip::IndexError>(())
/// ```
#[derive(Debug)]
pub struct NameIndex {
    budget_bytes: usize,
    folder: Folder,
    recent: Recent,
    /// The pages of all names before `recent`. Without it nothing was spilled.
    names: Option<File>,
    /// From the oldest to the newest: tiers never rise. Together they hold the numbers that `names` does.
    runs: Vec<Run>,
    neighbours: Neighbours,
    /// Room for a run's page.
    page: Vec<u8>,
    failed: bool,
}

impl NameIndex {
    /// An empty index that holds at most `budget_bytes` and [`BEYOND_BUDGET_BYTES`]. The rest goes to
    /// `folder`, in files without a name; it is not touched before that.
    pub fn new(budget_bytes: usize, folder: &Path) -> Self {
        Self {
            budget_bytes,
            folder: Folder::new(folder),
            recent: Recent::new(0),
            names: None,
            runs: Vec::new(),
            neighbours: Neighbours::new(budget_bytes / 16),
            page: Vec::new(),
            failed: false,
        }
    }

    /// How many names it holds: the number that the next one gets.
    pub fn len(&self) -> u64 {
        self.recent.next_number()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it holds now.
    pub fn memory_bytes(&self) -> usize {
        let runs: usize = self.runs.iter().map(Run::memory_bytes).sum();
        let runs = runs + self.runs.capacity() * size_of::<Run>() + self.page.capacity();
        runs + self.recent.memory_bytes() + self.neighbours.memory_bytes()
    }

    /// The number of a name, if it came before.
    ///
    /// # Errors
    ///
    /// What was spilled cannot be read, or spilling failed before.
    pub fn find(&mut self, name: &[u8; NAME_BYTES]) -> Result<Option<u64>, IndexError> {
        if self.failed {
            return Err(IndexError::Failed);
        }
        let near = self.neighbours.follows(name);
        if let Some(number) = near.or_else(|| self.recent.find(name)) {
            return Ok(Some(number));
        }
        let prefix = prefix(name);
        if !self.runs.iter().any(|run| run.may_hold(prefix)) {
            return Ok(None);
        }
        if let Some(number) = self.neighbours.find(name) {
            return Ok(Some(number));
        }
        self.search(name)
    }

    /// The number of a name, which gets the next one if it is new.
    ///
    /// # Errors
    ///
    /// What was spilled cannot be read, or what has to be spilled cannot be written.
    ///
    /// # Panics
    ///
    /// Beyond 2^40 names.
    pub fn find_or_insert(&mut self, name: &[u8; NAME_BYTES]) -> Result<Numbered, IndexError> {
        if self.failed {
            return Err(IndexError::Failed);
        }
        if self.recent.has_full_pages() {
            self.make_room()?;
        }
        if self.names.is_none() {
            return Ok(match self.recent.find_or_insert(name) {
                (number, true) => Numbered::New(number),
                (number, false) => Numbered::Known(number),
            });
        }
        if let Some(number) = self.find(name)? {
            return Ok(Numbered::Known(number));
        }
        let number = self.len();
        self.recent.insert(name);
        Ok(Numbered::New(number))
    }

    /// Looks a name up in the runs, and keeps what lies around it.
    fn search(&mut self, name: &[u8; NAME_BYTES]) -> Result<Option<u64>, IndexError> {
        let prefix = prefix(name);
        let file = self.names.as_ref().expect("runs have names beside them");
        let mut numbers = Vec::new();
        for run in self.runs.iter().rev().filter(|run| run.may_hold(prefix)) {
            run.search(prefix, &mut self.page, &mut numbers, &self.folder)?;
            for number in numbers.drain(..) {
                let (at, within) = apart(number);
                let mut names = [0; PAGE_BYTES];
                page::read(file, at, &mut names, &self.folder)?;
                if name_at(&names, within) == name {
                    self.neighbours.keep(at, &names, within);
                    return Ok(Some(number));
                }
            }
        }
        Ok(None)
    }

    /// Spills if another page of names has no room.
    fn make_room(&mut self) -> Result<(), IndexError> {
        let room = match self.names {
            None => self.budget_bytes,
            Some(_) => self.budget_bytes / 16 * 5,
        };
        let fits = self.recent.grown_bytes() <= room
            && self.recent.len() < u32::MAX as usize - NAMES_PER_PAGE;
        if fits || self.recent.len() == 0 {
            return Ok(());
        }
        assert!(
            self.len() < run::NUMBER_END - u64::from(u32::MAX),
            "2^40 names are the most"
        );
        // What is left of a failed attempt is not all that was there.
        self.failed = true;
        self.spill()?;
        self.merge()?;
        self.failed = false;
        Ok(())
    }

    /// Makes a run of the recent names.
    fn spill(&mut self) -> Result<(), IndexError> {
        let len = self.len();
        let recent = std::mem::replace(&mut self.recent, Recent::new(len));
        let mut sorted = recent.into_sorted();
        if self.names.is_none() {
            self.names = Some(self.folder.file()?);
        }
        let file = self.names.as_mut().expect("made just now");
        let first = sorted.first / NAMES_PER_PAGE as u64;
        for (number, names) in (first..).zip(&mut sorted.pages) {
            page::seal(&mut names[..], number);
            file.write_all(&names[..])
                .map_err(self.folder.written(len))?;
        }
        let entries = sorted.entries();
        let count = entries.len() as u64;
        let shape = self.shape(count, 0);
        let run = run::write(entries.map(Ok), count, shape, len, &self.folder)?;
        self.runs.push(run);
        Ok(())
    }

    fn merge(&mut self) -> Result<(), IndexError> {
        while let Some(tier) = self.runs.last().map(|run| run.tier) {
            let older = self.runs.iter().take_while(|run| run.tier > tier).count();
            if self.runs.len() - older < MERGED_RUNS {
                return Ok(());
            }
            let runs = self.runs.split_off(older);
            let count = runs.iter().map(Run::entries).sum();
            let shape = self.shape(count, tier + 1);
            let entries = run::merged(runs, &self.folder)?;
            let run = run::write(entries, count, shape, self.len(), &self.folder)?;
            self.runs.push(run);
        }
        Ok(())
    }

    /// What a new run of `entries` entries may have. The longest runs give their filters up for it: a bit
    /// spent on a short run spares as many reads as many bits on a long one (Dayan et al., "Monkey",
    /// SIGMOD 2017).
    fn shape(&mut self, entries: u64, tier: u32) -> Shape {
        let room = self.budget_bytes / 2;
        let most =
            usize::try_from(entries).map_or(usize::MAX, |all| all.saturating_mul(FILTER_BITS) / 8);
        let mut held: usize = self.runs.iter().map(Run::filter_bytes).sum();
        while held.saturating_add(most) > room {
            let longer = self.runs.iter_mut().filter(|run| run.entries() > entries);
            let with = longer.filter(|run| run.filter_bytes() > 0);
            let Some(longest) = with.max_by_key(|run| run.entries()) else {
                break;
            };
            held -= longest.filter_bytes();
            longest.filter = None;
        }
        let left = room.saturating_sub(held).min(most);
        let enough = left >= most / FILTER_BITS * FILTER_BITS_LEAST;
        Shape {
            page_bytes: run_page_bytes(self.budget_bytes, self.len()),
            filter_bytes: if enough { left } else { 0 },
            tier,
        }
    }
}

/// Pages of runs are so long that the fences of one that holds all `names` take a 24th of the budget.
/// Those of older runs are closer, all together twice as many.
fn run_page_bytes(budget_bytes: usize, names: u64) -> usize {
    let fences = (budget_bytes / 24 / run::FENCE_BYTES) as u64;
    let mut page_bytes = PAGE_BYTES;
    while page_bytes < RUN_PAGE_BYTES_MOST
        && names / run::entries_per_page(page_bytes) as u64 > fences
    {
        page_bytes *= 2;
    }
    page_bytes
}

/// The first eight bytes of a name: what runs are sorted by, and all tables look up with.
fn prefix(name: &[u8; NAME_BYTES]) -> u64 {
    u64::from_be_bytes(*name.first_chunk().expect("names are longer"))
}

/// The page of names that a number lies in, and its place there.
fn apart(number: u64) -> (u64, usize) {
    let page = number / NAMES_PER_PAGE as u64;
    (page, (number % NAMES_PER_PAGE as u64) as usize)
}
