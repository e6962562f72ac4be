//! Pages of names that were hit: what is looked up next is likely to be near (locality-preserved caching,
//! Zhu et al., FAST 2008, section 4.4).
//!
//! The page that was hit last is asked first, for the name that follows: a repeat in order costs a
//! comparison a name.

use hashbrown::HashTable;

use super::page::{NAMES_PER_PAGE, NamePage, PAGE_BYTES, name_at};
use super::{NAME_BYTES, prefix};

/// What a page takes with the table's part for it, at most: twice as many places as names, rounded up
/// to a power of two, of five bytes. A table not more than half full never grows.
const SLOT_BYTES: usize = size_of::<Slot>() + PAGE_BYTES + NAMES_PER_PAGE * 23;

#[derive(Debug)]
struct Slot {
    /// The page's number in the file of names.
    number: u64,
    names: Box<NamePage>,
    /// Hit since the hand passed it.
    used: bool,
}

#[derive(Debug)]
pub(super) struct Neighbours {
    slots: Vec<Slot>,
    /// Slots that there may be.
    most: usize,
    /// The slot that may be given up next (CLOCK).
    hand: usize,
    /// Places: slot times [`NAMES_PER_PAGE`], plus place in the page.
    table: HashTable<u32>,
    /// The place hit last.
    last: u32,
}

impl Neighbours {
    /// Holds at most `bytes`, but a page in any case.
    pub fn new(bytes: usize) -> Self {
        let most = (bytes / SLOT_BYTES).clamp(1, u32::MAX as usize / NAMES_PER_PAGE);
        Self {
            slots: Vec::new(),
            most,
            hand: 0,
            table: HashTable::new(),
            last: 0,
        }
    }

    /// The number of a name, if it follows the name that was found last.
    pub fn follows(&mut self, name: &[u8; NAME_BYTES]) -> Option<u64> {
        let place = self.last + 1;
        let (slot, within) = apart(place);
        let slot = self.slots.get(slot)?;
        if name_at(&slot.names, within) != name {
            return None;
        }
        self.last = place;
        Some(slot.number * NAMES_PER_PAGE as u64 + within as u64)
    }

    /// The number of a name in any of the pages.
    pub fn find(&mut self, name: &[u8; NAME_BYTES]) -> Option<u64> {
        let same = |place: &u32| at(&self.slots, *place) == name;
        let place = *self.table.find(prefix(name), same)?;
        self.last = place;
        let (slot, within) = apart(place);
        self.slots[slot].used = true;
        Some(self.slots[slot].number * NAMES_PER_PAGE as u64 + within as u64)
    }

    /// Keeps page `number`, which is not here and was hit at `within`.
    pub fn keep(&mut self, number: u64, names: &NamePage, within: usize) {
        let slot = self.free_slot();
        if slot == self.slots.len() {
            if slot == 0 {
                self.slots.reserve_exact(self.most);
                self.table = HashTable::with_capacity(2 * self.most * NAMES_PER_PAGE);
            }
            self.slots.push(Slot {
                number,
                names: Box::new(*names),
                used: false,
            });
        } else {
            self.slots[slot].number = number;
            self.slots[slot].names.copy_from_slice(names);
        }
        let slots = &self.slots;
        let hash = |place: &u32| prefix(at(slots, *place));
        let first = (slot * NAMES_PER_PAGE) as u32;
        for place in first..first + NAMES_PER_PAGE as u32 {
            self.table
                .insert_unique(prefix(at(slots, place)), place, hash);
        }
        self.last = first + within as u32;
    }

    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.slots.len() * PAGE_BYTES
            + self.table.allocation_size()
    }

    /// A slot whose names are not in the table.
    fn free_slot(&mut self) -> usize {
        if self.slots.len() < self.most {
            return self.slots.len();
        }
        while std::mem::take(&mut self.slots[self.hand].used) {
            self.hand = (self.hand + 1) % self.most;
        }
        let slot = self.hand;
        self.hand = (self.hand + 1) % self.most;
        let first = (slot * NAMES_PER_PAGE) as u32;
        for place in first..first + NAMES_PER_PAGE as u32 {
            let hash = prefix(at(&self.slots, place));
            let entry = self.table.find_entry(hash, |other| *other == place);
            entry.expect("a page's names are in the table").remove();
        }
        slot
    }
}

fn apart(place: u32) -> (usize, usize) {
    let place = place as usize;
    (place / NAMES_PER_PAGE, place % NAMES_PER_PAGE)
}

fn at(slots: &[Slot], place: u32) -> &[u8; NAME_BYTES] {
    let (slot, within) = apart(place);
    name_at(&slots[slot].names, within)
}
