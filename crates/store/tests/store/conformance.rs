//! What the store on disk does when it is closed and opened again wherever that may make no
//! difference: when no recipe is being written.

use std::ops::{Deref, DerefMut};

use refrain_store::{Appended, ChunkSource, DiskStore, OpeningKey, Realm, RecipeId, StoreError};

use crate::{
    common::{self, chunk, chunks, digest, has, open, read_after, read_all, realm},
    memory_folder::MemoryFolder,
};

/// A store that is closed and opened again when the last recipe ends.
struct OnDisk {
    store: Option<DiskStore>,
    folder: MemoryFolder,
    begun: usize,
}

impl OnDisk {
    fn new() -> Self {
        let folder = MemoryFolder::new();
        Self {
            store: Some(open(&folder, 100)),
            folder,
            begun: 0,
        }
    }

    fn begin(&mut self, realm: Realm, opening: Option<OpeningKey>) -> RecipeId {
        self.begun += 1;
        (**self).begin(realm, opening)
    }

    fn end(&mut self, recipe: RecipeId) -> Result<(), StoreError> {
        (**self).end(recipe)?;
        self.begun = self.begun.saturating_sub(1);
        self.reopen_if_idle()
    }

    fn reopen_if_idle(&mut self) -> Result<(), StoreError> {
        if self.begun == 0 {
            self.store.take().expect("one").close()?;
            self.store = Some(open(&self.folder, 100));
        }
        Ok(())
    }
}

impl Deref for OnDisk {
    type Target = DiskStore;

    fn deref(&self) -> &DiskStore {
        self.store.as_ref().expect("there is always one")
    }
}

impl DerefMut for OnDisk {
    fn deref_mut(&mut self) -> &mut DiskStore {
        self.store.as_mut().expect("there is always one")
    }
}

fn flow(
    store: &mut OnDisk,
    realm: Realm,
    opening: Option<OpeningKey>,
    chunks: impl IntoIterator<Item = u32>,
) -> Vec<Appended> {
    let appended = common::flow(store, realm, opening, chunks);
    store.reopen_if_idle().expect("it is closed");
    appended
}

#[test]
fn a_chain_is_what_followed() {
    let mut store = OnDisk::new();
    flow(&mut store, realm(0), None, 0..1000);
    for number in [0, 1, 126, 127, 128, 129, 500, 998] {
        let followed = read_after(&mut *store, realm(0), number);
        assert_eq!(followed, chunks(number + 1..1000), "after {number}");
    }
    assert_eq!(read_after(&mut *store, realm(0), 999), chunks([]));
    assert!(store.places_after(realm(0), &digest(b"unknown")).is_empty());
}

#[test]
fn the_latest_places_come_first() {
    let mut store = OnDisk::new();
    for follower in [10, 20, 30] {
        flow(&mut store, realm(0), None, [1, follower, 2]);
    }
    let places = store.places_after(realm(0), &digest(&chunk(1)));
    assert_eq!(places.len(), 2);
    assert_eq!(read_all(&mut *store, places[0]), chunks([30, 2]));
    assert_eq!(read_all(&mut *store, places[1]), chunks([20, 2]));

    // Twice in one flow.
    flow(&mut store, realm(0), None, [5, 6, 5, 7]);
    let places = store.places_after(realm(0), &digest(&chunk(5)));
    assert_eq!(read_all(&mut *store, places[0]), chunks([7]));
    assert_eq!(read_all(&mut *store, places[1]), chunks([6, 5, 7]));
}

#[test]
fn openings_are_the_beginnings_of_the_latest_flows() {
    let mut store = OnDisk::new();
    let key = OpeningKey(7);
    for first in [10, 20, 30] {
        flow(&mut store, realm(0), Some(key), first..first + 3);
    }
    flow(&mut store, realm(0), Some(OpeningKey(8)), [1]);
    flow(&mut store, realm(0), Some(OpeningKey(9)), []);
    let openings = store.openings(realm(0), key);
    assert_eq!(openings.len(), 2);
    assert_eq!(read_all(&mut *store, openings[0]), chunks(30..33));
    assert_eq!(read_all(&mut *store, openings[1]), chunks(20..23));
    assert!(store.openings(realm(0), OpeningKey(9)).is_empty());
    // And the one that they have in common.
    assert_eq!(store.stat().openings, 3);
}

