//! The names that came last, all in memory: pages of names in order of number, and a table over them.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::page::{NAMES_PER_PAGE, NamePage, PAGE_BYTES, name_at};
use super::{NAME_BYTES, prefix};

/// Names are put in order by so many upper bits first, which keeps each sort within a cache.
const ORDER_BITS: u32 = 16;

#[derive(Debug)]
pub(super) struct Recent {
    /// The number of the first name. All before it are spilled.
    first: u64,
    pages: Vec<Box<NamePage>>,
    /// Places, numbers less `first`. `len` of them, below `pages.len() * NAMES_PER_PAGE`.
    table: HashTable<u32>,
}

impl Recent {
    pub fn new(first: u64) -> Self {
        Self {
            first,
            pages: Vec::new(),
            table: HashTable::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The number that the next name gets.
    pub fn next_number(&self) -> u64 {
        self.first + self.table.len() as u64
    }

    pub fn find(&self, name: &[u8; NAME_BYTES]) -> Option<u64> {
        let same = |place: &u32| at(&self.pages, *place) == name;
        let place = self.table.find(prefix(name), same)?;
        Some(self.first + u64::from(*place))
    }

    /// Takes in a name that nothing before it holds.
    pub fn insert(&mut self, name: &[u8; NAME_BYTES]) {
        let place = self.table.len();
        if self.has_full_pages() {
            self.pages.push(Box::new([0; PAGE_BYTES]));
        }
        let page = &mut self.pages[place / NAMES_PER_PAGE];
        page.as_chunks_mut().0[place % NAMES_PER_PAGE] = *name;
        let pages = &self.pages;
        let hash = |place: &u32| prefix(at(pages, *place));
        self.table.insert_unique(prefix(name), place as u32, hash);
    }

    /// The number of a name, and whether it is new. One search, where nothing is spilled yet.
    pub fn find_or_insert(&mut self, name: &[u8; NAME_BYTES]) -> (u64, bool) {
        let place = self.table.len();
        if self.has_full_pages() {
            self.pages.push(Box::new([0; PAGE_BYTES]));
        }
        let pages = &self.pages;
        let same = |place: &u32| at(pages, *place) == name;
        let hash = |place: &u32| prefix(at(pages, *place));
        match self.table.entry(prefix(name), same, hash) {
            Entry::Occupied(known) => (self.first + u64::from(*known.get()), false),
            Entry::Vacant(new) => {
                new.insert(place as u32);
                let page = &mut self.pages[place / NAMES_PER_PAGE];
                page.as_chunks_mut().0[place % NAMES_PER_PAGE] = *name;
                (self.first + place as u64, true)
            }
        }
    }

    /// Whether the next name begins a page. Only then room is asked for, and only then it is spilled.
    pub fn has_full_pages(&self) -> bool {
        self.table.len() == self.pages.len() * NAMES_PER_PAGE
    }

    /// The most that taking in another page of names holds meanwhile: a table that grows is there
    /// twice.
    pub fn grown_bytes(&self) -> usize {
        let table = self.table.allocation_size();
        let free = self.table.capacity() - self.table.len();
        let grown = if free < NAMES_PER_PAGE {
            2 * table + 2048
        } else {
            0
        };
        self.pages_bytes() + 4 * PAGE_BYTES + table + grown
    }

    pub fn memory_bytes(&self) -> usize {
        self.pages_bytes() + self.table.allocation_size()
    }

    fn pages_bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES + self.pages.capacity() * size_of::<Box<NamePage>>()
    }

    /// What is spilled. The order takes the room of the table, and never more: 4 bytes a name.
    pub fn into_sorted(self) -> Sorted {
        let Self {
            first,
            pages,
            table,
        } = self;
        let len = table.len();
        drop(table);
        let bucket = |place: u32| (prefix(at(&pages, place)) >> (64 - ORDER_BITS)) as usize;
        let mut ends = vec![0; 1 << ORDER_BITS];
        for place in 0..len as u32 {
            ends[bucket(place)] += 1;
        }
        let mut begin = 0;
        for end in &mut ends {
            begin += std::mem::replace(end, begin);
        }
        let mut order = vec![0; len];
        for place in 0..len as u32 {
            let end: &mut usize = &mut ends[bucket(place)];
            order[*end] = place;
            *end += 1;
        }
        let mut begin = 0;
        for end in ends {
            order[begin..end].sort_unstable_by_key(|place| (prefix(at(&pages, *place)), *place));
            begin = end;
        }
        Sorted {
            first,
            pages,
            order,
        }
    }
}

/// Names to be spilled, and their order.
pub(super) struct Sorted {
    pub first: u64,
    pub pages: Vec<Box<NamePage>>,
    order: Vec<u32>,
}

impl Sorted {
    /// Prefixes and numbers, sorted.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        let number = |place: u32| self.first + u64::from(place);
        let order = self.order.iter();
        order.map(move |place| (prefix(at(&self.pages, *place)), number(*place)))
    }
}

fn at(pages: &[Box<NamePage>], place: u32) -> &[u8; NAME_BYTES] {
    let place = place as usize;
    name_at(&pages[place / NAMES_PER_PAGE], place % NAMES_PER_PAGE)
}