#[test]
fn openings_with_equal_upper_halves_are_found_by_it_too() {
    let mut store = OnDisk::new();
    let [alike, other] = [1 << 32, 2 << 32].map(OpeningKey);
    let [first, second] = [1, 2].map(|rest| OpeningKey(alike.0 + rest));
    flow(&mut store, realm(0), Some(first), 10..13);
    flow(&mut store, realm(0), Some(second), 20..23);
    flow(&mut store, realm(0), Some(other), 30..33);
    let found = |key| store.openings(realm(0), key).len();
    assert_eq!((found(alike), found(first), found(other)), (2, 1, 1));
    let latest = store.openings(realm(0), alike);
    assert_eq!(read_all(&mut *store, latest[0]), chunks(20..23));
    assert_eq!(read_all(&mut *store, latest[1]), chunks(10..13));
    // One that is still written, too.
    let recipe = store.begin(realm(0), Some(OpeningKey(alike.0 + 3)));
    let third = chunk(40);
    store.append(recipe, &digest(&third), &third).expect("room");
    let latest = store.openings(realm(0), alike);
    assert_eq!(read_all(&mut *store, latest[0]), [third]);
    assert_eq!((first.alike(), alike.alike()), (Some(alike), None));
}

#[test]
fn a_chunk_is_stored_once_a_realm() {
    let mut store = OnDisk::new();
    use Appended::{Known, Stored};
    let appended = flow(&mut store, realm(0), None, [1, 2, 1]);
    assert_eq!(appended, [Stored, Stored, Known]);
    assert_eq!(flow(&mut store, realm(0), None, [2, 3]), [Known, Stored]);
    assert_eq!(flow(&mut store, realm(1), None, [2]), [Stored]);
    let stat = store.stat();
    assert_eq!((stat.chunks, stat.recipe_entries), (4, 6));
}

#[test]
fn nothing_crosses_realms() {
    let mut store = OnDisk::new();
    let key = OpeningKey(7);
    flow(&mut store, realm(0), Some(key), [1, 2, 3]);
    flow(&mut store, realm(1), Some(key), [1, 9]);
    assert!(has(&*store, realm(0), 2) && !has(&*store, realm(1), 2));
    assert!(store.openings(realm(2), key).is_empty());
    assert!(store.places_after(realm(2), &digest(&chunk(1))).is_empty());
    assert_eq!(read_after(&mut *store, realm(0), 1), chunks([2, 3]));
    assert_eq!(read_after(&mut *store, realm(1), 1), chunks([9]));
    let openings = store.openings(realm(1), key);
    assert_eq!(openings.len(), 1);
    assert_eq!(read_all(&mut *store, openings[0]), chunks([1, 9]));
}

#[test]
fn a_recipe_is_read_while_it_is_written() {
    let mut store = OnDisk::new();
    let recipe = store.begin(realm(0), None);
    let append = |store: &mut DiskStore, number| {
        let bytes = chunk(number);
        store
            .append(recipe, &digest(&bytes), &bytes)
            .expect("appended");
    };
    append(&mut store, 0);
    let place = store.places_after(realm(0), &digest(&chunk(0)))[0];
    // Nothing yet; but more will come.
    let mut next = store.read(place, 9, 9000).expect("read");
    assert_eq!((next.chunks.len(), next.next.is_some()), (0, true));
    for number in 1..300 {
        append(&mut store, number);
        if number % 50 == 0 {
            store.sync().expect("synced");
        }
        next = store.read(next.next.expect("open"), 9, 9000).expect("read");
        let read: Vec<_> = next
            .chunks
            .iter()
            .map(|chunk| chunk.bytes.to_vec())
            .collect();
        assert_eq!(read, chunks([number]));
    }
    assert_eq!(read_all(&mut *store, place), chunks(1..300));
    store.end(recipe).expect("ended");
}

#[test]
fn limits_stop_a_chain_and_next_goes_on() {
    let mut store = OnDisk::new();
    flow(&mut store, realm(0), None, 0..10);
    let place = store.places_after(realm(0), &digest(&chunk(0)))[0];
    let chain = store.read(place, 3, 1 << 20).expect("read");
    assert_eq!(chain.chunks.len(), 3);
    let chain = store
        .read(chain.next.expect("more"), 99, 1 << 20)
        .expect("read");
    assert_eq!((chain.chunks.len(), chain.next), (6, None));

    let first_two = chunk(1).len() + chunk(2).len();
    let chain = store.read(place, 99, first_two).expect("read");
    assert_eq!(chain.chunks.len(), 2);
    let next = chain.next.expect("more");
    let too_little = store.read(next, 99, chunk(3).len() - 1).expect("read");
    assert_eq!((too_little.chunks.len(), too_little.next), (0, Some(next)));
    assert_eq!(store.read(next, 0, 1 << 20).expect("read").next, Some(next));
}

#[test]
fn flows_at_the_same_time_do_not_mix() {
    let mut store = OnDisk::new();
    let recipes: Vec<_> = (0..20).map(|n| (n, store.begin(realm(0), None))).collect();
    for step in 0..150 {
        for &(n, recipe) in &recipes {
            let bytes = chunk(n * 1000 + step);
            store
                .append(recipe, &digest(&bytes), &bytes)
                .expect("appended");
        }
    }
    for &(_, recipe) in &recipes {
        store.end(recipe).expect("ended");
    }
    for (n, _) in recipes {
        let followed = read_after(&mut *store, realm(0), n * 1000);
        assert_eq!(followed, chunks(n * 1000 + 1..n * 1000 + 150));
    }
}

#[test]
fn what_is_forgotten_is_passed_over_until_it_comes_again() {
    let mut store = OnDisk::new();
    flow(&mut store, realm(1), None, [2]);
    flow(&mut store, realm(0), None, 0..5);
    // While a recipe is written the store is not opened again, which would bring it back.
    let recipe = store.begin(realm(0), None);
    for number in [2, 99, 2] {
        store.forget(realm(0), &digest(&chunk(number)));
    }
    assert!(!has(&*store, realm(0), 2) && has(&*store, realm(1), 2));
    assert!(store.places_after(realm(0), &digest(&chunk(2))).is_empty());
    assert_eq!(read_after(&mut *store, realm(0), 0), chunks([1, 3, 4]));
    assert_eq!(store.stat().chunks, 5);

    let bytes = chunk(2);
    let appended = store.append(recipe, &digest(&bytes), &bytes);
    assert_eq!(appended.expect("appended"), Appended::Stored);
    for is_ended in [false, true] {
        if is_ended {
            store.end(recipe).expect("ended");
        }
        assert!(has(&*store, realm(0), 2));
        assert_eq!(read_after(&mut *store, realm(0), 0), chunks(1..5));
        assert_eq!(store.stat().chunks, 6);
    }
}

#[test]
fn bad_calls_are_errors() {
    let mut store = OnDisk::new();
    let recipe = store.begin(realm(0), None);
    let empty = store.append(recipe, &digest(b""), b"");
    assert!(matches!(
        empty,
        Err(StoreError::ChunkLength { bytes: 0, .. })
    ));
    let long = vec![1; 17 << 20];
    let long = store.append(recipe, &digest(&long), &long);
    assert!(matches!(long, Err(StoreError::ChunkLength { .. })));
    store.end(recipe).expect("ended");
    let ended = store.append(recipe, &digest(b"x"), b"x");
    assert!(matches!(ended, Err(StoreError::UnknownRecipe)));
    store.end(recipe).expect("nothing");
}
